"""Simulates what measurements were made of: every scenario once a seed, in processes of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from calibration.measurements import Measurement
from calibration.metrics import simulated
from models.errors import KvTierError
from scenarios.build import simulate
from scenarios.loader import load_scenario
from scenarios.runner import Report, run_tasks

SEEDS: Final = 9
"""Arrival times decide who makes the first step: single seeds differ by a session or two, so medians are compared."""

Values = Mapping[str, str | float]
"""Parameters by key, as a scenario writes them."""


@dataclass(frozen=True, slots=True)
class _Task:
    scenario: str
    settings: tuple[str, ...]
    seed: int
    metrics: tuple[tuple[str, str, float], ...]  # metric, unit, client_s


def medians(
    rows: Sequence[Measurement],
    points: Sequence[Values | None],
    *,
    seeds: int = SEEDS,
    jobs: int | None = None,
    progress: Report | None = None,
) -> list[list[float]]:
    """Return for each set of parameters the simulated figure of each row, in its unit: the median over the seeds.

    Parameters
    ----------
    rows : sequence of Measurement
        What to simulate.
    points : sequence of mapping or None
        Parameters that are set in every scenario in place of those that it names; None leaves it as it is.
    seeds : int
        Seeds 0 to ``seeds - 1``, the same for every set: differences between sets are none of the seeds.
    jobs, progress
        As for :func:`scenarios.runner.run_tasks`; the values do not depend on ``jobs``.

    Raises
    ------
    KvTierError
        If a run fails, or a figure of a row has no value there.
    """
    setups: dict[tuple[str, tuple[str, ...]], list[Measurement]] = {}
    for row in rows:
        setups.setdefault(row.setup, []).append(row)
    tasks = [
        _Task(scenario, (*settings, *_overrides(point)), seed, tuple((m.metric, m.unit, m.client_s) for m in of_setup))
        for point in points
        for (scenario, settings), of_setup in setups.items()
        for seed in range(seeds)
    ]
    found: dict[int, list[float | None]] = {}
    for index, outcome in run_tasks(_run, tasks, jobs=jobs, progress=progress):
        if outcome.error is not None:
            raise type(outcome.error)(*outcome.error.args)
        found[index] = outcome.value or []
    place = {row.id: (i, j) for i, of_setup in enumerate(setups.values()) for j, row in enumerate(of_setup)}

    def figure(point: int, row: Measurement) -> float:
        setup, column = place[row.id]
        first = (point * len(setups) + setup) * seeds
        values = [found[index][column] for index in range(first, first + seeds)]
        kept = [value for value in values if value is not None]
        if len(kept) < len(values):
            raise KvTierError(f"{row.where}: {row.id}: scenario {row.scenario} has no {row.metric}")
        return median(kept)

    return [[figure(point, row) for row in rows] for point in range(len(points))]


def _overrides(point: Values | None) -> list[str]:
    return [] if point is None else [f"{key}={value}" for key, value in point.items()]


def _run(task: _Task, report: Report) -> list[float | None]:
    del report  # a run takes a fraction of a second
    scenario = load_scenario(task.scenario, overrides=task.settings, seed=task.seed)
    phases, measured = scenario.workload.phases, scenario.run.measure
    if phases is not None and measured is not None:
        # What comes after the measured phase changes none of its figures.
        last = [phase.name for phase in phases].index(measured)
        workload = scenario.workload.model_copy(update={"phases": phases[: last + 1]})
        scenario = scenario.model_copy(update={"workload": workload})
    result = simulate(scenario)
    return [simulated(result, metric, unit, client_s) for metric, unit, client_s in task.metrics]
