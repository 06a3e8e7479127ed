"""A picture of a trace: arrivals, lengths, reuse time and the hit ratio that LRU would have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from sim.arrays import Floats, Ints
from sim.traces.columns import Columns
from sim.traces.reuse_statistics import reused

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# From Okabe and Ito's palette, as in `sim.results.plot`.
_BLUE, _RED, _GREEN = "#0072B2", "#D55E00", "#009E73"
_WIDTH_IN, _HEIGHT_IN = 6.4, 3.8
_ARRIVAL_BINS: Final = 120
# Points of a curve: a million steps would make a large file of a line that looks the same.
_MAX_POINTS: Final = 2000


def plot_trace(columns: Columns, path: str) -> None:
    """Draw arrivals over time, lengths, the LRU hit ratio by capacity and the time between uses; save it to *path*."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * _WIDTH_IN, 2 * _HEIGHT_IN), layout="constrained")
    axes = figure.subplots(2, 2)
    _arrivals(columns, axes[0, 0])
    _lengths(columns, axes[0, 1])
    _lru_curve(columns, axes[1, 0])
    _reuse_times(columns, axes[1, 1])
    figure.suptitle(f"{columns.name}: {len(columns):,} requests")
    figure.savefig(path, dpi=120)


def _arrivals(columns: Columns, ax: Axes) -> None:
    ax.set(title="Arrivals", xlabel="time [s]", ylabel="requests/s")
    if not columns.starts_known:
        _empty(ax, "the trace does not say when its sessions start")
        return
    since_s = columns.arrived_at_s - columns.arrived_at_s[0]
    if since_s[-1] <= 0:
        _empty(ax, "all requests arrive at once")
        return
    counts, edges_s = np.histogram(since_s, bins=min(_ARRIVAL_BINS, max(len(columns) // 10, 1)))
    ax.stairs(counts / np.diff(edges_s), edges_s, color=_BLUE, fill=True, alpha=0.25)
    ax.stairs(counts / np.diff(edges_s), edges_s, color=_BLUE)
    mean = len(columns) / since_s[-1]
    ax.axhline(mean, color="0.35", linestyle="--", linewidth=1)
    ax.set_title(f"Arrivals: mean {mean:.3g}/s")
    ax.set_ylim(bottom=0)
    _tidy(ax)


def _lengths(columns: Columns, ax: Axes) -> None:
    ax.set(title="Lengths", xlabel="tokens", ylabel="share of requests [%]", ylim=(0, 103), xscale="log")
    for name, lengths, color in (
        ("prompt", columns.prompt_tokens, _BLUE),
        ("output", columns.output_tokens, _RED),
    ):
        x, share = _distribution(np.maximum(lengths, 1), np.ones(len(lengths), dtype=np.int64))
        ax.step(x, 100 * share, where="post", color=color, label=f"{name}, median {np.median(lengths):,.0f}")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.legend(loc="upper left", frameon=False)  # short prompts and outputs are few
    _tidy(ax)


def _lru_curve(columns: Columns, ax: Axes) -> None:
    ax.set(
        title="LRU, one tier, full blocks", xlabel="capacity [blocks]", ylabel="hit ratio [% of blocks]", ylim=(0, 103)
    )
    if not columns.has_prefixes or not columns.starts_known:
        _empty(ax, "no prefixes" if not columns.has_prefixes else "needs the start of sessions")
        return
    uses = reused(columns, with_partial=False)
    if not len(uses.distance):
        _empty(ax, "no block is used twice")
        return
    capacity, share = _distribution(uses.distance + 1, uses.blocks)
    ratio = 100 * share * int(uses.blocks.sum()) / uses.references
    ax.step(capacity, ratio, where="post", color=_GREEN)
    ax.axhline(ratio[-1], color="0.35", linestyle="--", linewidth=1)
    ax.set_title(f"LRU, one tier, full blocks: {ratio[-1]:.3g} % with room for all")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    _tidy(ax)


def _reuse_times(columns: Columns, ax: Axes) -> None:
    ax.set(title="Time between uses of a block", xlabel="time [s]", ylabel="share of uses again [%]", ylim=(0, 103))
    if not columns.has_prefixes:
        _empty(ax, "no prefixes")
        return
    uses = reused(columns, with_partial=False)
    reuse_s = columns.arrived_at_s[uses.request] - columns.arrived_at_s[uses.before]
    blocks = uses.blocks
    if not columns.starts_known and columns.session is not None:
        inside = columns.session[uses.request] == columns.session[uses.before]
        reuse_s, blocks = reuse_s[inside], blocks[inside]
    if not len(reuse_s):
        _empty(ax, "no block is used twice")
        return
    x_s, share = _distribution(reuse_s, blocks)
    ax.step(x_s, 100 * share, where="post", color=_BLUE)
    if x_s[-1] > 30 * max(np.median(x_s), 1e-9):
        # Linear below a second: two uses may have one stamp.
        ax.set_xscale("symlog", linthresh=1)
        ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlim(left=0)
    _tidy(ax)


def _distribution(values: NDArray[Any], weights: Ints) -> tuple[NDArray[Any], Floats]:
    """Return values in order and the share of the weights up to each, at most `_MAX_POINTS` of them."""
    order = np.argsort(values)
    ends = np.cumsum(weights[order])
    places = np.unique(np.searchsorted(ends, np.linspace(0, ends[-1], _MAX_POINTS), "left"))
    places = np.append(places[places < len(ends) - 1], len(ends) - 1)
    return values[order][places], ends[places] / ends[-1]


def _empty(ax: Axes, reason: str) -> None:
    ax.text(0.5, 0.5, reason, transform=ax.transAxes, ha="center", va="center", color="0.4")
    _tidy(ax)


def _tidy(ax: Axes) -> None:
    ax.grid(visible=True, axis="y", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
