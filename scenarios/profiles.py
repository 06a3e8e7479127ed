"""Stack profiles: what a stack sets, why, and what of it is not modelled; laid below a scenario's own parts.

A profile is a YAML file with sections of a scenario: `engine`, `transfer`, `hbm`, `tier` (each tier below hbm), and
on top of that `memory` (what GPUs copy from) and `storage` (drives, arrays, object stores). `why` has a reason and a
source by key, such as `transfer.load`; `not_modelled` lists what the simulator cannot express. `base` names a profile
that this one changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel

from models.errors import InputError, ScenarioError, UnknownNameError, did_you_mean
from models.storage import load_device
from scenarios.document import Node, read_file
from scenarios.layers import is_path, merge, read_shipped
from scenarios.problems import located
from scenarios.schema import Engine, Transfer
from scenarios.tier_spec import TierSpec

SECTIONS: Final[Mapping[str, type[BaseModel]]] = MappingProxyType(
    {"engine": Engine, "transfer": Transfer, "hbm": TierSpec, "tier": TierSpec, "memory": TierSpec, "storage": TierSpec}
)
"""What a profile may set, with what says which keys there are."""
_KEYS: Final = ("base", "description", "version", *SECTIONS, "why", "not_modelled")
# Of each file itself, and not inherited. The limits are: what changes a profile does not change the simulator.
_OWN: Final = frozenset({"base", "description", "version"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key that a profile sets: where, to what, and why (empty where the profile does not say)."""

    key: str
    value: Any
    why: str


def read_profile(name_or_path: str, folder: Path | None = None) -> Node:
    """Return a stack profile (a shipped name or a path) laid over its `base`, all keys checked.

    Raises
    ------
    UnknownNameError
        For a name that does not ship.
    ScenarioError
        For a key that a profile does not have.
    """
    return _read(name_or_path, folder, ())


def _read(name_or_path: str, folder: Path | None, above: tuple[str, ...]) -> Node:
    if is_path(name_or_path):
        path = Path(name_or_path) if folder is None else folder / name_or_path
        profile = read_file(path, str(path), folder=path.parent)
    else:
        profile = read_shipped("stacks", "stack", name_or_path)
    _check(profile)
    base = profile.value.get("base")
    if base is None:
        return profile
    if not isinstance(base.value, str):
        raise ScenarioError(base.where, "base: must be the name or the path of a stack profile")
    if base.value in above:
        raise ScenarioError(base.where, f"base: '{base.value}' is based on itself")
    try:
        under = _read(base.value, base.folder, (*above, base.value))
    except UnknownNameError as error:
        raise ScenarioError(base.where, f"base: {error}") from None
    inherited = {key: part for key, part in under.value.items() if key not in _OWN}
    own = {key: part for key, part in profile.value.items() if key != "base"}
    more = profile.value.get("not_modelled")
    merged = merge(Node(inherited, under.where, under.folder), Node(own, profile.where, profile.folder))
    if more is not None and "not_modelled" in inherited:
        both = [*inherited["not_modelled"].value, *more.value]
        merged = Node(
            {**merged.value, "not_modelled": Node(both, more.where, more.folder)}, merged.where, merged.folder
        )
    return merged


def _check(profile: Node) -> None:
    _check_keys(profile, _KEYS, "")
    for key, model in SECTIONS.items():
        _check_keys(_mapping(profile, key), model.model_fields, f"{key}.")
    for key, reason in _mapping(profile, "why").value.items():
        section, _, field = key.partition(".")
        if section not in SECTIONS or field not in SECTIONS[section].model_fields:
            raise ScenarioError(reason.where, f"why.{key}: is no key of a profile; write it as transfer.load")
        if not isinstance(reason.value, str):
            raise ScenarioError(reason.where, f"why.{key}: must be a text")
    limits = profile.value.get("not_modelled")
    if limits is not None and not (
        isinstance(limits.value, list) and all(isinstance(item.value, str) for item in limits.value)
    ):
        raise ScenarioError(limits.where, "not_modelled: must be a list of texts")


def _mapping(profile: Node, key: str) -> Node:
    part: Node | None = profile.value.get(key)
    if part is None:
        return Node({}, profile.where)
    if not isinstance(part.value, dict):
        raise ScenarioError(part.where, f"{key}: must be a mapping")
    return part


def _check_keys(node: Node, allowed: Iterable[str], prefix: str) -> None:
    for key, child in node.value.items():
        if key not in allowed:
            hint = did_you_mean(key, allowed)
            raise ScenarioError(child.where, f"{prefix}{key}: unknown key{hint} (allowed: {', '.join(allowed)})")


def settings(profile: Node) -> Iterator[Setting]:
    """Yield each key that a profile sets."""
    why = _mapping(profile, "why").value
    for section in SECTIONS:
        for field, value in _mapping(profile, section).value.items():
            key = f"{section}.{field}"
            reason = why.get(key)
            yield Setting(key=key, value=value.plain(), why="" if reason is None else " ".join(reason.value.split()))


def with_stack(root: Node) -> Node:
    """Return *root* with its stack profile below its engine, its transfer and its tiers."""
    stack = root.value.get("stack")
    if stack is None or not isinstance(stack.value, str):
        return root
    try:
        profile = read_profile(stack.value, stack.folder)
    except UnknownNameError as error:
        raise located(root, ["stack"], str(error)) from None
    parts = dict(root.value)
    for key in ("engine", "transfer"):
        part = profile.value.get(key)
        if part is not None:
            parts[key] = _under(part, parts.get(key))
    tiers = parts.get("tiers")
    if tiers is not None and isinstance(tiers.value, dict):
        found = {name: _tier(profile, name, spec) for name, spec in tiers.value.items()}
        parts["tiers"] = Node(found, tiers.where, tiers.folder)
    return Node(parts, root.where, root.folder)


def _tier(profile: Node, name: str, spec: Node) -> Node:
    """Return a tier with what the profile says of its kind below it."""
    if name == "hbm":
        sections = ["hbm"]
    else:
        kind = _kind(spec)
        sections = ["tier"] if kind is None else [kind, "tier"]
    for section in sections:
        part = profile.value.get(section)
        if part is not None:
            spec = _under(part, spec)
    return spec


def _kind(spec: Node) -> str | None:
    """Return "memory" or "storage", None for a page cache and for what is wrong and will be reported later."""
    keys = spec.value if isinstance(spec.value, dict) else {}
    device, cached = keys.get("device"), keys.get("page_cache_of")
    if device is None or not isinstance(device.value, str) or (cached is not None and cached.value is not None):
        return None
    name = device.value
    if is_path(name) and device.folder is not None and (device.folder / name).is_file():
        name = str(device.folder / name)
    try:
        return "memory" if load_device(name).device_class == "memory" else "storage"
    except InputError:
        return None


def _under(profile: Node, own: Node | None) -> Node:
    return profile if own is None or own.value is None else merge(profile, own)
