"""Simulates what measurements were made of: every scenario once a seed, in processes of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from calibration.measurements import Measurement
from calibration.metrics import LINK_BIN_S, simulated
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


def by_seed(
    rows: Sequence[Measurement],
    points: Sequence[tuple[Values | None, int]],
    *,
    jobs: int | None = None,
    progress: Report | None = None,
) -> list[list[list[float]]]:
    """Return for each set of parameters and each row the simulated figure of every seed, in the row's unit.

    Parameters
    ----------
    rows : sequence of Measurement
        What to simulate.
    points : sequence of (mapping or None, int)
        Parameters that are set in every scenario in place of those that it names (None leaves it as it is), and how
        many seeds to run: 0, 1, ..., the same for every set, so that differences between sets are none of the seeds.
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
    tasks, places = [], []
    for point, (values, seeds) in enumerate(points):
        for (scenario, settings), of_setup in setups.items():
            asked = tuple((row.metric, row.unit, row.client_s) for row in of_setup)
            for seed in range(seeds):
                tasks.append(_Task(scenario, (*settings, *_overrides(values)), seed, asked))
                places.append((point, of_setup))
    outcomes: dict[int, list[float | None]] = {}
    for index, outcome in run_tasks(_run, tasks, jobs=jobs, progress=progress):
        if outcome.error is not None:
            raise outcome.error
        outcomes[index] = outcome.value or []
    found: list[dict[str, list[float]]] = [{row.id: [] for row in rows} for _ in points]
    for index, (point, of_setup) in enumerate(places):
        for row, value in zip(of_setup, outcomes[index], strict=True):
            if value is None:
                raise KvTierError(f"{row.where}: {row.id}: scenario {row.scenario} has no {row.metric}")
            found[point][row.id].append(value)
    return [[by_row[row.id] for row in rows] for by_row in found]


def medians(
    rows: Sequence[Measurement],
    values: Values | None = None,
    *,
    seeds: int = SEEDS,
    jobs: int | None = None,
    progress: Report | None = None,
) -> list[float]:
    """Return the simulated figure of each row, the median over the seeds; otherwise as :func:`by_seed`."""
    return [median(figures) for figures in by_seed(rows, [(values, seeds)], jobs=jobs, progress=progress)[0]]


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
    result = simulate(scenario, link_bin_s=LINK_BIN_S)
    return [simulated(result, metric, unit, client_s) for metric, unit, client_s in task.metrics]
