"""Sizes a scenario for limits: from what is asked to the answer. The searches themselves are elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from models.errors import InputError, ScenarioError
from scenarios.build import Assembly, assemble
from scenarios.loader import lasting_trace, load_scenario
from scenarios.planning.answer import Context, Plan
from scenarios.planning.free import Quantity, free_quantity
from scenarios.planning.fronts import design, front
from scenarios.planning.keys import Number
from scenarios.planning.limits import Limit, figure_names, parse_limits
from scenarios.planning.margins import Margin, candidates, margins
from scenarios.planning.money import Measure, Money
from scenarios.planning.prices import CataloguePrices, Pricing, parse_prices
from scenarios.planning.searching import Found, search
from scenarios.planning.sureness import sure_of, uncertainty_of
from scenarios.planning.trials import Point, Ran, Trials, Values
from scenarios.runner import Report
from scenarios.schema import Scenario
from scenarios.uncertainty.draws import check_draws

PRECISION: Final = 0.05
"""Step from one value that is tried to the next, as a share: how exact an answer is. Below what the model knows."""
_FINEST, _COARSEST = 0.001, 0.5


def plan(
    name_or_path: str,
    *,
    slo: Sequence[str],
    solve: Sequence[str],
    overrides: Sequence[str] = (),
    trace: str | None = None,
    seed: int | None = None,
    prices: Sequence[str] = (),
    consider: Sequence[str] | None = None,
    precision: float = PRECISION,
    pricing: Pricing | None = None,
    uncertainty: int | None = None,
    jobs: int | None = None,
    progress: Report | None = None,
) -> Plan:
    """Return the least of some quantities with which a scenario meets limits, and what it takes.

    Parameters
    ----------
    name_or_path, overrides, trace, seed
        As for :func:`scenarios.loader.load_scenario`.
    slo : sequence of str
        Limits on figures of a run's summary, such as ``ttft_s.p99<=2``; all have to be kept.
    solve : sequence of str
        What is free: ``key``, ``key=low:high`` or ``key=v1,v2``. Without bounds, from a 64th of what the scenario has
        to 64 times of it, as far as it takes that. Counts are whole; of all else the answer is the next larger of
        values a *precision* apart.
    prices : sequence of str
        Such as ``tiers.fabric.ports=1500 EUR``; they win over those of the catalogue.
    consider : sequence of str or None
        Keys that more might be bought of; None: the free ones, memory, drives and replicas. Empty: none.
    precision : float
        As above, 0.001 to 0.5.
    pricing : Pricing or None
        Prices of parts; None: the catalogue's.
    uncertainty : int or None
        Draws at the answer, as of :func:`with_uncertainty`; None: none.
    jobs : int or None
        Processes, which no answer depends on; None: as many as there are cores.
    progress : callable or None
        Called with None and the number of runs that have ended.

    Raises
    ------
    InputError
        If anything that was written is wrong, before anything runs; or if no run can be made at all.
    SimulationError
        If a run fails for a defect.
    """
    if not _FINEST <= precision <= _COARSEST:
        raise InputError(f"--precision is {precision:g}; must be {_FINEST:g} to {_COARSEST:g}")
    if uncertainty is not None:
        check_draws(uncertainty, "uncertainty")
    trace = lasting_trace(trace)

    def load(values: Values) -> Scenario:
        own = [f"{key}={value!r}" for key, value in values.items()]
        return load_scenario(name_or_path, overrides=[*overrides, *own], trace=trace, seed=seed)

    scenario = load({})
    assembly = assemble(scenario)
    limits = parse_limits(slo, figure_names(scenario, assembly))
    if not solve:
        raise InputError("needs a quantity to solve for; write --solve KEY, such as --solve links.fabric.bandwidth")
    quantities = [free_quantity(text, scenario, assembly, load, precision=precision) for text in solve]
    keys = [quantity.key for quantity in quantities]
    for key in keys:
        if keys.count(key) > 1:
            raise ScenarioError(f"--solve {key}", "is free twice")
    money = Money(load, parse_prices(prices, scenario), pricing or CataloguePrices())
    for key in consider or ():
        if key not in keys:
            free_quantity(key, scenario, assembly, load, precision=precision, option="--consider")
    trials = Trials(load, limits, jobs, progress)
    found = _Planner(scenario, tuple(quantities), trials, money, consider).plan()
    return found if uncertainty is None else with_uncertainty(found, uncertainty, jobs=jobs, progress=progress)


def with_uncertainty(found: Plan, draws: int, *, jobs: int | None = None, progress: Report | None = None) -> Plan:
    """Return a plan with the odds that its limits hold at the answer, or at what comes nearest to one.

    Takes *draws* runs of the answer with parameters drawn from what is known of them, and up to 16 with other seeds.

    Parameters
    ----------
    found : Plan
        As planned.
    draws : int
        A power of two from 8 to 65,536.
    jobs, progress
        As for :func:`scenarios.uncertainty.predict`, which says what is raised.
    """
    rivals: dict[Number, Point] = {}
    key = None
    if len(found.quantities) == 1:
        key = found.quantities[0].key
        sign = 1.0 if found.found[key].sense == "least" else -1.0
        from_here = sign * found.point.values[key]
        alone = [point for point in found.points if point.can_run and set(point.values) == {key}]
        safer = [point for point in alone if sign * point.values[key] >= from_here]
        rivals = {point.values[key]: point for point in sorted(safer, key=lambda point: sign * point.values[key])}
    said = uncertainty_of(found.scenario, found.limits, rivals, key, draws=draws, jobs=jobs, progress=progress)
    return replace(found, sure=replace(found.sure, uncertainty=said))


@dataclass(frozen=True, slots=True)
class _Planner:
    scenario: Scenario
    quantities: tuple[Quantity, ...]
    trials: Trials
    money: Money
    consider: Sequence[str] | None

    def plan(self) -> Plan:
        measure = self.money.measure(self.quantities) if len(self.quantities) > 1 else None
        found, point = self._one() if measure is None else self._several(measure)
        if point.ran is None:
            raise InputError(point.error or "no run could be made")
        tried = tuple(self.trials.points.values())
        beyond = self._beyond(found, point) if point.meets else {}
        scenario = self.trials.load(point.values)
        assembly = assemble(scenario)
        figure = _front_figure(self.trials.limits)
        best = [] if measure is None else front(tried, figure, measure.costs)
        said = [text for quantity in self.quantities for text in _search_warnings(quantity, found, point)]
        return Plan(
            name=self.scenario.name,
            limits=tuple(self.trials.limits),
            quantities=self.quantities,
            found=found,
            point=point,
            scenario=scenario,
            beyond=beyond,
            points=tried,
            front=tuple(best),
            front_figure=figure,
            currency=None if measure is None else measure.currency,
            unpriced=() if measure is None else measure.unpriced,
            costs=() if measure is None else tuple(measure.cost(one.values) for one in best),
            margins=tuple(self._margins(point, scenario, assembly)),
            contexts=tuple(_contexts(point.ran, assembly)),
            delivered=_delivered(point.ran, assembly),
            price=self.money.catalogue.cost(scenario, assembly),
            sure=sure_of(scenario, point, self.trials.limits),
            warnings=(*said, *point.ran.summary.get("warnings", ())),
        )

    def _one(self) -> tuple[dict[str, Found], Point]:
        quantity = self.quantities[0]
        key, values = quantity.key, quantity.values
        found = search(
            values,
            quantity.start,
            lambda places: self.trials.at([{key: values[place]} for place in places]),
            counts=quantity.whole,
        )
        place = found.best if found.place is None else found.place
        return {key: found}, self.trials.at([{key: values[place]}])[0]

    def _several(self, measure: Measure) -> tuple[dict[str, Found], Point]:
        designed = design(self.quantities, self.trials, measure.weigh)
        if designed.point is not None:
            return designed.found, designed.point
        # Of equal shortfalls, the one with most of everything: what else could be missing there?
        nearest = min(self.trials.points.values(), key=lambda point: (point.shortfall, -measure.weigh(point.values)))
        return {}, nearest

    def _beyond(self, found: Mapping[str, Found], point: Point) -> dict[str, Point]:
        """Return by key the point next to the answer that misses a limit."""
        beyond = {}
        for quantity in self.quantities:
            place = found[quantity.key].beyond
            if place is not None:
                beyond[quantity.key] = self.trials.at([{**point.values, quantity.key: quantity.values[place]}])[0]
        return beyond

    def _margins(self, point: Point, scenario: Scenario, assembly: Assembly) -> list[Margin]:
        keys = self.consider
        if keys is None:
            keys = candidates(scenario, assembly, [quantity.key for quantity in self.quantities])
        return margins(point, keys, trials=self.trials, scenario=scenario, assembly=assembly, cost=self.money.step)


def _search_warnings(quantity: Quantity, found: Mapping[str, Found], point: Point) -> list[str]:
    """Return what a search found that its answer alone would hide."""
    result = found.get(quantity.key)
    if result is None:
        return []
    key, text = quantity.key, quantity.text
    said = []
    if not result.matters:
        said.append(f"{key} changes none of these figures between {quantity.range_text}")
    elif result.place is not None and result.beyond is None:
        bound = "lower" if result.sense == "least" else "upper"
        said.append(f"{key}: the answer is the {bound} bound of what was sought, {text(point.values[key])}")
    if result.place is not None and result.sense == "most":
        said.append(f"{key}: less is better here, so that the answer is the most that meets the limits")
    if result.exceptions:
        own_side = "larger" if result.sense == "least" else "smaller"
        listed = ", ".join(text(quantity.values[place]) for place in result.exceptions)
        said.append(
            f"{key}: not monotone: {listed} would say otherwise than the answer, which is the one from which all "
            f"{own_side} values that were tried meet the limits"
        )
    return said


def _front_figure(limits: Sequence[Limit]) -> str:
    """Return what a front is against: the first limit on a TTFT, else its median."""
    return next((limit.figure for limit in limits if limit.figure.startswith("ttft_s.")), "ttft_s.p50")


def _contexts(ran: Ran, assembly: Assembly) -> list[Context]:
    """Return where loading and recomputing break even, in closed form, for the prompts that were served."""
    sizes = assembly.engines.sizes
    return [
        Context(
            name=name,
            tokens=tokens,
            kv_bytes=tokens * sizes.chunk_bytes // sizes.chunk_tokens,
            prefill_s=assembly.prefill_s(tokens),
        )
        for name, tokens in ran.needs.prompt_tokens.items()
    ]


def _delivered(ran: Ran, assembly: Assembly) -> dict[str, dict[str, Any]]:
    """Return by link what is nominal, what of that can be delivered, and what was carried [B/s]."""
    shares = assembly.topology.links.delivered
    found = {}
    for name, link in ran.summary["links"].items():
        found[name] = {
            "nominal_bytes_per_s": link["read_capacity_bytes_per_s"] / shares[name],
            "deliverable_bytes_per_s": link["read_capacity_bytes_per_s"],
            "read_p99_bytes_per_s": link["read_p99_bytes_per_s"],
            "write_p99_bytes_per_s": link["write_p99_bytes_per_s"],
            "busy_mean_bytes_per_s": link["busy_mean_bytes_per_s"],
            "utilisation": link["utilisation"],
            "busy_utilisation": link["busy_utilisation"],
        }
    return found
