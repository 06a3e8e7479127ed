"""Arguments that several verbs take, worded once."""

from typing import Annotated

import typer

ScenarioName = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A shipped name (see `kvtier list scenarios`) or a path.")
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes; as many as there are cores unless given.")]
Draws = Annotated[
    int | None,
    typer.Option(
        "--uncertainty",
        metavar="N",
        help="Run also with N sets of parameters, drawn from what is known of them: intervals of every figure and what "
        "drives them, or of a plan the odds that its answer keeps the limits. A power of two; 128 is a good start.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]
