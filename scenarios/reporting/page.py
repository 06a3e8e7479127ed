"""Makes one HTML page of sections: no script, nothing fetched, fit for paper, dark screens and reading aloud."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from itertools import count
from typing import Final

from scenarios.reporting.drawing import with_own_ids
from scenarios.reporting.section import Section

_FOLDER: Final = "page_files"
_NO_WORD: Final = re.compile(r"[^a-z0-9]+")


def render(sections: Sequence[Section], *, made_by: str) -> str:
    """Return the page on *sections*, at least one; *made_by* says by what it was made."""
    from jinja2 import Environment, StrictUndefined

    # Names, sources and notes come from files of users: all is escaped but what drawings and the style sheet are.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    numbers = count(1)
    environment.filters["anchor"] = _anchor
    environment.filters["own_ids"] = lambda svg: with_own_ids(svg, f"p{next(numbers)}-")
    template = environment.from_string(_file("page.html.jinja"))
    return template.render(sections=sections, style=_file("page.css"), made_by=made_by)


def _anchor(*words: str) -> str:
    return _NO_WORD.sub("-", " ".join(words).lower()).strip("-")


def _file(name: str) -> str:
    return (resources.files("scenarios.reporting") / _FOLDER / name).read_text(encoding="utf-8")
