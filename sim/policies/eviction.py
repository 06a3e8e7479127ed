"""Eviction policies: the order in which a tier gives up its chunks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

from sim.policies.base import EVICTION
from sim.runs import STRAND_BITS

_LOW = attrgetter("low")


class _Extent:
    """Chunks ``low .. high - 1`` that were last used together: neighbours in their chain and in the order of use."""

    __slots__ = ("high", "low", "newer", "older", "step")

    def __init__(self, low: int, high: int, step: int) -> None:
        self.low = low
        self.high = high
        self.step = step
        """1 where its head goes first, -1 where its tail does."""
        self.older = self.newer = self

    def unlink(self) -> None:
        """Take it out of the order."""
        self.older.newer = self.newer
        self.newer.older = self.older

    def link_before(self, newer: _Extent) -> None:
        """Put it into the order just before another one."""
        self.newer = newer
        self.older = newer.older
        newer.older.newer = self
        newer.older = self

    def split(self, at: int) -> _Extent:
        """Keep the chunks below ``at`` and return the others, which get the place next to these."""
        upper = _Extent(at, self.high, self.step)
        upper.link_before(self if self.step < 0 else self.newer)
        self.high = at
        return upper


@EVICTION.register("lru")
class Lru:
    """Least recently used first; an insertion and a touch are uses (as in libCacheSim's LRU.c and LMCache's LRU).

    Holds one entry for chunks that were used together, not one a chunk: a prompt of hundreds of chunks costs a few
    steps. A use of a part of them splits the entry, and each rest keeps its place.
    """

    def __init__(self) -> None:
        self._ends = _Extent(0, 0, 1)  # of the order, a ring: the oldest is newer than it, the newest is older
        self._strands: dict[int, list[_Extent]] = {}

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* the most recently used ones."""
        if not run:
            return
        low, high = (run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1)
        extent = _Extent(low, high, run.step)
        extent.link_before(self._ends)
        extents = self._strands.get(low >> STRAND_BITS)
        if extents is None:
            self._strands[low >> STRAND_BITS] = [extent]
        elif extents[-1].low < low:
            extents.append(extent)
        else:
            extents.insert(bisect_right(extents, low, key=_LOW), extent)

    def touch(self, run: range) -> None:
        """Make resident chunks the most recently used ones; KeyError if one is not resident."""
        if not run:
            return
        low, high = (run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1)
        extents = self._strands[low >> STRAND_BITS]
        place = bisect_right(extents, low, key=_LOW) - 1
        extent = extents[place]
        if extent.low == low and extent.high == high:
            extent.step = run.step
            extent.unlink()
            extent.link_before(self._ends)
        else:
            self._cut(extents, place, low, high)
            self.insert(run)

    def remove(self, run: range) -> None:
        """Forget the chunks of *run*; KeyError if one is not resident."""
        if not run:
            return
        low, high = (run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1)
        extents = self._strands[low >> STRAND_BITS]
        self._cut(extents, bisect_right(extents, low, key=_LOW) - 1, low, high)

    def victims(self) -> Iterator[range]:
        """Yield runs from the least to the most recently used, each in the order in which its chunks go."""
        extent = self._ends.newer
        while extent is not self._ends:
            ascending = range(extent.low, extent.high)
            yield ascending if extent.step > 0 else ascending[::-1]
            extent = extent.newer

    def _cut(self, extents: list[_Extent], place: int, low: int, high: int) -> None:
        """Take chunks out of the extents of their strand from ``place`` on; what is left of these keeps its place."""
        stop, at = place, low
        while at < high:
            if not (0 <= stop < len(extents) and extents[stop].low <= at < extents[stop].high):
                raise KeyError(at)
            at = extents[stop].high
            stop += 1
        first, last = extents[place], extents[stop - 1]
        if first.low < low:
            if first.high > high:
                extents.insert(stop, first.split(high))
            first.high = low
            place += 1
        if last.high > high:
            last.low = high
            stop -= 1
        for extent in extents[place:stop]:
            extent.unlink()
        del extents[place:stop]
        if not extents:
            del self._strands[low >> STRAND_BITS]
