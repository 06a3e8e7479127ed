"""Plots of a sweep: figures over the swept keys. Each function draws on *ax* or a new figure; none shows a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from models.units import format_bytes, format_rate, format_seconds
from scenarios.comparison.metrics import is_share
from scenarios.sweeping.units import text_of, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scenarios.sweeping.result import SweepResult

# Okabe and Ito's palette, as in sim.results.plot.
_PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS: Final = ("o", "s", "D", "^", "v", "P", "X")
_PANEL_IN: Final = (5.2, 3.8)
_TTFT: Final = ("ttft_s.p50", "ttft_s.p90", "ttft_s.p99")
_PARTS: Final = tuple(f"ttft_parts_s.{part}" for part in ("queue", "load", "compute", "other"))
_PANELS: Final = ("ttft_s.p50", "ttft_s.p99", "throughput.output_tokens_per_s", "hit_ratio_tokens")
_TITLES: Final = {
    "ttft_s.p50": "TTFT p50",
    "ttft_s.p90": "TTFT p90",
    "ttft_s.p99": "TTFT p99",
    "throughput.output_tokens_per_s": "output tokens/s",
    "hit_ratio_tokens": "prompt tokens that were hits [%]",
}
# Values further apart than this cannot be read off one linear axis.
_LOG_FROM: Final = 20.0
# More keys than this make panels too small to read, and more cells than this do not hold their numbers.
_MAX_KEYS: Final = 4
_MAX_CELLS: Final = 120
_MAX_SIDE: Final = 24


def heat_map(result: SweepResult, figure: str, *, x: str, y: str, ax: Axes | None = None) -> Axes:
    """Draw a figure over two keys as coloured cells with their values; the mean where several points meet in one."""
    ax = _axes(ax)
    across, up = _levels(result, x), _levels(result, y)
    values = np.array([np.nan if value is None else float(value) for value in _figure(result, figure)])
    cells: dict[tuple[int, int], list[float]] = {}
    for column, row, value in zip(_places(result, x, across), _places(result, y, up), values, strict=True):
        if not np.isnan(value):
            cells.setdefault((row, column), []).append(value)
    grid = np.full((len(up), len(across)), np.nan)
    for place, found in cells.items():
        grid[place] = np.mean(found)
    norm = _norm(grid)
    mesh = ax.pcolormesh(grid, cmap="viridis", norm=norm, edgecolors="white", linewidth=1.0)
    text = _texts(figure)
    for (row, column), value in np.ndenumerate(grid) if grid.size <= _MAX_CELLS else ():
        shown = "-" if np.isnan(value) else text(float(value))
        dark = bool(norm(value) < 0.6)  # NaN, a white cell, is not
        ax.text(
            column + 0.5, row + 0.5, shown, ha="center", va="center", fontsize=8, color="white" if dark else "black"
        )
    if grid.size > _MAX_CELLS:
        ax.figure.colorbar(mesh, ax=ax)
    ax.set_xticks(np.arange(len(across)) + 0.5, [text_of(level, unit_of(x)) for level in across])
    ax.set_yticks(np.arange(len(up)) + 0.5, [text_of(level, unit_of(y)) for level in up])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set(title=_title(figure), xlabel=x, ylabel=y)
    return ax


def lines(result: SweepResult, figures: Sequence[str], *, x: str, ax: Axes | None = None) -> Axes:
    """Draw figures of one unit over a key: lines over numbers, dots over names and where other keys differ too."""
    ax = _axes(ax)
    levels = _levels(result, x)
    places = np.array(_positions(result, x, levels), dtype=float)
    joined = all(map(_is_number, levels)) and len(_varied(result)) <= 1
    order = np.argsort(places, kind="stable")
    scale = 100.0 if is_share(figures[0]) else 1.0
    drawn = []
    for place, figure in enumerate(figures):
        values = np.array([np.nan if value is None else scale * value for value in _figure(result, figure)])
        color, marker = _PALETTE[place % len(_PALETTE)], _MARKERS[place % len(_MARKERS)]
        label = figure.rpartition(".")[2]
        style = "-" if joined else "none"
        ax.plot(places[order], values[order], marker=marker, markersize=5, color=color, label=label, linestyle=style)
        drawn.append(values[~np.isnan(values)])
    _scale_y(ax, np.concatenate(drawn))
    _scale_x(ax, x, levels)
    several = len(figures) > 1
    ax.set(title=figures[0].partition(".")[0] if several else _title(figures[0]), xlabel=x, ylabel=_axis(figures[0]))
    if several:
        ax.legend(frameon=False, fontsize=8)
    return _tidy(ax)


def overview(result: SweepResult) -> Figure:
    """Draw the sweep on one figure: lines over one key, heat maps over two, dots over more or over samples."""
    keys = _varied(result) or list(result.keys)[:1]
    if len(keys) == 1:
        figure, axes = _panels(2, 2)
        lines(result, _TTFT, x=keys[0], ax=axes[0, 0]).set_title("time to first token")
        lines(result, _PARTS, x=keys[0], ax=axes[0, 1]).set_title("where the mean TTFT goes")
        lines(result, _PANELS[2:3], x=keys[0], ax=axes[1, 0])
        lines(result, _PANELS[3:4], x=keys[0], ax=axes[1, 1])
    elif len(keys) == 2 and all(len(_levels(result, key)) <= _MAX_SIDE for key in keys):
        figure, axes = _panels(2, 2)
        for name, ax in zip(_PANELS, axes.flat, strict=True):
            heat_map(result, name, x=keys[1], y=keys[0], ax=ax)
    else:
        shown = keys[:_MAX_KEYS]
        names = ("ttft_s.p90", *_PANELS[2:])
        figure, axes = _panels(len(names), len(shown))
        for row, name in enumerate(names):
            for column, key in enumerate(shown):
                lines(result, [name], x=key, ax=axes[row, column])
    rest = "" if len(keys) <= _MAX_KEYS else f" (and {len(keys) - _MAX_KEYS} more keys)"
    failed = f", {result.failed} failed" if result.failed else ""
    figure.suptitle(f"{result.name}: {len(result)} points{failed}{rest}", fontsize=11)
    return figure


def _panels(rows: int, columns: int) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_PANEL_IN[0] * columns, _PANEL_IN[1] * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    axes: Axes = Figure(figsize=_PANEL_IN, layout="constrained").subplots()
    return axes


def _figure(result: SweepResult, figure: str) -> list[Any]:
    """Return a figure of every point; all None where no point has got one."""
    if result.failed == len(result):
        return [None] * len(result)
    return result.column(figure)


def _levels(result: SweepResult, key: str) -> list[Any]:
    """Return the different values of a key: numbers by size, others as they came."""
    values = list(dict.fromkeys(result.column(key)))
    return sorted(values) if all(_is_number(value) for value in values) else values


def _varied(result: SweepResult) -> list[str]:
    return [key for key in result.keys if len(_levels(result, key)) > 1]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _places(result: SweepResult, key: str, levels: Sequence[Any]) -> list[int]:
    return [levels.index(value) for value in result.column(key)]


def _positions(result: SweepResult, key: str, levels: Sequence[Any]) -> list[float]:
    return result.column(key) if all(map(_is_number, levels)) else [float(at) for at in _places(result, key, levels)]


def _norm(grid: Any) -> Any:
    from matplotlib.colors import LogNorm, Normalize

    known = grid[~np.isnan(grid)]
    if known.size and known.min() > 0.0 and known.max() > _LOG_FROM * known.min():
        return LogNorm(known.min(), known.max())
    return Normalize(known.min(), known.max()) if known.size else None


def _scale_y(ax: Axes, values: Any) -> None:
    positive = values[values > 0.0]
    if positive.size == values.size and values.size and values.max() > _LOG_FROM * values.min():
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    else:
        ax.set_ylim(0.0, 1.08 * values.max() if values.size and values.max() > 0.0 else 1.0)


def _scale_x(ax: Axes, key: str, levels: Sequence[Any]) -> None:
    """Put numbers where they belong, by ratio where they lie far apart; others side by side."""
    unit = unit_of(key)
    if not all(map(_is_number, levels)):
        ax.set_xticks(range(len(levels)), [text_of(level, unit) for level in levels])
        ax.set_xlim(-0.5, len(levels) - 0.5)
        return
    if levels[0] > 0 and levels[-1] > _LOG_FROM / 2.0 * levels[0]:
        ax.set_xscale("log")
        ax.xaxis.minorticks_off()
    if len(levels) <= 8:
        ax.set_xticks(levels, [text_of(level, unit) for level in levels])
    elif unit is not None:
        ax.xaxis.set_major_formatter(lambda value, _: text_of(float(value), unit))


def _texts(figure: str) -> Callable[[float], str]:
    """Return what writes a value of a figure in a cell."""
    if is_share(figure):
        return lambda value: f"{100.0 * value:.1f}"
    if figure.endswith("_bytes"):
        return format_bytes
    if figure.endswith("_bytes_per_s"):
        return format_rate
    if figure.partition(".")[0].endswith("_s"):
        return format_seconds
    return lambda value: f"{value:,.3g}" if abs(value) < 1e3 else f"{value:,.0f}"


def _title(figure: str) -> str:
    return _TITLES.get(figure, figure)


def _axis(figure: str) -> str:
    if is_share(figure):
        return "share of prompt tokens [%]"
    return "time [s]" if figure.partition(".")[0].endswith("_s") else figure.rpartition(".")[2]


def _tidy(ax: Axes) -> Axes:
    ax.grid(visible=True, color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
