"""What a report consists of, as plain values: sections, their chapters, and what stands in them. Knows no HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Tone = Literal["", "good", "bad", "warn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One figure that stands out: its name, its value for people, and what it is of."""

    name: str
    value: str
    note: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A drawing: its title, the caption below it, what it shows in words for those who do not see it, and the SVG."""

    title: str
    caption: str
    alt: str
    svg: str
    wide: bool = False
    kind: str = "plot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a header; columns from *numbers_from* on are aligned right, *marks* are columns of short words.

    A table with a *folded* text is shown when that is clicked, and always on paper; a *half* one stands beside a plot.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers_from: int | None = None
    marks: frozenset[int] = frozenset()
    folded: str = ""
    half: bool = False
    kind: str = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Paragraphs, below a *lead* that stands out; with *items* a list below them."""

    lead: str = ""
    paragraphs: Sequence[str] = ()
    items: Sequence[str] = ()
    kind: str = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Text that keeps its lines, such as a scenario; folded as a table can be."""

    text: str
    label: str
    folded: str = ""
    kind: str = "code"


Block = Plot | Table | Text | Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A heading and what stands below it."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """All that a report says of one thing.

    Parameters
    ----------
    kind, title : str
        What it is ("run", "comparison" ...) and what it is called.
    about : str
        One line below the title: what was simulated, by what.
    headline : str
        What came out, in a sentence or two for somebody who reads nothing else.
    tone : str
        Whether that is good or bad, where there is such a thing: a gate that was passed, a plan with no answer.
    facts : sequence of Fact
        The figures behind the headline.
    chapters : sequence of Chapter
        The rest, in order of interest.
    """

    kind: str
    title: str
    about: str
    headline: str
    facts: Sequence[Fact]
    chapters: Sequence[Chapter]
    tone: Tone = ""


class Kind(Protocol):
    """One kind of thing that can be reported; `scenarios.reporting.kinds` lists them."""

    name: str
    """What it is called in messages."""
    saved_by: str
    """The command that makes one."""

    def fits(self, path: Path) -> bool:
        """Return whether *path* is such a thing, by a quick look."""
        ...

    def section(self, path: Path) -> Section:
        """Return the section on it. Raises InputError where it is damaged."""
        ...
