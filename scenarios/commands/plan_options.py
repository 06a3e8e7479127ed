"""The arguments of `kvtier plan`."""

from typing import Annotated

import typer

from scenarios.commands.options import Draws, Jobs, Json, ScenarioName


def plan(
    *,
    scenario: ScenarioName,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIGURE<=VALUE",
            help="A limit on a figure of `run --json`, or restores_per_s, with <=, <, >= or >, such as "
            "'ttft_s.p99<=2', 'slo.goodput_requests_per_s>=3', 'restores_per_s>=5' or 'makespan_s<=2 min'; repeatable, "
            "all are kept.",
        ),
    ] = None,
    solve: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY[=LOW:HIGH]",
            help="A free quantity: any key that is a number, such as links.fabric.bandwidth or tiers.fabric.ports=1:6; "
            "KEY=V1,V2 lists values. Unless given, bounds are a 64th and 64 times what the scenario has; repeatable.",
        ),
    ] = None,
    trace: Annotated[str | None, typer.Option(metavar="FILE", help="Replay this trace; - for stdin.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one key in all runs; repeatable.")
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=PRICE",
            help="What a quantity costs, such as tiers.fabric.ports='1500 EUR' or tiers.dram.capacity='4 EUR per GB'; "
            "repeatable, one currency. Wins over the catalogue.",
        ),
    ] = None,
    consider: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="A key to buy more of, in place of the free ones, memory, drives and replicas; repeatable.",
        ),
    ] = None,
    margins: Annotated[
        bool, typer.Option("--margins/--no-margins", help="Whether to run what a little more of each would gain.")
    ] = True,
    precision: Annotated[
        float, typer.Option(metavar="SHARE", help="How exact the answer is: the step between values that are tried.")
    ] = 0.05,
    uncertainty: Draws = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of everything random.")] = None,
    jobs: Jobs = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Save the plan and a run of its answer here, as for `kvtier report`."),
    ] = None,
    json: Json = False,
) -> None:
    """Find the least of some quantities with which a scenario meets limits, and say what it takes.

    The answer is a run that meets them, and the next smaller value is one that does not: counts are exact, all else to
    --precision. Where more of a quantity makes things worse, as of workload.rate_scale, the answer is the most. With
    several quantities, a grid of designs is run, the cheapest that is good enough is made least, and the front of cost
    against TTFT is shown. That nothing is good enough is an answer too, with its reason: exit code 0, feasible: false.

    Example: kvtier plan restore-storm --slo 'ttft_s.p99<=90 s' --solve tiers.fabric.ports
    """
    from scenarios.commands.plan import plan_scenario

    plan_scenario(
        scenario,
        slo=slo or [],
        solve=solve or [],
        overrides=overrides or [],
        trace=trace,
        seed=seed,
        prices=price or [],
        consider=(consider or None) if margins else [],
        precision=precision,
        uncertainty=uncertainty,
        jobs=jobs,
        out=out,
        as_json=json,
    )
