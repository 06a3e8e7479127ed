"""The arguments of `kvtier report`."""

from typing import Annotated

import typer


def report(
    *,
    source: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="A folder that `run --out`, `compare --out` or `plan --out` wrote; the table of a sweep (.parquet); "
            "what `plan --json` or `gate --json` printed (.json); or a folder of several of these.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="Where to write the page (.html); report.html in DIR unless given."
        ),
    ] = None,
) -> None:
    """Write a report as one HTML page that needs nothing else: what came out, what limits it, what it rests on.

    The page holds no script and fetches nothing; it fits a dark screen, paper and a screen reader.

    Example: kvtier run quickstart --out result && kvtier report result
    """
    from scenarios.commands.report import write_report

    write_report(source, out=out)
