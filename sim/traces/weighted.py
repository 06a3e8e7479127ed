"""Percentiles, also of values that stand for many equal ones each."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.arrays import Floats, Ints

Figures = dict[str, float | None]


def percentiles(values: NDArray[Any], percents: Iterable[float], weights: Ints | None = None) -> Figures:
    """Return linear percentiles (numpy's default) as {"p50": ...}, None without values.

    With *weights* each value counts so many times, exactly as if it stood there so often.
    """
    if weights is not None:
        values, weights = values[weights > 0], weights[weights > 0]
    names = {f"p{percent:g}": percent for percent in percents}
    if not len(values):
        return dict.fromkeys(names)
    if weights is None:
        return {name: float(np.percentile(values, percent)) for name, percent in names.items()}
    order = np.argsort(values)
    ordered, ends = values[order], np.cumsum(weights[order])
    last = int(ends[-1]) - 1
    found: Figures = {}
    for name, percent in names.items():
        low = int(percent / 100 * last)
        low_value, high_value = (float(ordered[np.searchsorted(ends, at, "right")]) for at in (low, min(low + 1, last)))
        found[name] = low_value + (high_value - low_value) * (percent / 100 * last - low)
    return found


def mean_and_percentiles(values: NDArray[Any], percents: Iterable[float]) -> Figures:
    """Return mean, linear percentiles, maximum and minimum; None without values."""
    is_whole = np.issubdtype(values.dtype, np.integer)
    ends = [int(value) if is_whole else float(value) for value in (values.max(), values.min())] if len(values) else None
    return {
        "mean": float(values.mean()) if len(values) else None,
        **percentiles(values, percents),
        "max": ends[0] if ends else None,
        "min": ends[1] if ends else None,
    }


def shares(values: Ints, bins: Iterable[tuple[int, int | None]], weights: Ints) -> Figures:
    """Return the share of the weights whose value lies in each bin (first, last or None for no end), by its text."""
    total = int(weights.sum())
    found: Figures = {}
    for first, last in bins:
        inside = (values >= first) & ((values <= last) if last is not None else True)
        name = f"{first}" if first == last else f"{first}-{last}" if last is not None else f">{first - 1}"
        found[name] = int(weights[inside].sum()) / total if total else None
    return found


def chance_of_more(again_s: Floats, again: Ints, over_s: Floats, over: Ints, idle_s: Iterable[float]) -> Figures:
    """Return the share of what lay idle for so long that was used again, by that time [s].

    *again* of them were used again after *again_s*; *over* were not, in the *over_s* that there was for it. What was
    not watched for so long does not count.
    """
    found: Figures = {}
    for bound_s in idle_s:
        more, none = int(again[again_s >= bound_s].sum()), int(over[over_s >= bound_s].sum())
        found[f"{bound_s:g}"] = more / (more + none) if more + none else None
    return found
