"""Evidence for gates: figures of a subject from a measured table, a saved result, or runs of a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from models.errors import UnknownNameError
from scenarios.build import simulate
from scenarios.gates.criteria import Gates
from scenarios.gates.measured import MeasuredTable
from scenarios.loader import load_scenario
from scenarios.planning.limits import figure_at
from scenarios.runner import Report, run_tasks
from sim.recording.requests import COMPLETED
from sim.results.result import SimulationResult

Kind = Literal["measured", "saved", "simulated"]
DRIFT: Final = "drift.ttft_p50"
"""By which share the median TTFT of requests that came in the second half of the time differs from the first half's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a subject: where from, and the values of each figure, one a repeat or a seed."""

    kind: Kind
    figures: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class _Task:
    scenario: str
    seed: int
    figures: tuple[str, ...]


def gather(
    gates: Gates,
    chosen: Sequence[str],
    *,
    measured: str | None,
    seeds: int,
    jobs: int | None = None,
    progress: Report | None = None,
) -> dict[str, Evidence]:
    """Return the evidence for the gates *chosen*, by subject; a subject of which nothing is known is left out.

    Parameters
    ----------
    measured : str or None
        A table of measurements (:class:`scenarios.gates.measured.MeasuredTable`). With it nothing is simulated: a
        subject that it lacks has no evidence. Without it, a subject is a folder that ``kvtier run --out`` wrote, or the
        name or path of a scenario, which is run with seeds 0, 1, ...

    Raises
    ------
    InputError
        For a table, a result or a scenario that is wrong; KvTierError for a run that fails.
    """
    wanted = _wanted(gates, chosen)
    if measured is not None:
        table = MeasuredTable(measured)
        found = {name: table.figures(name) for name in wanted}
        return {
            name: Evidence(kind="measured", figures=_by_figure(figures, wanted[name]))
            for name, figures in found.items()
            if figures
        }
    known: dict[str, Evidence] = {}
    tasks = []
    for name, figures in wanted.items():
        if Path(name).is_dir():
            values = _figures(SimulationResult.load(name), tuple(figures))
            known[name] = Evidence(kind="saved", figures={f: [v] for f, v in values.items()})
        elif _is_scenario(name):
            tasks += [_Task(name, seed, tuple(figures)) for seed in range(seeds)]
    runs: dict[str, dict[int, dict[str, float]]] = {}
    for index, outcome in run_tasks(_run, tasks, jobs=jobs, progress=progress):
        if outcome.error is not None:
            raise outcome.error
        runs.setdefault(tasks[index].scenario, {})[tasks[index].seed] = outcome.value or {}
    for name, by_seed in runs.items():
        columns = {f: [by_seed[seed][f] for seed in sorted(by_seed) if f in by_seed[seed]] for f in wanted[name]}
        known[name] = Evidence(kind="simulated", figures={f: v for f, v in columns.items() if v})
    return known


def _wanted(gates: Gates, chosen: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return by subject the figures that checks ask for, each with its name in a table."""
    wanted: dict[str, dict[str, str]] = {}
    for gate in chosen:
        for point in gates.points_of(gate):
            for check in gates.gates[gate].checks:
                for subject in gates.subjects(gate, point, check):
                    wanted.setdefault(subject, {})[check.figure] = check.csv
    return wanted


def _by_figure(metrics: Mapping[str, Sequence[float]], names: Mapping[str, str]) -> dict[str, Sequence[float]]:
    return {figure: metrics[metric] for figure, metric in names.items() if metric in metrics}


def _is_scenario(name: str) -> bool:
    try:
        load_scenario(name)
    except UnknownNameError:
        return False
    return True


def _run(task: _Task, report: Report) -> dict[str, float]:
    return _figures(simulate(load_scenario(task.scenario, seed=task.seed), progress=report), task.figures)


def _figures(result: SimulationResult, names: Sequence[str]) -> dict[str, float]:
    values: dict[str, float | None] = {
        name: _drift(result) if name == DRIFT else figure_at(result.summary_values, name) for name in names
    }
    return {name: value for name, value in values.items() if value is not None}


def _drift(result: SimulationResult) -> float | None:
    requests: Mapping[str, Any] = result.table("requests")
    served = result.measured_requests() & (requests["state"] == COMPLETED)
    arrived, ttft = requests["arrived_at_s"][served], requests["ttft_s"][served]
    late = arrived >= (arrived.min() + arrived.max()) / 2.0 if len(arrived) else np.zeros(0, dtype=bool)
    if late.all() or not late.any():
        return None
    return abs(float(np.median(ttft[late]) / np.median(ttft[~late])) - 1.0)
