"""2Q."""

from collections import OrderedDict
from collections.abc import Iterator

from sim.policies.base import EVICTION, PolicyContext
from sim.policies.chunkwise import ChunkPolicy
from sim.policies.ghosts import Ghosts
from sim.policies.hooks import known


@EVICTION.register("2q")
class TwoQ(ChunkPolicy):
    """New chunks pass through a FIFO; those asked for again after they left it are kept in an LRU list.

    The FIFO (A1in) gives up its oldest while it holds more than a quarter of the capacity, and the list of names of
    what left it (A1out) holds half the capacity; otherwise the LRU list (Am) gives up. A hit in the FIFO changes
    nothing. The full version of Johnson and Shasha, 2Q, VLDB 1994, with its sizes; libCacheSim's TwoQ.c.
    """

    def __init__(self) -> None:
        self._recent: OrderedDict[int, None] = OrderedDict()  # A1in
        self._kept: OrderedDict[int, None] = OrderedDict()  # Am
        self._ghosts = Ghosts(0)  # A1out
        self._most_recent = 0

    def prepare(self, context: PolicyContext) -> None:
        """Learn the capacity."""
        capacity = known(context.capacity_chunks, self, "the capacity in chunks")
        self._most_recent = max(capacity // 4, 1)
        self._ghosts = Ghosts(max(capacity // 2, 1))

    def miss(self, run: range) -> None:
        """Look whether the chunks asked for are remembered."""
        self._ghosts.recall(run)

    def _insert(self, key: int) -> None:
        (self._kept if self._ghosts.was_recalled(key) else self._recent)[key] = None

    def _touch(self, key: int) -> None:
        if key not in self._recent:
            self._kept.move_to_end(key)

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room, and remember the names of those from the FIFO."""
        recent = self._recent
        for key in run:
            if key in recent:
                del recent[key]
                self._ghosts.add(key)
            else:
                del self._kept[key]

    def _remove(self, key: int) -> None:
        if key in self._recent:
            del self._recent[key]
        else:
            del self._kept[key]

    def _victims(self) -> Iterator[int]:
        over = len(self._recent) - self._most_recent
        recent = iter(self._recent)
        for _ in range(over):
            yield next(recent)
        yield from self._kept
        yield from recent
