"""Fits parameters to measurements by running the simulator: least squares on log ratios, with a prior on each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration.fit_plan import FitPlan
from calibration.simulating import by_seed
from scenarios.runner import Report

Floats = NDArray[np.float64]

_STEP: Final = 0.02
"""Step of the finite differences, in the logarithm of a parameter: small against its effect, large against the jumps
that a session more or less in the first step makes."""
_LINEAR_STEP: Final = 0.1
"""The same for a linear parameter, in standard deviations of its prior."""
_SLOPE_SEEDS: Final = 3
"""Differences between runs of equal seeds need fewer of them than the figures themselves."""
_INSIDE: Final = 0.1
"""The fit begins at the priors, but so far within the bounds, as a share of their distance: steps shrink beside one."""
_CONVERGED: Final = 1e-3
_MOST_STEPS: Final = 20
_MOST_STARTS: Final = 4
"""Medians over seeds jump, and a jump upwards makes the solver's steps too short to get past it: it begins again where
it ended, with long steps, while that still helps."""
_BY_DATA, _BY_PRIOR = 0.25, 0.75
"""Share of the prior's variance that is left: below the first the data hold a parameter, above the second the prior."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What a fit found. All is in the order of the plan's parameters and rows.

    Parameters
    ----------
    plan : FitPlan
        What was fitted.
    values : tuple of float
        The parameters, each in its unit.
    x, covariance_x : arrays
        The same as standard deviations of the prior from the prior, and their covariance.
    simulated : tuple of float
        The rows with these parameters.
    jacobian : array
        Change of the rows' residuals, in standard deviations of their noise, with ``x``: one row each.
    evaluations : int
        Sets of parameters that were simulated.
    """

    plan: FitPlan
    values: tuple[float, ...]
    x: Floats
    covariance_x: Floats
    simulated: tuple[float, ...]
    jacobian: Floats
    evaluations: int

    @property
    def residuals(self) -> Floats:
        """log(simulated / measured) in standard deviations of the noise."""
        return _residuals(self.plan, self.simulated)

    @property
    def errors(self) -> Floats:
        """Simulated over measured, less 1."""
        measured = np.array([row.value for row in self.plan.rows])
        return np.asarray(np.asarray(self.simulated) / measured - 1.0, dtype=np.float64)

    @property
    def left_out_errors(self) -> Floats:
        """The error of each row where the fit does not see it, from the fit made linear at its end.

        With the leverage h of a row, its residual e becomes e / (1 - h) (Allen's PRESS).
        """
        leverage = self._leverage
        noise = np.array([self.plan.noise_of(row) for row in self.plan.rows])
        return np.asarray(np.expm1(self.residuals / (1.0 - leverage) * noise), dtype=np.float64)

    @property
    def scatter(self) -> float:
        """Standard deviation of log(measured / simulated) beside what the parameters' own uncertainty explains.

        The mean of e^2 / (1 - h): a left-out error times the residual of the same row. The left-out error itself holds
        what the fit without the row would not know of the parameters, which is drawn apart.
        """
        noise = np.array([self.plan.noise_of(row) for row in self.plan.rows])
        return float(np.sqrt(np.mean((self.residuals * noise) ** 2 / (1.0 - self._leverage))))

    @property
    def degrees_of_freedom(self) -> float:
        """Rows, less those that the parameters take up: the sum of the leverages."""
        return float(len(self.plan.rows) - self._leverage.sum())

    @property
    def _leverage(self) -> Floats:
        spread = self.jacobian @ self.covariance_x
        return np.asarray(np.einsum("ij,ij->i", spread, self.jacobian), dtype=np.float64)

    @property
    def singular_values(self) -> Floats:
        """How strongly the data pin each combination of parameters, in units of its prior; above 1 they outweigh it."""
        return np.asarray(np.linalg.svd(self.jacobian, compute_uv=False), dtype=np.float64)

    def spread(self, index: int) -> float:
        """Return the standard deviation of a parameter: of its logarithm, or of a linear one in its unit."""
        parameter = list(self.plan.parameters.values())[index]
        return float(np.sqrt(self.covariance_x[index, index]) * parameter.sd)

    def held_by(self, index: int) -> str:
        """Return what a parameter rests on: data, prior, or both."""
        if not np.any(self.jacobian[:, index]):
            return "prior (no row depends on it)"
        left = float(self.covariance_x[index, index])
        return "data" if left < _BY_DATA else "prior" if left > _BY_PRIOR else "data and prior"


def fit(plan: FitPlan, *, jobs: int | None = None, progress: Report | None = None) -> Fitted:
    """Fit the parameters of a plan; the same data give the same values, whatever *jobs* is. Raises KvTierError."""
    objective = _Objective(plan, jobs, progress)
    parameters = list(plan.parameters.values())
    low, high = (np.array([p.to_x(p.bounds[side]) for p in parameters]) for side in (0, 1))
    margin = _INSIDE * (high - low)
    start = np.clip(np.zeros(len(parameters)), low + margin, high - margin)
    x = least_squares_again(objective.residuals, objective.jacobian, start, low, high)
    jacobian = objective.jacobian(x)[: len(plan.rows)]
    return Fitted(
        plan=plan,
        values=tuple(p.from_x(value) for p, value in zip(parameters, x, strict=True)),
        x=x,
        covariance_x=np.asarray(np.linalg.inv(jacobian.T @ jacobian + np.eye(len(parameters))), dtype=np.float64),
        simulated=tuple(objective.simulated(x)),
        jacobian=jacobian,
        evaluations=objective.evaluations,
    )


def least_squares_again(
    residuals: Callable[[Floats], Floats],
    jacobian: Callable[[Floats], Floats],
    start: Floats,
    low: Floats,
    high: Floats,
) -> Floats:
    """Return the place with the least sum of squares, from the start and from each end until that no longer helps.

    *jacobian* is the derivative of *residuals*, residuals x places.
    """
    from scipy.optimize import least_squares

    # The solver's first step is as long as the start is from 0, so 0 is put where that is the length of the prior.
    def shifted(function: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
        return lambda z: function(z - 1.0)

    x, cost = start, np.inf
    for _ in range(_MOST_STARTS):
        found = least_squares(
            shifted(residuals),
            x + 1.0,
            jac=shifted(jacobian),
            bounds=(low + 1.0, high + 1.0),
            x_scale=1.0,
            ftol=_CONVERGED,
            xtol=_CONVERGED,
            gtol=None,
            max_nfev=_MOST_STEPS,
        )
        x, before, cost = np.asarray(found.x, dtype=np.float64) - 1.0, cost, float(found.cost)
        if cost > before * (1.0 - _CONVERGED):
            break
    return x


def _residuals(plan: FitPlan, simulated: Sequence[float]) -> Floats:
    return np.array(
        [
            log(max(value, 1e-12) / row.value) / plan.noise_of(row)
            for row, value in zip(plan.rows, simulated, strict=True)
        ]
    )


class _Objective:
    """The residuals of the rows and of the priors, and their derivative, simulated together once for each place.

    The solver asks for the derivative wherever a step was an improvement, which most are: one round of processes does
    both. The derivative is of differences between runs of equal seeds, which need fewer of them.
    """

    def __init__(self, plan: FitPlan, jobs: int | None, progress: Report | None) -> None:
        self._plan = plan
        self._jobs = jobs
        self._progress = progress
        self._known: dict[tuple[float, ...], tuple[list[float], Floats]] = {}
        self._keys = list(plan.parameters)
        self._parameters = list(plan.parameters.values())
        self.evaluations = 0

    def simulated(self, x: Floats) -> list[float]:
        """Return the simulated figure of each row."""
        return self._at(x)[0]

    def residuals(self, x: Floats) -> Floats:
        """Return the residuals of the rows, then of the priors, all in standard deviations."""
        return np.concatenate([_residuals(self._plan, self._at(x)[0]), x])

    def jacobian(self, x: Floats) -> Floats:
        """Return the derivative of the residuals."""
        return np.vstack([self._at(x)[1], np.eye(x.size)])

    def _at(self, x: Floats) -> tuple[list[float], Floats]:
        key = tuple(map(float, x))
        if key not in self._known:
            self._known[key] = self._simulate(x)
        return self._known[key]

    def _simulate(self, x: Floats) -> tuple[list[float], Floats]:
        plan, few = self._plan, min(_SLOPE_SEEDS, self._plan.seeds)
        beside = self._beside(x)
        points = [(self._overrides(x), plan.seeds), *((self._overrides(point), few) for point in beside)]
        here, *others = by_seed(plan.rows, points, jobs=self._jobs, progress=self._progress)
        self.evaluations += len(points)
        base = _residuals(plan, [median(values[:few]) for values in here])
        columns = [
            (_residuals(plan, [median(values) for values in other]) - base) / (point[index] - x[index])
            for index, (other, point) in enumerate(zip(others, beside, strict=True))
        ]
        return [median(values) for values in here], np.column_stack(columns)

    def _beside(self, x: Floats) -> list[Floats]:
        points = []
        for index, parameter in enumerate(self._parameters):
            step = _STEP / parameter.sd if parameter.transform == "log" else _LINEAR_STEP
            point = x.copy()
            inside = parameter.from_x(x[index] + step) <= parameter.bounds[1]
            point[index] += step if inside else -step
            points.append(point)
        return points

    def _overrides(self, x: Floats) -> dict[str, str | float]:
        values = (parameter.from_x(float(value)) for parameter, value in zip(self._parameters, x, strict=True))
        return self._plan.overrides(dict(zip(self._keys, values, strict=True)))
