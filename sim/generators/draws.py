"""Random numbers for generators: endless streams drawn in batches, and distributions that traces were fitted with."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from sim.arrays import Floats

# Random numbers are drawn this many at a time: one by one they cost a microsecond each.
_BATCH = 4096

Steps = tuple[tuple[float, float], ...]
"""Rows (bound, entry): the entry of the first row whose bound is above a value holds for it; the last bound is inf."""


@dataclass(frozen=True, slots=True)
class LognormalMix:
    """exp(N(mu, sigma)) of one of several components (weight, mu, sigma), each picked by its weight."""

    components: tuple[tuple[float, float, float], ...]

    def draw(self, random: np.random.Generator, n: int) -> Floats:
        """Return *n* values in the unit that the components were fitted in."""
        weights, mus, sigmas = np.array(self.components).T
        picked = np.searchsorted(np.cumsum(weights)[:-1], random.random(n), side="right")
        values: Floats = np.exp(mus[picked] + sigmas[picked] * random.standard_normal(n))
        return values


class Streams:
    """Makes endless streams of random numbers from one *seed*, each independent of how far the others are used."""

    def __init__(self, seed: int) -> None:
        self._seeds = np.random.SeedSequence(seed)

    def of(self, draw: Callable[[np.random.Generator, int], Floats]) -> Iterator[float]:
        """Return a stream of what *draw* makes from a random generator and a count."""
        return _batches(np.random.default_rng(self._seeds.spawn(1)[0]), draw)

    def uniform(self) -> Iterator[float]:
        """Return a stream between 0 and 1."""
        return self.of(lambda random, n: random.random(n))

    def normal(self) -> Iterator[float]:
        """Return a stream of mean 0 and standard deviation 1."""
        return self.of(lambda random, n: random.standard_normal(n))

    def exponential(self) -> Iterator[float]:
        """Return a stream of mean 1."""
        return self.of(lambda random, n: random.standard_exponential(n))

    def lognormal(self, mu: float, sigma: float) -> Iterator[float]:
        """Return a stream of exp(N(mu, sigma))."""
        return self.of(lambda random, n: random.lognormal(mu, sigma, n))

    def beta(self, a: float, b: float) -> Iterator[float]:
        """Return a stream between 0 and 1 of the beta distribution."""
        return self.of(lambda random, n: random.beta(a, b, n))


def step(table: Steps, value: float) -> float:
    """Return the entry of the first row whose bound is above *value*."""
    for below, entry in table:
        if value < below:
            return entry
    return table[-1][1]


def clipped(value: float, least: float, most: float = math.inf) -> float:
    """Return *value*, or the bound that it is beyond."""
    return min(max(value, least), most)


def _batches(random: np.random.Generator, draw: Callable[[np.random.Generator, int], Floats]) -> Iterator[float]:
    for n in repeat(_BATCH):
        yield from draw(random, n).tolist()
