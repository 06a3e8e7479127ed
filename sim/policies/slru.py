"""SLRU."""

from collections import OrderedDict
from collections.abc import Iterator

from models.errors import InputError
from sim.policies.base import EVICTION, PolicyContext
from sim.policies.chunkwise import ChunkPolicy
from sim.policies.hooks import known


@EVICTION.register("slru")
class Slru(ChunkPolicy):
    """Segments of equal size, each an LRU list: a hit moves a chunk up one, what overflows falls back one.

    The least recent of the lowest segment goes first. New chunks enter the lowest segment that has room, so that the
    higher ones fill while the cache does. Karedla, Love and Wherry, IEEE Computer 1994, with the four segments of
    libCacheSim's SLRU.c (which, where they leave a rest of the capacity, evicts at a hit what overflows the lowest
    one). SGLang's SLRU (a chunk is protected from its second hit on) has no bound on its segments.

    Parameters
    ----------
    segments : int
        How many, 2 or more.
    """

    def __init__(self, segments: int = 4) -> None:
        if segments < 2:
            raise InputError(f"eviction policy 'slru': segments is {segments}; must be at least 2")
        self._segments: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(segments)]
        self._places: dict[int, int] = {}
        self._most = 1

    def prepare(self, context: PolicyContext) -> None:
        """Learn the capacity."""
        capacity = known(context.capacity_chunks, self, "the capacity in chunks")
        self._most = max(capacity // len(self._segments), 1)

    def _insert(self, key: int) -> None:
        place = next((place for place, segment in enumerate(self._segments) if len(segment) < self._most), 0)
        self._segments[place][key] = None
        self._places[key] = place

    def _touch(self, key: int) -> None:
        place = self._places[key]
        del self._segments[place][key]
        place = min(place + 1, len(self._segments) - 1)
        self._segments[place][key] = None
        self._places[key] = place
        while place and len(self._segments[place]) > self._most:
            fallen, _ = self._segments[place].popitem(last=False)
            place -= 1
            self._segments[place][fallen] = None
            self._places[fallen] = place

    def _remove(self, key: int) -> None:
        del self._segments[self._places.pop(key)][key]

    def _victims(self) -> Iterator[int]:
        for segment in self._segments:
            yield from segment
