"""How sure a difference between two variants is: 95 % intervals over seeds, and over blocks of one run. Pure functions.

Over seeds: the variants share their random numbers, so their differences seed by seed are a sample, and Student's t
gives its interval (Law, Simulation Modeling and Analysis, section 10.2.1).

Over blocks: the blocks of both runs are drawn again with replacement, the same blocks for both, and the figure is taken
anew (block bootstrap, :mod:`scenarios.comparison.sample`). The interval reaches from one percentile of these
differences to another; these are further out than 2.5 and 97.5 as Student's t is wider than the normal distribution,
since intervals from few blocks are too narrow else (Hesterberg 2015, The American Statistician 69, 371: the expanded
percentile interval). Runs of other requests have no such pairs and get no interval: drawn apart, the blocks of one run
do not tell how much another workload would differ (equal systems under other seeds were called different in 12 to 53 %
of the figures), since what a session brings reaches over blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from scenarios.comparison.sample import Ranked, Ratio, Sample
from sim.arrays import Floats

CONFIDENCE: Final = 0.95
_DRAWS: Final = 2000
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
# Two orders of adding the same numbers differ by less; nothing that is simulated is known as well.
_ROUNDING: Final = 1e-9
# Gaps between tokens are counted in bins so wide (sim.recording.intervals), so that each may be off by as much.
_ITL_RESOLUTION: Final = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A figure of a variant less that of the first one.

    Parameters
    ----------
    difference : float
        In the unit of the figure.
    low, high : float or None
        95 % interval; None where nothing can be said.
    equal : bool or None
        Whether it is nothing, or may be by its interval; None where there is a difference and no interval.
    """

    difference: float
    low: float | None
    high: float | None
    equal: bool | None


def resolution_of(metric: str) -> float:
    """Return what share of a metric is lost by the way it is counted."""
    return _ITL_RESOLUTION if metric.startswith("itl_s") else 0.0


def difference_over_seeds(first: Sequence[float], other: Sequence[float], *, resolution: float = 0.0) -> Difference:
    """Return the mean difference of two variants over the same seeds, with its t interval.

    *resolution* is the share of each figure by which it may be off; the interval is wider by that.

    Raises ValueError if they have not as many figures each, or none.
    """
    if len(first) != len(other) or not first:
        raise ValueError(f"{len(first)} and {len(other)} figures make no pairs")
    pairs = np.subtract(other, first)
    mean = float(pairs.mean())
    if pairs.size == 1:
        return _judged(first, other, mean, None, resolution)
    half = _student_t(pairs.size - 1) * float(pairs.std(ddof=1)) / math.sqrt(pairs.size)
    return _judged(first, other, mean, (mean - half, mean + half), resolution)


def _judged(
    first: Sequence[float],
    other: Sequence[float],
    difference: float,
    ends: tuple[float, float] | None,
    resolution: float,
) -> Difference:
    """Return the mean *difference* of pairs with its interval, and what that means."""
    scale = max(*map(abs, first), *map(abs, other))
    if all(abs(a - b) <= _ROUNDING * scale for a, b in zip(first, other, strict=True)):
        return Difference(difference=0.0, low=0.0, high=0.0, equal=True)
    if ends is None:
        return Difference(difference=difference, low=None, high=None, equal=None)
    off = 2.0 * resolution * scale
    low, high = ends[0] - off, ends[1] + off
    return Difference(difference=difference, low=low, high=high, equal=low <= 0.0 <= high)


class BlockDraws:
    """Draws the blocks of runs, for the differences of variants to a first one.

    Parameters
    ----------
    first : Sample
        The run that the others are held against.
    seed : int
        Of the draws.
    """

    def __init__(self, first: Sample, seed: int) -> None:
        self._first = first
        self._weights = _drawn(first.blocks, np.random.SeedSequence([seed, first.blocks]).spawn(1)[0])
        self._drawn_first = _replicates(first, self._weights)

    def differences(
        self, first: dict[str, float | None], other_sample: Sample, other: dict[str, float | None]
    ) -> dict[str, Difference]:
        """Return the difference of each metric that both runs have; *first* and *other* are their metrics."""
        drawn_first = self._drawn_first
        drawn_other = _replicates(other_sample, self._weights) if self._first.pairs_with(other_sample) else {}
        found = {}
        for metric, value in other.items():
            base = first.get(metric)
            if value is None or base is None:
                continue
            ends = None
            if metric in drawn_first and metric in drawn_other:
                ends = _interval(
                    value - base,
                    drawn_other[metric] - drawn_first[metric],
                    min(self._first.blocks, other_sample.blocks),
                )
            found[metric] = _judged([base], [value], value - base, ends, resolution_of(metric))
        return found


def _drawn(blocks: int, seeds: np.random.SeedSequence) -> Floats:
    """Return how often each block is drawn, a row a draw, the first row each block once."""
    if not blocks:
        return np.ones((1, 0))
    random = np.random.default_rng(seeds)
    drawn = random.multinomial(blocks, np.full(blocks, 1.0 / blocks), size=_DRAWS)
    return np.vstack([np.ones((1, blocks)), drawn]).astype(np.float64)


def _replicates(sample: Sample, weights: Floats) -> dict[str, Floats]:
    """Return each metric in each draw, NaN where a draw has nothing to make it of."""
    if not sample.blocks:
        return {}
    found = {metric: _ratio(ratio, weights) for metric, ratio in sample.ratios.items()}
    for name, ranked in sample.ranked.items():
        found |= {f"{name}.{label}": _quantile(ranked, weights, q) for label, q in _QUANTILES.items()}
    return found


def _ratio(ratio: Ratio, weights: Floats) -> Floats:
    below = weights @ ratio.below
    drawn: Floats = np.full(below.size, np.nan)
    np.divide(weights @ ratio.above, below, out=drawn, where=below > 0.0)
    return drawn


def _quantile(ranked: Ranked, weights: Floats, q: float) -> Floats:
    """Return the least value in each draw that a share *q* of its values does not exceed, NaN where it has none."""
    steps = ranked.ends.size
    if not steps:
        return np.full(len(weights), np.nan)
    reached = np.cumsum(ranked.counts, axis=1).T.astype(np.float64)
    wanted = q * (weights @ reached[-1])
    # Bisection in all draws at once: a whole distribution for each of them would take a hundred times as long.
    low = np.zeros(len(weights), dtype=np.int64)
    high = np.full(len(weights), steps - 1)
    while (low < high).any():
        middle = (low + high) // 2
        enough = np.einsum("db,db->d", weights, reached[middle]) >= wanted
        high = np.where(enough, middle, high)
        low = np.where(enough, low, middle + 1)
    return ranked.ends[low]


def _interval(difference: float, drawn: Floats, blocks: int) -> tuple[float, float] | None:
    """Return the ends of the interval; *drawn* has the difference of the runs as they were in front."""
    # Centred on the difference that is told: its percentile rule may be another than that of the draws.
    kept = drawn[~np.isnan(drawn)] - drawn[0] + difference
    if kept.size < drawn.size:
        return None
    tail = NormalDist().cdf(-math.sqrt(blocks / (blocks - 1)) * _student_t(blocks - 1))
    low, high = np.quantile(kept[1:], [tail, 1.0 - tail])
    return float(low), float(high)


def _student_t(freedom: int) -> float:
    # On use: half of a tenth of a second, which the other verbs need not pay.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2.0))
