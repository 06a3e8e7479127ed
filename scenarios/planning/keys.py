"""Keys of a scenario that hold numbers: what kind of number, and what it is in a scenario as it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel

from models.errors import ScenarioError, did_you_mean
from models.storage import load_device
from scenarios.build import Assembly
from scenarios.choices import CHOICE_KEYS, dimension_of
from scenarios.quantity import Dimension
from scenarios.schema import Scenario

Number = int | float

_NOT_SOUGHT: Final = frozenset({"run.seed"})


@dataclass(frozen=True, slots=True)
class Kind:
    """A number of a *dimension* of `models.units` (None: a plain one), *whole* where it counts things."""

    dimension: str | None
    whole: bool

    @property
    def is_int(self) -> bool:
        """Whether a scenario holds it as a whole number: counts, and bytes."""
        return self.whole or self.dimension == "bytes"


def path_of(key: str) -> list[str]:
    """Return the parts of a key, or of where a figure stands; names of links hold dots ('links.nic.0.bandwidth')."""
    parts = key.split(".")
    return ["links", ".".join(parts[1:-1]), parts[-1]] if parts[0] == "links" and len(parts) > 2 else parts


def kind_of(key: str, scenario: Scenario, where: str) -> Kind:
    """Return what kind of number a key holds; ScenarioError(where, ...) if there is none or it holds something else."""
    if key in _NOT_SOUGHT or not key:
        raise ScenarioError(where, "must be a quantity of the scenario, such as links.fabric.bandwidth")
    annotation: Any = Scenario
    metadata: Sequence[Any] = ()
    path = path_of(key)
    if path[0] == "figures":
        raise ScenarioError(where, "is a figure of the catalogue; only what a scenario says itself can be solved for")
    above: list[str] = []
    for part in path:
        if above and above[-1] in CHOICE_KEYS and isinstance(_value(scenario, above), str | dict):
            return _parameter_kind(key, path, scenario)
        annotation, metadata = _step(annotation, part, above, scenario, where)
        above.append(part)
    types, markers = _leaf(annotation, metadata)
    if not types & {int, float} or bool in types:
        raise ScenarioError(where, f"{key} is not a number")
    dimension = next((marker.name for marker in markers if isinstance(marker, Dimension)), None)
    return Kind(dimension, whole=int in types and dimension is None)


def _parameter_kind(key: str, path: Sequence[str], scenario: Scenario) -> Kind:
    """Return the kind of a policy's parameter: by its name, and by the value that it has."""
    own = _value(scenario, path)
    dimension = dimension_of(key)
    return Kind(dimension, whole=isinstance(own, int) and dimension is None)


def _step(
    annotation: Any, part: str, above: Sequence[str], scenario: Scenario, where: str
) -> tuple[Any, Sequence[Any]]:
    """Return type and metadata of what stands under *part*."""
    dotted = ".".join([*above, part])
    for one in _plain(annotation):
        if isinstance(one, type) and issubclass(one, BaseModel):
            if part in one.model_fields:
                field = one.model_fields[part]
                return field.annotation, field.metadata
            raise ScenarioError(where, _unknown(dotted, part, list(one.model_fields)))
        if get_origin(one) is dict:
            names = list(_value(scenario, above) or ())
            if part not in names and above != ["links"]:
                raise ScenarioError(where, _unknown(dotted, part, names))
            return get_args(one)[1], ()
        if get_origin(one) is tuple:
            if _value(scenario, [*above, part]) is None:
                names = [getattr(item, "name", str(at)) for at, item in enumerate(_value(scenario, above) or ())]
                raise ScenarioError(where, _unknown(dotted, part, names))
            return get_args(one)[0], ()
    raise ScenarioError(where, f"there is no key '{dotted}'")


def _unknown(dotted: str, part: str, allowed: Sequence[str]) -> str:
    names = f"allowed: {', '.join(allowed)}" if allowed else "the scenario has none"
    return f"unknown key '{dotted}'{did_you_mean(part, allowed)} ({names})"


def _plain(annotation: Any) -> list[Any]:
    """Return the parts of a union, without what is annotated to them."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in {dict, tuple} or not get_args(annotation):
        return [annotation]
    return [one for part in get_args(annotation) for one in _plain(part)]


def _leaf(annotation: Any, metadata: Sequence[Any]) -> tuple[set[Any], list[Any]]:
    """Return the plain types of a field and all that is annotated to them."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        types, markers = _leaf(inner, ())
        return types, [*markers, *more, *metadata]
    if not get_args(annotation) or get_origin(annotation) in {dict, tuple}:
        return {annotation}, list(metadata)
    found: set[Any] = set()
    markers = list(metadata)
    for part in get_args(annotation):
        types, more = _leaf(part, ())
        found |= types
        markers += more
    return found, markers


# What it is now ------------------------------------------------------------------------------------------------------


def _value(scenario: Scenario, path: Sequence[str]) -> Any:
    """Return what stands at a path, None where nothing does."""
    found: Any = scenario
    for part in path:
        if isinstance(found, BaseModel):
            found = getattr(found, part, None)
        elif isinstance(found, Mapping):
            found = found.get(part)
        elif isinstance(found, tuple):
            named = [item for item in found if getattr(item, "name", None) == part]
            indexed = found[int(part) : int(part) + 1] if part.isdigit() else ()
            found = next(iter([*named, *indexed]), None)
        else:
            return None
    return found


def check_link(key: str, assembly: Assembly, where: str) -> None:
    """Refuse a key of a link that is not there; ScenarioError(where, ...) says which there are."""
    path = path_of(key)
    names = assembly.topology.links.nominal
    if path[0] == "links" and path[1] not in names:
        problem = f"no such link here: '{path[1]}'{did_you_mean(path[1], names)} (allowed: {', '.join(names)})"
        raise ScenarioError(where, problem)


def value_now(key: str, scenario: Scenario, assembly: Assembly) -> Number | None:
    """Return what a key holds: written, or as it follows from the parts; None where neither is known."""
    path = path_of(key)
    written = _value(scenario, path)
    if written is not None:
        return written if isinstance(written, int | float) else None
    return _follows(path, scenario, assembly)


def _follows(path: Sequence[str], scenario: Scenario, assembly: Assembly) -> Number | None:
    """Return what a key is that says nothing itself, as the parts have it."""
    links, found = assembly.topology.links, None
    match path:
        case ["links", name, ("bandwidth" | "latency") as figure] if name in links.nominal:
            found = links.nominal[name][figure == "latency"]
        case ["links", name, "delivered_fraction"]:
            found = links.delivered.get(name)
        case ["tiers", name, "capacity"]:
            found = assembly.topology.pools()[name][0].capacity_bytes
        case ["tiers", name, ("ports" | "drives") as figure] if scenario.tiers[name].device is not None:
            found = load_device(str(scenario.tiers[name].device)).entry.count(figure)
        case ["engine", ("max_num_batched_tokens" | "max_num_seqs") as figure]:
            found = getattr(assembly.settings, figure)
    return found
