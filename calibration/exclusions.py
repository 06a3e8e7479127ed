"""Published figures that are not simulated, each with the reason: a YAML file beside the table of those that are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from models.errors import LocatedError
from models.yaml_files import read_mapping
from scenarios.problems import first_problem

_RANGE: Final = re.compile(r"([A-Za-z]*)(\d+)-\1(\d+)")


class ExclusionError(LocatedError):
    """A file of exclusions is wrong."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    ids: Annotated[list[str], Field(min_length=1)]
    why: Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Figures of one kind that are left out: their ids, what they are of, and why."""

    group: str
    ids: tuple[str, ...]
    why: str


def read_exclusions(table: str) -> tuple[Exclusion, ...]:
    """Return what is left out of a table that ships, in the order of the file; nothing where it has no such file.

    Raises ExclusionError for a file that is wrong, or an id that stands in it twice.
    """
    label = f"{table}-excluded.yaml"
    file = resources.files("calibration").joinpath("measured", label)
    return exclusions(file.read_text(encoding="utf-8"), label) if file.is_file() else ()


def exclusions(text: str, where: str) -> tuple[Exclusion, ...]:
    """Return the exclusions of a YAML text: ``group: {ids: [A01, A03-A07], why: reason}``; raises as the above."""
    try:
        entries = TypeAdapter(dict[str, _Entry]).validate_python(read_mapping(text, where))
    except ValidationError as error:
        raise ExclusionError(where, first_problem(error)) from None
    found = tuple(
        Exclusion(group=group, ids=tuple(name for item in entry.ids for name in _expanded(item)), why=entry.why)
        for group, entry in entries.items()
    )
    seen: set[str] = set()
    for exclusion in found:
        for name in exclusion.ids:
            if name in seen:
                raise ExclusionError(where, f"{exclusion.group}: id '{name}' stands twice")
            seen.add(name)
    return found


def _expanded(item: str) -> list[str]:
    """Return the ids that A03-A07 stands for; any other text is an id."""
    match = _RANGE.fullmatch(item)
    if match is None:
        return [item]
    letters, first, last = match.groups()
    return [f"{letters}{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
