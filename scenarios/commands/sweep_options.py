"""The options of `kvtier sweep`."""

from typing import Annotated

import typer

from scenarios.commands.options import Jobs, Json, ScenarioName


def sweep(
    *,
    scenario: ScenarioName,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V1,V2",
            help="A key and its values, such as tiers.dram.capacity=64GB,256GB; repeatable, all combinations are run. "
            "A comma in brackets or quotes belongs to the value.",
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            "--list",
            metavar="FILE",
            help="Points one by one: CSV with keys in its first line, or a YAML or JSON list of mappings.",
        ),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(metavar="sobol|lhs", help="Draw points from each --range: scrambled Sobol, or Latin hypercube."),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="KEY=LOW:HIGH[:log]",
            help="A key to sample and its range, such as tiers.dram.capacity=64GB:1TB:log (steps of equal ratio); "
            "repeatable.",
        ),
    ] = None,
    points: Annotated[
        int, typer.Option(min=1, help="How many points --sample draws; of sobol a power of two is spread best.")
    ] = 64,
    sample_seed: Annotated[int, typer.Option(min=0, help="Seed of --sample; runs have their own.")] = 0,
    trace: Annotated[str | None, typer.Option(metavar="FILE", help="Replay this trace at all points.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one key at all points.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of everything random in all runs.")] = None,
    jobs: Jobs = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on the Dask cluster with this scheduler, as tcp://host:8786."),
    ] = None,
    out: Annotated[str, typer.Option(metavar="FILE", help="The table, a .parquet; FILE.journal keeps what is done.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Take over what an earlier call into the same --out has done.")
    ] = False,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw the sweep: .png, .svg or .pdf.")] = None,
    json: Json = False,
) -> int:
    """Run a scenario at many points and write one table (Parquet) with a row for each.

    Columns are the swept keys (SI units), seed, status, error, and every figure of `kvtier run --json` by its path. A
    point that fails is a row with its error, and the exit code is 1. --list, --sample and --grid may be combined: each
    point of one with each of the others. The table is the same, to the byte, from any number of processes, from a
    cluster, and after an interruption and --resume.

    Example: kvtier sweep quickstart --grid tiers.dram.capacity=64GB,256GB,1TB --grid workload.rate_scale=1,2,4 --out
    s.parquet
    """
    from scenarios.commands.sweep import sweep_scenario
    from scenarios.sweeping.sources import asked_sample

    return sweep_scenario(
        scenario,
        grid=grid or [],
        rows=rows,
        sample=asked_sample(sample, ranges or [], points=points, seed=sample_seed),
        trace=trace,
        overrides=overrides or [],
        seed=seed,
        jobs=jobs,
        dask=dask,
        out=out,
        resume=resume,
        plot=plot,
        as_json=json,
    )
