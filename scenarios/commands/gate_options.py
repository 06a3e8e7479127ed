"""The arguments of `kvtier gate`."""

from typing import Annotated

import typer

from scenarios.commands.options import Jobs, Json


def gate(
    *,
    gates: Annotated[
        str, typer.Argument(metavar="[GATES]", help="A file of gates that ships (acceptance), or a .yaml file.")
    ] = "acceptance",
    only: Annotated[
        list[str] | None,
        typer.Option("--gate", metavar="NAME", help="Judge this gate, which then needs evidence; repeatable."),
    ] = None,
    measured: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Measured figures (.csv: id, metric, value, unit, scenario); without it, saved results or runs.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the baseline is called, with {point}; a scenario or a saved result."),
    ] = None,
    candidate: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the candidate is called, with {point}.")
    ] = None,
    points: Annotated[
        str | None, typer.Option(metavar="P1,P2", help="Points to judge at, in place of the file's.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each run; medians are judged.")] = 9,
    jobs: Jobs = None,
    out: Annotated[
        str | None, typer.Option("-o", "--out", metavar="FILE", help="Write the report here, as Markdown (.md).")
    ] = None,
    template: Annotated[
        bool, typer.Option("--template", help="Print the file of gates, to change and to use by its path.")
    ] = False,
    json: Json = False,
) -> int:
    """Hold a candidate against acceptance thresholds: PASS or FAIL, with margins and how sure that is.

    The exit code is 0 if every gate that was judged has passed, 1 if one has not or there is no evidence at all.

    Example: kvtier gate acceptance --measured measured.csv --candidate 'r2-fx100-{point}'
    """
    from scenarios.commands.gate import judge_gates, print_template

    if template:
        print_template(gates)
        return 0
    return judge_gates(
        gates,
        only=only or [],
        measured=measured,
        baseline=baseline,
        candidate=candidate,
        points=points,
        seeds=seeds,
        jobs=jobs,
        out=out,
        as_json=json,
    )
