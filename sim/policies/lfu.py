"""LFU."""

from collections import OrderedDict
from collections.abc import Iterator

from sim.policies.base import EVICTION
from sim.policies.chunkwise import ChunkPolicy
from sim.policies.ranking import Ranking


@EVICTION.register("lfu")
class Lfu(ChunkPolicy):
    """Fewest uses first; among equals the one that has had that count for longest. A count is lost at eviction.

    libCacheSim's LFU.c. LMCache's lfu.py keeps equals in the same order (FIFO within a count).
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._equals: dict[int, OrderedDict[int, None]] = {}  # by count, in the order in which they came to it
        self._levels = Ranking()  # the counts that there are

    def _insert(self, key: int) -> None:
        self._enter(key, 1)

    def _touch(self, key: int) -> None:
        count = self._counts[key]
        self._leave(key, count)
        self._enter(key, count + 1)

    def _remove(self, key: int) -> None:
        self._leave(key, self._counts.pop(key))

    def _victims(self) -> Iterator[int]:
        for count in self._levels.ordered():
            yield from self._equals[count]

    def _enter(self, key: int, count: int) -> None:
        self._counts[key] = count
        equals = self._equals.get(count)
        if equals is None:
            self._equals[count] = OrderedDict({key: None})
            self._levels.set(count, count)
        else:
            equals[key] = None

    def _leave(self, key: int, count: int) -> None:
        equals = self._equals[count]
        del equals[key]
        if not equals:
            del self._equals[count]
            self._levels.remove(count)
