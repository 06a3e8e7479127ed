"""Percentiles by a named rule. Knows nothing of what the values mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike

PercentileRule = Literal["linear", "nearest-rank", "floor-index"]


def _linear(n_values: int, q: float) -> tuple[int, int, float]:
    position = (n_values - 1) * q
    low = min(math.floor(position), n_values - 1)
    return low, min(low + 1, n_values - 1), position - low


def _nearest_rank(n_values: int, q: float) -> tuple[int, int, float]:
    rank = max(math.ceil(n_values * q) - 1, 0)
    return rank, rank, 0.0


def _floor_index(n_values: int, q: float) -> tuple[int, int, float]:
    rank = min(int(n_values * q), n_values - 1)
    return rank, rank, 0.0


_RULES: Final[dict[str, Callable[[int, float], tuple[int, int, float]]]] = {
    "linear": _linear,
    "nearest-rank": _nearest_rank,
    "floor-index": _floor_index,
}
PERCENTILE_RULES: Final = tuple(_RULES)


def rank_positions(n_values: int, q: float, rule: PercentileRule) -> tuple[int, int, float]:
    """Return ``(low, high, weight)``: the percentile is ``sorted[low] * (1 - weight) + sorted[high] * weight``.

    ``linear`` is numpy's default, ``nearest-rank`` is ``sorted[ceil(n * q) - 1]`` (report R3's rule) and
    ``floor-index`` is ``sorted[int(n * q)]`` capped at the last (report R2's rule: of 16 values p50 is the 9th).

    Raises
    ------
    ValueError
        If *n_values* is below 1, *q* is outside [0, 1] or *rule* is not one of PERCENTILE_RULES.
    """
    if n_values < 1:
        raise ValueError(f"a percentile needs at least one value, got {n_values}")
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"q is {q}; must be between 0 and 1")
    if rule not in _RULES:
        raise ValueError(f"unknown percentile rule {rule!r}; allowed: {', '.join(PERCENTILE_RULES)}")
    return _RULES[rule](n_values, q)


def percentile(values: ArrayLike, q: float, rule: PercentileRule = "linear") -> float | None:
    """Return the *q* quantile (0 to 1) of *values* in their own unit, NaN left out, or None where nothing is left.

    Raises ValueError as :func:`rank_positions` does.
    """
    kept = np.asarray(values, dtype=np.float64)
    kept = np.sort(kept[~np.isnan(kept)])
    if kept.size == 0:
        return None
    low, high, weight = rank_positions(kept.size, q, rule)
    if weight == 0.0:
        return float(kept[low])
    return float(kept[low] + (kept[high] - kept[low]) * weight)
