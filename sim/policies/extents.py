"""Chunks in an order, kept as extents: one entry for chunks that are neighbours in their chain and in the order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Generic, TypeVar

from sim.runs import STRAND_BITS

_LOW = attrgetter("low")


def bisect_by_low(extents: Sequence[Extent], low: int) -> int:
    """Return how many of these extents, which are in the order of their keys, begin at ``low`` or below."""
    return bisect_right(extents, low, key=_LOW)


class Extent:
    """Chunks ``low .. high - 1``, neighbours in their chain and in the order, that are alike to the policy."""

    __slots__ = ("high", "low", "mark", "newer", "older", "since", "step")

    def __init__(self, low: int, high: int, step: int) -> None:
        self.low = low
        self.high = high
        self.step = step
        """1 where its head goes first, -1 where its tail does."""
        self.mark = 0
        """What the policy knows of them."""
        self.since = 0.0
        """When they came to this place, if the policy cares."""
        self.older = self.newer = self

    @property
    def run(self) -> range:
        """Its chunks in the order in which they go."""
        return range(self.low, self.high) if self.step > 0 else range(self.high - 1, self.low - 1, -1)

    def unlink(self) -> None:
        """Take it out of the order."""
        self.older.newer = self.newer
        self.newer.older = self.older

    def link_before(self, newer: Extent) -> None:
        """Put it into the order just before another one."""
        self.newer = newer
        self.older = newer.older
        newer.older.newer = self
        newer.older = self


AnyExtent = TypeVar("AnyExtent", bound=Extent)


class ExtentTable(ABC, Generic[AnyExtent]):
    """Extents by strand; where they stand in an order, and what becomes of a split, says a class below it."""

    def __init__(self) -> None:
        self._strands: dict[int, list[AnyExtent]] = {}

    def _file(self, extent: AnyExtent) -> None:
        """Let look-ups find a new extent."""
        low = extent.low
        extents = self._strands.get(low >> STRAND_BITS)
        if extents is None:
            self._strands[low >> STRAND_BITS] = [extent]
        elif extents[-1].low < low:
            extents.append(extent)
        else:
            extents.insert(bisect_by_low(extents, low), extent)

    def _isolated(self, run: range) -> list[AnyExtent]:
        """Return the extents of exactly these chunks, in the order of the run; KeyError if one is not resident."""
        if not run:
            return []
        low, high = (run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1)
        extents = self._strands[low >> STRAND_BITS]
        first, last = self._cut(extents, low, high)
        found = extents[first:last]
        return found if run.step > 0 else found[::-1]

    def _taken(self, run: range) -> list[AnyExtent]:
        """Return the extents of exactly these chunks, which no look-up finds any more; they are still in the order."""
        if not run:
            return []
        low, high = (run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1)
        extents = self._strands[low >> STRAND_BITS]
        first, last = self._cut(extents, low, high)
        taken = extents[first:last]
        del extents[first:last]
        if not extents:
            del self._strands[low >> STRAND_BITS]
        return taken

    def _cut(self, extents: list[AnyExtent], low: int, high: int) -> tuple[int, int]:
        """Split the extents of a strand at both ends of a run and return the places of those between."""
        first = stop = bisect_by_low(extents, low) - 1
        at = low
        while at < high:
            if not (0 <= stop < len(extents) and extents[stop].low <= at < extents[stop].high):
                raise KeyError(at)
            at = extents[stop].high
            stop += 1
        if extents[first].low < low:
            extents.insert(first + 1, self._split(extents[first], low))
            first += 1
            stop += 1
        if at > high:
            extents.insert(stop, self._split(extents[stop - 1], high))
        return first, stop

    @abstractmethod
    def _split(self, extent: AnyExtent, at: int) -> AnyExtent:
        """Keep the chunks below ``at`` in the extent and return the others, which get the place next to these."""


class ExtentPolicy(ExtentTable[Extent]):
    """Base of policies whose order is one list: a new chunk enters at the new end, victims leave from the old one.

    A prompt of hundreds of chunks costs a few steps. A use of a part of an extent splits it, and each part keeps its
    place until the policy moves it. A class below it says what a touch does.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ends = Extent(0, 0, 1)  # of the order, a ring: the oldest is newer than it, the newest is older

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident, at the new end of the order."""
        if run:
            self._add(run).link_before(self._ends)

    def remove(self, run: range) -> None:
        """Forget the chunks of *run*; KeyError if one is not resident."""
        for extent in self._taken(run):
            extent.unlink()

    def victims(self) -> Iterator[range]:
        """Yield runs from the old end of the order to the new one, each in the order in which its chunks go."""
        extent = self._ends.newer
        while extent is not self._ends:
            yield extent.run
            extent = extent.newer

    def _add(self, run: range) -> Extent:
        """Return a new extent that look-ups find, in no order yet."""
        low, high = (run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1)
        extent = Extent(low, high, run.step)
        self._file(extent)
        return extent

    def _split(self, extent: Extent, at: int) -> Extent:
        """Keep the chunks below ``at`` in the extent and return the others, which get the place next to these."""
        upper = Extent(at, extent.high, extent.step)
        upper.mark, upper.since = extent.mark, extent.since
        upper.link_before(extent if extent.step < 0 else extent.newer)
        extent.high = at
        return upper
