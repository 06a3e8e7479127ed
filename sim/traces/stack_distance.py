"""LRU stack distances of a whole reference stream at once.

Source of the notion: R. L. Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2),
1970.
The counting is done in numpy, one pass over the data for each bit of its length, in place of the usual tree that is
updated reference by reference: a million references take about a second.
"""

import numpy as np

from sim.arrays import Ints


def previous_references(ids: Ints) -> Ints:
    """Return for each reference the index of the one before it to the same id, or -1 for the first."""
    order = np.argsort(ids, kind="stable")
    in_order = ids[order]
    again = in_order[1:] == in_order[:-1]
    previous = np.full(len(ids), -1, dtype=np.int64)
    previous[order[1:][again]] = order[:-1][again]
    return previous


def lru_stack_distances(previous: Ints) -> Ints:
    """Return the number of other ids referenced between two references to an id, for each that is not its first.

    *previous* comes from `previous_references`. An LRU cache hits exactly where the distance is below its capacity.

    Between a reference at t and the one before it at p, every id has exactly one reference j that is its first in the
    stretch, and that is one with previous(j) < p. References up to p all satisfy that too, p + 1 of them, so the
    distance is the number of j before t with previous(j) < p, less p + 1: a count of smaller values further left.
    """
    reused = previous >= 0
    before = previous[reused]
    firsts_before = np.cumsum(~reused)[reused]
    return firsts_before + _smaller_to_the_left(_ranks(before)) - (before + 1)


def _ranks(values: Ints) -> Ints:
    """Return the rank from 0 of each of some distinct values."""
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[np.argsort(values)] = np.arange(len(values))
    return ranks


def _smaller_to_the_left(ranks: Ints) -> Ints:
    """Return for each entry of a permutation how many entries left of it are smaller.

    Two ranks differ first in one bit; the pair is counted at that bit, where the entries that agree in all higher bits
    stand together in their original order. Padding to a power of two gives every such group the same size.
    """
    n_bits = max(len(ranks) - 1, 0).bit_length()
    counts = np.zeros(1 << n_bits, dtype=np.int64)
    padded = np.arange(1 << n_bits, dtype=np.int64)
    padded[: len(ranks)] = ranks
    groups: Ints = padded.reshape(1, -1)
    for bit in reversed(range(n_bits)):
        upper = (groups >> bit) & 1 == 1
        lower_so_far = np.cumsum(~upper, axis=1)
        counts[groups[upper]] += lower_so_far[upper]
        half = (-1, 1, 1 << bit)
        halves = (groups[~upper].reshape(half), groups[upper].reshape(half))
        groups = np.concatenate(halves, axis=1).reshape(-1, 1 << bit)
    return counts[ranks]
