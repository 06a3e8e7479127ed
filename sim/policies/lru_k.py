"""LRU-K."""

from collections import OrderedDict
from collections.abc import Iterator

from models.errors import InputError
from sim.policies.base import EVICTION, PolicyContext
from sim.policies.chunkwise import ChunkPolicy
from sim.policies.hooks import known
from sim.policies.ranking import Ranking


@EVICTION.register("lru-k")
class LruK(ChunkPolicy):
    """The chunk whose K-th last use is longest ago goes first; before all of them those with fewer uses, by last use.

    The uses of chunks that went are remembered for as many chunks as the cache holds. O'Neil, O'Neil and Weikum, LRU-K,
    SIGMOD 1993. libCacheSim's LRU_K.cpp forgets at eviction and takes those with fewer uses in order of insertion.

    Parameters
    ----------
    k : int
        Which last use counts, 1 or more; 1 is LRU.
    remember : bool
        Whether uses outlive an eviction.
    """

    def __init__(self, k: int = 2, remember: bool = True) -> None:
        if k < 1:
            raise InputError(f"eviction policy 'lru-k': k is {k}; must be at least 1")
        self._k = k
        self._remember = remember
        self._clock = 0
        self._uses: dict[int, tuple[int, ...]] = {}  # the last K of each resident chunk, oldest first
        self._past: OrderedDict[int, tuple[int, ...]] = OrderedDict()  # the same of those that went
        self._most_past = 0
        self._few: OrderedDict[int, None] = OrderedDict()
        self._many = Ranking()

    def prepare(self, context: PolicyContext) -> None:
        """Learn the capacity."""
        if self._remember:
            self._most_past = known(context.capacity_chunks, self, "the capacity in chunks")

    def _insert(self, key: int) -> None:
        self._use(key, self._past.pop(key, ()))

    def _touch(self, key: int) -> None:
        self._use(key, self._uses[key])

    def _use(self, key: int, before: tuple[int, ...]) -> None:
        self._clock += 1
        uses = self._uses[key] = (*before, self._clock)[-self._k :]
        if len(uses) < self._k:
            self._few[key] = None
            self._few.move_to_end(key)
        else:
            self._few.pop(key, None)
            self._many.set(key, uses[0])

    def _remove(self, key: int) -> None:
        del self._uses[key]
        if key in self._many:
            self._many.remove(key)
        else:
            del self._few[key]

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room, but not when they were used."""
        for key in run:
            uses = self._uses[key]
            self._remove(key)
            if self._most_past:
                self._past[key] = uses
                if len(self._past) > self._most_past:
                    self._past.popitem(last=False)

    def _victims(self) -> Iterator[int]:
        yield from self._few
        yield from self._many.ordered()
