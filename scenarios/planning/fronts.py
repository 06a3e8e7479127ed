"""Several free quantities: a grid of designs, the lightest that is good enough made least, and the front of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from models.errors import InputError
from scenarios.planning.free import Quantity
from scenarios.planning.keys import Number
from scenarios.planning.searching import Found, search
from scenarios.planning.trials import Point, Trials, Values

Weigh = Callable[[Values], float]
"""Returns what a design costs, in money or in another measure of which less is better."""

_AXIS: Final[Mapping[int, int]] = {2: 5, 3: 3, 4: 2}
"""Values of each quantity in the grid, by how many quantities there are: 16 to 27 designs."""
_SPREAD: Final = 4.0
"""The grid reaches from so many times less to so many times more than the scenario has, if that is enough."""
_PASSES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What came of several free quantities.

    Parameters
    ----------
    point : Point or None
        The answer: none of its quantities alone can be less. None where no design is good enough.
    found : dict
        By key: the search that made it least, the others as in the answer.
    """

    point: Point | None
    found: dict[str, Found]


def design(quantities: Sequence[Quantity], trials: Trials, weigh: Weigh) -> Design:
    """Return the lightest design of a grid that meets all limits, each of its quantities then made least in turn.

    It is the least that can be reached from there, not of all that could be: the front of what was tried shows how
    quantities stand in for each other.

    Raises InputError for more quantities than a grid can be made of.
    """
    if len(quantities) not in _AXIS:
        raise InputError(f"--solve is given {len(quantities)} times; at most {max(_AXIS)} quantities can be free")
    for whole_range in (False, True):
        points = trials.at(_grid(quantities, whole_range=whole_range))
        good = [point for point in points if point.meets]
        if good:
            break
    else:
        return Design(point=None, found={})
    best = min(good, key=lambda point: weigh(point.values))
    found: dict[str, Found] = {}
    for _ in range(_PASSES):
        before = best
        for quantity in quantities:
            found[quantity.key], best = _least(quantity, best, trials)
        if best is before:
            break
    return Design(point=best, found=found)


def _grid(quantities: Sequence[Quantity], *, whole_range: bool) -> list[Values]:
    axes = [_axis(quantity, _AXIS[len(quantities)], whole_range=whole_range) for quantity in quantities]
    keys = [quantity.key for quantity in quantities]
    return [dict(zip(keys, values, strict=True)) for values in product(*axes)]


def _axis(quantity: Quantity, count: int, *, whole_range: bool) -> list[Number]:
    """Return *count* values of it, evenly by ratio; fewer where it has not as many."""
    values, start = quantity.values, quantity.values[quantity.start]
    low, high = values[0], values[-1]
    if not whole_range and not quantity.is_bounded:
        low, high = max(low, start / _SPREAD), min(high, start * _SPREAD)
    places = {quantity.place(low * (high / low) ** (step / (count - 1))) for step in range(count)}
    return [values[place] for place in sorted(places)]


def _least(quantity: Quantity, point: Point, trials: Trials) -> tuple[Found, Point]:
    """Return the search that makes one quantity of a design least, the others as they are, and the point it found."""
    key = quantity.key
    now = quantity.values.index(point.values[key])
    values = quantity.values[: now + 1]

    def at(place: int) -> Values:
        return {**point.values, key: values[place]}

    found = search(values, now, lambda places: trials.at([at(place) for place in places]), counts=quantity.whole)
    if found.place is None or found.sense == "most":
        return found, point
    return found, trials.at([at(found.place)])[0]


def front(points: Sequence[Point], figure: str, costs: Callable[[Values], Sequence[float]]) -> list[Point]:
    """Return the points that no other beats, less of the *figure* and of all *costs* being better, cheapest first."""
    rated = []
    for point in points:
        value = point.figure(figure)
        if value is not None:
            rated.append(((*costs(point.values), value), point))
    kept = [(rates, point) for rates, point in rated if not any(_beats(other, rates) for other, _ in rated)]
    return [point for _, point in sorted(kept, key=lambda pair: pair[0])]


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(mine <= its for mine, its in pairs) and any(mine < its for mine, its in pairs)
