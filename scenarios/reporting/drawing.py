"""Drawings as SVG that stands inside a page: its colours are names, which the page gives values for light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that stand for "the page's ink" and nothing else, so that black and white inside a drawing stay what they are.
INK: Final = "#010203"
_FAINT: Final = "#010204"

_NAMES: Final = {
    INK: "ink",
    _FAINT: "muted",
    # Okabe and Ito's palette of the plots.
    "#0072b2": "c-blue",
    "#d55e00": "c-vermilion",
    "#009e73": "c-green",
    "#cc79a7": "c-pink",
    "#56b4e9": "c-sky",
    "#e69f00": "c-orange",
    # Greys of the plots, by what they are used for.
    "#e6e6e6": "grid",  # 0.9
    "#cccccc": "grid",  # 0.8
    "#999999": "muted",  # 0.6
    "#808080": "muted",  # 0.5
    "#666666": "muted",  # 0.4
    "#595959": "muted",  # 0.35
}
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "text.color": INK,
    "axes.labelcolor": _FAINT,
    "axes.titlecolor": INK,
    "axes.edgecolor": _FAINT,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.facecolor": "none",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_COLOR: Final = re.compile(r"#[0-9a-f]{6}\b")
_BLACK_LINE: Final = re.compile(r"stroke: #000000")
_FONT: Final = re.compile(r"font: (?:\w+ )*?([\d.]+px) [^;\"]*")
_ID: Final = re.compile(r'\bid="([^"]+)"')
_REFERENCE: Final = re.compile(r'(xlink:href="#|url\(#)([^")]+)')
_HEAD: Final = re.compile(r"^.*?(?=<svg)|<metadata>.*?</metadata>|<style type=.*?</style>", re.DOTALL)
_SIZE: Final = re.compile(r'(<svg [^>]*?)width="[\d.]+pt" height="[\d.]+pt"')

HALF_IN: Final = (5.6, 3.3)
"""Of a plot that stands beside another."""
WIDE_IN: Final = (11.6, 3.4)
"""Of a plot as wide as the page."""


@contextmanager
def canvas(size_in: tuple[float, float] = HALF_IN) -> Iterator[Figure]:
    """Give a new figure, in the page's style as long as the context lasts."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        yield Figure(figsize=size_in, layout="constrained")


def svg_of(figure: Figure) -> str:
    """Return a figure, drawn in a :func:`canvas`, as an SVG element with the page's colours and fonts.

    What it shows in words for those who do not see it is the page's to say.
    """
    import matplotlib as mpl

    drawn = io.StringIO()
    # A fixed salt: the same result gives the same page.
    with mpl.rc_context(_STYLE | {"svg.hashsalt": "kvtier"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    text = _HEAD.sub("", drawn.getvalue())
    text = _SIZE.sub(lambda found: found[1], text, count=1)
    text = _BLACK_LINE.sub("stroke: var(--c-black)", text)
    text = _COLOR.sub(_named, text)
    return _FONT.sub(r"font-size: \1", text).strip()


def with_own_ids(svg: str, prefix: str) -> str:
    """Return an SVG element with *prefix* before all its ids, so that several can stand on one page."""
    return _REFERENCE.sub(rf"\g<1>{prefix}\2", _ID.sub(rf'id="{prefix}\1"', svg))


def _named(found: re.Match[str]) -> str:
    name = _NAMES.get(found[0])
    return found[0] if name is None else f"var(--{name})"
