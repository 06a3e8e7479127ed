"""The section on a run that `kvtier run --out` saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from scenarios.comparison.metrics import metric_text
from scenarios.economics.economics_texts import cost_pairs, economics_warnings, tier_table
from scenarios.event_rows import HEADER, event_rows
from scenarios.figure_texts import number, rate, seconds, share, size
from scenarios.reporting.assumptions import assumption_chapters, warnings_text
from scenarios.reporting.run_plots import distribution, drivers, timelines, waterfall
from scenarios.reporting.section import Block, Chapter, Fact, Section, Table, Text
from scenarios.reporting.words import cluster_of, counted, meaning_of
from sim.results.result import SimulationResult

_STATISTICS: Final = ("mean", "p50", "p90", "p99", "max")
_LATENCIES: Final = (
    ("ttft_s", "TTFT"),
    ("tpot_s", "TPOT"),
    ("itl_s", "ITL"),
    ("e2e_s", "end to end"),
)
_UNCERTAIN: Final = (
    ("ttft_s.p50", "TTFT p50"),
    ("ttft_s.p90", "TTFT p90"),
    ("ttft_s.p99", "TTFT p99"),
    ("tpot_s.mean", "TPOT mean"),
    ("throughput.output_tokens_per_s", "output tokens/s"),
    ("hit_ratio_tokens", "hit ratio"),
)
_DRIVEN: Final = (("ttft_s.p50", "TTFT p50"), ("throughput.output_tokens_per_s", "output tokens/s"))


class SavedRun:
    """A folder that holds a result."""

    name = "run"
    saved_by = "kvtier run SCENARIO --out DIR"

    def fits(self, path: Path) -> bool:
        """Return whether *path* is a folder with a result."""
        return (path / "result.json").is_file()

    def section(self, path: Path) -> Section:
        """Return the section on the result in *path*; raises InputError where it is damaged."""
        return run_section(SimulationResult.load(path))


def run_section(result: SimulationResult) -> Section:
    """Return the section on one run."""
    summary, scenario = result.summary_values, result.scenario
    description = scenario.get("description")
    return Section(
        kind="run",
        title=scenario["name"],
        about=" ".join(filter(None, [description and f"{description.rstrip('.')}.", f"{cluster_of(scenario)}."])),
        headline=_headline(summary),
        facts=list(_facts(summary)),
        chapters=[
            Chapter(title="What limits it", blocks=[*_limits(summary), waterfall(result), _parts(summary)]),
            Chapter(title="How long requests take", blocks=[distribution(result), _latencies(summary)]),
            Chapter(title="Tiers and links", blocks=[*tables(summary), *timelines(result)]),
            *_economics(summary),
            *_uncertainty(summary),
            *assumption_chapters([scenario], summary["warnings"]),
            Chapter(title="The run", blocks=[_provenance(result)]),
        ],
    )


def _headline(summary: Mapping[str, Any]) -> str:
    requests, ttft_s = summary["requests"], summary["ttft_s"]
    if not requests["completed"]:
        return f"None of {counted(requests['submitted'], 'request')} completed."
    lost = [f"{requests[what]:,} {what}" for what in ("rejected", "failed") if requests.get(what)]
    text = (
        f"Half of the requests have their first token within {seconds(ttft_s['p50'])}, one in ten waits longer than "
        f"{seconds(ttft_s['p90'])}, one in a hundred longer than {seconds(ttft_s['p99'])}. "
        f"{share(summary['hit_ratio_tokens'])} of the prompt tokens are found in a cache."
    )
    if lost:
        text += f" Of {requests['submitted']:,} requests, {' and '.join(lost)}."
    return text


def _facts(summary: Mapping[str, Any]) -> Iterator[Fact]:
    requests, throughput, ttft_s = summary["requests"], summary["throughput"], summary["ttft_s"]
    yield Fact(name="TTFT p50", value=seconds(ttft_s["p50"]), note=f"mean {seconds(ttft_s['mean'])}")
    yield Fact(name="TTFT p99", value=seconds(ttft_s["p99"]), note=f"at most {seconds(ttft_s['max'])}")
    tokens = number(throughput["output_tokens_per_s"])
    note = f"{number(throughput['input_tokens_per_s'])} prompt tokens/s"
    yield Fact(name="Output tokens/s", value=tokens, note=note)
    yield Fact(name="Hit ratio", value=share(summary["hit_ratio_tokens"]), note="of prompt tokens")
    if "slo" in summary:
        slo = summary["slo"]
        wanted = ", ".join(f"{name.removesuffix('_s').upper()} {seconds(s)}" for name, s in slo["limits"].items())
        yield Fact(name="Requests within SLO", value=share(slo["attainment"]), note=wanted)
    lost = requests["submitted"] - requests["completed"]
    yield Fact(
        name="Requests completed",
        value=f"{requests['completed']:,}",
        note=f"of {requests['submitted']:,} in {seconds(summary['makespan_s'])}",
        tone="bad" if lost else "",
    )


def _limits(summary: Mapping[str, Any]) -> Iterator[Block]:
    bottleneck = summary["bottleneck"]
    yield Text(lead=f"Bottleneck: {bottleneck}.", paragraphs=list(filter(None, [meaning_of(bottleneck)])))


def _parts(summary: Mapping[str, Any]) -> Table:
    mean_s = summary["ttft_s"]["mean"]
    rows = []
    for name, part_s in summary["ttft_parts_s"].items():
        rows.append([name, seconds(part_s), _of(part_s, mean_s)])
        if name == "load":
            loads = {tier: load_s for tier, load_s in summary["load_by_tier_s"].items() if load_s}
            rows += [[f"- from {tier}", seconds(load_s), _of(load_s, mean_s)] for tier, load_s in loads.items()]
            # Where a batch stands still, a request waits for the loads of the others too.
            rest_s = (part_s or 0.0) - sum(loads.values())
            if rest_s > 1e-9:
                rows.append(["- others' loads, software", seconds(rest_s), _of(rest_s, mean_s)])
    rows.append(["TTFT", seconds(mean_s), _of(mean_s, mean_s)])
    header = ["part", "mean time", "share"]
    return Table(caption="The parts of the mean TTFT", header=header, rows=rows, numbers_from=1, half=True)


def _of(part_s: float | None, mean_s: float | None) -> str:
    return "-" if part_s is None or not mean_s else share(part_s / mean_s)


def _latencies(summary: Mapping[str, Any]) -> Table:
    return Table(
        caption="Latencies (TTFT: to the first token; TPOT: an output token; ITL: between two tokens)",
        header=["latency", *_STATISTICS],
        rows=[[label, *(seconds(summary[key][name]) for name in _STATISTICS)] for key, label in _LATENCIES],
        numbers_from=1,
        half=True,
    )


def tables(summary: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the tables of events, tiers, links and others' traffic of a run's summary."""
    if summary.get("events"):  # they may all come after its end
        rows = event_rows(summary["events"])
        yield Table(caption="What happened, and what it cost", header=list(HEADER), rows=rows, numbers_from=3)
    prompt_tokens = _prompt_tokens(summary)
    sizes = ("read_bytes", "write_bytes", "evicted_bytes", "peak_used_bytes", "capacity_bytes")
    rows = []
    for name, tier in summary["tiers"].items():
        hits = share(tier["hit_tokens"] / prompt_tokens) if prompt_tokens else "-"
        load = seconds(summary["load_by_tier_s"].get(name))
        rows.append([name, f"{tier['hit_tokens']:,}", hits, load, *(size(tier[key]) for key in sizes)])
    header = ["tier", "hit tokens", "of prompts", "mean load", "read", "written", "evicted", "peak used", "capacity"]
    yield Table(caption="Tiers, fastest first", header=header, rows=rows, numbers_from=1)
    if not summary["links"]:
        return
    rates = ("busy_mean_bytes_per_s", "peak_bytes_per_s")
    neighbours = summary.get("neighbours", {})
    rows = [
        [
            name,
            size(link["read_bytes"]),
            size(link["write_bytes"]),
            *([size(link["neighbour_read_bytes"] + link["neighbour_write_bytes"])] if neighbours else []),
            share(link["busy_fraction"]),
            share(link["busy_utilisation"]),
            *(rate(link[key]) for key in rates),
        ]
        for name, link in summary["links"].items()
    ]
    others = ["of it others'"] if neighbours else []
    header = ["link", "read", "written", *others, "time busy", "full while busy", "busy mean", "peak"]
    yield Table(caption="Links", header=header, rows=rows, numbers_from=1)
    if neighbours:
        yield _neighbours(neighbours)


def _neighbours(neighbours: Mapping[str, Any]) -> Table:
    rows = []
    for name, found in neighbours.items():
        bursts = found.get("bursts", {"ended": None, "mean_s": None, "max_s": None})
        ended = "-" if bursts["ended"] is None else f"{bursts['ended']:,}"
        sizes = [size(found[key]) for key in ("asked_bytes", "moved_bytes")]
        took = [seconds(bursts[key]) for key in ("mean_s", "max_s")]
        rows.append([name, *sizes, rate(found["mean_bytes_per_s"]), ended, *took])
    header = ["neighbour", "asked for", "moved", "mean rate", "bursts ended", "mean burst", "longest burst"]
    return Table(caption="Traffic of others", header=header, rows=rows, numbers_from=1)


def _prompt_tokens(summary: Mapping[str, Any]) -> float | None:
    hits = sum(tier["hit_tokens"] for tier in summary["tiers"].values())
    return hits / summary["hit_ratio_tokens"] if summary["hit_ratio_tokens"] else None


def _economics(summary: Mapping[str, Any]) -> Iterator[Chapter]:
    if "economics" not in summary:
        return
    found = summary["economics"]
    costs = [[name.replace("  ", "- "), text] for name, text in cost_pairs(found)]
    header, tiers = tier_table(found)
    blocks = [
        Table(caption="What it costs and draws", header=["figure", "value"], rows=costs),
        Table(caption="What each tier spares and wears", header=header, rows=tiers, numbers_from=1),
    ]
    yield economics_chapter(blocks, economics_warnings(found))


def economics_chapter(blocks: Sequence[Block], warnings: Sequence[str]) -> Chapter:
    """Return the chapter on money, energy and wear, with what its figures lack or rest on below them."""
    return Chapter(title="Money, energy and wear", blocks=[*blocks, *([warnings_text(warnings)] if warnings else [])])


def _uncertainty(summary: Mapping[str, Any]) -> Iterator[Chapter]:
    said = summary.get("uncertainty")
    if said is None:
        return
    rows = [
        [label, *(metric_text(name, said["figures"][name][key]) for key in ("p5", "p25", "p50", "p75", "p95"))]
        for name, label in _UNCERTAIN
        if name in said["figures"]
    ]
    error = said["model_error"]
    about = (
        f"A single measurement lies between the outer columns with 90 % probability. {said['n']} draws of "
        f"{counted(len(said['parameters']), 'parameter')}, {counted(said['seeds'], 'seed')}, and a model error of "
        f"{error['sd']:.1%} ({error['source']})."
    )
    outside = [flag["message"] for flag in said["outside_calibrated_range"]]
    plots = [
        drivers(name, label, said["drivers"][name], metric_text) for name, label in _DRIVEN if name in said["drivers"]
    ]
    table = Table(
        caption="What a measurement may show",
        header=["figure", "5 %", "25 %", "median", "75 %", "95 %"],
        rows=rows,
        numbers_from=1,
    )
    notes = [Text(paragraphs=["Outside of what was calibrated:"], items=outside)] if outside else []
    yield Chapter(title="How sure this is", blocks=[Text(paragraphs=[about]), table, *plots, *notes])


def _provenance(result: SimulationResult) -> Text:
    versions = {**result.provenance}
    wall_s = versions.pop("wall_s", None)
    events = versions.pop("events", None)
    made = ", ".join(f"{name} {version}" for name, version in versions.items())
    rule = result.summary_values.get("percentile_rule", "linear")
    lines = [f"Seed {result.seed}; percentiles by the rule “{rule}”; {made}."]
    if wall_s is not None and events is not None:
        lines.append(f"Simulated in {seconds(wall_s)}: {events:,} events.")
    return Text(paragraphs=lines)
