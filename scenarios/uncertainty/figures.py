"""The numeric figures of a summary by name, and how the parts of their uncertainty are put together. Pure functions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from scenarios.uncertainty.draws import student
from scenarios.uncertainty.fit import ModelError
from sim.arrays import Floats, Ints

_LEFT_OUT: Final = frozenset({"engine", "warnings", "bottleneck", "percentile_rule", "slo.limits"})
"""What says nothing of the machine that is simulated: engine is about the simulator."""
_PAIRS, _LEAST_PAIRS, _MOST_PAIRS = 1 << 17, 16, 64
"""Pairs of a seed and an error of the model: in all, and the least and most that each draw is shown with."""
_MOST_RATIO: Final = 3.0
"""Figures that differ by more than this from run to run are not scaled but shifted: a factor of a figure near nothing
would say nothing of one that is not."""
_STREAM: Final = 0x5EED5
_QUANTILES: Final = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}


def figures_of(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return all numbers of a summary by where they stand, such as ``ttft_s.p50``; None is left out."""
    found: dict[str, float] = {}
    _walk(summary, "", found)
    return found


def _walk(value: Any, path: str, found: dict[str, float]) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            where = f"{path}.{key}" if path else str(key)
            if where not in _LEFT_OUT:
                _walk(inner, where, found)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found[path] = float(value)


def error_exponent(name: str) -> float:
    """Return how the model's error in time enters a figure: 1 for times, -1 for rates, 0 for what is counted.

    Bytes, hits and shares of them are bookkeeping, and no fit has been held against them.
    """
    parts = name.split(".")
    if parts[-1].endswith("_per_s"):
        return -1.0
    return 1.0 if any(part == "s" or part.endswith("_s") for part in parts) else 0.0


def _is_share(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last.endswith(("_fraction", "_ratio", "hit_ratio_tokens", "attainment"))


@dataclass(frozen=True, slots=True)
class Combined:
    """One figure over all draws and seeds.

    Parameters
    ----------
    name : str
        Of the figure.
    drawn : array
        Its value in each draw, all with the same seed; draws that lack it left out.
    seeded : array
        Its value with each seed, at the best guess; the first is the seed of the draws.
    error : ModelError
        Of the model.
    """

    name: str
    drawn: Floats
    seeded: Floats
    error: ModelError

    @property
    def is_scaled(self) -> bool:
        """Whether seeds scale the figure, and drivers are those of its logarithm; else they shift it."""
        both = np.concatenate([self.drawn, self.seeded])
        low = float(both.min())
        return low > 0.0 and float(both.max()) <= _MOST_RATIO * low and not _is_share(self.name)

    @property
    def error_variance(self) -> float:
        """The variance that the error of the model brings, of the logarithm where the figure is scaled."""
        exponent, freedom = error_exponent(self.name), self.error.degrees_of_freedom
        wider = 1.0 if np.isinf(freedom) else freedom / (freedom - 2.0)
        size = 1.0 if self.is_scaled else float(self.drawn.mean())
        return (exponent * self.error.sd * size) ** 2 * wider

    def on_scale(self, values: Floats) -> Floats:
        """Return values as drivers see them: logarithms where the figure is scaled."""
        return np.log(values) if self.is_scaled else values

    def samples(self) -> Floats:
        """Return what a single measurement may be, all equally likely: each draw with pairs of a seed and an error."""
        units, seed_of = _pairs(self.drawn.size, self.seeded.size, self.error.degrees_of_freedom)
        seeded, base = self.seeded[seed_of], self.seeded[0]
        drawn = self.drawn[:, None]
        known = drawn * (seeded / base) if self.is_scaled else drawn + (seeded - base)
        found: Floats = (known * np.exp(units * self.error.sd * error_exponent(self.name))).ravel()
        if min(self.drawn.min(), self.seeded.min()) >= 0.0:
            found = np.maximum(found, 0.0)
        return np.minimum(found, 1.0) if _is_share(self.name) else found

    def interval(self) -> dict[str, float]:
        """Return mean and quantiles of what a single measurement may be."""
        found = self.samples()
        ends = np.quantile(found, list(_QUANTILES.values()))
        return {"mean": float(found.mean()), **{key: float(end) for key, end in zip(_QUANTILES, ends, strict=True)}}


@functools.lru_cache(maxsize=4)
def _pairs(draws: int, seeds: int, degrees_of_freedom: float) -> tuple[Floats, Ints]:
    """Return for each draw its errors, in standard deviations, and the seed that goes with each.

    The errors of a draw lie one in each of equal shares of their probability, those of all draws at other places in
    them, and each draw has every seed about as often; what goes with what is mixed, always in the same way.
    """
    random = np.random.default_rng([_STREAM, draws, seeds])
    count = max(_LEAST_PAIRS, min(_MOST_PAIRS, _PAIRS // draws))
    within = (random.permutation(draws) + 0.5) / draws
    errors = student((np.arange(count)[None, :] + within[:, None]) / count, degrees_of_freedom)
    places: Ints = random.permuted(np.tile(np.arange(count), (draws, 1)), axis=1) % seeds
    return errors, places
