"""The section on a comparison that `kvtier compare --out` saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from scenarios.comparison.comparing import Compared, Comparison
from scenarios.comparison.economics_texts import compared_rows, least_pairs
from scenarios.comparison.intervals import CONFIDENCE
from scenarios.comparison.metrics import metric_text
from scenarios.comparison.saved import MANIFEST, load_comparison
from scenarios.comparison.wording import FIGURES, difference_cell, difference_text
from scenarios.loader import resolved
from scenarios.reporting.assumptions import assumption_chapters
from scenarios.reporting.comparison_plots import comparison_plots, ttft_spreads
from scenarios.reporting.run_plots import timelines
from scenarios.reporting.run_section import economics_chapter, tables
from scenarios.reporting.section import Block, Chapter, Fact, Section, Table, Text
from scenarios.reporting.words import cluster_of, counted, listed, meaning_of
from sim.results.result import SimulationResult

# What the variants are ranked by.
_BY: Final = ("ttft_s.p90", "TTFT p90")
_OTHERS: Final = (("throughput.output_tokens_per_s", "output tokens/s"), ("hit_ratio_tokens", "hit ratio"))
# More variants than this are too many drawings: those of the others come of `kvtier report DIR/NN`.
_MOST_IN_FULL: Final = 4


class SavedComparisonKind:
    """A folder that holds a comparison."""

    name = "comparison"
    saved_by = "kvtier compare SCENARIO --vary ... --out DIR"

    def fits(self, path: Path) -> bool:
        """Return whether *path* is a folder with a comparison."""
        return (path / MANIFEST).is_file()

    def section(self, path: Path) -> Section:
        """Return the section on the comparison in *path*; raises InputError where it is damaged."""
        saved = load_comparison(path)
        runs = {name: SimulationResult.load(folder) for name, folder in saved.runs.items()}
        return comparison_section(saved.comparison, runs)


def comparison_section(comparison: Comparison, runs: Mapping[str, SimulationResult]) -> Section:
    """Return the section on a comparison; *runs* has the middle run of each variant that did not fail."""
    ran = [found for found in comparison.variants if found.error is None]
    scenarios = [resolved(found.variant.scenario) for found in comparison.variants]
    return Section(
        kind="comparison",
        title=comparison.title,
        about=f"{counted(len(comparison.variants), 'variant')} of {comparison.name}, all on the same requests and "
        f"random numbers: {cluster_of(scenarios[0])}.",
        headline=_headline(comparison, ran),
        facts=list(_facts(comparison, ran)),
        chapters=[
            Chapter(title="Which is better", blocks=list(_better(comparison, ran))),
            Chapter(title="What limits each", blocks=list(_bottlenecks(comparison))),
            *_economics(comparison),
            *_over_time(comparison, ran, runs),
            *assumption_chapters(scenarios, comparison.warnings()),
        ],
        tone="warn" if comparison.failed else "",
    )


def _headline(comparison: Comparison, ran: Sequence[Compared]) -> str:
    failed = [found.variant.name for found in comparison.failed]
    lost = f" {listed(failed)} failed." if failed else ""
    first = comparison.first
    if first is None:
        return f"All {counted(len(comparison.variants), 'variant')} failed."
    best = _best(ran)
    metric, label = _BY
    first_text = metric_text(metric, first.metrics.get(metric))
    if best is first:
        return (
            f"No variant has a lower {label} than {first.variant.name}, with {first_text}.{_equals(comparison)}{lost}"
        )
    text = (
        f"{best.variant.name} has the lowest {label}: {metric_text(metric, best.metrics.get(metric))}, against "
        f"{first_text} with {first.variant.name}, {_against(comparison, best, metric)}."
    )
    for other, name in _OTHERS:
        text += f" {name.capitalize()}: {_against(comparison, best, other)}."
    return text + lost


def _against(comparison: Comparison, found: Compared, metric: str) -> str:
    """Return how far a variant is from the first one, and whether that is more than noise."""
    first = comparison.first
    difference = comparison.differences.get(found.variant.name, {}).get(metric)
    if first is None or difference is None:
        return "no difference known"
    text = difference_text(metric, first.metrics.get(metric), difference)
    if difference.equal:
        return "equal within noise"
    return text.replace(" ?", ", how sure is not known") if text.endswith("?") else text


def _equals(comparison: Comparison) -> str:
    equal = [name for name, found in comparison.differences.items() if _BY[0] in found and found[_BY[0]].equal]
    return f" Equal to it within noise: {listed(equal)}." if equal else ""


def _best(ran: Sequence[Compared]) -> Compared:
    """Return the variant with the least of what they are ranked by; the first of equals."""
    values = [found.metrics.get(_BY[0]) for found in ran]
    return min(zip(values, ran, strict=True), key=lambda pair: float("inf") if pair[0] is None else pair[0])[1]


def _facts(comparison: Comparison, ran: Sequence[Compared]) -> Iterator[Fact]:
    if not ran:
        return
    first, best = ran[0], _best(ran)
    for metric, label in (("ttft_s.p50", "TTFT p50"), _BY, ("ttft_s.p99", "TTFT p99"), *_OTHERS):
        note = f"{best.variant.name}; {metric_text(metric, first.metrics.get(metric))} with {first.variant.name}"
        if best is first:
            note = best.variant.name
        yield Fact(name=label[0].upper() + label[1:], value=metric_text(metric, best.metrics.get(metric)), note=note)
    note = f"{counted(len(first.seeds), 'seed')} each"
    failed = len(comparison.failed)
    note = f"{note}, {failed} failed" if failed else note
    yield Fact(name="Variants", value=f"{len(ran)}", note=note, tone="bad" if failed else "")


def _better(comparison: Comparison, ran: Sequence[Compared]) -> Iterator[Block]:
    rows = [
        [found.variant.name, *(metric_text(metric, found.metrics.get(metric)) for metric, _ in FIGURES)]
        for found in ran
    ]
    rows += [[found.variant.name, "failed", *("" for _ in FIGURES[1:])] for found in comparison.failed]
    header = ["variant", *(name for _, name in FIGURES)]
    yield Table(caption="The variants", header=header, rows=rows, numbers_from=1)
    first = comparison.first
    if first is not None and comparison.differences:
        rows = [
            [name, *(difference_cell(metric, first.metrics.get(metric), found.get(metric)) for metric, _ in FIGURES)]
            for name, found in comparison.differences.items()
        ]
        caption = f"Difference to {first.variant.name}, with its {CONFIDENCE:.0%} interval"
        yield Table(caption=caption, header=header, rows=rows, numbers_from=1)
        method = comparison.method[0].upper() + comparison.method[1:]
        yield Text(
            paragraphs=[
                "“Equal”: 0 lies in the interval, so the difference may be noise. Shares differ in points (pt), all "
                f"else in per cent. {method}. Of twenty differences that are only noise, one is to be expected to look "
                "real."
            ]
        )
    if ran:
        yield from comparison_plots(comparison, ran)
    for error in comparison.failed:
        yield Text(paragraphs=[f"{error.variant.name} failed: {error.error}"])


def _bottlenecks(comparison: Comparison) -> Iterator[Block]:
    rows, meanings = [], []
    for found in comparison.variants:
        bottleneck = "failed" if found.summary is None else str(found.summary["bottleneck"])
        settings = ", ".join(f"{key} = {value}" for key, value in found.variant.settings.items()) or "as it is"
        rows.append([found.variant.name, settings, bottleneck])
        meanings.append(meaning_of(bottleneck))
    yield Table(caption="Bottleneck of each variant", header=["variant", "sets", "bottleneck"], rows=rows)
    yield Text(paragraphs=list(dict.fromkeys(filter(None, meanings))))


def _economics(comparison: Comparison) -> Iterator[Chapter]:
    table = compared_rows(comparison)
    if table is None:
        return
    header, rows = table
    costs = Table(caption="What the variants cost and wear", header=header, rows=rows, numbers_from=1)
    least = [f"{name[0].upper()}{name[1:]}: {text}." for name, text in least_pairs(comparison)]
    yield economics_chapter([costs, *([Text(paragraphs=least)] if least else [])], comparison.economics_warnings())


def _over_time(
    comparison: Comparison, ran: Sequence[Compared], runs: Mapping[str, SimulationResult]
) -> Iterator[Chapter]:
    names = [found.variant.name for found in ran if found.variant.name in runs]
    if not names:
        return
    if len(names) > _MOST_IN_FULL:
        best = _best(ran).variant.name
        names = list(dict.fromkeys([names[0], best]))
    spreads = ttft_spreads({name: runs[name] for name in names})
    yield Chapter(title="How the TTFT is spread", blocks=[spreads])
    for name in names:
        result = runs[name]
        yield Chapter(title=f"Tiers and links: {name}", blocks=[*tables(result.summary_values), *timelines(result)])
