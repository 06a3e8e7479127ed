"""Arguments that several verbs take, worded once."""

from typing import Annotated

import typer

ScenarioName = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A shipped name (see `kvtier list scenarios`) or a path.")
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes; as many as there are cores unless given.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]
