"""Draws: points that fill the space of what is uncertain evenly, turned into correlated normal distances."""

from __future__ import annotations

from typing import Final

import numpy as np

from models.errors import InputError
from sim.arrays import Floats

FEWEST, MOST = 8, 1 << 16
_STREAM: Final = 0x50B01
"""Tells the draws from all that the run itself draws from the same seed."""


def check_draws(n: int, where: str = "draws") -> None:
    """Raise InputError unless *n* is a power of two from 8 to 65,536: only then are Sobol points balanced.

    Owen, "On dropping the first Sobol' point", MCQMC 2020, arXiv:2008.08051.
    """
    if FEWEST <= n <= MOST and n & (n - 1) == 0:
        return
    below = 1 << max(min(n, MOST).bit_length() - 1, 0) if n > FEWEST else FEWEST
    near = str(below) if not FEWEST <= n < MOST else f"{below} or {2 * below}"
    raise InputError(f"{where} is {n}; must be a power of two from {FEWEST} to {MOST}, such as {near}")


def distances(n: int, correlation: Floats, seed: int) -> Floats:
    """Return *n* rows of standard normal distances of the given correlation, the same for the same seed.

    Scrambled Sobol points (scipy), their normal quantiles, and the symmetric root of the correlation: each distance
    keeps its own Sobol dimension as far as it can.
    """
    from scipy.special import ndtri
    from scipy.stats import qmc

    size = len(correlation)
    if not size:
        return np.empty((n, 0))
    # The old name of `rng`, which all versions since 1.7 take.
    points = qmc.Sobol(size, scramble=True, seed=np.random.default_rng([_STREAM, seed])).random(n)
    tiny = 2.0**-32  # a point may lie on the edge, whose quantile is infinite
    normal = ndtri(np.clip(points, tiny, 1.0 - tiny))
    return np.asarray(normal @ symmetric_root(correlation), dtype=np.float64)


def symmetric_root(correlation: Floats) -> Floats:
    """Return the symmetric square root of a matrix; what rounding made negative in its spectrum counts as 0."""
    values, vectors = np.linalg.eigh(correlation)
    return np.asarray((vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T, dtype=np.float64)


def student(probability: Floats, degrees_of_freedom: float) -> Floats:
    """Return what Student's t stays below with a *probability*; infinite degrees of freedom are the normal."""
    from scipy.special import ndtri, stdtrit

    if np.isinf(degrees_of_freedom):
        return np.asarray(ndtri(probability), dtype=np.float64)
    return np.asarray(stdtrit(degrees_of_freedom, probability), dtype=np.float64)
