"""The simplest orders: by insertion (FIFO) and by use (LRU, LRU tail-first, MRU)."""

from __future__ import annotations

from collections.abc import Iterator

from sim.policies.base import EVICTION
from sim.policies.extents import ExtentPolicy, bisect_by_low
from sim.runs import STRAND_BITS


@EVICTION.register("fifo")
class Fifo(ExtentPolicy):
    """Oldest insertion first; hits change nothing (libCacheSim's FIFO.c, LMCache's fifo.py)."""

    def touch(self, run: range) -> None:
        """Change nothing."""


@EVICTION.register("lru")
class Lru(ExtentPolicy):
    """Least recently used first; an insertion and a touch are uses (as in libCacheSim's LRU.c and LMCache's LRU)."""

    def touch(self, run: range) -> None:
        """Make resident chunks the most recently used ones; KeyError if one is not resident."""
        if not run:
            return
        low, high = (run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1)
        extents = self._strands[low >> STRAND_BITS]
        extent = extents[bisect_by_low(extents, low) - 1]
        if extent.low == low and extent.high == high:  # mostly all that was used together is used together again
            extent.step = run.step
            extent.unlink()
            extent.link_before(self._ends)
        else:
            self.remove(run)
            self.insert(run)


@EVICTION.register("lru-tail-first")
class LruTailFirst(Lru):
    """LRU in which the tail of chunks used together goes before their head, whichever way they came.

    vLLM's order in GPU memory: a request gives its blocks back from the tail on (block_pool.py). A tier with
    ``transfer.insertion: tail-first`` makes the same of LRU; this one does not depend on that.
    """

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* the most recently used ones, its head most of all."""
        super().insert(run if run.step < 0 else run[::-1], parent)

    def touch(self, run: range) -> None:
        """Make resident chunks the most recently used ones, their head most of all."""
        super().touch(run if run.step < 0 else run[::-1])


@EVICTION.register("mru")
class Mru(Lru):
    """Most recently used first (LMCache's mru.py): keeps what came first, for loops that are longer than the cache."""

    def victims(self) -> Iterator[range]:
        """Yield runs from the most to the least recently used, the most recent chunk of each first."""
        extent = self._ends.older
        while extent is not self._ends:
            yield extent.run[::-1]
            extent = extent.older
