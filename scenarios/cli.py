"""The `kvtier` command: parses arguments, calls `scenarios.commands`, and turns errors into one line and an exit code.

Exit codes: 0 fine, 1 the run failed, 2 bad input, 130 interrupted.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from models.errors import InputError, KvTierError
from scenarios.commands import discovery
from scenarios.commands.gate_options import gate
from scenarios.commands.options import Draws, Jobs, Json, ScenarioName
from scenarios.commands.plan_options import plan
from scenarios.commands.report_options import report
from scenarios.commands.sweep_options import sweep

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
    help="Look at request traces, and make them.\n\nExample: kvtier trace info conversation_trace.jsonl.gz",
)
app.add_typer(trace_app, name="trace")

TraceFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A trace: plain, gzipped, a tar archive or a folder; - for stdin.")
]
Format = Annotated[str | None, typer.Option(help="Format of the trace; found from the file unless given.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the format, such as rate_per_s=2; repeatable."),
]
BlockTokens = Annotated[int | None, typer.Option(min=1, help="Tokens a block, where the file does not say.")]
SkipBadLines = Annotated[bool, typer.Option("--skip-bad-lines", help="Leave malformed lines out, and count them.")]
Starts = Annotated[
    str | None,
    typer.Option(metavar="PROCESS", help="Start of sessions that have none: 'uniform:4 h' or 'poisson:0.1/s'."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
Out = Annotated[
    str, typer.Option("-o", "--out", metavar="FILE", help="Where to write, gzipped if it ends in .gz; - for stdout.")
]
Economics = Annotated[
    bool,
    typer.Option(
        "--economics",
        help="Also tell money, energy and wear, on default terms where the scenario has no economics section.",
    ),
]


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
    scenario: ScenarioName,
    trace: Annotated[str | None, typer.Option(metavar="FILE", help="Replay this trace; - for stdin.")] = None,
    skip_bad_lines: SkipBadLines = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override one key, such as tiers.dram.capacity='64 GB'; repeatable."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of everything random.")] = None,
    uncertainty: Draws = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes for --uncertainty; as many as there are cores unless given.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Save tables (Parquet), summary and scenario here.")
    ] = None,
    economics: Economics = False,
    perfetto: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write requests, transfers, links and tiers over time for ui.perfetto.dev: .json[.gz]."
        ),
    ] = None,
    perfetto_limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="Requests in that file, the first to arrive.")
    ] = 5000,
    json: Json = False,
) -> None:
    """Simulate a scenario and print what came out.

    Example: kvtier run mooncake-conversation --trace conversation_trace.jsonl.gz --set cluster.replicas=8 --out result
    """
    from scenarios.commands.run import run_scenario

    run_scenario(
        scenario,
        trace=trace,
        overrides=overrides or [],
        skip_bad_lines=skip_bad_lines,
        seed=seed,
        uncertainty=uncertainty,
        jobs=jobs,
        out=out,
        economics=economics,
        perfetto=None if perfetto is None else (perfetto, perfetto_limit),
        as_json=json,
    )


@app.command()
def compare(
    *,
    scenario: ScenarioName,
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
    jobs: Jobs = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw the comparison: .png, .svg or .pdf.")] = None,
    economics: Economics = False,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Save the comparison and a run of each variant here, as for `kvtier report`."),
    ] = None,
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
        economics=economics,
        out=out,
        as_json=json,
    )


app.command()(sweep)
app.command()(plan)
app.command()(gate)
app.command()(report)


@trace_app.command("info")
def trace_info(
    file: TraceFile,
    *,
    format: Format = None,
    settings: Settings = None,
    block_tokens: BlockTokens = None,
    skip_bad_lines: SkipBadLines = False,
    starts: Starts = None,
    seed: Seed = 0,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw arrivals, lengths and reuse: .png, .svg or .pdf.")
    ] = None,
    json: Json = False,
) -> None:
    """Print the figures of a trace: lengths, arrivals, sessions, reuse. Also reads block traces (libCacheSim CSV).

    Example: kvtier trace info conversation_trace.jsonl.gz --plot trace.png
    """
    from scenarios.commands.trace import print_trace_info
    from scenarios.commands.trace_options import Source

    source = Source(file, format, settings=settings or [], block_tokens=block_tokens, skip_bad_lines=skip_bad_lines)
    print_trace_info(source, starts=starts, seed=seed, plot=plot, as_json=json)


@trace_app.command("convert")
def trace_convert(
    file: TraceFile,
    *,
    out: Out = "-",
    format: Format = None,
    settings: Settings = None,
    block_tokens: Annotated[
        int | None, typer.Option(min=1, help="Merge blocks into blocks of so many tokens, a multiple of the trace's.")
    ] = None,
    skip_bad_lines: SkipBadLines = False,
    starts: Starts = None,
    seed: Seed = 0,
) -> None:
    """Write a trace of any format as Mooncake JSON lines, and say on stderr what they cannot hold.

    Example: kvtier trace convert v8_local_710traces_delta.jsonl.gz --block-tokens 512 -o agents.jsonl.gz
    """
    from scenarios.commands.trace import convert_trace
    from scenarios.commands.trace_options import Source

    source = Source(file, format, settings=settings or [], skip_bad_lines=skip_bad_lines)
    convert_trace(source, starts=starts, seed=seed, block_tokens=block_tokens, out=out)


@trace_app.command("sample")
def trace_sample(
    file: TraceFile,
    *,
    out: Out = "-",
    sessions: Annotated[int | None, typer.Option(min=1, help="Take so many sessions.")] = None,
    share: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Take this share of the sessions.")] = None,
    format: Format = None,
    settings: Settings = None,
    block_tokens: BlockTokens = None,
    skip_bad_lines: SkipBadLines = False,
    seed: Seed = 0,
) -> None:
    """Write whole sessions of a trace, drawn at random, as Mooncake JSON lines: what is reused in them stays reused.

    Example: kvtier trace sample conversation_trace.jsonl.gz --share 0.1 -o part.jsonl
    """
    from scenarios.commands.trace import sample_trace
    from scenarios.commands.trace_options import Source

    source = Source(file, format, settings=settings or [], block_tokens=block_tokens, skip_bad_lines=skip_bad_lines)
    sample_trace(source, sessions=sessions, share=share, seed=seed, out=out)


@trace_app.command("generate", cls=discovery.GenerateCommand)
def trace_generate(
    generator: Annotated[
        str, typer.Argument(metavar="GENERATOR", help="One of `kvtier list generators`, or package.module:Class.")
    ],
    *,
    out: Out = "-",
    requests: Annotated[int | None, typer.Option(min=1, help="Stop after so many requests.")] = None,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Stop at this time, such as '1 h'.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A parameter of the generator (`kvtier show generator chat` lists them); repeatable.",
        ),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Write a synthetic trace as Mooncake JSON lines.

    Example: kvtier trace generate chat --requests 2000 | kvtier run mooncake-conversation --trace -
    """
    from scenarios.commands.trace import generate_trace

    generate_trace(generator, requests=requests, duration=duration, seed=seed, settings=settings or [], out=out)


@app.command()
def mrc(
    *,
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="A trace of requests, or a block trace (libCacheSim CSV).")
    ],
    policies: Annotated[
        str, typer.Option(metavar="NAME,...", help="Eviction policies (`kvtier list evictions`).")
    ] = "lru,fifo,belady",
    capacities: Annotated[
        str | None,
        typer.Option(
            metavar="N,...",
            help="Blocks that fit, or bytes of --llm such as 64GB; powers of two up to the whole trace unless given.",
        ),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help="Count every block by itself, as libCacheSim does. Without it a hit must reach unbroken from the head "
            "of the prompt.",
        ),
    ] = False,
    structure: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What may be evicted where prefixes count: leaf_constrained (a block only after those behind it) or "
            "hashmap (any block). Unless given, that of kvcache-simulator: hashmap for fifo, else leaf_constrained.",
        ),
    ] = None,
    warmup: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the requests that only warm the cache: 0.5 unless given (as in kvcache-simulator), 0 with "
            "--plain.",
        ),
    ] = None,
    full_blocks: Annotated[
        bool,
        typer.Option(
            "--full-blocks",
            help="Leave out partial last blocks, as engines do; without it each counts as one more block.",
        ),
    ] = False,
    llm: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model whose KV bytes give the size of a block.")
    ] = None,
    kv_dtype: Annotated[str | None, typer.Option(help="Type of its KV cache; bf16 unless given.")] = None,
    format: Annotated[str | None, typer.Option(help="Format of the trace; found from the file unless given.")] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw the curves: .png, .svg or .pdf.")] = None,
    json: Json = False,
) -> None:
    """Print the hit ratios of eviction policies by capacity (miss-ratio curves), from one read of a trace.

    Prefix-aware (the default): what a request hits stays while it is served, only leaves of the prefix tree are
    evicted, belady may leave out what is used later than all it holds. hit_ratio counts tokens.

    --plain: every block is an object of size 1 whatever its bytes, a partial last block too. hit_ratio counts blocks.

    Example: kvtier mrc conversation_trace.jsonl.gz --policies lru,fifo,belady --capacities 64GB,1TB --llm llama-3.1-70b
    """
    from scenarios.commands.mrc import Question, print_curves

    question = Question(
        trace=trace,
        format=format,
        policies=policies,
        capacities=capacities,
        plain=plain,
        structure=structure,
        warmup=warmup,
        full_blocks=full_blocks,
        llm=llm,
        kv_dtype=kv_dtype,
    )
    print_curves(question, plot=plot, as_json=json)


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
        code = EXIT_INTERRUPTED
    if code == EXIT_INTERRUPTED:  # which is also what typer makes of an interrupt inside a verb
        return _fail("interrupted", code)
    return code if isinstance(code, int) else 0


def _fail(problem: object, code: int) -> int:
    text = str(problem)
    # A verb without arguments gets its help text, which is many lines; everything else is one.
    typer.echo(text if text.startswith("Usage:") else f"kvtier: {' '.join(text.split())}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
