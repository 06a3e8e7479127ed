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


def lru_stack_distances(previous: Ints, weights: Ints | None = None) -> Ints:
    """Return the weight of the other ids referenced between two references to an id, for each that is not its first.

    *previous* comes from `previous_references`; *weights* are by reference, the same for all to one id, and 1 unless
    given. An LRU cache of ids that weigh 1 hits exactly where the distance is below its capacity.

    Between a reference at t and the one before it at p, every id has exactly one reference j that is its first in the
    stretch, and that is one with previous(j) < p. References up to p all satisfy that too, so the distance is the
    weight of all j before t with previous(j) < p, less that of those up to p: a sum over smaller values further left.
    """
    if weights is None:
        weights = np.ones(len(previous), dtype=np.int64)
    reused = previous >= 0
    before = previous[reused]
    firsts_before = np.cumsum(np.where(reused, 0, weights))[reused]
    smaller = _weight_of_smaller_to_the_left(before, weights[reused])
    return firsts_before + smaller - np.cumsum(weights)[before]


def _weight_of_smaller_to_the_left(values: Ints, weights: Ints) -> Ints:
    """Return for each of some distinct values the weight of the smaller ones left of it.

    Two ranks differ first in one bit; the pair is counted at that bit, where the entries that agree in all higher bits
    stand together in their original order. Padding to a power of two gives every such group the same size.
    """
    ranks = np.empty(len(values), dtype=np.int64)
    order = np.argsort(values)
    ranks[order] = np.arange(len(values))
    n_bits = max(len(values) - 1, 0).bit_length()
    weight_of = np.zeros(1 << n_bits, dtype=np.int64)
    weight_of[: len(values)] = weights[order]
    sums = np.zeros(1 << n_bits, dtype=np.int64)
    padded = np.arange(1 << n_bits, dtype=np.int64)
    padded[: len(values)] = ranks
    groups: Ints = padded.reshape(1, -1)
    for bit in reversed(range(n_bits)):
        upper = (groups >> bit) & 1 == 1
        lower_so_far = np.cumsum(np.where(upper, 0, weight_of[groups]), axis=1)
        sums[groups[upper]] += lower_so_far[upper]
        half = (-1, 1, 1 << bit)
        groups = np.concatenate((groups[~upper].reshape(half), groups[upper].reshape(half)), axis=1)
        groups = groups.reshape(-1, 1 << bit)
    return sums[ranks]
