"""What of a scenario is uncertain, and by how much: fitted parameters, and figures of the catalogue entries it uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, isclose
from typing import Any, Final

import numpy as np

from models.catalogue import Entry, Figure, Status, load_changed
from models.figures import KINDS
from models.units import parse_quantity
from scenarios.figure_changes import FigureChange
from scenarios.parameters import split_key
from scenarios.schema import Engine, Scenario, Transfer
from scenarios.topology.links import HOST_MEMORY
from scenarios.topology.parts import parts_of
from scenarios.uncertainty.fit import Fit, FittedParameter
from sim.arrays import Floats

SPREAD_BY_STATUS: Final[Mapping[str, float]] = {
    "measured": 0.05,
    "fitted": 0.15,
    "derived": 0.1,
    "datasheet": 0.02,
    "announced": 0.15,
    "assumed": 0.3,
}
"""Relative standard deviation of a figure that states none.

The middle of what figures of the same status state in the catalogue: measured 0.02 to 0.2 (and repeats of R3 differ by
up to 5 %), derived 0.04 to 0.3, fitted 0.15, announced 0.1 and 0.15, assumed rates and times 0.3 to 0.7. A datasheet
names what a part is sold as: drives measured at 6.9 and 6.94 GB/s are sold with 6.8, 2 %; the few that state more are
second-hand.
"""
ASSUMED_SHARE: Final = 0.1
"""The same for an assumed share of a peak, such as an efficiency taken from a sibling: the middle of those stated."""

_SHARES: Final = frozenset(
    {
        *("bf16_efficiency", "fp8_efficiency", "fp4_efficiency", "hbm_efficiency"),
        *("delivered_fraction", "host_link_delivered_fraction", "port_delivered_fraction"),
    }
)
"""Shares that cannot exceed 1; bus bandwidth of an all-reduce can, where the switch adds up."""
_PEAK_OF: Final = {
    "bf16_efficiency": "bf16_peak",
    "fp8_efficiency": "fp8_peak",
    "fp4_efficiency": "fp4_peak",
    "hbm_efficiency": "hbm_bandwidth",
    "collective_efficiency": "scale_up_bandwidth",
    "host_link_delivered_fraction": "host_link_bandwidth",
    "port_delivered_fraction": "port_bandwidth",
    "delivered_fraction": "bandwidth",
}
"""Peaks that come in only multiplied by a share: a fit of the share holds the product, so the peak adds nothing."""
_RATES_AND_TIMES: Final = frozenset({"bytes_per_s", "flops_per_s", "ops_per_s", "seconds"})
_COUNTS: Final = frozenset({"ports", "max_ports", "drives", "max_drives"})
_SAME: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertain:
    """One number of a scenario that is not known exactly.

    Parameters
    ----------
    key : str
        As in a file of parameters: ``engine.request_latency``, ``figures.fx100.port_delivered_fraction``.
    value, unit : float, str
        The best guess; in SI units where ``unit`` is empty.
    spread : float
        Standard deviation of the logarithm, or of the value itself with ``transform`` "linear".
    low, high : float
        What a draw is kept within.
    origin : str
        Where the spread is from: "fit", "catalogue", "scenario", or "rule" (:data:`SPREAD_BY_STATUS`).
    status : str
        Of the figure.
    """

    key: str
    value: float
    unit: str = ""
    spread: float
    low: float = -inf
    high: float = inf
    transform: str = "log"
    origin: str
    status: Status

    def at(self, z: float) -> float:
        """Return the value *z* standard deviations from the best guess."""
        drawn = (
            self.value + self.spread * z if self.transform == "linear" else self.value * float(np.exp(self.spread * z))
        )
        return min(max(drawn, self.low, 0.0), self.high)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        value = f"{self.value:.6g} {self.unit}".strip() if self.unit else self.value
        return {"key": self.key, "value": value, "spread": self.spread, "from": self.origin, "status": self.status}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All that is uncertain, and how it goes together.

    ``correlation`` is that of the standard deviations from the best guess, in the order of ``uncertain``.
    """

    uncertain: tuple[Uncertain, ...]
    correlation: Floats

    def apply(self, scenario: Scenario, z: Floats) -> Scenario:
        """Return the scenario with every uncertain number *z* standard deviations from its best guess."""
        sections: dict[str, dict[str, Any]] = {"engine": {}, "transfer": {}}
        figures = {entry: dict(own) for entry, own in scenario.figures.items()}
        for number, distance in zip(self.uncertain, z, strict=True):
            section, *path = split_key(number.key, "uncertainty")
            value = number.at(float(distance))
            if section != "figures":
                sections[section][path[0]] = value
                continue
            # A rule's spread is nobody's statement on the figure, so a run does not tell it as one.
            stated = None if number.origin == "rule" else number.spread
            drawn = FigureChange(
                value=f"{value!r} {number.unit}".strip(), source="drawn", status=number.status, spread=stated
            )
            figures.setdefault(path[0], {})[path[1]] = drawn
        return scenario.model_copy(
            update={
                "engine": scenario.engine.model_copy(update=sections["engine"]),
                "transfer": scenario.transfer.model_copy(update=sections["transfer"]),
                "figures": figures,
            }
        )


def sources_of(scenario: Scenario, fit: Fit | None) -> Sources:
    """Return what is uncertain of a scenario that rests on *fit*.

    Not drawn is what the scenario sets itself, unless it states a spread; counts and capacities; prices, power and wear
    where it does not ask for economics; the fitted figures of parts that it does not use; and LLMs, whose figures are
    what they are.
    """
    used = {entry.name: entry for entry in entries_used(scenario)}
    fitted = {} if fit is None else dict(_fitted(scenario, fit, used))
    found = [number for entry in used.values() for number in _of_entry(scenario, entry, fitted)]
    keys = list(fitted)
    correlation = np.eye(len(keys) + len(found))
    if fit is not None and keys:
        places = [fit.order.index(key) for key in keys]
        covariance = fit.covariance[np.ix_(places, places)]
        sd = np.sqrt(covariance.diagonal())
        correlation[: len(keys), : len(keys)] = covariance / np.outer(sd, sd)
    return Sources(uncertain=(*fitted.values(), *found), correlation=correlation)


def entries_used(scenario: Scenario) -> list[Entry]:
    """Return the catalogue entries that a run of the scenario rests on, LLMs left out, each once."""
    cluster, changes, parts = scenario.cluster, scenario.changes(), parts_of(scenario)
    names = [("accelerator", cluster.accelerator)]
    if cluster.decode is not None:
        names.append(("accelerator", cluster.decode.accelerator or cluster.accelerator))
    if cluster.host_link is not None:
        names.append(("link", cluster.host_link))
    if cluster.decode is not None or any(part.is_remote for part in parts):
        names += [("link", name) for name in (cluster.nic, cluster.switch) if name is not None]
    for part in parts:
        assert part.spec.device is not None  # the schema lets only hbm go without
        names.append(("storage", part.spec.device))
        if part.spec.transport is not None and part.has_ports:
            names.append(("link", part.spec.transport))
    if parts and not any(part.is_host_memory for part in parts):
        names.append(("storage", HOST_MEMORY))
    loaded = [load_changed(kind, name, changes) for kind, name in names]
    return list({(entry.kind, entry.name): entry for entry in loaded}.values())


def _fitted(scenario: Scenario, fit: Fit, used: Mapping[str, Entry]) -> Iterator[tuple[str, Uncertain]]:
    for at, key in enumerate(fit.order):
        spread = float(np.sqrt(fit.covariance[at, at]))
        if spread == 0.0:
            continue
        parameter = fit.parameters[key]
        section, *path = split_key(key, fit.name)
        if section == "figures":
            number = _fitted_figure(parameter, used.get(path[0]), path[1])
        else:
            number = _fitted_value(parameter, getattr(scenario, section), path[0])
        if number is None:
            continue
        value, unit, factor = number
        yield (
            key,
            Uncertain(
                key=key,
                value=value,
                unit=unit,
                spread=spread * factor if parameter.transform == "linear" else spread,
                low=parameter.low * factor,
                high=parameter.high * factor,
                transform=parameter.transform,
                origin="fit",
                status="fitted",
            ),
        )


def _fitted_figure(parameter: FittedParameter, entry: Entry | None, name: str) -> tuple[float, str, float] | None:
    """Return value, unit and scale of a fitted figure; None where the run does not use it, or has another value."""
    figure = None if entry is None else entry.figures.get(name)
    if entry is None or figure is None or (figure.spread or 0.0) != parameter.spread:
        return None  # not used, or of a spread that the scenario states
    dimension = KINDS[entry.kind].dimensions[name]
    theirs = parse_quantity(f"{parameter.value!r} {parameter.unit}".strip(), dimension)
    if not isclose(entry.si(name), theirs, rel_tol=_SAME):
        return None
    return parameter.value, parameter.unit, 1.0


def _fitted_value(parameter: FittedParameter, section: Engine | Transfer, name: str) -> tuple[float, str, float] | None:
    """Return the same for a key of a section, in SI units."""
    own = getattr(section, name, None)
    if not isinstance(own, int | float):
        return None
    unit = getattr(type(section).model_validate({name: f"1 {parameter.unit}" if parameter.unit else 1.0}), name)
    theirs = parameter.value * float(unit)
    return (float(own), "", float(unit)) if isclose(own, theirs, rel_tol=_SAME) else None


def _of_entry(scenario: Scenario, entry: Entry, fitted: Mapping[str, Uncertain]) -> Iterator[Uncertain]:
    """Yield the figures of an entry that time depends on, or money if it is asked for, without those of the fit."""
    own = scenario.figures.get(entry.name, {})
    held = {_PEAK_OF.get(key.rpartition(".")[2]) for key in fitted if key.startswith(f"figures.{entry.name}.")}
    for name, figure in entry.used_figures.items():
        key = f"figures.{entry.name}.{name}"
        dimension = KINDS[entry.kind].dimensions[name]
        moves_time = dimension in _RATES_AND_TIMES or (dimension == "number" and name not in _COUNTS)
        matters = scenario.economics is not None if name in KINDS[entry.kind].economic else moves_time
        if key in fitted or name in held or not figure.value or not matters:
            continue
        said = figure.spread  # of the scenario's own figure, where it has one
        spread = _by_rule(dimension, figure) if said is None and name not in own else said
        if not spread:
            continue
        yield Uncertain(
            key=key,
            value=figure.value,
            unit=figure.unit,
            spread=spread,
            high=max(1.0, figure.value) if name in _SHARES else inf,
            origin="rule" if said is None else "scenario" if name in own else "catalogue",
            status=figure.status,
        )


def _by_rule(dimension: str, figure: Figure) -> float:
    is_share = dimension == "number" and figure.status == "assumed"
    return ASSUMED_SHARE if is_share else SPREAD_BY_STATUS[figure.status]
