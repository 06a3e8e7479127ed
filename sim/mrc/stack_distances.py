"""LRU for all capacities at once, by the stack distances of segments.

Source of the notion: R. L. Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2),
1970.
"""

from typing import Final

import numpy as np

from sim.arrays import Ints
from sim.mrc.segments import Visits

NEVER_HIT: Final = 1 << 62
"""Stands for the distance of what was not used before."""


def plain_distances(visits: Visits) -> Ints:
    """Return by visit how many other blocks were used since each of its blocks was: LRU hits where capacity is more.

    It is the same for all blocks of a segment: for the one at place k of n, the n - 1 others lie in between, those
    behind it from then and those before it from now.
    """
    return _between(visits.segments, visits.blocks) + visits.blocks - 1


def leaf_distances(visits: Visits) -> Ints:
    """Return by visit how deep its first block lies in the stack of LRU that evicts only leaves, when its request came.

    What is least recently used is then the tail of the request that lies longest back, as if each request had used its
    blocks last to first. Later blocks of the segment lie one deeper each. For capacities of at least the longest
    request; a shorter one cannot hold that request, which changes what comes after it.
    """
    last_first = np.argsort(visits.requests * -1, kind="stable")[::-1]
    distances = np.empty(len(last_first), dtype=np.int64)
    distances[last_first] = _between(visits.segments[last_first], visits.blocks[last_first])
    # The request's own deeper blocks were used before this one in that order, but not yet when it came.
    done = np.cumsum(visits.blocks)
    deeper = done[visits.ends - 1][visits.requests] - done
    return np.where(distances < NEVER_HIT, distances - deeper, distances)


def _between(segments: Ints, weights: Ints) -> Ints:
    """Return the weight of the other segments between each visit and the one before to the same, or NEVER_HIT.

    Between a visit at t and the one before it at p, every other segment has exactly one visit j that is its first in
    the stretch, and that is one whose previous visit is before p. Visits up to p all satisfy that too: the sum is that
    of the weights of all j before t with previous(j) < p, less those up to p.
    """
    order = np.argsort(segments, kind="stable")
    again = segments[order[1:]] == segments[order[:-1]]
    previous = np.full(len(segments), -1, dtype=np.int64)
    previous[order[1:][again]] = order[:-1][again]
    reused = previous >= 0
    before = previous[reused]
    firsts = np.cumsum(np.where(reused, 0, weights))[reused]
    distances = np.full(len(segments), NEVER_HIT, dtype=np.int64)
    smaller = _weight_of_smaller_to_the_left(before, weights[reused])
    distances[reused] = firsts + smaller - np.cumsum(weights)[before]
    return distances


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
    groups = np.arange(1 << n_bits, dtype=np.int64)
    groups[: len(values)] = ranks
    groups = groups.reshape(1, -1)
    for bit in reversed(range(n_bits)):
        upper = (groups >> bit) & 1 == 1
        lower_so_far = np.cumsum(np.where(upper, 0, weight_of[groups]), axis=1)
        sums[groups[upper]] += lower_so_far[upper]
        half = (-1, 1, 1 << bit)
        groups = np.concatenate((groups[~upper].reshape(half), groups[upper].reshape(half)), axis=1)
        groups = groups.reshape(-1, 1 << bit)
    return sums[ranks]
