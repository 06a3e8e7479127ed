"""`kvtier show`: one thing in full, every figure with its unit, source, status and spread."""

import inspect
import sys
from collections.abc import Collection, Iterator
from typing import Any

import yaml

from models.catalogue import Entry, Figure, load_entry
from models.errors import InputError, UnknownNameError, did_you_mean
from scenarios.commands.listing import KINDS, REGISTRIES, plural_of, singular_of
from scenarios.commands.tables import print_json, print_pairs, print_table
from scenarios.figure_texts import share
from scenarios.layers import is_path
from scenarios.loader import json_schema, load_scenario, resolved
from scenarios.profiles import read_profile, settings

_CATALOGUE = ("llms", "accelerators", "storage", "links")


def print_one(kind: str | None, name: str, *, as_json: bool) -> None:
    """Print one thing; without *kind* all kinds are searched. Raises InputError where none or several fit."""
    if kind is None and name == "schema":
        print_json(json_schema())
        return
    plural = _kind_of(name) if kind is None else plural_of(kind)
    if plural in _CATALOGUE:
        entry = load_entry(singular_of(plural), name)
        if as_json:
            print_json(entry.model_dump(mode="json", exclude_none=True))
        else:
            _print_entry(entry)
        return
    if plural in REGISTRIES:
        found = _plugin(plural, name)
    elif plural == "scenarios":
        found = resolved(load_scenario(name))
    else:
        found = {"name": name, **read_profile(name).plain()}
    if as_json:
        print_json(found)
    elif plural in REGISTRIES:
        _print_plugin(found)
    elif plural == "stacks":
        _print_profile(found)
    else:
        sys.stdout.write(yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=100))


def _kind_of(name: str) -> str:
    """Return the kind that *name* belongs to; a path is a scenario."""
    if is_path(name):
        return "scenarios"
    holders = [plural for plural in KINDS if _has(plural, name)]
    if len(holders) == 1:
        return holders[0]
    if holders:
        choices = ", ".join(f"`kvtier show {singular_of(plural)} {name}`" for plural in holders)
        raise InputError(f"'{name}' is the name of several things; say which: {choices}")
    everything = [known["name"] for rows in KINDS.values() for known in rows()]
    # A hundred names are no help in one line.
    raise InputError(f"unknown name '{name}'{did_you_mean(name, everything)} (`kvtier list` shows all names)")


def _has(plural: str, name: str) -> bool:
    if plural not in _CATALOGUE:
        return any(known["name"] == name for known in KINDS[plural]())
    try:
        load_entry(singular_of(plural), name)
    except UnknownNameError:
        return False
    return True


def _print_entry(entry: Entry) -> None:
    pairs = [("kind", entry.kind), ("name", entry.name), ("title", entry.title), ("status", entry.status)]
    if entry.aliases:
        pairs.append(("aliases", ", ".join(entry.aliases)))
    pairs += [(name.replace("_", " "), word) for name, word in entry.traits.items()]
    if entry.note:
        pairs.append(("note", entry.note))
    print_pairs(pairs)
    sys.stdout.write("\n")
    header = ["figure", "value", "status", "spread", "source"]
    print_table(header, [_figure(name, figure) for name, figure in entry.figures.items()])
    for name, curve in entry.curves.items():
        sys.stdout.write(f"\ncurve {name} ({curve.status}; {curve.source})\n")
        points = zip(curve.x_bytes, curve.y_bytes_per_s, strict=True)
        print_table(["bytes", "bytes/s"], [[f"{x:g}", f"{y:g}"] for x, y in points], numbers_from=0)


def _figure(name: str, figure: Figure) -> list[str]:
    status = f"{figure.status}, unverified" if figure.unverified else figure.status
    source = figure.source if figure.note is None else f"{figure.source}. Note: {figure.note}"
    return [name, figure.text, status, share(figure.spread), source]


def _print_profile(found: dict[str, Any]) -> None:
    print_pairs([(key, str(found[key])) for key in ("name", "description", "version") if key in found])
    rows = [[row.key, _text(row.value), row.why] for row in settings(read_profile(found["name"]))]
    if rows:
        sys.stdout.write("\n")
        print_table(["key", "value", "why"], rows)
    if "not_modelled" in found:
        sys.stdout.write("\nNot modelled:\n")
        sys.stdout.writelines(f"- {' '.join(limit.split())}\n" for limit in found["not_modelled"])


def _text(value: Any) -> str:
    """Return a value as a scenario would have it."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000).splitlines()[0]


def _plugin(plural: str, name: str) -> dict[str, Any]:
    registry = REGISTRIES[plural]()
    cls = registry.get(name)
    return {
        "name": name,
        "class": f"{cls.__module__}:{cls.__qualname__}",
        "parameters": dict(_parameters(cls, registry.supplied)),
        "description": inspect.getdoc(cls) or "",
    }


def _print_plugin(found: dict[str, Any]) -> None:
    pairs = [("name", found["name"]), ("class", found["class"])]
    print_pairs([*pairs, *((f"parameter {name}", default) for name, default in found["parameters"].items())])
    sys.stdout.write(f"\n{found['description']}\n")


def _parameters(cls: type[Any], supplied: Collection[str]) -> Iterator[tuple[str, str]]:
    for name, parameter in inspect.signature(cls).parameters.items():
        if name in supplied:
            continue
        yield name, "(required)" if parameter.default is parameter.empty else str(parameter.default)
