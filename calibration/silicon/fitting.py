"""Fits one engine's efficiencies to measured TTFT and TPOT, with the simulator as the model.

Each round simulates all rows once for every parameter, moved a little, and solves the linearised problem with scipy's
least squares on log ratios, within a trust region. The loss of a row is bounded (Geman and McClure), and its scale
shrinks from round to round: the file holds runs that are off by a factor of three from the same model and GPU under
another engine, and these shall not bend the rest. Same rows, same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibration.silicon.efficiencies import NAMES, PARAMETERS, Efficiencies, priors
from calibration.silicon.loop import Task, simulate_rows
from calibration.silicon.rows import Row
from scenarios.runner import run_tasks

Array = NDArray[np.float64]
Log = Callable[[str], None]

_ROWS_A_TASK: Final = 12
_SCALES: Final = (0.5, 0.35, 0.25, 0.2, 0.15)  # log error at which a row begins to lose weight, by round
_TTFT_WEIGHT: Final = 0.5  # a TTFT is one queue's luck, a TPOT the mean of a thousand steps
_STEP: Final = 0.15
_TRUST: Final = 0.6
_SHRINK: Final = 0.4
_TRIES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What was fitted.

    Parameters
    ----------
    values : mapping
        The figures, each in its parameter's unit.
    deviations : mapping
        Standard deviation of each logarithm.
    from_data : mapping
        How much of each figure rests on the data: 1 less the ratio of its variance to the prior's; 0: prior only.
    rows : int
        How many rows were used.
    """

    values: Efficiencies
    deviations: Mapping[str, float]
    from_data: Mapping[str, float]
    rows: int


def thinned(rows: Sequence[Row], most: int) -> list[Row]:
    """Return at most so many rows of each engine and group, evenly spaced over layouts and loads."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.engine, row.group), []).append(row)
    chosen = []
    for members in groups.values():
        members.sort(
            key=lambda r: (r.tensor_parallel, r.expert_parallel, r.prompt_tokens, r.output_tokens, r.concurrency, r.id)
        )
        places = np.unique(np.linspace(0, len(members) - 1, min(most, len(members))).round().astype(int))
        chosen += [members[place] for place in places]
    return chosen


def predict(rows: Sequence[Row], points: Sequence[Efficiencies], *, jobs: int | None = None) -> Array:
    """Return TTFT and TPOT [s] of every row at every point, as an array of points x rows x 2."""
    order = sorted(range(len(rows)), key=lambda place: rows[place].accelerator)
    chunks = [order[at : at + _ROWS_A_TASK] for at in range(0, len(order), _ROWS_A_TASK)]
    tasks = [Task(rows=tuple(rows[place] for place in chunk), values=values) for values in points for chunk in chunks]
    found = np.full((len(points), len(rows), 2), np.nan)
    for index, outcome in run_tasks(simulate_rows, tasks, jobs=jobs):
        if outcome.error is not None:
            raise outcome.error
        point, chunk = divmod(index, len(chunks))
        found[point, chunks[chunk]] = outcome.value
    return found


class _Problem:
    """Rows, their measured logarithms, and the cost of a point."""

    def __init__(self, rows: Sequence[Row], jobs: int | None) -> None:
        self.rows = rows
        self.jobs = jobs
        self.scale = _SCALES[0]
        self.measured = np.log([[row.ttft_s, row.tpot_s] for row in rows])
        self.centre = np.log([p.prior for p in PARAMETERS])
        self.spread = np.array([p.spread for p in PARAMETERS])
        self.low, self.high = (np.log([getattr(p, end) for p in PARAMETERS]) for end in ("low", "high"))

    def errors(self, points: Sequence[Array]) -> Array:
        """Return the log errors of all rows at all points, 0 where a row cannot run."""
        values = [dict(zip(NAMES, np.exp(point).tolist(), strict=True)) for point in points]
        errors: Array = np.nan_to_num(np.log(predict(self.rows, values, jobs=self.jobs)) - self.measured)
        return errors

    def residuals(self, errors: Array, point: Array) -> Array:
        """Return what is squared and added up: errors under the loss, and distances from the prior."""
        scaled = errors / self.scale * np.array([_TTFT_WEIGHT, 1.0])
        bounded = self.scale / _SCALES[-1] * scaled / np.sqrt(1.0 + scaled**2)
        return np.concatenate([bounded.ravel(), (point - self.centre) / self.spread])

    def cost(self, errors: Array, point: Array) -> float:
        """Return the sum of squares."""
        return float(np.sum(self.residuals(errors, point) ** 2))

    def best_step(self, errors: Array, slopes: Array, point: Array, trust: float) -> Array:
        """Return the step within the trust region and the bounds that is best for linear errors."""
        below = np.minimum(np.maximum(self.low - point, -trust), -1e-9)
        above = np.maximum(np.minimum(self.high - point, trust), 1e-9)

        def linear(step: Array) -> Array:
            return self.residuals(errors + np.tensordot(step, slopes, 1), point + step)

        found = least_squares(linear, np.zeros(len(point)), bounds=(below, above)).x
        best: Array = np.clip(point + found, self.low, self.high) - point
        return best


def fit(rows: Sequence[Row], *, jobs: int | None = None, log: Log | None = None) -> Fit:
    """Fit all parameters to the rows, which should be those of one engine."""
    problem = _Problem(rows, jobs)
    point = np.log([priors()[name] for name in NAMES])
    errors = problem.errors([point])[0]
    trust, slopes = _TRUST, np.zeros((len(point), *errors.shape))
    for number, scale in enumerate(_SCALES, start=1):
        problem.scale = scale
        moved = problem.errors([point + _STEP * unit for unit in np.eye(len(point))])
        slopes = (moved - errors) / _STEP
        before = cost = problem.cost(errors, point)
        for _ in range(_TRIES):
            step = problem.best_step(errors, slopes, point, trust)
            tried = problem.errors([point + step])[0]
            if problem.cost(tried, point + step) < cost:
                point, errors, cost = point + step, tried, problem.cost(tried, point + step)
                break
            trust *= _SHRINK
        if log is not None:
            log(f"round {number}: cost {before:.1f} -> {cost:.1f}")
    return _summary(problem, point, errors, slopes)


def _summary(problem: _Problem, point: Array, errors: Array, slopes: Array) -> Fit:
    """Return the fit with its deviations, from the Gauss-Newton matrix of data and prior at the end."""
    weights = np.array([_TTFT_WEIGHT, 1.0]) / problem.scale
    scaled = errors * weights
    jacobian = (slopes * weights / (1.0 + scaled**2)).reshape(len(point), -1)
    covariance = np.linalg.inv(jacobian @ jacobian.T + np.diag(problem.spread**-2))
    deviations = np.sqrt(np.diag(covariance))
    from_data = 1.0 - (deviations / problem.spread) ** 2
    return Fit(
        values=dict(zip(NAMES, np.exp(point).tolist(), strict=True)),
        deviations=dict(zip(NAMES, deviations.tolist(), strict=True)),
        from_data=dict(zip(NAMES, from_data.tolist(), strict=True)),
        rows=len(problem.rows),
    )
