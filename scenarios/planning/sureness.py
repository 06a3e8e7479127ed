"""How sure a plan is: what is known without a run more, and the odds that its limits hold, from draws at its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scenarios.planning.keys import Number
from scenarios.planning.limits import RESTORES, Limit
from scenarios.planning.margins import binding
from scenarios.planning.needs import run_with_needs
from scenarios.planning.trials import Point
from scenarios.runner import Report
from scenarios.schema import Scenario
from scenarios.uncertainty.figures import Combined, error_exponent, figures_of
from scenarios.uncertainty.fit import ModelError, read_fit
from scenarios.uncertainty.predicting import Prediction, Ran, model_error_of, predict
from scenarios.uncertainty.reach import reach_of
from sim.arrays import Floats

if TYPE_CHECKING:
    import pandas as pd

CONFIDENT: Final = 0.9
"""What is sure enough to buy: the share of the draws, seeds and errors of the model in which all limits hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """One limit at the answer.

    Parameters
    ----------
    limit : Limit
        What has to hold.
    interval : dict or None
        Mean and quantiles of what a single measurement of its figure may be; None where the answer has none.
    probability : float
        That it holds.
    """

    limit: Limit
    interval: dict[str, float] | None
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The least of one quantity, of the values that were tried, that is good enough with :data:`CONFIDENT`.

    An estimate: its own run was made once, and is taken to spread as the answer does.

    Parameters
    ----------
    key : str
        The quantity.
    value : number or None
        None where none of those that were tried is.
    probability : float or None
        That all limits hold with it.
    """

    key: str
    value: Number | None
    probability: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """What draws at the answer say.

    Parameters
    ----------
    prediction : Prediction
        Of the scenario of the answer, or of what comes nearest to one.
    odds : tuple of Odds
        Of each limit; implied ones too.
    together : float
        How likely all hold at once: in the same draw, with the same seed and error of the model.
    estimate : Estimate or None
        None where several quantities were free.
    """

    prediction: Prediction
    odds: tuple[Odds, ...]
    together: float
    estimate: Estimate | None

    def to_pandas(self) -> pd.DataFrame:
        """Return the limits, a row each: figure, operator, bound, p5 to p95 in SI units, probability."""
        import pandas as pd

        rows = [
            {"figure": one.limit.figure, "operator": one.limit.operator, "bound": one.limit.bound}
            | (one.interval or {})
            | {"probability": one.probability}
            for one in self.odds
        ]
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        found, estimate = self.prediction, self.estimate
        return {
            "n": found.n,
            "seeds": len(found.seeds),
            "limits": [
                {
                    "figure": one.limit.figure,
                    "operator": one.limit.operator,
                    "bound": one.limit.bound,
                    "implied": one.limit.implied,
                    "interval": one.interval,
                    "probability": one.probability,
                }
                for one in self.odds
            ],
            "probability": self.together,
            "estimate": None
            if estimate is None
            else {
                "probability_wanted": CONFIDENT,
                "key": estimate.key,
                "value": estimate.value,
                "probability": estimate.probability,
            },
            "parameters": [number.to_dict() for number in found.sources.uncertain],
            "outside_calibrated_range": found.outside,
            "failed": found.failed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sure:
    """How sure a plan is.

    Parameters
    ----------
    parameters : str or None
        The fit that the scenario rests on.
    model_error : ModelError
        By how much measurements differ from the model: known without a run.
    nearest : Limit
        The limit that is nearest to being missed.
    kept_by : float or None
        By what share of its bound it is kept; below 0: missed. None where there is no figure, or the bound is 0.
    uncertainty : Uncertainty or None
        None unless it was asked for.
    """

    parameters: str | None
    model_error: ModelError
    nearest: Limit
    kept_by: float | None
    uncertainty: Uncertainty | None = None

    @property
    def is_timed(self) -> bool:
        """Whether the error of the model, which is one of time, says anything of the nearest limit."""
        return error_exponent(self.nearest.figure) != 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "parameters": self.parameters,
            "model_error": self.model_error.to_dict() | {"within_90": self.model_error.within},
            "nearest": {"figure": self.nearest.figure, "kept_by": self.kept_by, "is_timed": self.is_timed},
            "uncertainty": None if self.uncertainty is None else self.uncertainty.to_dict(),
        }


def sure_of(scenario: Scenario, point: Point, limits: Sequence[Limit]) -> Sure:
    """Return what is known of a plan whose answer is *point*, *scenario* with its values, without a run more."""
    nearest = binding(point, limits)
    return Sure(
        parameters=scenario.parameters,
        model_error=model_error_of(None if scenario.parameters is None else read_fit(scenario.parameters)),
        nearest=nearest,
        kept_by=nearest.kept_by(point.figures[nearest.figure]),
    )


def uncertainty_of(
    scenario: Scenario,
    limits: Sequence[Limit],
    rivals: Mapping[Number, Point],
    key: str | None,
    *,
    draws: int,
    jobs: int | None,
    progress: Report | None,
) -> Uncertainty:
    """Run *scenario* with *draws* sets of parameters and more seeds, and return what that says of *limits*.

    Parameters
    ----------
    scenario, limits
        Of the answer.
    rivals : mapping
        By value of the quantity *key*: what was tried, from the answer on to what ought to be safer.
    key : str or None
        None where several quantities were free: then there are no rivals.
    draws, jobs, progress
        As for :func:`scenarios.uncertainty.predict`, which says what is raised.
    """
    prediction = predict(scenario, draws, jobs=jobs, progress=progress, work=simulate_limited, swings=False)
    spread = _Spread.of(prediction, limits)
    estimate = None
    if key is not None:
        value, probability = _confident({value: spread.together(point.figures) for value, point in rivals.items()})
        estimate = Estimate(key=key, value=value, probability=probability)
    return Uncertainty(
        prediction=prediction, odds=tuple(spread.odds()), together=spread.together(None), estimate=estimate
    )


def simulate_limited(scenario: Scenario, report: Report) -> Ran:
    """Run one draw and return all figures that limits can be on."""
    result, needs = run_with_needs(scenario, report)
    figures = figures_of(result.summary_values)
    if needs.restores_per_s is not None:
        figures[RESTORES] = needs.restores_per_s
    return Ran(figures, reach_of(scenario, result))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spread:
    """The figures of all limits in the same draws, with the same seeds and errors of the model.

    ``served`` is the share of draws and seeds that have all of them: where one is missing, nothing was served or it
    could not be run, and limits are missed.
    """

    limits: Sequence[Limit]
    combined: Mapping[str, Combined]
    samples: Mapping[str, Floats]
    served: float

    @staticmethod
    def of(prediction: Prediction, limits: Sequence[Limit]) -> _Spread:
        """Return the spread of a prediction."""
        figures = {limit.figure for limit in limits}
        draws = [run for run in prediction.draws if figures <= run.keys()]
        seeds = [run for run in prediction.seeds if figures <= run.keys()]
        if not draws or not figures <= prediction.seeds[0].keys():
            return _Spread(limits=limits, combined={}, samples={}, served=0.0)
        drawn, seeded = ({name: np.array([run[name] for run in runs]) for name in figures} for runs in (draws, seeds))
        combined = {name: Combined(name, drawn[name], seeded[name], prediction.model_error) for name in figures}
        lost = sum(failure["run"].startswith("seed ") for failure in prediction.failed)
        return _Spread(
            limits=limits,
            combined=combined,
            # Of as many draws and seeds each: what stands at one place in all of them goes together.
            samples={name: figure.samples() for name, figure in combined.items()},
            served=len(draws) / prediction.n * len(seeds) / (len(prediction.seeds) + lost),
        )

    def odds(self) -> Sequence[Odds]:
        """Return each limit by itself."""
        if not self.samples:
            return [Odds(limit=limit, interval=None, probability=0.0) for limit in self.limits]
        return [
            Odds(
                limit=limit,
                interval=self.combined[limit.figure].interval(),
                probability=self.served * float(limit.are_met(self.samples[limit.figure]).mean()),
            )
            for limit in self.limits
        ]

    def together(self, instead: Mapping[str, float | None] | None) -> float:
        """Return how likely all limits hold at once; with figures *instead* of those of the answer, spread as they."""
        if not self.samples or (instead is not None and None in instead.values()):
            return 0.0
        met = [limit.are_met(self._around(limit.figure, instead)) for limit in self.limits]
        return self.served * float(np.logical_and.reduce(met).mean())

    def _around(self, name: str, instead: Mapping[str, float | None] | None) -> Floats:
        value = None if instead is None else instead[name]
        samples, base = self.samples[name], float(self.combined[name].seeded[0])
        if value is None:
            return samples
        return samples * (value / base) if self.combined[name].is_scaled else np.maximum(samples + (value - base), 0.0)


def _confident(odds: Mapping[Number, float]) -> tuple[Number | None, float | None]:
    """Return the first of some values, and its odds, from which on all of them are sure enough."""
    found: tuple[Number | None, float | None] = None, None
    for value, probability in reversed(list(odds.items())):
        if probability < CONFIDENT:
            break
        found = value, probability
    return found
