"""Runs the points of a plan, in processes where there are several, each once; says how far each is from the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from models.errors import InputError, ScenarioError, TraceError
from scenarios.planning.free import Load
from scenarios.planning.keys import Number
from scenarios.planning.limits import RESTORES, Limit, figure_at
from scenarios.planning.needs import Needs, run_with_needs
from scenarios.runner import Report, run_tasks
from scenarios.schema import Scenario

Values = Mapping[str, Number]
"""What is set, by key of the scenario; empty: the scenario as it is."""

# What starting a process costs, with all that it imports: a run that is shorter is made in this one.
_PROCESS_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ran:
    """What is kept of a run: small, since it comes from another process."""

    summary: dict[str, Any]
    needs: Needs

    def figure(self, name: str) -> float | None:
        """Return a figure of the run, None where it has none."""
        return self.needs.restores_per_s if name == RESTORES else figure_at(self.summary, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What became of one point.

    Parameters
    ----------
    values : mapping
        What was set.
    meets : bool
        Whether every limit is kept.
    shortfall : float
        The logarithm of the factor by which the limit that is worst off is missed (above 0) or kept (below 0).
    figures : dict
        Of the limits, by name, SI units; None where the run has none.
    ran : Ran or None
        The run; None where the scenario cannot be run with these values.
    error : str or None
        Why it cannot.
    """

    values: Values
    meets: bool
    shortfall: float
    figures: dict[str, float | None]
    ran: Ran | None = None
    error: str | None = None

    @property
    def can_run(self) -> bool:
        """Whether the scenario can be run with these values."""
        return self.ran is not None

    @property
    def bottleneck(self) -> str:
        """What limits it."""
        return f"cannot run: {self.error}" if self.ran is None else str(self.ran.summary["bottleneck"])

    def figure(self, name: str) -> float | None:
        """Return a figure of the run, None where there is none."""
        return None if self.ran is None else self.ran.figure(name)


@dataclass(slots=True)
class Trials:
    """All points that were tried, each run once.

    Parameters
    ----------
    load : callable
        Returns the scenario with values set.
    limits : sequence of Limit
        What points are held against.
    jobs : int or None
        Processes; results do not depend on how many.
    progress : callable or None
        Called with None and the number of runs that have ended.
    """

    load: Load
    limits: Sequence[Limit]
    jobs: int | None = None
    progress: Report | None = None
    points: dict[tuple[tuple[str, Number], ...], Point] = field(default_factory=dict)
    _run_s: float | None = None

    def at(self, wanted: Sequence[Values]) -> list[Point]:
        """Return the points of these values; those that are new are run, as many at once as there are jobs.

        Raises
        ------
        InputError
            If the scenario refuses values, or its trace is broken.
        SimulationError
            If a run fails for a defect.
        """
        new: dict[tuple[tuple[str, Number], ...], Values] = {}
        for values in wanted:
            if _name(values) not in self.points:
                new[_name(values)] = values
        scenarios = [self._loaded(values) for values in new.values()]
        jobs = 1 if self._run_s is None or self._run_s < _PROCESS_S else self.jobs
        with closing(run_tasks(_run, scenarios, jobs=jobs, progress=self._watch())) as ended:
            outcomes = dict(ended)
        for index, (name, values) in enumerate(new.items()):
            outcome = outcomes[index]
            error = outcome.error
            # That the scenario cannot be run with these values is a finding; a broken trace or a defect is none.
            if error is not None and (not isinstance(error, InputError) or isinstance(error, TraceError)):
                raise error
            self.points[name] = self._point(values, outcome.value, error)
            if outcome.value is not None:
                self._run_s = outcome.value.summary["engine"]["wall_s"]
        return [self.points[_name(values)] for values in wanted]

    def _loaded(self, values: Values) -> Scenario:
        try:
            return self.load(values)
        except ScenarioError as error:
            hint = "; list the values that are allowed, as --solve KEY=V1,V2,..."
            raise ScenarioError(error.where, error.problem + hint) from None

    def _point(self, values: Values, ran: Ran | None, error: Exception | None) -> Point:
        figures = {limit.figure: None if ran is None else ran.figure(limit.figure) for limit in self.limits}
        return Point(
            values=values,
            meets=ran is not None and all(limit.is_met(figures[limit.figure]) for limit in self.limits),
            shortfall=max(limit.shortfall(figures[limit.figure]) for limit in self.limits),
            figures=figures,
            ran=ran,
            error=None if error is None else " ".join(str(error).split()),
        )

    def _watch(self) -> Report | None:
        progress = self.progress
        if progress is None:
            return None
        before, last = len(self.points), -1

        def heard(_: float | None, ended: int) -> None:
            nonlocal last
            if ended != last:  # not whenever one of them is a little further
                last = ended
                progress(None, before + ended)

        return heard


def _name(values: Values) -> tuple[tuple[str, Number], ...]:
    return tuple(sorted(values.items()))


def _run(scenario: Scenario, report: Report) -> Ran:
    result, needs = run_with_needs(scenario, report)
    return Ran(result.summary(), needs)
