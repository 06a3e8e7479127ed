"""The plot of miss-ratio curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from models.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, as in `sim.results.plot`; with more policies than colours, the line style tells them apart.
_PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_STYLES: Final = ("-", "--", ":", "-.")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
# Curves that lie on each other are common: the first is drawn the widest, so that it shows on both sides of the last.
_LINE_WIDTHS: Final = (3.2, 1.1)


def save_curves(rows: Sequence[Mapping[str, Any]], path: str, *, title: str, plain: bool) -> None:
    """Draw the miss ratio by capacity of each policy in *rows* (those of `kvtier mrc --json`); save it to *path*."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    draw_curves(rows, figure.subplots(), title=title, plain=plain)
    figure.savefig(path, dpi=120)


def draw_curves(rows: Sequence[Mapping[str, Any]], ax: Axes, *, title: str, plain: bool) -> Axes:
    """Draw the curves on *ax*: misses [% of blocks with *plain*, else of prompt tokens] by capacity [blocks]."""
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    widest, narrowest = _LINE_WIDTHS
    for place, policy in enumerate(policies):
        points = [row for row in rows if row["policy"] == policy]
        width = narrowest + (widest - narrowest) * (len(policies) - 1 - place) / len(policies)
        ax.plot(
            [row["capacity_blocks"] for row in points],
            [100.0 * row["miss_ratio"] for row in points],
            color=_PALETTE[place % len(_PALETTE)],
            linestyle=_STYLES[place // len(_PALETTE) % len(_STYLES)],
            marker=_MARKERS[place % len(_MARKERS)],
            markersize=3.0 + width,
            linewidth=width,
            label=policy,
        )
    ax.set(title=title, xlabel="capacity [blocks]", ylabel=f"misses [% of {'blocks' if plain else 'prompt tokens'}]")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    _bytes_above(rows, ax)
    ax.grid(visible=True, color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines["right"].set_visible(False)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    return ax


def _bytes_above(rows: Sequence[Mapping[str, Any]], ax: Axes) -> None:
    """Say the capacities in bytes as well, along the top, where the size of a block is known."""
    block_bytes = rows[0]["capacity_bytes"] and rows[0]["capacity_bytes"] // rows[0]["capacity_blocks"]
    if not block_bytes:
        ax.spines["top"].set_visible(False)
        return
    above = ax.secondary_xaxis("top", functions=(lambda x: x * block_bytes, lambda x: x / block_bytes))
    above.set_xlabel("capacity [B]")
    above.xaxis.set_major_formatter(lambda value, _: format_bytes(value))
