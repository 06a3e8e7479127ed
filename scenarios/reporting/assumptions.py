"""What a run rests on: the scenario as resolved, and every figure of the parts that it names, with its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import yaml
from pydantic import ValidationError

from models.catalogue import Entry, Figure, load_entry
from models.errors import KvTierError
from scenarios.reporting.section import Block, Chapter, Code, Table, Text
from scenarios.reporting.words import counted, listed
from scenarios.schema import Scenario
from scenarios.uncertainty.sources import entries_used

_WEAKEST_FIRST: Final = ("assumed", "announced", "derived", "fitted", "datasheet", "measured")


def assumption_chapters(scenarios: Sequence[Mapping[str, Any]], warnings: Sequence[str]) -> list[Chapter]:
    """Return the chapters on warnings and figures with their sources, and on the first scenario as it was resolved."""
    return [
        Chapter(title="What this rests on", blocks=[*_warnings(warnings), *_figures(scenarios)]),
        Chapter(title="The scenario as resolved", blocks=[_scenario(scenarios[0])]),
    ]


def _warnings(warnings: Sequence[str]) -> Iterator[Block]:
    if warnings:
        yield warnings_text(warnings)


def warnings_text(warnings: Sequence[str]) -> Text:
    """Return what a run warns of."""
    return Text(paragraphs=["To be known before these figures are used:"], items=warnings)


def _figures(resolved: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    try:
        scenarios = [Scenario.model_validate(one) for one in resolved]
        # Variants may change figures of the same part: then it is there once for each.
        entries = _distinct(entry for scenario in scenarios for entry in entries_used(scenario))
    except (KvTierError, ValidationError) as error:
        # Saved by another version, or with files of its own that are not here.
        problem = " ".join(str(error).split())
        yield Text(paragraphs=[f"The catalogue entries that this names cannot be read here: {problem}"])
        return
    fits = list(dict.fromkeys(scenario.parameters for scenario in scenarios if scenario.parameters is not None))
    llms = [line for name in dict.fromkeys(scenario.llm for scenario in scenarios) for line in _llm(name)]
    yield Text(paragraphs=[_counts(entries), *(f"Parameters are those of {name}." for name in fits), *llms])
    rows = [_row(entry, name, figure) for entry in entries for name, figure in entry.used_figures.items()]
    rows += [
        [entry.name, f"curve {name}", f"{len(curve.x_bytes)} points", curve.status, _spread(curve.spread), curve.source]
        for entry in entries
        for name, curve in entry.curves.items()
    ]
    yield Table(
        caption="Figures of the parts, with status and source",
        header=["part", "figure", "value", "status", "spread", "source"],
        rows=rows,
        marks=frozenset({3}),
        folded=f"All {len(rows)} figures with their sources",
    )


def _distinct(entries: Iterable[Entry]) -> list[Entry]:
    found: list[Entry] = []
    for entry in entries:
        if entry not in found:
            found.append(entry)
    return found


def _counts(entries: Sequence[Entry]) -> str:
    count = Counter(figure.status for entry in entries for figure in entry.used_figures.values())
    unverified = sum(figure.unverified for entry in entries for figure in entry.used_figures.values())
    by_status = listed([f"{count[status]} {status}" for status in _WEAKEST_FIRST if count[status]])
    parts = listed([f"{entry.title} ({entry.name})" for entry in entries])
    text = f"The parts are {parts}. Of their {count.total()} figures {by_status}"
    return f"{text}; for {unverified} of them no page was read." if unverified else f"{text}."


def _llm(name: str) -> Iterator[str]:
    try:
        entry = load_entry("llm", name)
    except KvTierError:
        yield f"The LLM is {name}, read from a file."
        return
    sources = dict.fromkeys(figure.source for figure in entry.figures.values())
    yield f"The LLM is {entry.title}: {counted(len(entry.figures), 'figure')} from {'; '.join(sources)}."


def _row(entry: Entry, name: str, figure: Figure) -> list[str]:
    source = figure.source if figure.note is None else f"{figure.source}. {figure.note}"
    if figure.unverified:
        source += " (no page was read for it)"
    return [entry.name, name.replace("_", " "), figure.text, figure.status, _spread(figure.spread), source]


def _spread(spread: float | None) -> str:
    return "-" if spread is None else f"±{spread:.1%}"


def _scenario(resolved: Mapping[str, Any]) -> Code:
    text = yaml.safe_dump(_without_none(resolved), sort_keys=False, allow_unicode=True, width=100)
    return Code(
        text=text, label="The resolved scenario, SI units", folded="All keys, defaults and stack filled in, in SI units"
    )


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list) else value
