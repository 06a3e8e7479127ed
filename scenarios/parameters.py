"""Fitted parameters: a catalogue file of values that were fitted to measurements, laid below a scenario's own parts.

Each value stands under its key: one of a scenario (`engine.request_latency`), or a figure of a catalogue entry
(`figures.fx100.port_delivered_fraction`). The file also says how far each value can be trusted and what it was fitted
to; `kvtier calibrate` writes it.
"""

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from models.errors import ScenarioError, UnknownNameError
from scenarios.document import Node, read_file
from scenarios.layers import merge
from scenarios.problems import located

PREFIX: Final = "fitted/"
SECTIONS: Final = ("engine", "transfer", "figures")


def fitted_names() -> list[str]:
    """Return the names of the fitted parameters that ship."""
    return [PREFIX + item.name.removesuffix(".yaml") for item in _files()]


def read_parameters(name_or_path: str, folder: Path | None = None) -> Node:
    """Return fitted parameters by name, or by path (beside *folder*, then in the current one).

    Raises UnknownNameError for a name that does not ship, ScenarioError for a file that is wrong.
    """
    if name_or_path.endswith((".yaml", ".yml")):
        beside = None if folder is None else folder / name_or_path
        path = beside if beside is not None and beside.is_file() else Path(name_or_path)
        root = read_file(path, str(path))
    else:
        found = {PREFIX + item.name.removesuffix(".yaml"): item for item in _files()}
        if name_or_path not in found:
            raise UnknownNameError("fitted parameters", name_or_path, found)
        with resources.as_file(found[name_or_path]) as path:
            root = read_file(path, path.name)
    values = root.value.get("parameters")
    if values is None or not isinstance(values.value, dict) or not values.value:
        raise ScenarioError(
            root.where, "parameters: is missing; must hold values by key, such as engine.request_latency"
        )
    return root


def with_parameters(root: Node) -> Node:
    """Return *root* with its fitted parameters below its engine, its transfer and its figures."""
    named = root.value.get("parameters")
    if named is None or not isinstance(named.value, str):
        return root
    try:
        fitted = read_parameters(named.value, named.folder)
    except UnknownNameError as error:
        raise located(root, ["parameters"], str(error)) from None
    parts: dict[str, dict[str, Any]] = {}
    for key, parameter in fitted.value["parameters"].value.items():
        section, *path = split_key(key, parameter.where)
        value = _value(parameter, key)
        inner = parts.setdefault(section, {})
        if section == "figures":
            inner.setdefault(path[0], {})[path[1]] = _figure(parameter, value, named.value)
        else:
            inner[path[0]] = value
    laid = {section: _node(part, fitted.where) for section, part in parts.items()}
    merged = {**root.value}
    for section, part in laid.items():
        own = root.value.get(section)
        merged[section] = part if own is None or own.value is None else merge(part, own)
    return Node(merged, root.where, root.folder)


def split_key(key: str, where: str) -> tuple[str, ...]:
    """Return section, entry (of figures only) and name of a parameter's key; ScenarioError where it is no such key."""
    section, _, rest = key.partition(".")
    entry, _, name = rest.rpartition(".")
    if section in {"engine", "transfer"} and name and not entry:
        return section, name
    if section == "figures" and name and entry:
        return section, entry, name
    problem = "must be engine.KEY, transfer.KEY or figures.ENTRY.FIGURE"
    raise ScenarioError(where, f"parameters.{key}: {problem}")


def _value(parameter: Node, key: str) -> Node:
    keys = parameter.value if isinstance(parameter.value, dict) else {"value": parameter}
    if "value" not in keys:
        raise ScenarioError(parameter.where, f"parameters.{key}: has no value")
    value: Node = keys["value"]
    return value


def _figure(parameter: Node, value: Node, source: str) -> dict[str, Any]:
    figure: dict[str, Any] = {"value": value, "source": source, "status": "fitted"}
    spread = parameter.value.get("spread") if isinstance(parameter.value, dict) else None
    if spread is not None:
        figure["spread"] = spread
    return figure


def _node(value: Any, where: str) -> Node:
    if isinstance(value, Node):
        return value
    if isinstance(value, dict):
        return Node({key: _node(part, where) for key, part in value.items()}, where)
    return Node(value, where)


def _files() -> list[Traversable]:
    root = resources.files("models") / "catalogue" / "fitted"
    if not root.is_dir():
        return []
    return sorted((item for item in root.iterdir() if item.name.endswith(".yaml")), key=lambda item: item.name)
