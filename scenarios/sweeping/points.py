"""The points of a sweep: every combination of what its sources say, loaded and checked before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from models.errors import InputError, ScenarioError, TraceError
from scenarios.document import Node
from scenarios.layers import set_value
from scenarios.loader import checked, laid_out, lasting_trace, resolved
from scenarios.schema import Scenario
from scenarios.sweeping.identity import RunKeys, with_absolute_paths
from scenarios.sweeping.sources import Range, Sample, Settings, draw, grid_points, listed_points, range_ends
from scenarios.sweeping.units import text_of, unit_of

_SEED_KEY: Final = "run.seed"

Value = bool | int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run of a sweep.

    Parameters
    ----------
    values : mapping
        By swept key: its value as the scenario holds it, in SI units; a policy with parameters is JSON text.
    written : mapping
        By key that this point sets: the value as it was written, for people.
    scenario : Scenario
        What is run; the files that it names are named from the root.
    key : str
        Of the run: equal for two runs that must come out the same.
    """

    values: Mapping[str, Value]
    written: Mapping[str, str]
    scenario: Scenario
    key: str

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.scenario.run.seed


def load_points(
    scenario: str | Path | Scenario,
    *,
    grid: Sequence[str] | Mapping[str, Sequence[Any]] | None = None,
    rows: str | Path | Sequence[Mapping[str, Any]] | None = None,
    sample: Sample | None = None,
    overrides: Sequence[str] = (),
    trace: str | None = None,
    seed: int | None = None,
    progress: Callable[[float | None, int], None] | None = None,
) -> list[Point]:
    """Return all points: each row with each sample with each combination of the grid, the grid going round first.

    Parameters
    ----------
    scenario : str, Path or Scenario
        A shipped name, a path, or a scenario that is loaded already; that has its stack in it, which then cannot be
        swept.
    grid, rows, sample
        As :func:`scenarios.sweeping.sweep` has them.
    overrides, trace, seed
        As for :func:`scenarios.loader.load_scenario`; they hold for all points.
    progress : function or None
        Called with the share that is loaded, and the number.

    Raises
    ------
    InputError
        For no point at all, a key that two sources set, and all that a scenario may be refused for; the message names
        the option or the line that the value was written at.
    """
    trace = lasting_trace(trace)
    base = _base(scenario, overrides, trace, seed)
    sources = [
        [] if rows is None else listed_points(rows),
        [] if sample is None else _sampled(base, sample),
        [] if not grid else grid_points(grid),
    ]
    sources = [source for source in sources if source]
    _check(sources, seed, is_loaded=isinstance(scenario, Scenario))
    swept = list(dict.fromkeys(key for source in sources for settings in source for key in settings))
    keys = RunKeys()
    found: list[Point] = []
    combinations = list(product(*sources))
    for settings in combinations:
        found.append(_point(base, {key: node for part in settings for key, node in part.items()}, swept, keys))
        if progress is not None:
            progress(len(found) / len(combinations), len(found))
    return found


def _base(scenario: str | Path | Scenario, overrides: Sequence[str], trace: str | None, seed: int | None) -> Node:
    if not isinstance(scenario, Scenario):
        return laid_out(str(scenario), overrides=overrides, trace=trace, seed=seed)
    if overrides or trace is not None or seed is not None:
        raise InputError("a scenario that is loaded already has its overrides, its trace and its seed")
    return _nodes(resolved(scenario), scenario.name)


def _nodes(value: Any, where: str) -> Node:
    if isinstance(value, dict):
        return Node({key: _nodes(part, where) for key, part in value.items()}, where)
    if isinstance(value, list):
        return Node([_nodes(part, where) for part in value], where)
    return Node(value, where)


def _check(sources: Sequence[Sequence[Settings]], seed: int | None, *, is_loaded: bool) -> None:
    if not sources:
        raise InputError(
            "needs points; write --grid KEY=VALUE,VALUE, such as --grid tiers.dram.capacity=64GB,256GB, or --list, or "
            "--sample"
        )
    keys = [set().union(*source) for source in sources]
    for at, some in enumerate(keys):
        for key in sorted(some & set().union(*keys[:at])):
            raise InputError(f"{key} is set by two of --list, --sample and --grid")
    every = set().union(*keys)
    if seed is not None and _SEED_KEY in every:
        raise InputError(f"{_SEED_KEY} is swept, so there is no one --seed for all points")
    if is_loaded and "stack" in every:
        raise InputError("stack is swept; give the scenario by its name or path, not loaded: that has its stack in it")


def _sampled(base: Node, sample: Sample) -> list[Settings]:
    ranges = []
    for key, (low, high, log) in range_ends(sample).items():
        ends = Range(key=key, low=_number(base, key, low), high=_number(base, key, high), log=log)
        if ends.low > ends.high:
            raise ScenarioError(low.where, f"goes from {ends.low:g} down to {ends.high:g}; write the low value first")
        if log and ends.low <= 0:
            raise ScenarioError(low.where, "begins at 0, which has no logarithm; leave :log out or begin above 0")
        ranges.append(ends)
    return draw(sample, ranges)


def _number(base: Node, key: str, end: Node) -> float:
    """Return an end of a range as the scenario holds it: whole numbers stay whole, quantities are in SI units."""
    value = value_at(resolved(checked(set_value(base, key, end))), key, end)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ScenarioError(end.where, f"is {value!r}; only numbers have a range (--grid takes all values)")
    return value


def _point(base: Node, settings: Settings, swept: Iterable[str], keys: RunKeys) -> Point:
    root = base
    for key, node in settings.items():
        root = set_value(root, key, node)
    scenario = checked(root)
    _check_traces(scenario)
    values = resolved(scenario)
    return Point(
        values={key: value_at(values, key, settings.get(key)) for key in swept},
        written={key: _text(node.plain(), key) for key, node in settings.items()},
        scenario=with_absolute_paths(scenario),
        key=keys.key(scenario),
    )


def _check_traces(scenario: Scenario) -> None:
    """Raise TraceError for a trace that is not there: all points would fail for it, each by itself."""
    for load in scenario.workload.phases or (scenario.workload,):
        if load.trace is not None and not Path(load.trace).exists():
            raise TraceError(load.trace, "no such file")


def value_at(values: Any, key: str, written: Node | None = None) -> Value:
    """Return the value of a dotted *key* in a resolved scenario, or what was *written* where that has no such key."""
    try:
        found = _at(values, key.split("."))
    except LookupError:
        found = None if written is None else written.plain()
    return found if found is None or isinstance(found, bool | int | float | str) else json.dumps(found)


def _at(node: Any, path: Sequence[str]) -> Any:
    if not path:
        return node
    if isinstance(node, list):
        names = [part.get("name") if isinstance(part, dict) else None for part in node]
        return _at(node[names.index(path[0]) if path[0] in names else _index(path[0])], path[1:])
    if isinstance(node, dict):
        # Names of links hold dots.
        for end in range(len(path), 0, -1):
            if ".".join(path[:end]) in node:
                return _at(node[".".join(path[:end])], path[end:])
    raise LookupError


def _index(text: str) -> int:
    if not text.isdigit():
        raise LookupError
    return int(text)


def _text(value: Any, key: str) -> str:
    """Return a value as it was written, a bare number with its unit."""
    return json.dumps(value) if isinstance(value, dict | list) else text_of(value, unit_of(key))
