"""LRU for all capacities at once, by the stack distances of segments.

Source of the notion: R. L. Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2),
1970.
"""

from typing import Final

import numpy as np

from sim.arrays import Ints
from sim.mrc.segments import Visits
from sim.traces.stack_distance import lru_stack_distances, previous_references

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
    last_first = np.argsort(-visits.requests, kind="stable")[::-1]  # the requests in order, each from its end
    distances = np.empty(len(last_first), dtype=np.int64)
    distances[last_first] = _between(visits.segments[last_first], visits.blocks[last_first])
    # The request's own deeper blocks were used before this one in that order, but not yet when it came.
    done = np.cumsum(visits.blocks)
    deeper = done[visits.ends - 1][visits.requests] - done
    return np.where(distances < NEVER_HIT, distances - deeper, distances)


def _between(segments: Ints, weights: Ints) -> Ints:
    """Return the weight of the other segments between each visit and the one before to the same, or NEVER_HIT."""
    previous = previous_references(segments)
    distances = np.full(len(segments), NEVER_HIT, dtype=np.int64)
    distances[previous >= 0] = lru_stack_distances(previous, weights)
    return distances
