"""LRU-K."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain

from models.errors import InputError
from sim.policies.base import EVICTION, PolicyContext
from sim.policies.chunkwise import ChunkOrder
from sim.policies.hooks import known
from sim.policies.ranking import Ranking


@EVICTION.register("lru-k")
class LruK(ChunkOrder):
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

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident."""
        past, few, uses, one_is_few = self._past, self._few, self._uses, self._k > 1
        for key in run:
            if one_is_few and key not in past:
                self._clock += 1
                uses[key] = (self._clock,)
                few[key] = None
            else:
                self._use(key, past.pop(key, ()))

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again; KeyError if one is not resident."""
        few = self._few
        for key in run:
            before = self._uses[key]
            if len(before) < self._k:
                del few[key]
            self._use(key, before)

    def remove(self, run: range) -> None:
        """Forget resident chunks; KeyError if one is not resident."""
        for key in run:
            self._forget(key)

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room, but not when they were used."""
        past, most, few = self._past, self._most_past, self._few
        for key in run:
            if key in few:
                del few[key]
                uses = self._uses.pop(key)
            else:
                uses = self._forget(key)
            if most:
                past[key] = uses
                if len(past) > most:
                    past.popitem(last=False)

    def _use(self, key: int, before: tuple[int, ...]) -> None:
        self._clock += 1
        if len(before) < self._k - 1:
            self._uses[key] = (*before, self._clock)
            self._few[key] = None
        else:
            uses = self._uses[key] = (*before, self._clock)[-self._k :]
            self._many.set(key, uses[0])

    def _forget(self, key: int) -> tuple[int, ...]:
        uses = self._uses.pop(key)
        if len(uses) < self._k:
            del self._few[key]
        else:
            self._many.remove(key)
        return uses

    def _victims(self) -> Iterator[int]:
        return chain(self._few, self._many.ordered())
