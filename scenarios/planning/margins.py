"""What to buy next: how much a little more of each quantity gains at the answer, by simulation, and for what money."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from models.errors import InputError
from scenarios.build import Assembly
from scenarios.planning.free import quantity_text, rounded
from scenarios.planning.keys import Number, kind_of, value_now
from scenarios.planning.limits import Limit
from scenarios.planning.trials import Point, Trials, Values
from scenarios.schema import Scenario
from scenarios.topology.parts import Part

CostOfStep = Callable[[str, Number, Number, Values], tuple[float, str] | None]
"""Returns what it costs to bring a key from one value to another, with these values set: amount and currency."""

_MORE: Final = 0.1
"""A little more of what is not counted; of what is, one more."""
_MUCH_MORE: Final = 0.25
"""What has been tried on the way to the answer, up to so much more than it, saves a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """What a little more of one quantity gains.

    Parameters
    ----------
    key, text : str
        The quantity, and the step for people.
    values : mapping
        What is set in the run that was made for it.
    figure : str
        Whose gain it is.
    gain : float or None
        By how large a share the figure gets better; below 0: worse. None where the step cannot be made.
    price : float or None
        Of the step, None where nobody knows it.
    currency : str or None
        Of the price.
    why_not : str or None
        Why the step cannot be made.
    """

    key: str
    text: str
    values: Values
    figure: str
    gain: float | None
    price: float | None = None
    currency: str | None = None
    why_not: str | None = None

    @property
    def gain_per_price(self) -> float | None:
        """Share of the figure that one unit of money gains."""
        return None if self.gain is None or not self.price else self.gain / self.price

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "key": self.key,
            "step": self.text,
            "values": dict(self.values),
            "figure": self.figure,
            "gain": self.gain,
            "price": self.price,
            "currency": self.currency,
            "gain_per_price": self.gain_per_price,
            "why_not": self.why_not,
        }


def candidates(scenario: Scenario, assembly: Assembly, free: Sequence[str]) -> list[str]:
    """Return the keys that more could be bought of: the free ones, memory, drives, the array's nearer limit, replicas.

    Of an array, ports where they carry less than its drives, else drives; not what a rate of its own replaces.
    """
    keys = list(free)
    given = {key.removesuffix(".bandwidth") for key in free}
    given |= {f"links.{name}" for name, link in scenario.links.items() if link.bandwidth is not None}
    for part in assembly.topology.parts:
        key = _purchase(part)
        rate = f"links.{part.name}.drives" if key.endswith(".drives") and part.has_ports else f"links.{part.name}"
        if not part.is_page_cache and (key.endswith(".capacity") or rate not in given):
            keys.append(key)
    keys.append("cluster.replicas")
    return list(dict.fromkeys(keys))


def _purchase(part: Part) -> str:
    device = part.device
    if part.is_memory:
        return f"tiers.{part.name}.capacity"
    if device.network_bytes_per_s is None:
        return f"tiers.{part.name}.count"
    delivered = device.network_bytes_per_s * (device.network_delivered_fraction or 1.0)
    return f"tiers.{part.name}.{'ports' if delivered <= device.read_bytes_per_s else 'drives'}"


def binding(point: Point, limits: Sequence[Limit]) -> Limit:
    """Return the limit that is nearest to being missed."""
    stated = [limit for limit in limits if not limit.implied]
    return max(stated, key=lambda limit: limit.shortfall(point.figures[limit.figure]))


@dataclass(frozen=True, slots=True)
class _Step:
    key: str
    text: str
    values: Values
    before: Number
    after: Number


def margins(
    point: Point, keys: Sequence[str], *, trials: Trials, scenario: Scenario, assembly: Assembly, cost: CostOfStep
) -> list[Margin]:
    """Return what a little more of each key gains, most first: for money if all prices are in one currency.

    *scenario* and *assembly* are those of the *point*; *cost* tells what a step costs.
    """
    limit = binding(point, trials.limits)
    made: list[_Step] = []
    found: list[Margin] = []
    for key in keys:
        step = _step(key, point, trials, scenario, assembly)
        if step is None:
            continue
        try:
            trials.load(step.values)
        except InputError as error:
            problem = getattr(error, "problem", str(error))
            found.append(
                Margin(
                    key=key, text=step.text, values=step.values, figure=limit.figure, gain=None, why_not=str(problem)
                )
            )
        else:
            made.append(step)
    for step, more in zip(made, trials.at([step.values for step in made]), strict=True):
        money = cost(step.key, step.before, step.after, step.values)
        price, currency = (None, None) if money is None else money
        margin = Margin(
            key=step.key,
            text=step.text,
            values=step.values,
            figure=limit.figure,
            gain=_gain(limit, point, more),
            price=price,
            currency=currency,
            why_not=more.error,
        )
        found.append(margin)
    tried = [margin for margin in found if margin.gain is not None]
    # What has no price may be the best buy: it must not stand behind whatever gains nothing and has one.
    comparable = all(margin.price for margin in tried) and len({margin.currency for margin in tried}) == 1
    return sorted(found, key=_by_price if comparable else _by_step, reverse=True)


def _by_price(margin: Margin) -> float:
    return float("-inf") if margin.gain_per_price is None else margin.gain_per_price


def _by_step(margin: Margin) -> float:
    return float("-inf") if margin.gain is None else margin.gain


def _step(key: str, point: Point, trials: Trials, scenario: Scenario, assembly: Assembly) -> _Step | None:
    kind = kind_of(key, scenario, f"--consider {key}")
    before = point.values.get(key, value_now(key, scenario, assembly))
    if not before:
        return None
    after = before + 1 if kind.whole else rounded(before * (1.0 + _MORE))
    if kind.is_int:
        after = round(after)
    if not kind.whole:
        after = min(_tried_above(key, point, trials), key=lambda value: abs(value - after), default=after)
    dimension = kind.dimension
    text = f"{quantity_text(dimension, before)} to {quantity_text(dimension, after)}"
    return _Step(key, text, {**point.values, key: after}, before, after)


def _tried_above(key: str, point: Point, trials: Trials) -> list[Number]:
    """Return the values of a key a little above that of the *point* that have been run, all else as there."""
    if key not in point.values:
        return []
    now = point.values[key]
    alike = [
        other.values[key]
        for other in trials.points.values()
        if other.ran is not None and {**other.values, key: now} == {**point.values}
    ]
    return [value for value in alike if now < value <= now * (1.0 + _MUCH_MORE)]


def _gain(limit: Limit, point: Point, more: Point) -> float | None:
    before, after = point.figure(limit.figure), more.figure(limit.figure)
    if before is None or after is None or not before:
        return None
    better = before - after if limit.operator.startswith("<") else after - before
    return better / before
