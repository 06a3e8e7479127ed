"""Runs a scenario with drawn parameters, and says how far a single measurement of it may lie from the prediction.

Three things keep a measurement from what the simulator says, and the intervals hold all of them:

- the parameters are not known exactly: they are drawn, all runs with the same seed, so that no difference is noise;
- arrivals are random: the best guess is run with more seeds;
- the model leaves out what it leaves out, and a measurement has noise: the scatter that the fit left, when each of its
  rows is left out in turn, or the noise of one measurement where that is more (:class:`ModelError`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from models.errors import KvTierError, SimulationError, UnknownNameError
from scenarios.runner import Report, Work, run_tasks
from scenarios.schema import Scenario
from scenarios.uncertainty.draws import check_draws, distances
from scenarios.uncertainty.drivers import SOBOL_DRAWS, Drivers, sobol_drivers, tornado
from scenarios.uncertainty.figures import Combined, figures_of
from scenarios.uncertainty.fit import STAND_IN, Fit, ModelError, read_fit
from scenarios.uncertainty.reach import Reach, outside, reach_of
from scenarios.uncertainty.sources import Sources, sources_of
from sim.arrays import Floats

if TYPE_CHECKING:
    import pandas as pd

DRIVEN: Final = (
    *(f"ttft_s.{name}" for name in ("mean", "p50", "p90", "p99")),
    "tpot_s.mean",
    "e2e_s.p50",
    "throughput.output_tokens_per_s",
)
"""Figures whose drivers are told unless others are asked for."""
_MOST_SEEDS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A scenario's figures with what is not known of them.

    Parameters
    ----------
    name : str
        Of the scenario.
    n : int
        Draws that were asked for.
    sources : Sources
        What was drawn.
    model_error : ModelError
        What the intervals hold beside that.
    x : array
        Distances from the best guess, a row for each draw that ran.
    draws, seeds : tuple of dict
        Figures of each draw that ran, and of the best guess with each seed; the first is the seed of the draws.
    swings : tuple
        Figures with each parameter a standard deviation below and above; only where draws are few.
    outside : list
        Where this lies outside of what was calibrated.
    failed : list
        Runs that failed: which, and why.
    """

    name: str
    n: int
    sources: Sources
    model_error: ModelError
    x: Floats
    draws: tuple[dict[str, float], ...]
    seeds: tuple[dict[str, float], ...]
    swings: tuple[tuple[dict[str, float], dict[str, float]], ...] = ()
    outside: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, str]] = field(default_factory=list)

    def names(self) -> list[str]:
        """Return all figures that have an interval: those of the best guess that at least half of the draws have."""
        return [name for name in self.seeds[0] if 2 * sum(name in draw for draw in self.draws) >= len(self.draws)]

    def samples(self, figure: str) -> Floats:
        """Return what a single measurement of a figure may be, all equally likely; UnknownNameError for no figure."""
        return self._combined(figure).samples()

    def interval(self, figure: str) -> dict[str, float]:
        """Return mean, p5, p25, p50, p75 and p95 of a figure; p5 to p95 hold 90 %. UnknownNameError for no figure."""
        found = self._combined(figure).interval()
        lacking = sum(figure not in draw for draw in self.draws)
        return found | ({"missing": lacking} if lacking else {})

    def probability(self, figure: str, at_most: float) -> float:
        """Return how likely a single measurement of a figure is no more than *at_most*, in the figure's unit."""
        return float((self.samples(figure) <= at_most).mean())

    def drivers(self, figure: str) -> Drivers | None:
        """Return what moves a figure, strongest first; UnknownNameError for no figure.

        None where nothing moves it, or where draws are few and there are no swings.
        """
        combined = self._combined(figure)
        keys = [number.key for number in self.sources.uncertain]
        if self.n >= SOBOL_DRAWS:
            there = np.array([figure in draw for draw in self.draws])
            return sobol_drivers(combined, self.x[there], self.sources.correlation, keys)
        if not self.swings:
            return None
        base = self.seeds[0][figure]
        low, high = (np.array([pair[side].get(figure, base) for pair in self.swings]) for side in (0, 1))
        return tornado(combined, low, high, keys)

    def to_pandas(self) -> pd.DataFrame:
        """Return the intervals, a row for each figure."""
        import pandas as pd

        return pd.DataFrame({name: self.interval(name) for name in self.names()}).T.rename_axis("figure")

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain values: what ``kvtier run --json`` has under ``uncertainty``."""
        told = {name: self.drivers(name) for name in DRIVEN if name in self.names()}
        return {
            "n": self.n,
            "seeds": len(self.seeds),
            "figures": {name: self.interval(name) for name in self.names()},
            "drivers": {name: found.to_dict() for name, found in told.items() if found is not None},
            "parameters": [number.to_dict() for number in self.sources.uncertain],
            "model_error": self.model_error.to_dict(),
            "outside_calibrated_range": self.outside,
            "failed": self.failed,
        }

    def _combined(self, figure: str) -> Combined:
        if figure not in self.seeds[0]:
            raise UnknownNameError("figure", figure, self.names())
        drawn, seeded = (
            np.array([run[figure] for run in runs if figure in run], dtype=np.float64)
            for runs in (self.draws, self.seeds)
        )
        return Combined(figure, drawn, seeded, self.model_error)


@dataclass(frozen=True, slots=True)
class Ran:
    """What is kept of a run."""

    figures: dict[str, float]
    reach: Reach


def simulate_figures(scenario: Scenario, report: Report) -> Ran:
    """Run one draw and return what is kept of it."""
    from scenarios.build import simulate

    result = simulate(scenario, progress=report)
    return Ran(figures_of(result.summary_values), reach_of(scenario, result))


def predict(
    scenario: Scenario,
    draws: int = 128,
    *,
    jobs: int | None = None,
    progress: Report | None = None,
    work: Work[Scenario, Ran] = simulate_figures,
    swings: bool = True,
) -> Prediction:
    """Run a scenario with *draws* sets of parameters, and return its figures with intervals and what drives them.

    Parameters are those of the scenario's fitted file, with their covariance, and the figures of the catalogue entries
    that it uses, with their spreads (:func:`scenarios.uncertainty.sources.sources_of`). Same scenario and draws, same
    result to the last bit.

    Parameters
    ----------
    scenario : Scenario
        As loaded.
    draws : int
        A power of two from 8 to 65,536. With 64 or more, drivers are Sobol indices; with fewer, a tornado, which takes
        two more runs for each parameter. Up to 16 more runs are of other seeds.
    jobs, progress
        As for :func:`scenarios.runner.run_tasks`.
    work : function
        Makes one run and keeps its figures; others may have more of them than a summary has.
    swings : bool
        False: no tornado, and no runs for it; then few draws have no drivers.

    Raises
    ------
    InputError
        For a number of draws that is none of these, or a scenario or a file of parameters that is wrong.
    KvTierError
        If the best guess cannot be run; SimulationError if less than half of the draws can.
    """
    check_draws(draws)
    fit = None if scenario.parameters is None else read_fit(scenario.parameters)
    sources = sources_of(scenario, fit)
    x = distances(draws, sources.correlation, scenario.run.seed)
    swings = swings and draws < SOBOL_DRAWS
    tasks = dict(_tasks(scenario, sources, x, swings=swings))
    ran, failed = _run_all(work, tasks, jobs, progress)
    drawn = [at for at in range(draws) if f"draw {at}" in ran]
    if 2 * len(drawn) < draws:
        raise SimulationError(f"{draws - len(drawn)} of {draws} draws failed, the first: {failed[0]['error']}")
    return Prediction(
        name=scenario.name,
        n=draws,
        sources=sources,
        model_error=model_error_of(fit),
        x=x[drawn],
        draws=tuple(ran[f"draw {at}"].figures for at in drawn),
        seeds=tuple(found.figures for label, found in ran.items() if label.startswith("seed")),
        swings=tuple(_swings(sources, ran)) if swings else (),
        outside=outside(ran[f"seed {scenario.run.seed}"].reach, fit),
        failed=failed,
    )


def model_error_of(fit: Fit | None) -> ModelError:
    """Return the error of the model as a scenario that rests on *fit* has it; without one, the least to expect."""
    if fit is not None:
        return fit.model_error
    other = read_fit(STAND_IN).model_error
    source = f"{other.source}: this scenario rests on no fit, so it is the least to expect"
    return ModelError(sd=other.sd, degrees_of_freedom=other.degrees_of_freedom, source=source)


def _tasks(scenario: Scenario, sources: Sources, x: Floats, *, swings: bool) -> Iterator[tuple[str, Scenario]]:
    """Yield every run with its label, the best guess first: if that fails, all else is for nothing."""
    first = scenario.run.seed
    for seed in range(first, first + min(_MOST_SEEDS, len(x) // 2)):
        yield f"seed {seed}", scenario.model_copy(update={"run": scenario.run.model_copy(update={"seed": seed})})
    for at, distance in enumerate(x):
        yield f"draw {at}", sources.apply(scenario, distance)
    if not swings:
        return
    for at, number in enumerate(sources.uncertain):
        for label, sign in _SIDES:
            off = np.zeros(len(sources.uncertain))
            off[at] = sign
            yield f"{number.key} {label}", sources.apply(scenario, off)


_SIDES: Final = (("- 1 sd", -1.0), ("+ 1 sd", 1.0))


def _swings(sources: Sources, ran: Mapping[str, Ran]) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    for number in sources.uncertain:
        low, high = (ran.get(f"{number.key} {label}") for label, _ in _SIDES)
        yield ({} if low is None else low.figures), ({} if high is None else high.figures)


def _run_all(
    work: Work[Scenario, Ran], tasks: Mapping[str, Scenario], jobs: int | None, progress: Report | None
) -> tuple[dict[str, Ran], list[dict[str, str]]]:
    labels = list(tasks)
    found: dict[int, Ran] = {}
    errors: dict[int, KvTierError] = {}
    with closing(run_tasks(work, list(tasks.values()), jobs=jobs, progress=progress)) as ended:
        for index, outcome in ended:
            if outcome.value is not None:
                found[index] = outcome.value
            elif outcome.error is not None:
                if index == 0:
                    raise outcome.error
                errors[index] = outcome.error
    ran = {labels[index]: found[index] for index in sorted(found)}
    failed = [{"run": labels[index], "error": " ".join(str(errors[index]).split())} for index in sorted(errors)]
    return ran, failed
