"""Runs the points of a sweep, in processes or on a cluster, and takes over what an earlier call has done."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, Final

from models.errors import LostTaskError
from scenarios.runner import Outcome, Report, run_tasks
from scenarios.schema import Scenario
from scenarios.sweeping.dask_tasks import run_on_dask
from scenarios.sweeping.journal import Ran, open_journal
from scenarios.sweeping.points import Point, load_points
from scenarios.sweeping.result import SweepResult
from scenarios.sweeping.sources import Sample
from scenarios.sweeping.table import refuse_foreign, to_table, write_table

# A process that dies may have been chosen by chance (memory ran out beside a large run): the run gets one more.
_ATTEMPTS: Final = 2


def sweep(
    scenario: str | Path | Scenario,
    *,
    grid: Sequence[str] | Mapping[str, Sequence[Any]] | None = None,
    rows: str | Path | Sequence[Mapping[str, Any]] | None = None,
    sample: Sample | None = None,
    overrides: Sequence[str] = (),
    trace: str | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Report | None = None,
) -> SweepResult:
    """Run a scenario at many points and return a table with a row for each.

    ``sweep("quickstart", grid={"tiers.dram.capacity": ["64GB", "1TB"], "workload.rate_scale": [1, 2]})`` runs four.

    Parameters
    ----------
    scenario : str, Path or Scenario
        A shipped name, a path, or what :func:`scenarios.loader.load_scenario` returned.
    grid : mapping or sequence of str
        Values by key, or texts ``a.b=v1,v2``; all combinations are run.
    rows : sequence of mapping, str or Path
        Points one by one, each a mapping of keys to values, or a CSV, YAML or JSON file of them.
    sample : Sample
        Points drawn from ranges. Of *rows*, *sample* and *grid* several may be given: each is combined with each.
    overrides, trace, seed
        As for :func:`scenarios.loader.load_scenario`; they hold for all points.
    jobs : int or None
        Processes; None: as many as there are cores. One: all is done in this process.
    dask : str or None
        Address of a Dask scheduler, to run there instead.
    out : str, Path or None
        A Parquet file for the table (:mod:`scenarios.sweeping.table`), written when all points have ended. Beside it
        lies a journal of what has been done.
    resume : bool
        Take over from that journal.
    progress : function or None
        Called with the share of the points that is done, None while it is not known, and how many have ended.

    Raises
    ------
    InputError
        Before anything runs, for points that no scenario can have, and for files that cannot be used.
    """
    points = load_points(scenario, grid=grid, rows=rows, sample=sample, overrides=overrides, trace=trace, seed=seed)
    return run_points(points, jobs=jobs, dask=dask, out=out, resume=resume, progress=progress)


def run_points(
    points: Sequence[Point],
    *,
    jobs: int | None = None,
    dask: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Report | None = None,
) -> SweepResult:
    """Run what :func:`scenarios.sweeping.load_points` returned; parameters and errors as for :func:`sweep`."""
    path = None if out is None else Path(out)
    if path is not None:
        refuse_foreign(path)
    wanted = {point.key: point.scenario for point in points}
    with nullcontext() if path is None else open_journal(path, resume=resume) as journal:
        known = {} if journal is None else journal.ran
        ran = {key: known[key] for key in wanted if key in known}
        taken_over = sum(point.key in ran for point in points)
        waiting = [key for key in wanted if key not in ran]
        shown = None if progress is None else _counted_from(len(ran), progress)
        with closing(_run_all([wanted[key] for key in waiting], jobs, dask, shown)) as ended:
            for place, outcome in ended:
                ran[waiting[place]] = found = _ran(outcome)
                if journal is not None:
                    journal.add(waiting[place], found)
        table = to_table(points[0].scenario.name, [(point, ran[point.key]) for point in points])
        if path is not None and journal is not None:
            write_table(table, path)
            journal.complete()
    return SweepResult(
        table=table,
        taken_over=taken_over,
        strangers=len(set(known) - set(wanted)),
        dropped=0 if journal is None else journal.dropped,
    )


def _run_all(
    scenarios: Sequence[Scenario], jobs: int | None, dask: str | None, progress: Report | None
) -> Generator[tuple[int, Outcome[dict[str, Any]]], None, None]:
    if dask is not None:
        return run_on_dask(_run, scenarios, address=dask, progress=progress)
    return run_tasks(_run, scenarios, jobs=jobs, attempts=_ATTEMPTS, progress=progress)


def _run(scenario: Scenario, report: Report) -> dict[str, Any]:
    from scenarios.build import simulate
    from sim.results.files import jsonable

    summary: dict[str, Any] = jsonable(simulate(scenario, progress=report).summary())
    return summary


def _ran(outcome: Outcome[dict[str, Any]]) -> Ran:
    error = outcome.error
    if error is None:
        return Ran(summary=outcome.value)
    return Ran(error=" ".join(str(error).split()), again=isinstance(error, LostTaskError))


def _counted_from(known: int, progress: Report) -> Report:
    """Count runs that were taken over among those that have ended; the share done is of the others."""
    return lambda fraction, ended: progress(fraction, known + ended)
