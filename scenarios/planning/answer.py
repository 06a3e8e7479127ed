"""The answer of a plan: what is least, what it needs, where it is limited, and what more of anything would gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scenarios.planning.free import Quantity
from scenarios.planning.limits import Limit
from scenarios.planning.margins import Margin
from scenarios.planning.needs import TierNeed
from scenarios.planning.prices import Cost
from scenarios.planning.searching import Found
from scenarios.planning.sureness import Sure
from scenarios.planning.trials import Point
from scenarios.schema import Scenario

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where loading and recomputing break even for prompts of one length, nobody beside.

    Parameters
    ----------
    name : str
        ``p50``, ``p90`` or ``max`` of the prompts that were served.
    tokens : int
        Their length.
    kv_bytes : int
        KV of such a prompt [B].
    prefill_s : float
        Time to compute it: the steps of its prefill, added up [s].
    """

    name: str
    tokens: int
    kv_bytes: int
    prefill_s: float

    @property
    def break_even_bytes_per_s(self) -> float:
        """The rate at which one load takes as long as computing; slower loads are not worth it [B/s]."""
        return self.kv_bytes / self.prefill_s

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.name,
            "tokens": self.tokens,
            "kv_bytes": self.kv_bytes,
            "prefill_s": self.prefill_s,
            "break_even_bytes_per_s": self.break_even_bytes_per_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was found.

    Parameters
    ----------
    name : str
        Of the scenario.
    limits : tuple of Limit
        What had to be kept.
    quantities : tuple of Quantity
        What was free.
    found : dict
        By key: the search that made it least; empty where several were free and nothing was good enough.
    point : Point
        The answer, or the nearest to one.
    scenario : Scenario
        With the values of :attr:`point`: what a further look (uncertainty, a report) begins with.
    beyond : dict
        By key: the point next to the answer at which a limit is missed; no entry where a bound is the answer.
    points : tuple of Point
        All that was tried on the way, in order.
    front : tuple of Point
        Those that no other beats in cost and :attr:`front_figure`; empty where one quantity was free.
    front_figure : str
        What the front is against.
    currency : str or None
        In which the front and the answer were weighed; None: prices are not known, so quantities stand for themselves.
    unpriced : tuple of str
        Free keys that no price depends on.
    costs : dict
        By place in :attr:`front`: cost in the currency.
    margins : tuple of Margin
        What a little more of each quantity gains.
    contexts : tuple of Context
        Where loading and recomputing break even.
    delivered : dict
        By link: nominal and deliverable rate, what it carried [B/s], and how full it was.
    price : Cost
        Of the cluster, as far as known.
    sure : Sure
        How sure it is.
    warnings : tuple of str
        What the answer does not say by itself.
    """

    name: str
    limits: tuple[Limit, ...]
    quantities: tuple[Quantity, ...]
    found: Mapping[str, Found]
    point: Point
    scenario: Scenario
    beyond: Mapping[str, Point]
    points: tuple[Point, ...]
    front: tuple[Point, ...]
    front_figure: str
    currency: str | None
    unpriced: tuple[str, ...]
    costs: tuple[float | None, ...]
    margins: tuple[Margin, ...]
    contexts: tuple[Context, ...]
    delivered: Mapping[str, Mapping[str, Any]]
    price: Cost
    sure: Sure
    warnings: tuple[str, ...]

    @property
    def is_feasible(self) -> bool:
        """Whether the limits can be met within the bounds."""
        return self.point.meets

    @property
    def solution(self) -> dict[str, float]:
        """By key: the answer in SI units; empty where there is none."""
        return dict(self.point.values) if self.is_feasible else {}

    @property
    def bottleneck(self) -> str:
        """What limits the cluster at the answer, or where it comes nearest to one."""
        return self.point.bottleneck

    @property
    def needs(self) -> dict[str, TierNeed]:
        """By tier below HBM: what it had to do at the answer; empty where there is none."""
        return self.point.ran.needs.tiers if self.is_feasible and self.point.ran is not None else {}

    @property
    def gpus(self) -> int:
        """GPUs of all replicas at the answer."""
        return 0 if self.point.ran is None else self.point.ran.needs.gpus

    @property
    def reason(self) -> str | None:
        """Why there is no answer; None where there is one."""
        if self.is_feasible:
            return None
        ranges = ", ".join(f"{quantity.key} from {quantity.range_text}" for quantity in self.quantities)
        nearest = ", ".join(f"{q.key} at {q.text(self.point.values[q.key])}" for q in self.quantities)
        missed = [
            f"{limit.figure} is {limit.value_text(self.point.figures[limit.figure])}, not {limit.wanted}"
            for limit in self.limits
            if not limit.is_met(self.point.figures[limit.figure])
        ]
        text = f"no value within reach meets it ({ranges}); nearest with {nearest}: {' and '.join(missed)}"
        if any(limit.implied and not limit.is_met(self.point.figures[limit.figure]) for limit in self.limits):
            text += " (allow rejections with --slo 'requests.rejected<=N')"
        return f"{text}; there the bottleneck is {self.bottleneck}"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values: the JSON contract of ``kvtier plan --json``."""
        return {
            "scenario": self.name,
            "feasible": self.is_feasible,
            "reason": self.reason,
            "solution": self.solution,
            "required": {tier: need.to_dict(self.gpus) for tier, need in self.needs.items()},
            "bottleneck": self.bottleneck,
            "gpus": self.gpus,
            "slo": [self._limit_dict(limit) for limit in self.limits],
            "solve": [self._quantity_dict(quantity) for quantity in self.quantities],
            "nearest": _point_dict(self.point),
            "sure": self.sure.to_dict(),
            "beyond": {key: _point_dict(point) for key, point in self.beyond.items()},
            "delivered": {name: dict(link) for name, link in self.delivered.items()},
            "next": [margin.to_dict() for margin in self.margins],
            "break_even": [context.to_dict() for context in self.contexts],
            "price": {
                "amounts": self.price.amounts,
                "lines": list(self.price.lines),
                "missing": list(self.price.missing),
            },
            "front": {
                "figure": self.front_figure,
                "currency": self.currency,
                "unpriced": list(self.unpriced),
                "points": [
                    _point_dict(point) | {self.front_figure: point.figure(self.front_figure), "cost": cost}
                    for point, cost in zip(self.front, self.costs, strict=True)
                ],
            },
            "points": [_point_dict(point) for point in self.points],
            "warnings": list(self.warnings),
        }

    def to_pandas(self) -> pd.DataFrame:
        """Return what was tried, a row a point: values in SI units, limited figures, verdict, bottleneck."""
        import pandas as pd

        rows = [
            {**point.values, **point.figures, "meets": point.meets, "bottleneck": point.bottleneck}
            for point in self.points
        ]
        return pd.DataFrame(rows).sort_values([quantity.key for quantity in self.quantities], ignore_index=True)

    def _limit_dict(self, limit: Limit) -> dict[str, Any]:
        reached = self.point.figures[limit.figure]
        head = {"figure": limit.figure, "operator": limit.operator, "bound": limit.bound, "implied": limit.implied}
        return head | {"reached": reached, "met": limit.is_met(reached)}

    def _quantity_dict(self, quantity: Quantity) -> dict[str, Any]:
        found = self.found.get(quantity.key)
        return {
            "key": quantity.key,
            "dimension": quantity.dimension,
            "whole": quantity.whole,
            "now": quantity.now,
            "low": quantity.values[0],
            "high": quantity.values[-1],
            "sense": None if found is None else found.sense,
        }


def _point_dict(point: Point) -> dict[str, Any]:
    return {
        "values": dict(point.values),
        "meets": point.meets,
        "figures": point.figures,
        "bottleneck": point.bottleneck,
        "error": point.error,
    }
