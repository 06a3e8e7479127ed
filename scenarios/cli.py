"""The `kvtier` command: parses arguments, calls `scenarios.commands`, and turns errors into one line and an exit code.

Exit codes: 0 fine, 1 the run failed, 2 bad input, 130 interrupted.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from models.errors import InputError, KvTierError
from scenarios.commands import discovery

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


# No rich: it would load for every help text, and wraps messages that scripts read.
app = typer.Typer(
    cls=discovery.KvTierGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Predict TTFT and throughput of LLM serving with a tiered KV cache.\n\nExample: kvtier run quickstart",
)
trace_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at request traces.\n\nExample: kvtier trace info conversation_trace.jsonl.gz",
)
app.add_typer(trace_app, name="trace")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"kvtier {version('kvtier')}")
        except PackageNotFoundError:
            typer.echo("kvtier (not installed: no version)")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def run(
    *,
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A shipped name (see `kvtier list scenarios`) or a path.")
    ],
    trace: Annotated[str | None, typer.Option(metavar="FILE", help="Replay this trace.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override one key, such as tiers.dram.capacity='64 GB'; repeatable."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of everything random.")] = None,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Save tables (Parquet), summary and scenario here.")
    ] = None,
    json: Json = False,
) -> None:
    """Simulate a scenario and print what came out.

    Example: kvtier run mooncake-conversation --trace conversation_trace.jsonl.gz --set cluster.replicas=8 --out result
    """
    from scenarios.commands.run import run_scenario

    run_scenario(scenario, trace=trace, overrides=overrides or [], seed=seed, out=out, as_json=json)


@app.command()
def compare(
    *,
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A shipped name (see `kvtier list scenarios`) or a path.")
    ],
    trace: Annotated[str | None, typer.Option(metavar="FILE", help="Replay this trace in all variants.")] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V1,V2",
            help="A key and its values, a variant each, such as tiers.dram.capacity='64 GB,128 GB'; repeatable, all "
            "combinations are run. A comma in brackets or quotes belongs to the value.",
        ),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:KEY=V,KEY=V",
            help="One variant by name, with all that it sets; nothing after the colon is the scenario as it is; "
            "repeatable.",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one key in all variants.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Run each variant with this many seeds.")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of everything random, the first of several.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; as many as there are cores unless given.")] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw the comparison: .png, .svg or .pdf.")] = None,
    json: Json = False,
) -> int:
    """Run variants of a scenario on the same requests and random numbers, and say which differ by more than noise.

    The first variant is what the others are held against. Their differences come with 95 % intervals: over seeds with
    --seeds, else from blocks of the run. Two variants are called equal where the interval holds 0; of twenty
    differences that are only noise, one is to be expected to look real.

    Example: kvtier compare quickstart --vary tiers.dram.capacity='64 GB,128 GB,256 GB'
    """
    from scenarios.commands.compare import compare_scenario

    return compare_scenario(
        scenario,
        vary=vary or [],
        variants=variant or [],
        overrides=overrides or [],
        trace=trace,
        seeds=seeds,
        seed=seed,
        jobs=jobs,
        plot=plot,
        as_json=json,
    )


@trace_app.command("info")
def trace_info(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A trace, plain or gzipped.")],
    format: Annotated[str | None, typer.Option(help="Format of the trace; found from the file unless given.")] = None,
    json: Json = False,
) -> None:
    """Print the figures of a trace: lengths, arrivals, reuse.

    Example: kvtier trace info conversation_trace.jsonl.gz --json
    """
    from scenarios.commands.trace import print_trace_info

    print_trace_info(file, format, as_json=json)


@app.command("list")
def list_names(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="One kind; all kinds unless given.")] = None,
    json: Json = False,
) -> None:
    """List what a scenario can name.

    Kinds: llms, accelerators, storage, links, scenarios, stacks, evictions, routers, generators, trace-formats.

    Example: kvtier list storage
    """
    from scenarios.commands.listing import print_names

    print_names(kind, as_json=json)


@app.command()
def show(
    first: Annotated[str, typer.Argument(metavar="[KIND] NAME", help="What to show; `schema` is the scenario schema.")],
    second: Annotated[str | None, typer.Argument(metavar=" ", help="", hidden=True)] = None,
    json: Json = False,
) -> None:
    """Show one thing in full: figures with unit, source and status, a resolved scenario, or the scenario schema.

    Example: kvtier show storage fx100
    """
    from scenarios.commands.show import print_one

    kind, name = (None, first) if second is None else (first, second)
    print_one(kind, name, as_json=json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with *arguments* (those of the process unless given) and return its exit code."""
    try:
        code = app(list(sys.argv[1:] if arguments is None else arguments), prog_name="kvtier", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        discovery.drop_stdout()
        return 0
    except (KvTierError, OSError) as error:
        # An OSError that is left is a full disk, or a folder that may not be written.
        return _fail(error, EXIT_BAD_INPUT if isinstance(error, InputError) else EXIT_FAILED)
    except typer.TyperException as error:
        return _fail(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    return code if isinstance(code, int) else 0


def _fail(problem: object, code: int) -> int:
    text = str(problem)
    # A verb without arguments gets its help text, which is many lines; everything else is one.
    typer.echo(text if text.startswith("Usage:") else f"kvtier: {' '.join(text.split())}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
