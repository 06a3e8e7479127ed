"""Free quantities of a plan: any numeric key of a scenario, what it is now, and the values that are tried for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from models.errors import InputError, ScenarioError
from models.units import format_bytes, format_rate, format_seconds, parse_quantity
from scenarios.build import Assembly
from scenarios.planning.keys import Kind, Number, check_link, kind_of, value_now
from scenarios.planning.searching import nearest
from scenarios.schema import Scenario

Load = Callable[[Mapping[str, Number]], Scenario]
"""Returns the scenario with these keys set; raises InputError where it is refused."""

REACH: Final = 64.0
"""Unless bounds are given, a quantity is sought from so many times less to so many times more than it is now."""
DIGITS: Final = 4
"""Significant digits of the values that are tried, so that an answer can be written down."""
_HALVINGS: Final = 24
"""Enough to find the largest count below a million that a scenario takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One free quantity.

    Parameters
    ----------
    key : str
        Of the scenario.
    dimension : str or None
        Of `models.units`; None for a plain number.
    whole : bool
        Whether it counts things (ports, drives, replicas); then answers are whole.
    now : number or None
        What the scenario has, or what follows from its parts; None where only bounds are known.
    values : tuple
        Ascending: the values that may be tried, each the next larger by the precision, counts by 1 where that is more.
    start : int
        Which of them is tried first.
    is_bounded : bool
        Whether the user gave the bounds.
    """

    key: str
    dimension: str | None
    whole: bool
    now: Number | None
    values: tuple[Number, ...]
    start: int
    is_bounded: bool

    def text(self, value: Number | None) -> str:
        """Return a value of it for people."""
        return quantity_text(self.dimension, value)

    def place(self, value: float) -> int:
        """Return which of the values is nearest to *value*, by ratio."""
        return nearest(self.values, value)

    @property
    def range_text(self) -> str:
        """Its bounds for people."""
        return f"{self.text(self.values[0])} to {self.text(self.values[-1])}"


def quantity_text(dimension: str | None, value: Number | None) -> str:
    """Return a value of some dimension for people."""
    if value is None:
        return "-"
    formats = {"bytes": format_bytes, "bytes_per_s": format_rate, "seconds": format_seconds}
    return formats[dimension](value) if dimension in formats else f"{value:,.{DIGITS}g}"


def free_quantity(
    text: str, scenario: Scenario, assembly: Assembly, load: Load, *, precision: float, option: str = "--solve"
) -> Quantity:
    """Return what ``--solve`` says: ``key``, ``key=lo:hi`` or ``key=v1,v2,...``.

    Parameters
    ----------
    text : str
        As above; values carry units.
    scenario, assembly : Scenario, Assembly
        What the quantity is now.
    load : callable
        Tells which values the scenario takes: bounds that nobody gave are drawn in to those.
    precision : float
        Step from one value to the next, as a share.
    option : str
        What errors call it.

    Raises
    ------
    InputError
        If the key is none or not a number, a bound cannot be read or is refused, or there is nothing to start from.
    """
    key, separator, given = text.partition("=")
    key, where = key.strip(), f"{option} {text}"
    kind = kind_of(key, scenario, where)
    check_link(key, assembly, where)
    now = value_now(key, scenario, assembly)
    bounds: list[Number] = []
    if separator:
        splitter = ":" if ":" in given else ","
        bounds = [_read(part.strip(), kind, where) for part in given.split(splitter)]
        if len(bounds) < 2 or bounds != sorted(set(bounds)) or (splitter == ":" and len(bounds) > 2):
            raise ScenarioError(where, "must be KEY, KEY=LOW:HIGH or KEY=V1,V2,..., values ascending")
        for value in bounds if splitter == "," else (bounds[0], bounds[-1]):
            _check(key, value, load, where)
    quantity = Quantity(
        key=key,
        dimension=kind.dimension,
        whole=kind.whole,
        now=now,
        values=tuple(bounds),
        start=0,
        is_bounded=bool(bounds),
    )
    if separator and ":" not in given:
        return replace(quantity, start=len(bounds) // 2 if now is None else quantity.place(now))
    if not bounds and not now:
        known = "is 0" if now == 0 else "has no value"
        raise ScenarioError(where, f"{key} {known} in this scenario; give bounds, as {option} {key}=LOW:HIGH")
    low, high = bounds or _reach(key, now or 1.0, kind, load)
    start = math.sqrt(low * high) if now is None else min(max(now, low), high)
    values = ladder(low, high, start, precision, whole=kind.whole, exact=kind.is_int)
    quantity = replace(quantity, values=values)
    return replace(quantity, start=quantity.place(start))


def ladder(
    low: Number, high: Number, anchor: float, precision: float, *, whole: bool = False, exact: bool = False
) -> tuple[Number, ...]:
    """Return values from *low* to *high*, both among them, steps of *precision* apart and one of them at *anchor*.

    *whole*: counts, whose steps are 1 where the precision is less. *exact*: held as whole numbers (bytes). The values
    do not depend on what is sought among them, so that a looser limit is never answered with more.
    """
    values: set[Number] = {low, high}
    if whole:
        count = int(low)
        while count < high:
            values.add(count)
            count = max(count + 1, round(count * (1.0 + precision)))
        values.add(round(anchor))
        return tuple(sorted(values))
    step = math.log1p(precision)
    first, last = (math.log(end / anchor) / step for end in (low, high))
    for steps in range(math.ceil(first), math.floor(last) + 1):
        value = rounded(anchor * math.exp(steps * step)) if steps else anchor
        # Next to a bound stands nothing that is as good as the bound.
        if low * (1.0 + precision / 2.0) < value < high / (1.0 + precision / 2.0):
            values.add(round(value) if exact else value)
    return tuple(sorted(values))


def rounded(value: float) -> float:
    """Return a value to the digits that are tried."""
    return float(f"{value:.{DIGITS - 1}e}")


def _read(text: str, kind: Kind, where: str) -> Number:
    value = parse_quantity(text, kind.dimension or "number", where)
    if value <= 0.0:
        raise ScenarioError(where, f"{text} must be above 0: values are sought by ratio")
    if kind.whole and value != round(value):
        raise ScenarioError(where, f"{text} must be a whole number")
    return round(value) if kind.is_int else value


def _check(key: str, value: Number, load: Load, where: str) -> None:
    """Refuse a value that the scenario does not take."""
    try:
        load({key: value})
    except ScenarioError as error:
        raise ScenarioError(where, error.problem) from None


def _reach(key: str, now: float, kind: Kind, load: Load) -> tuple[Number, Number]:
    """Return the default bounds, drawn in to what the scenario takes."""
    low: Number = now / REACH
    high: Number = now * REACH
    if kind.is_int:
        low, high = max(math.ceil(low), 1), round(high)
    else:
        low, high = rounded(low), rounded(high)
    own: Number = round(now) if kind.is_int else now
    return _taken(key, own, low, kind, load), _taken(key, own, high, kind, load)


def _taken(key: str, sure: Number, wanted: Number, kind: Kind, load: Load) -> Number:
    """Return the value nearest to *wanted* that the scenario takes, between it and *sure*, which it does take."""
    refused: Number | None = None
    found = wanted
    for _ in range(_HALVINGS):
        try:
            load({key: found})
        except InputError:
            refused = found
        else:
            sure = found
        if refused is None:
            break
        found = math.sqrt(sure * refused)
        found = round(found) if kind.is_int else rounded(found)
        if found in {sure, refused}:
            break
    return sure
