"""What a figure's uncertainty comes from: Sobol indices with their confidence, or a tornado where draws are few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from scenarios.uncertainty.figures import Combined
from scenarios.uncertainty.surrogate import Quadratic, first_order, fit_quadratic, refit, total_effect
from sim.arrays import Floats

SOBOL_DRAWS: Final = 64
"""From so many draws on, indices are estimated; fewer are too few to tell parameters apart, and a tornado is run."""
SEEDS, MODEL_ERROR = "seeds", "model error"
_RESAMPLED: Final = 200
_STREAM: Final = 0xB0075
_CONFIDENCE: Final = (0.05, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """One cause of uncertainty: shares of the variance, each with its 90 % confidence interval."""

    name: str
    first: float
    total: float
    first_interval: tuple[float, float]
    total_interval: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "first": self.first,
            "first_low": self.first_interval[0],
            "first_high": self.first_interval[1],
            "total": self.total,
            "total_low": self.total_interval[0],
            "total_high": self.total_interval[1],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """What a figure becomes with one cause a standard deviation below and above its best guess, all else at theirs."""

    name: str
    low: float
    high: float

    @property
    def width(self) -> float:
        """How far apart the two are."""
        return abs(self.high - self.low)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"name": self.name, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drivers:
    """The causes of one figure's uncertainty, strongest first.

    ``explained`` is the share of the draws' variance that the indices account for: what is missing is jumps, such as a
    request more in the first step, that no smooth dependence on a parameter describes. None for a tornado.
    """

    method: Literal["sobol", "tornado"]
    explained: float | None
    causes: tuple[Driver, ...] | tuple[Swing, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "method": self.method,
            "explained": self.explained,
            "causes": [cause.to_dict() for cause in self.causes],
        }


def sobol_drivers(combined: Combined, x: Floats, correlation: Floats, names: Sequence[str]) -> Drivers | None:
    """Return the Sobol indices of a figure; None where nothing moves it.

    Parameters
    ----------
    combined : Combined
        The figure, drawn at *x*.
    x : array
        Distances of the parameters from their best guess, a row a draw.
    correlation, names
        Of the parameters.
    """
    y, seeded = combined.on_scale(combined.drawn), combined.on_scale(combined.seeded)
    error = combined.error_variance
    if not float(np.ptp(y)) + float(np.ptp(seeded)) + error:
        return None
    quadratic = fit_quadratic(x, y)
    shares = _shares(quadratic, y, seeded, error, correlation)
    random = np.random.default_rng([_STREAM, y.size])
    again = []
    for _ in range(_RESAMPLED):
        rows, seeds = random.integers(0, y.size, y.size), random.integers(0, seeded.size, seeded.size)
        like_it = refit(x[rows], y[rows], quadratic.terms)
        again.append(_shares(like_it, y[rows], seeded[seeds], error, correlation))
    low, high = np.quantile(np.array(again), _CONFIDENCE, axis=0)
    causes = [
        Driver(
            name=name,
            first=float(shares[0, at]),
            total=float(shares[1, at]),
            first_interval=(float(low[0, at]), float(high[0, at])),
            total_interval=(float(low[1, at]), float(high[1, at])),
        )
        for at, name in enumerate([*names, SEEDS, MODEL_ERROR])
    ]
    explained = quadratic.explained if float(np.ptp(y)) else 1.0
    causes.sort(key=lambda cause: -max(cause.first, cause.total))
    return Drivers(method="sobol", explained=explained, causes=tuple(causes))


def tornado(combined: Combined, low: Floats, high: Floats, names: Sequence[str]) -> Drivers:
    """Return the swings of a figure: *low* and *high* are its values with each parameter a standard deviation off."""
    base, sd = float(combined.seeded[0]), float(np.std(combined.seeded, ddof=1))
    error = float(np.sqrt(combined.error_variance)) * (base if combined.is_scaled else 1.0)
    swings = [Swing(name=n, low=float(a), high=float(b)) for n, a, b in zip(names, low, high, strict=True)]
    swings += [Swing(name=n, low=base - by, high=base + by) for n, by in ((SEEDS, sd), (MODEL_ERROR, error))]
    swings.sort(key=lambda swing: -swing.width)
    return Drivers(method="tornado", explained=None, causes=tuple(swings))


def _shares(quadratic: Quadratic, y: Floats, seeded: Floats, error: float, correlation: Floats) -> Floats:
    """Return first-order and total shares of the parameters, then of seeds and model error, which add to the rest."""
    by_seed = float(seeded.var(ddof=1)) if seeded.size > 1 else 0.0
    whole = float(y.var()) + by_seed + error
    if not whole:
        return np.zeros((2, len(correlation) + 2))
    apart = [by_seed, error]
    effects = (first_order(quadratic, correlation), total_effect(quadratic, correlation))
    return np.array([[*effect, *apart] for effect in effects]) / whole
