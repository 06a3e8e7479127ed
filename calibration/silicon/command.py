"""The verb `kvtier calibrate-steps`, found through the entry-point group `kvtier.commands`."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from models.errors import InputError
from scenarios.commands.options import Jobs, Json

if TYPE_CHECKING:
    from calibration.silicon.rows import Row
    from calibration.silicon.splits import SplitResult

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.command()
def calibrate_steps(
    *,
    data: Annotated[str, typer.Option(metavar="FILE", help="Serving measurements: a CSV with silicon.csv's columns.")],
    split: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="What is fitted: half (of the groups), hopper, or all; half and hopper."),
    ] = None,
    engine: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only vllm, trtllm or sglang; those that occur.")
    ] = None,
    most_rows: Annotated[
        int, typer.Option("--rows", min=1, help="How many rows are fitted, spread evenly over groups and loads.")
    ] = 56,
    out: Annotated[
        str | None, typer.Option("-o", "--out", metavar="FOLDER", help="Where to write parameters and error tables.")
    ] = None,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Fit GPU step times of each engine to measured TTFT and TPOT, and say how far they hold on what was not fitted.

    Example: kvtier calibrate-steps --data silicon.csv --split hopper -o fitted
    """
    from calibration.fitted_file import today
    from calibration.silicon import results
    from calibration.silicon.rows import ENGINES, read_rows
    from calibration.silicon.splits import SPLITS, engines_of, table
    from scenarios.commands.tables import print_json

    for option, names, allowed in (("--split", split, tuple(SPLITS)), ("--engine", engine, ENGINES)):
        for name in names or ():
            if name not in allowed:
                raise InputError(f"{option} is '{name}'; must be one of {', '.join(allowed)}")
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise InputError(f"--out {out}: is a file; must be a folder, which may be new")
    if out is not None and not Path(out).parent.is_dir():
        raise InputError(f"--out {out}: there is no folder {Path(out).parent}")
    read = read_rows(data)
    if not read.rows:
        raise InputError(f"{data}: has no row that can be simulated")
    left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(read.left_out.items()))
    sys.stderr.write(f"kvtier: {len(read.rows)} rows; left out: {left_out or 'none'}\n")
    found = []
    for name in engine or engines_of(read.rows):
        for side in split or ("half", "hopper"):
            found.append(_timed(name, side, read.rows, most_rows, jobs))
            if not json:
                sys.stdout.write(table(found[-1:]) + "\n")
                sys.stdout.flush()
    if out is not None:
        for path in results.write(Path(out), found, left_out=read.left_out, date=today()):
            sys.stderr.write(f"kvtier: wrote {path}\n")
    if json:
        print_json(results.as_json(found))


def _timed(engine: str, split: str, rows: "tuple[Row, ...]", most_rows: int, jobs: int | None) -> "SplitResult":
    from calibration.silicon.splits import run_split

    began_s = time.monotonic()

    def log(line: str) -> None:
        sys.stderr.write(f"kvtier: {engine}, {split}: {line} ({time.monotonic() - began_s:.0f} s)\n")
        sys.stderr.flush()

    return run_split(engine, split, rows, most_rows=most_rows, jobs=jobs, log=log)
