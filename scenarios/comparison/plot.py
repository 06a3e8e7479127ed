"""The plot of a comparison: where the variants stand, and by how much they differ from the first. Shows no window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from scenarios.comparison.comparing import Compared, Comparison
from scenarios.comparison.metrics import is_share

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, as in sim.results.plot.
_PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_EQUAL: Final = "0.6"
_PARTS: Final = ("queue", "load", "compute", "other")
_PERCENTILES: Final = (("p50", "o"), ("p90", "s"), ("p99", "D"))
_COMPARED: Final = (
    ("ttft_s.mean", "TTFT mean", "o"),
    ("ttft_s.p99", "TTFT p99", "D"),
    ("hit_ratio_tokens", "hit ratio", "^"),
)
_WIDTH_IN, _ROW_IN, _REST_IN = 13.0, 0.38, 1.6
# Percentiles further apart than this cannot be read off one linear axis.
_LOG_FROM: Final = 20.0


def draw(comparison: Comparison) -> Figure:
    """Draw TTFT percentiles, parts of the mean TTFT, hits by tier, and differences with intervals, a row a variant."""
    from matplotlib.figure import Figure

    ran = [found for found in comparison.variants if found.error is None]
    height_in = 2.0 * (_REST_IN + _ROW_IN * max(len(ran), 3))
    figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
    axes = figure.subplots(2, 2)
    ttft_percentiles(ran, axes[0, 0])
    ttft_parts(ran, axes[0, 1])
    hits_by_tier(ran, axes[1, 0])
    differences(comparison, axes[1, 1])
    figure.suptitle(comparison.title, fontsize=11)
    return figure


def ttft_percentiles(ran: Sequence[Compared], ax: Axes) -> Axes:
    """Draw p50, p90 and p99 of the TTFT [s]."""
    ax.set(title="Time to first token", xlabel="TTFT [s]")
    values = {name: [_number(found, f"ttft_s.{name}") for found in ran] for name, _ in _PERCENTILES}
    rows = np.arange(len(ran))
    ax.hlines(rows, values["p50"], values["p99"], color="0.8", linewidth=2, zorder=1)
    for color, (name, marker) in zip(_PALETTE, _PERCENTILES, strict=False):
        ax.scatter(values[name], rows, marker=marker, color=color, label=name, zorder=2)
    drawn = np.array([value for column in values.values() for value in column])
    drawn = drawn[drawn > 0.0]
    if drawn.size and drawn.max() > _LOG_FROM * drawn.min():
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
    else:
        ax.set_xlim(0.0, 1.05 * drawn.max() if drawn.size else 1.0)
    return _by_variant(ax, [found.variant.name for found in ran])


def ttft_parts(ran: Sequence[Compared], ax: Axes) -> Axes:
    """Draw the parts that add up to the mean TTFT [s]."""
    ax.set(title="Where the mean TTFT goes", xlabel="mean time [s]")
    parts = [(part, [_number(found, f"ttft_parts_s.{part}") for found in ran]) for part in _PARTS]
    return _stacked(ax, ran, parts)


def hits_by_tier(ran: Sequence[Compared], ax: Axes) -> Axes:
    """Draw the share of prompt tokens that each tier had [%]."""
    ax.set(title="Prompt tokens that were hits, by tier", xlabel="share of prompt tokens [%]")
    tiers = list(dict.fromkeys(tier for found in ran for tier in (found.summary or {})["tiers"]))
    parts = [(tier, [100.0 * _number(found, f"tiers.{tier}.hit_ratio") for found in ran]) for tier in tiers]
    return _stacked(ax, ran, parts)


def differences(comparison: Comparison, ax: Axes) -> Axes:
    """Draw the differences to the first variant with their intervals; those that are equal to it in grey."""
    first = comparison.first
    name = "" if first is None else first.variant.name
    ax.set(title=f"Difference to {name}", xlabel="per cent; hit ratio: points")
    names = list(comparison.differences)
    height = 0.7 / len(_COMPARED)
    for place, (metric, label, marker) in enumerate(_COMPARED):
        color = _PALETTE[place]
        for row, by_metric in enumerate(comparison.differences.values()):
            found = by_metric.get(metric)
            base = None if first is None else first.metrics.get(metric)
            if found is None or not base:
                continue
            scale = 100.0 if is_share(metric) else 100.0 / base
            at = row + (place - (len(_COMPARED) - 1) / 2.0) * height
            if found.low is not None and found.high is not None:
                ax.hlines(at, found.low * scale, found.high * scale, color=_EQUAL if found.equal else color)
            shown = _EQUAL if found.equal else color
            ax.scatter(found.difference * scale, at, marker=marker, color=shown, s=18, zorder=2)
        ax.scatter([], [], marker=marker, color=color, s=18, label=label)
    ax.plot([], [], color=_EQUAL, label="equal")
    ax.axvline(0.0, color="0.35", linewidth=0.8)
    return _by_variant(ax, names)


def _stacked(ax: Axes, ran: Sequence[Compared], parts: Sequence[tuple[str, list[float]]]) -> Axes:
    rows = np.arange(len(ran))
    left = np.zeros(len(ran))
    for place, (label, values) in enumerate(parts):
        ax.barh(rows, values, left=left, height=0.7, color=_PALETTE[place % len(_PALETTE)], label=label)
        left += values
    return _by_variant(ax, [found.variant.name for found in ran])


def _number(found: Compared, metric: str) -> float:
    return found.metrics.get(metric) or 0.0


def _by_variant(ax: Axes, names: Sequence[str]) -> Axes:
    """Name the rows, the first on top, and say beside the plot what is what: bars leave no room inside."""
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(visible=True, axis="x", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    return ax
