"""What a file of fitted parameters says of how far it can be trusted: covariance, scatter, and where it was fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np

from models.errors import ScenarioError
from scenarios.parameters import read_parameters
from scenarios.uncertainty.draws import student
from sim.arrays import Floats

STAND_IN: Final = "fitted/r1-r2"
"""What the error of the model is taken from where a scenario rests on no fit: the fit to runs with tiered KV."""
_NOISE: Final = 0.05
"""Of a file that states none: R3 was run twice, and its points differ by up to 5 % (`calibration/fits/r1-r2.yaml`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedParameter:
    """One parameter as the file has it.

    ``value``, ``low`` and ``high`` (its bounds) are in ``unit``; ``spread`` is the standard deviation of the logarithm,
    or with ``transform`` "linear" that in ``unit``.
    """

    value: float
    unit: str
    spread: float
    low: float
    high: float
    transform: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelError:
    """By how much a single measurement differs from the model with the best parameters.

    Parameters
    ----------
    sd : float
        Standard deviation of log(measured / simulated).
    degrees_of_freedom : float
        Of Student's t that it follows, since it is known from few rows; infinite where it is an assumption.
    source : str
        Where it is from.
    """

    sd: float
    degrees_of_freedom: float
    source: str

    @property
    def within(self) -> float:
        """The share of a simulated time by which 90 % of its single measurements differ from it at most."""
        return float(np.expm1(self.sd * student(np.array(0.95), self.degrees_of_freedom)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        freedom = self.degrees_of_freedom if isfinite(self.degrees_of_freedom) else None
        return {"sd": self.sd, "degrees_of_freedom": freedom, "source": self.source}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Fitted parameters and what is known of them.

    Parameters
    ----------
    name : str
        As the scenario names it.
    parameters : mapping
        By key.
    order, covariance : tuple, array
        Keys, and the covariance of their logarithms (of linear ones: of the values, in their units).
    model_error : ModelError
        What is left between the fit and its rows.
    calibrated_range : mapping or None
        What the rows reach over (:mod:`scenarios.uncertainty.reach`); None where the file does not say.
    """

    name: str
    parameters: Mapping[str, FittedParameter]
    order: tuple[str, ...]
    covariance: Floats
    model_error: ModelError
    calibrated_range: Mapping[str, Any] | None


def read_fit(name_or_path: str, folder: Path | None = None) -> Fit:
    """Return a file of fitted parameters; parameters that say no spread are taken to be known.

    Raises UnknownNameError for a name that does not ship, ScenarioError for a file that is wrong.
    """
    raw: dict[str, Any] = read_parameters(name_or_path, folder).plain()
    parameters = {key: _parameter(value, f"{name_or_path}: parameters.{key}") for key, value in _items(raw)}
    order, covariance = _covariance(raw.get("covariance"), parameters, name_or_path)
    said = raw.get("calibrated_range")
    return Fit(
        name=name_or_path,
        parameters=parameters,
        order=order,
        covariance=covariance,
        model_error=_model_error(raw, name_or_path),
        calibrated_range=said if isinstance(said, dict) else None,
    )


def _items(raw: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list(raw["parameters"].items())  # read_parameters has seen that they are there


def _parameter(said: Any, where: str) -> FittedParameter:
    keys = said if isinstance(said, dict) else {"value": said}
    value, unit = _number(keys.get("value"), f"{where}.value")
    spread = keys.get("spread", 0.0)
    if not isinstance(spread, int | float) or not 0.0 <= spread < inf:
        raise ScenarioError(f"{where}.spread", f"is {spread!r}; must be a number, at least 0")
    low, high = _bounds(keys["bounds"], unit, f"{where}.bounds") if "bounds" in keys else (-inf, inf)
    transform = str(keys.get("transform", "log"))
    return FittedParameter(value=value, unit=unit, spread=float(spread), low=low, high=high, transform=transform)


def _bounds(said: Any, unit: str, where: str) -> tuple[float, float]:
    """Return both ends of '0.02 to 3 s', which are in the unit of the value."""
    ends = [_number(end, where) for end in str(said).split(" to ")]
    if len(ends) != 2 or any(own not in {"", unit} for _, own in ends):
        raise ScenarioError(where, f"is {said!r}; must be like '{f'0.02 to 3 {unit}'.strip()}', in the value's unit")
    return ends[0][0], ends[1][0]


def _number(said: Any, where: str) -> tuple[float, str]:
    """Return number and unit of '0.9 s'."""
    text, _, unit = str(said).strip().partition(" ")
    try:
        value = float(text)
    except ValueError:
        raise ScenarioError(where, f"is {said!r}; must be a number and its unit") from None
    return value, unit.strip()


def _covariance(said: Any, parameters: Mapping[str, FittedParameter], where: str) -> tuple[tuple[str, ...], Floats]:
    if said is None:
        order = tuple(parameters)
        return order, np.diag([parameters[key].spread ** 2 for key in order])
    try:
        order = tuple(str(key) for key in said["order"])
        matrix = np.array(said["matrix"], dtype=np.float64)
    except (KeyError, TypeError, ValueError):
        raise ScenarioError(
            f"{where}: covariance", "must hold order and matrix, a row of numbers for each key"
        ) from None
    if set(order) != set(parameters) or len(order) != len(parameters):
        raise ScenarioError(f"{where}: covariance.order", "must name every parameter once")
    if matrix.shape != (len(order), len(order)) or not np.isfinite(matrix).all() or (matrix.diagonal() < 0.0).any():
        raise ScenarioError(f"{where}: covariance.matrix", f"must be {len(order)} rows of {len(order)} numbers")
    return order, (matrix + matrix.T) / 2.0


def _model_error(raw: Mapping[str, Any], name: str) -> ModelError:
    """Return the scatter that the fit left, but never less than the noise that it took a single measurement to have.

    A future measurement is one run of other equipment on another day: that the rows of a fit lie closer together than
    two runs of the same point do says more about the rows than about it.
    """
    noise = raw.get("noise", _NOISE)
    fit = raw.get("fit") if isinstance(raw.get("fit"), dict) else {}
    scatter = (fit or {}).get("scatter", 0.0)
    freedom = (fit or {}).get("degrees_of_freedom", inf)
    for key, value in (("noise", noise), ("fit.scatter", scatter), ("fit.degrees_of_freedom", freedom)):
        if not isinstance(value, int | float) or value < 0:
            raise ScenarioError(f"{name}: {key}", f"is {value!r}; must be a number, at least 0")
    if scatter > noise:
        return ModelError(sd=scatter, degrees_of_freedom=max(freedom, 3.0), source=f"left-out errors of {name}")
    return ModelError(sd=noise, degrees_of_freedom=max(freedom, 3.0), source=f"noise of one measurement in {name}")
