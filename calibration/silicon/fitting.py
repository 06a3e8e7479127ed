"""Fits one engine's efficiencies to measured TTFT and TPOT, with the simulator as the model.

Each round simulates all rows once for every parameter, moved a little, and solves the linearised problem with scipy's
least squares on log ratios, within a trust region. The loss of a row is bounded (Geman and McClure), and its scale
shrinks from round to round: the file holds runs that are off by a factor of three from the same model and GPU under
another engine, and these shall not bend the rest.

Groups of rows (a model on a GPU in a precision) differ by how well their kernels are tuned, which no efficiency of the
engine knows. So each group has two factors of its own, on all its TTFTs and on all its TPOTs, with priors around 1;
what is common to the groups goes into the efficiencies. A prediction for another group has factors of 1. If TPOT alone
had one, TTFTs that come out short would slow the efficiencies down, and factors hide what that does to TPOT. How far
they spread was chosen by leaving out fitted groups: for TensorRT-LLM a mean error on TPOT of 9.1 %, 13.4 % with half of
that on TPOT. Same rows, same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibration.silicon.efficiencies import NAMES, PARAMETERS, Efficiencies
from calibration.silicon.loop import REQUESTS_A_CLIENT, Task, simulate_rows
from calibration.silicon.rows import Row
from scenarios.runner import run_tasks

Array = NDArray[np.float64]
Log = Callable[[str], None]

_ROWS_A_TASK: Final = 12
_SCALES: Final = (0.5, 0.25, 0.15, 0.15)  # log error at which a row begins to lose weight, by round
GROUP_SPREAD: Final = 0.3
"""Standard deviation of the logarithm of a group's factors on TTFT and on TPOT."""
_TTFT_WEIGHT: Final = 0.5  # a TTFT is one queue's luck, a TPOT the mean of a thousand steps
_WEIGHTS: Final = np.array([_TTFT_WEIGHT, 1.0])
_WIDEST: Final = 1.5  # of a group's factor, in its logarithm
_STEP: Final = 0.1
_TRUST: Final = 0.6
_SHRINK: Final = 0.4
_TRIES: Final = 3
_REQUESTS_FOR_SLOPES: Final = 3
"""Of a client where only slopes are asked for, which hardly change with more; errors are those of whole runs."""


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
    group_factors : mapping
        By group, how much longer TTFT and TPOT are than the figures say.
    rows : int
        How many rows were used.
    """

    values: Efficiencies
    deviations: Mapping[str, float]
    from_data: Mapping[str, float]
    group_factors: Mapping[str, tuple[float, float]]
    rows: int


def thinned(rows: Sequence[Row], most: int) -> list[Row]:
    """Return about so many rows, the same number of each engine and group, evenly spaced over layouts and loads."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.engine, row.group), []).append(row)
    chosen: list[Row] = []
    # Small groups first: what they do not use is for the others.
    for left, members in zip(range(len(groups), 0, -1), sorted(groups.values(), key=len), strict=True):
        members.sort(
            key=lambda r: (r.tensor_parallel, r.expert_parallel, r.prompt_tokens, r.output_tokens, r.concurrency, r.id)
        )
        count = min(max(1, (most - len(chosen)) // left), len(members))
        places = np.unique(np.linspace(0, len(members) - 1, count).round().astype(int))
        chosen += [members[place] for place in places]
    return chosen


def predict(
    rows: Sequence[Row],
    points: Sequence[Efficiencies],
    *,
    requests_a_client: int = REQUESTS_A_CLIENT,
    jobs: int | None = None,
) -> Array:
    """Return TTFT and TPOT [s] of every row at every point, as an array of points x rows x 2."""
    order = sorted(range(len(rows)), key=lambda place: rows[place].accelerator)
    chunks = [order[at : at + _ROWS_A_TASK] for at in range(0, len(order), _ROWS_A_TASK)]
    tasks = [
        Task(rows=tuple(rows[place] for place in chunk), values=values, requests_a_client=requests_a_client)
        for values in points
        for chunk in chunks
    ]
    found = np.full((len(points), len(rows), 2), np.nan)
    for index, outcome in run_tasks(simulate_rows, tasks, jobs=jobs):
        if outcome.error is not None:
            raise outcome.error
        point, chunk = divmod(index, len(chunks))
        found[point, chunks[chunk]] = outcome.value
    return found


class _Problem:
    """Rows, their measured logarithms, and the cost of a point: the figures' logarithms, then the groups' factors'."""

    def __init__(self, rows: Sequence[Row], jobs: int | None) -> None:
        self.rows = rows
        self.jobs = jobs
        self.scale = _SCALES[0]
        self.measured = np.log([[row.ttft_s, row.tpot_s] for row in rows])
        self.groups = sorted({row.group for row in rows})
        of_group = np.array([[row.group == group for row in rows] for group in self.groups], dtype=float)
        # Change of each error (of TTFT and TPOT) with each group's factors: groups x 2 factors, rows, 2 errors.
        self.factor_slopes = np.einsum("gr,fe->gfre", of_group, np.eye(2)).reshape(-1, len(rows), 2)
        factors = len(self.factor_slopes)
        self.centre = np.concatenate([np.log([p.prior for p in PARAMETERS]), np.zeros(factors)])
        self.spread = np.array([*(p.spread for p in PARAMETERS), *[GROUP_SPREAD] * factors])
        self.low = np.concatenate([np.log([p.low for p in PARAMETERS]), np.full(factors, -_WIDEST)])
        self.high = np.concatenate([np.log([p.high for p in PARAMETERS]), np.full(factors, _WIDEST)])

    def errors(self, points: Sequence[Array], requests_a_client: int = REQUESTS_A_CLIENT) -> Array:
        """Return the log errors of all rows at all points, 0 where a row cannot run."""
        values = [_values(point) for point in points]
        times_s = predict(self.rows, values, requests_a_client=requests_a_client, jobs=self.jobs)
        errors: Array = np.nan_to_num(np.log(times_s) - self.measured)
        factors = np.array([point[len(NAMES) :] for point in points])
        return errors + np.tensordot(factors, self.factor_slopes, 1)

    def slopes(self, point: Array) -> Array:
        """Return the change of the errors with each coordinate of the point."""
        points = [point, *(point + _STEP * unit for unit in np.eye(len(point))[: len(NAMES)])]
        here, *moved = self.errors(points, _REQUESTS_FOR_SLOPES)
        return np.concatenate([(np.array(moved) - here) / _STEP, self.factor_slopes])

    def residuals(self, errors: Array, point: Array) -> Array:
        """Return what is squared and added up: errors under the loss, and distances from the prior."""
        scaled = errors / self.scale * _WEIGHTS
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


def _values(point: Array) -> dict[str, float]:
    return dict(zip(NAMES, np.exp(point[: len(NAMES)]).tolist(), strict=True))


def fit(rows: Sequence[Row], *, jobs: int | None = None, log: Log | None = None) -> Fit:
    """Fit all parameters to the rows, which must be those of one engine."""
    problem = _Problem(rows, jobs)
    point = problem.centre.copy()
    errors = problem.errors([point])[0]
    slopes = np.zeros((len(point), *errors.shape))
    for number, scale in enumerate(_SCALES, start=1):
        problem.scale, trust = scale, _TRUST
        slopes = problem.slopes(point)
        before = cost = problem.cost(errors, point)
        for _ in range(_TRIES):
            step = problem.best_step(errors, slopes, point, trust)
            tried = problem.errors([point + step])[0]
            if problem.cost(tried, point + step) < cost:
                point, errors, cost = point + step, tried, problem.cost(tried, point + step)
                # Slopes hold for a while: another step along them is cheaper than new ones.
                continue
            trust *= _SHRINK
        if log is not None:
            log(f"round {number} of {len(_SCALES)}: cost {before:.1f} -> {cost:.1f}")
    return _summary(problem, point, errors, slopes)


def _summary(problem: _Problem, point: Array, errors: Array, slopes: Array) -> Fit:
    """Return the fit with its deviations, from the Gauss-Newton matrix of data and prior at the end."""
    weights = _WEIGHTS / problem.scale
    scaled = errors * weights
    jacobian = (slopes * weights / (1.0 + scaled**2)).reshape(len(point), -1)
    covariance = np.linalg.inv(jacobian @ jacobian.T + np.diag(problem.spread**-2))
    deviations = np.sqrt(np.diag(covariance))
    from_data = 1.0 - (deviations / problem.spread) ** 2
    factors = [(ttft, tpot) for ttft, tpot in np.exp(point[len(NAMES) :]).reshape(-1, 2).tolist()]
    return Fit(
        values=_values(point),
        deviations=dict(zip(NAMES, deviations.tolist(), strict=False)),
        from_data=dict(zip(NAMES, from_data.tolist(), strict=False)),
        group_factors=dict(zip(problem.groups, factors, strict=True)),
        rows=len(problem.rows),
    )
