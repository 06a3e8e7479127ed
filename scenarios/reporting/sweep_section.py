"""The section on the table that `kvtier sweep` wrote."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from models.errors import InputError
from scenarios.comparison.metrics import metric_text
from scenarios.reporting.assumptions import assumption_chapters
from scenarios.reporting.drawing import HALF_IN, WIDE_IN, canvas, svg_of
from scenarios.reporting.section import Block, Chapter, Fact, Plot, Section, Table, Text
from scenarios.reporting.words import counted, listed, meaning_of
from scenarios.sweeping import SweepResult
from scenarios.sweeping.table import about_table
from scenarios.sweeping.units import text_of, unit_of

_BY: Final = "ttft_s.p90"
_FIGURES: Final = (
    ("ttft_s.p50", "TTFT p50"),
    (_BY, "TTFT p90"),
    ("ttft_s.p99", "TTFT p99"),
    ("throughput.output_tokens_per_s", "tokens/s out"),
    ("hit_ratio_tokens", "hit ratio"),
)
_DRAWN: Final = (_BY, "throughput.output_tokens_per_s", "hit_ratio_tokens", "ttft_parts_s.load")
_TITLES: Final = {
    _BY: "TTFT p90",
    "throughput.output_tokens_per_s": "Output tokens/s",
    "hit_ratio_tokens": "Prompt tokens that were hits",
    "ttft_parts_s.load": "Load, as a part of the mean TTFT",
}
# A key with more values than this was sampled: its points are put into groups of equal size.
_MOST_LEVELS: Final = 12
_GROUPS: Final = 8
_OPEN_ROWS: Final = 30


class SavedSweep:
    """The table of a sweep."""

    name = "sweep"
    saved_by = "kvtier sweep SCENARIO --grid ... --out FILE.parquet"

    def fits(self, path: Path) -> bool:
        """Return whether *path* is the table of a sweep."""
        if path.suffix != ".parquet" or not path.is_file():
            return False
        try:
            SweepResult.load(path)
        except InputError:
            return False
        return True

    def section(self, path: Path) -> Section:
        """Return the section on a table; raises InputError where it is damaged."""
        return sweep_section(SweepResult.load(path))


def sweep_section(result: SweepResult) -> Section:
    """Return the section on a sweep."""
    keys = [key for key in result.keys if len(set(map(str, result.column(key)))) > 1] or list(result.keys)
    ok = [at for at, status in enumerate(result.column("status")) if status == "ok"]
    effects = sorted(((key, *_effect(result, key, ok)) for key in keys), key=lambda row: -row[1]) if ok else []
    base = about_table(result.table).get("base")
    resting = assumption_chapters([base], _warnings(result, ok)) if base is not None else []
    return Section(
        kind="sweep",
        title=f"{result.name} by {listed(keys)}",
        about=f"{counted(len(result), 'point')} of {result.name}, each one run.",
        headline=_headline(result, keys, ok, effects),
        facts=list(_facts(result, keys, ok)),
        chapters=[
            *([Chapter(title="What moves the TTFT", blocks=list(_sensitivity(effects)))] if len(effects) > 1 else []),
            *([Chapter(title="Over the keys", blocks=list(_drawings(result, keys)))] if ok else []),
            Chapter(title="What limits the points", blocks=list(_bottlenecks(result, ok))),
            Chapter(title="The points", blocks=list(_points(result, keys))),
            *resting,
        ],
        tone="warn" if result.failed else "",
    )


def _headline(result: SweepResult, keys: Sequence[str], ok: Sequence[int], effects: Sequence[Any]) -> str:
    failed = f" {counted(result.failed, 'point')} failed." if result.failed else ""
    values = [(value, at) for at in ok if (value := result.column(_BY)[at]) is not None] if ok else []
    if not values:
        return f"No point has a TTFT.{failed}"
    (low, best), (high, worst) = min(values), max(values)
    text = (
        f"TTFT p90 goes from {metric_text(_BY, low)} ({_setting(result, keys, best)}) to {metric_text(_BY, high)} "
        f"({_setting(result, keys, worst)})."
    )
    if len(effects) > 1:
        text += f" {effects[0][0]} moves it most, by a factor of {effects[0][1]:.3g}."
    return text + failed


def _setting(result: SweepResult, keys: Sequence[str], at: int) -> str:
    return ", ".join(f"{key} {text_of(result.column(key)[at], unit_of(key))}" for key in keys)


def _facts(result: SweepResult, keys: Sequence[str], ok: Sequence[int]) -> Iterator[Fact]:
    tone: Any = "bad" if result.failed else ""
    yield Fact(name="Points", value=f"{len(ok):,}", note=f"of {len(result):,} ran, {result.failed} failed", tone=tone)
    for figure, label, sign in (
        (_BY, "Least TTFT p90", 1.0),
        ("throughput.output_tokens_per_s", "Most output tokens/s", -1.0),
        ("hit_ratio_tokens", "Highest hit ratio", -1.0),
    ):
        # Of equals the first.
        values = [(sign * value, at) for at in ok if (value := result.column(figure)[at]) is not None] if ok else []
        if values:
            value, at = min(values)
            yield Fact(name=label, value=metric_text(figure, sign * value), note=_setting(result, keys, at))


def _effect(result: SweepResult, key: str, ok: Sequence[int]) -> tuple[float, list[tuple[str, float]]]:
    """Return by which factor a key moves the TTFT p90, and its geometric mean for each value of the key."""
    column, figures = result.column(key), result.column(_BY)
    pairs = [(column[at], figures[at]) for at in ok if figures[at]]
    levels = list(dict.fromkeys(value for value, _ in pairs))
    unit = unit_of(key)
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in levels)
    if numbers:
        pairs.sort(key=lambda pair: pair[0])
        levels.sort()
    groups: list[tuple[str, list[float]]]
    if numbers and len(levels) > _MOST_LEVELS:
        parts = [[pairs[at] for at in part] for part in np.array_split(np.arange(len(pairs)), _GROUPS) if part.size]
        names = [f"{text_of(part[0][0], unit)} to {text_of(part[-1][0], unit)}" for part in parts]
        groups = [(name, [figure for _, figure in part]) for name, part in zip(names, parts, strict=True)]
    else:
        groups = [(text_of(level, unit), [figure for value, figure in pairs if value == level]) for level in levels]
    means = [(name, math.exp(float(np.mean(np.log(found))))) for name, found in groups]
    middles = [mean for _, mean in means]
    return (max(middles) / min(middles) if middles else 1.0), means


def _sensitivity(effects: Sequence[tuple[str, float, list[tuple[str, float]]]]) -> Iterator[Block]:
    yield Text(
        paragraphs=[
            "How far each key alone moves the TTFT p90: the geometric mean over all points with one value of the key, "
            "at its best value against its worst. Keys that act together share what they do together."
        ]
    )
    places = np.arange(len(effects))[::-1]
    with canvas((HALF_IN[0], 0.9 + 0.36 * max(len(effects), 3))) as figure:
        ax = figure.subplots()
        ax.barh(places, [factor - 1.0 for _, factor, _ in effects], left=1.0, height=0.6, color="#0072B2")
        for place, (_, factor, _) in zip(places, effects, strict=True):
            ax.annotate(f"{factor:.3g}", (factor, place), (4, 0), textcoords="offset points", va="center", fontsize=8.5)
        ax.set_yticks(places, [key for key, _, _ in effects])
        ax.set(xlabel="TTFT p90, worst over best value", ylim=(-0.7, len(effects) - 0.3))
        ax.set_xlim(1.0, 1.0 + 1.15 * max(max(factor for _, factor, _ in effects) - 1.0, 0.01))
        svg = svg_of(figure)
    said = listed([f"{key} by a factor of {factor:.3g}" for key, factor, _ in effects])
    yield Plot(
        title="Factor on TTFT p90, by key",
        caption="1 is no effect at all.",
        alt=f"How far each key moves the TTFT p90: {said}.",
        svg=svg,
    )
    rows = [[key, name, metric_text(_BY, mean)] for key, _, means in effects for name, mean in means]
    header = ["key", "value", "TTFT p90"]
    yield Table(caption="Mean TTFT p90 by value", header=header, rows=rows, numbers_from=1, half=True)


def _drawings(result: SweepResult, keys: Sequence[str]) -> Iterator[Block]:
    if len(keys) == 2 and all(len(set(result.column(key))) <= 2 * _MOST_LEVELS for key in keys):
        for name in _DRAWN:
            with canvas(HALF_IN) as figure:
                ax = result.plot.heat_map(name, x=keys[1], y=keys[0], ax=figure.subplots())
                ax.set_title("")
                svg = svg_of(figure)
            caption = f"{keys[0]} up, {keys[1]} across; the numbers stand in the table of points."
            yield Plot(title=_TITLES[name], caption=caption, alt=_range(result, name), svg=svg)
        return
    for key in keys[:4]:
        with canvas(WIDE_IN) as figure:
            axes = figure.subplots(1, 3)
            result.plot.lines(("ttft_s.p50", _BY, "ttft_s.p99"), x=key, ax=axes[0]).set_title("TTFT")
            for name, ax in zip(_DRAWN[1:3], axes[1:], strict=True):
                result.plot.lines(name, x=key, ax=ax).set_title(_TITLES[name])
            svg = svg_of(figure)
        several = "Other keys differ too between dots." if len(keys) > 1 else "A dot for each point."
        alt = f"TTFT, throughput and hit ratio over {key}: {_range(result, _BY)}"
        yield Plot(title=f"Over {key}", caption=several, alt=alt, svg=svg, wide=True)


def _range(result: SweepResult, figure: str) -> str:
    values = [value for value in result.column(figure) if value is not None]
    if not values:
        return f"{_TITLES[figure]}: no point has it."
    return f"{_TITLES[figure]} from {metric_text(figure, min(values))} to {metric_text(figure, max(values))}."


def _bottlenecks(result: SweepResult, ok: Sequence[int]) -> Iterator[Block]:
    if not ok:
        yield Text(paragraphs=["No point ran."])
        return
    found = [result.column("bottleneck")[at] for at in ok]
    # The figures in brackets differ from point to point.
    count = Counter(re.sub(r" \([^)]*\)", "", bottleneck) for bottleneck in found)
    rows = [[name, f"{number:,}", meaning_of(name)] for name, number in count.most_common()]
    yield Table(caption="Bottlenecks", header=["bottleneck", "points", "which means"], rows=rows)


def _points(result: SweepResult, keys: Sequence[str]) -> Iterator[Block]:
    status, errors = result.column("status"), result.column("error")
    columns = {name: result.column(name) for name, _ in _FIGURES if name in result.table.column_names}
    swept = [result.column(key) for key in keys]
    rows = []
    for at in range(len(result)):
        named = [text_of(column[at], unit_of(key)) for key, column in zip(keys, swept, strict=True)]
        figures = [metric_text(name, columns[name][at]) if name in columns else "-" for name, _ in _FIGURES]
        rows.append([str(at), *named, *(figures if status[at] == "ok" else ["failed", *("" for _ in figures[1:])])])
    header = ["point", *keys, *(label for _, label in _FIGURES)]
    folded = f"All {len(rows):,} points" if len(rows) > _OPEN_ROWS else ""
    yield Table(caption="All points", header=header, rows=rows, numbers_from=0, folded=folded)
    failures = [f"Point {at}: {error}" for at, error in enumerate(errors) if error is not None]
    if failures:
        yield Text(paragraphs=["Points that failed:"], items=failures)


def _warnings(result: SweepResult, ok: Sequence[int]) -> list[str]:
    """Return what all points warn of, and how many of them of more: each may have a number of its own."""
    said = [(result.column("warnings")[at] or "").splitlines() for at in ok] if ok else []
    common = [line for line in (said[0] if said else []) if all(line in lines for lines in said)]
    more = sum(len(lines) > len(common) for lines in said)
    own = [f"{counted(more, 'point')} warn of something of their own: see the column “warnings” of the table"]
    return common + own if more else common
