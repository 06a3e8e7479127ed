"""Multi-LRU, as in Dynamo's KVBM."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from sim.policies.base import EVICTION, PolicyContext
from sim.policies.chunkwise import ChunkOrder
from sim.policies.frequencies import Frequencies
from sim.policies.hooks import known

_THRESHOLDS: Final = (2, 6, 15)
_SAMPLE_PER_CHUNK: Final = 10


@EVICTION.register("multi-lru")
class MultiLru(ChunkOrder):
    """Four LRU lists by how often a chunk was used lately: once, from twice, from 6 times, from 15 times on.

    The oldest of the lowest list that has any goes first. A chunk keeps its list until it is used again; uses are
    counted as TinyLFU does, also while it is not resident. Dynamo's multi_lru_backend.rs, thresholds of its tests.
    """

    def __init__(self) -> None:
        self._lists: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(len(_THRESHOLDS) + 1)]
        self._levels: dict[int, int] = {}
        self._uses = Frequencies(1)

    def prepare(self, context: PolicyContext) -> None:
        """Learn the capacity."""
        capacity = known(context.capacity_chunks, self, "the capacity in chunks")
        self._uses = Frequencies(_SAMPLE_PER_CHUNK * capacity)

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident."""
        lists, levels, add = self._lists, self._levels, self._uses.add
        for key in run:
            level = levels[key] = bisect_right(_THRESHOLDS, add(key))
            lists[level][key] = None

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again; KeyError if one is not resident."""
        self.remove(run)
        self.insert(run)

    def remove(self, run: range) -> None:
        """Forget resident chunks; KeyError if one is not resident."""
        lists, levels = self._lists, self._levels
        for key in run:
            del lists[levels.pop(key)][key]

    def _victims(self) -> Iterator[int]:
        for keys in self._lists:
            yield from keys
