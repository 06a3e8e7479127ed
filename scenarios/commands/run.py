"""`kvtier run`: one scenario, simulated, saved and printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import InputError
from models.units import format_bytes
from scenarios.commands.progress import Progress
from scenarios.commands.tables import print_json, print_pairs, print_table
from scenarios.figure_texts import number, rate, seconds, share
from scenarios.loader import lasting_trace, load_scenario

if TYPE_CHECKING:
    from sim.results.result import SimulationResult

_STATISTICS = ("mean", "p50", "p90", "p99", "max")
_LATENCIES = (
    ("ttft_s", "TTFT (time to first token)"),
    ("tpot_s", "TPOT (time an output token)"),
    ("itl_s", "ITL (between tokens)"),
    ("e2e_s", "end to end"),
)


def run_scenario(
    name_or_path: str,
    *,
    trace: str | None,
    overrides: Sequence[str],
    skip_bad_lines: bool,
    seed: int | None,
    uncertainty: int | None,
    jobs: int | None,
    economics: bool,
    out: str | None,
    perfetto: tuple[str, int] | None,
    as_json: bool,
) -> None:
    """Simulate a scenario and print its summary; warnings and progress go to stderr. Raises KvTierError."""
    if perfetto is not None:
        from scenarios.reporting.perfetto import check_trace_file

        check_trace_file(Path(perfetto[0]))
    if uncertainty is not None:
        from scenarios.uncertainty.draws import check_draws

        check_draws(uncertainty, "--uncertainty")
        trace = lasting_trace(trace)
    elif jobs is not None:
        raise InputError("--jobs is for --uncertainty: a single run takes one process")
    scenario = load_scenario(name_or_path, overrides=overrides, trace=trace, skip_bad_lines=skip_bad_lines, seed=seed)
    from scenarios.build import simulate
    from sim.results.files import refuse_foreign

    if out is not None:
        refuse_foreign(Path(out))  # said now rather than after the run

    scenario = scenario.with_economics() if economics else scenario
    with Progress(scenario.name) as progress:
        result = simulate(scenario, progress=progress)
    prediction = None
    if uncertainty is not None:
        from scenarios.commands.uncertainty import predict_scenario

        prediction = predict_scenario(scenario, uncertainty, jobs=jobs)
        result.summary_values["uncertainty"] = prediction.to_dict()
    summary = result.summary()
    for warning in summary["warnings"]:
        sys.stderr.write(f"kvtier: warning: {warning}\n")
    # Printed before it is saved: a folder that cannot be written must not cost the figures.
    if as_json:
        print_json(summary)
    else:
        _print_summary(scenario.name, summary)
        if prediction is not None:
            from scenarios.commands.uncertainty import print_prediction

            print_prediction(summary)
    if out is not None:
        result.save(out)
        sys.stderr.write(f"kvtier: saved to {out}\n")
    if perfetto is not None:
        _write_trace(result, *perfetto)


def _write_trace(result: SimulationResult, file: str, limit: int) -> None:
    from scenarios.reporting.perfetto import write_trace

    write_trace(result, Path(file), limit=limit)
    requests = result.table("requests")["arrived_at_s"].size
    part = f" of the first {limit:,} of {requests:,} requests (--perfetto-limit)" if limit < requests else ""
    sys.stderr.write(f"kvtier: trace{part} written to {file}; ui.perfetto.dev opens it\n")


def _print_summary(name: str, summary: Mapping[str, Any]) -> None:
    print_pairs(_overview(summary), title=name)
    sys.stdout.write("\n")
    rows = [[label, *(seconds(summary[key][column]) for column in _STATISTICS)] for key, label in _LATENCIES]
    print_table(["latency", *_STATISTICS], rows, numbers_from=1)
    sys.stdout.write("\n")
    parts = summary["ttft_parts_s"]
    mean_s = summary["ttft_s"]["mean"]
    print_table(
        ["part of mean TTFT", "time", "share"],
        [_part(*item, mean_s) for item in _parts(summary, parts)],
        numbers_from=1,
    )
    sys.stdout.write("\n")
    header = ["tier", "hit tokens", "read", "written", "evicted", "peak used", "capacity"]
    print_table(header, [_tier(*item) for item in summary["tiers"].items()], numbers_from=1)
    sys.stdout.write("\n")
    neighbours = summary.get("neighbours", {})
    if summary["links"]:
        header = ["link", "read", "written", *(["others'"] if neighbours else []), "busy", "busy mean", "peak"]
        print_table(header, [_link(*item) for item in summary["links"].items()], numbers_from=1)
        sys.stdout.write("\n")
    if summary.get("events"):  # they may all come after its end
        from scenarios.event_rows import HEADER, event_rows

        print_table(list(HEADER), event_rows(summary["events"]), numbers_from=3)
        sys.stdout.write("\n")
    if neighbours:
        header = ["neighbour", "asked for", "moved", "mean rate", "bursts ended", "mean burst", "longest", "over"]
        print_table(header, [_neighbour(*item) for item in neighbours.items()], numbers_from=1)
        sys.stdout.write("\n")
    print_pairs([("bottleneck", str(summary["bottleneck"]))])
    if "economics" in summary:
        from scenarios.commands.economics import print_economics

        print_economics(summary["economics"])


def _overview(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    requests, throughput, engine = summary["requests"], summary["throughput"], summary["engine"]
    failed = f", {requests['failed']:,} failed" if requests.get("failed") else ""
    yield (
        "requests",
        f"{requests['completed']:,} completed, {requests['rejected']:,} rejected{failed}, of {requests['submitted']:,}",
    )
    yield "makespan", seconds(summary["makespan_s"])
    output, prompts, served = (throughput[f"{key}_per_s"] for key in ("output_tokens", "input_tokens", "requests"))
    yield (
        "throughput",
        f"{number(output)} output tokens/s, {number(prompts)} input tokens/s, {number(served)} requests/s",
    )
    yield "hit ratio", f"{share(summary['hit_ratio_tokens'])} of prompt tokens"
    if "slo" in summary:
        slo = summary["slo"]
        yield "SLO", f"met by {share(slo['attainment'])}, goodput {number(slo['goodput_requests_per_s'])} requests/s"
    yield "preemptions", f"{summary['preemptions']:,}"
    wall = f"{engine['wall_s']:.2f} s, {number(engine['requests_per_wall_s'])} requests/s, {engine['events']:,} events"
    yield "simulated in", wall


def _parts(summary: Mapping[str, Any], parts: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Yield the parts of the mean TTFT, the load once more by tier where it is known."""
    for name, part_s in parts.items():
        yield name, part_s
        if name == "load":
            rest_s = part_s or 0.0
            for tier, load_s in summary.get("load_by_tier_s", {}).items():
                if load_s:
                    yield f"  from {tier}", load_s
                    rest_s -= load_s
            # Where a batch stands still, a request waits for the loads of the others too.
            if rest_s > 1e-9:
                yield "  others' loads, software", rest_s


def _part(name: str, part_s: float | None, mean_s: float | None) -> list[str]:
    of_mean = None if part_s is None or not mean_s else part_s / mean_s
    return [name, seconds(part_s), share(of_mean)]


def _tier(name: str, figures: Mapping[str, Any]) -> list[str]:
    sizes = ("read_bytes", "write_bytes", "evicted_bytes", "peak_used_bytes", "capacity_bytes")
    return [name, f"{figures['hit_tokens']:,}", *(format_bytes(figures[key]) for key in sizes)]


def _link(name: str, figures: Mapping[str, Any]) -> list[str]:
    sizes = [format_bytes(figures[key]) for key in ("read_bytes", "write_bytes")]
    if "neighbour_read_bytes" in figures:
        sizes.append(format_bytes(figures["neighbour_read_bytes"] + figures["neighbour_write_bytes"]))
    rates = [rate(figures[key]) for key in ("busy_mean_bytes_per_s", "peak_bytes_per_s")]
    return [name, *sizes, share(figures["busy_fraction"]), *rates]


def _neighbour(name: str, figures: Mapping[str, Any]) -> list[str]:
    bursts = figures.get("bursts")
    ended = (
        ["-"] * 3 if bursts is None else [f"{bursts['ended']:,}", *(seconds(bursts[k]) for k in ("mean_s", "max_s"))]
    )
    sizes = [format_bytes(figures[key]) for key in ("asked_bytes", "moved_bytes")]
    return [name, *sizes, rate(figures["mean_bytes_per_s"]), *ended, ", ".join(figures["links"])]
