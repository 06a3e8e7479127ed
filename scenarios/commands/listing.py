"""`kvtier list`: the names that a scenario can use, by kind."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from models.catalogue import entries, load_entry
from models.errors import UnknownNameError
from scenarios.commands.tables import print_json, print_table
from scenarios.loader import library, stacks
from sim.registry import Registry

Row = dict[str, str]


def print_names(kind: str | None, *, as_json: bool) -> None:
    """Print the names of one kind with what they are, or of all kinds; raises UnknownNameError for another kind."""
    if kind is None:
        names = {plural: [row["name"] for row in rows()] for plural, rows in KINDS.items()}
        if as_json:
            print_json(names)
        else:
            print_table(["kind", "names"], [[plural, ", ".join(found)] for plural, found in names.items()])
        return
    plural = plural_of(kind)
    rows = KINDS[plural]()
    if as_json:
        print_json({plural: rows})
        return
    columns = list(rows[0]) if rows else ["name"]
    print_table(columns, [[row[column] for column in columns] for row in rows])


def plural_of(kind: str) -> str:
    """Return the kind for its singular or plural name; raises UnknownNameError."""
    for plural in KINDS:
        if kind in {plural, singular_of(plural)}:
            return plural
    raise UnknownNameError("kind", kind, KINDS)


def singular_of(plural: str) -> str:
    """Return what one thing of a kind is called."""
    return "storage" if plural == "storage" else plural.removesuffix("s")


def _catalogue(kind: str) -> Callable[[], list[Row]]:
    def rows() -> list[Row]:
        found = [load_entry(kind, name) for name in entries(kind)]
        return [{"name": entry.name, "status": entry.status, "title": entry.title} for entry in found]

    return rows


def _described(pairs: Callable[[], list[tuple[str, str]]]) -> Callable[[], list[Row]]:
    return lambda: [{"name": name, "description": description} for name, description in pairs()]


def _registered(find: Callable[[], Registry[Any]]) -> Callable[[], list[Row]]:
    def rows() -> list[Row]:
        registry = find()
        return [{"name": name, "description": registry.describe(name)} for name in registry.names()]

    return rows


def _evictions() -> Registry[Any]:
    from sim.policies.base import EVICTION

    return EVICTION


def _placements() -> Registry[Any]:
    from sim.policies.base import PLACEMENT

    return PLACEMENT


def _admissions() -> Registry[Any]:
    from sim.policies.base import ADMISSION

    return ADMISSION


def _routers() -> Registry[Any]:
    from sim.policies.base import ROUTING

    return ROUTING


def _schedulers() -> Registry[Any]:
    from sim.policies.base import SCHEDULING

    return SCHEDULING


def _generators() -> Registry[Any]:
    from sim.generators import GENERATORS

    return GENERATORS


def _trace_formats() -> Registry[Any]:
    from sim.traces import READERS

    return READERS


REGISTRIES: Final[Mapping[str, Callable[[], Registry[Any]]]] = MappingProxyType(
    {
        "evictions": _evictions,
        "placements": _placements,
        "admissions": _admissions,
        "routers": _routers,
        "schedulers": _schedulers,
        "generators": _generators,
        "trace-formats": _trace_formats,
    }
)
"""The kinds that are classes, with how to find their registry."""
KINDS: Final[Mapping[str, Callable[[], list[Row]]]] = MappingProxyType(
    {
        "llms": _catalogue("llm"),
        "accelerators": _catalogue("accelerator"),
        "storage": _catalogue("storage"),
        "links": _catalogue("link"),
        "scenarios": _described(library),
        "stacks": _described(stacks),
        **{plural: _registered(find) for plural, find in REGISTRIES.items()},
    }
)
"""What `kvtier list` knows, by plural name; the rows are made on use."""
