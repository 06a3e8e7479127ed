"""Extents in the order of a rank that changes: O(log n) a change, for chunks that are used together a few steps."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from sim.policies.extents import Extent, ExtentTable

_SPARE: Final = 64
"""Entries out of date that are always tolerated."""

_MOST_READ: Final = 32
"""Chunks of one extent that are read at once: as many as a prompt takes, not more."""

GONE: Final = -1
"""In place of a use: the extent is no more."""


class RankedExtent(Extent):
    """Chunks that were last used one after another, their ranks never falling from the first of them to the last."""

    __slots__ = ("ahead", "base", "first", "origin", "uses")

    def __init__(self, low: int, high: int, step: int, first: int) -> None:
        super().__init__(low, high, step)
        self.first = first
        """Number of the use of the chunk that goes first; the others follow. Below 0: the extent is no more."""
        self.ahead = first
        """The same behind what has been read of it."""
        self.base = 0.0
        self.uses = 0
        self.origin = 0
        """A chunk stands in its prompt at ``origin + step * use``; stays as it is where an extent is cut."""

    @property
    def position(self) -> int:
        """Where its lowest chunk stands in its prompt."""
        return self.origin + self.step * self.use(self.low)

    def use(self, key: int) -> int:
        """Return the number of the last use of a chunk."""
        return self.first + (key - self.low if self.step > 0 else self.high - 1 - key)

    def __lt__(self, other: RankedExtent) -> bool:
        """Decide between entries for the same use: all but one are out of date, so any order does."""
        return False


Entry = tuple[float, int, RankedExtent]
"""Rank and use of a chunk, and the extent of which it is the first."""


class RankedExtents(ExtentTable[RankedExtent]):
    """Base of policies that evict the lowest rank first, and of equal ranks the one that was used first.

    A class below it places chunks in runs along which ranks do not fall, and says what they are.
    """

    def __init__(self) -> None:
        super().__init__()
        self._clock = 0
        # Of every extent an entry for its first chunk, of those that are being read one for the first not read. What
        # an entry says is checked when it comes up.
        self._heap: list[Entry] = []
        self._most_entries = _SPARE
        self._read: deque[tuple[range, RankedExtent, float]] = deque()
        self._passed: list[RankedExtent] = []  # read, but not gone as it was read

    @abstractmethod
    def _rank(self, extent: RankedExtent, use: int) -> float:
        """Return the rank of the chunk of an extent that was last used at ``use``."""

    def remove(self, run: range) -> None:
        """Forget the chunks of *run*; KeyError if one is not resident."""
        self._settle()
        self._retire(self._taken(run))

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room."""
        self._evicted(run)

    def victims(self) -> Iterator[range]:
        """Yield every resident chunk once, the lowest rank first; what is read is put back at the next change."""
        self._settle()
        heap, rank, read = self._heap, self._rank, self._read
        while heap:
            highest, use, extent = heap[0]
            if extent.ahead != use:
                heappop(heap)
                continue
            start = use - extent.first
            left = extent.high - extent.low - start
            length = 1
            following = rank(extent, use + 1) if left > 1 else 0.0
            if len(heap) > 1:
                lowest, before, _ = heap[1] if len(heap) == 2 or heap[1] < heap[2] else heap[2]
                most = min(left, _MOST_READ)
                while length < most and (following < lowest or (following == lowest and use + length < before)):
                    length += 1
                    highest = following
                    if length < left:
                        following = rank(extent, use + length)
            elif left > 1:
                length = left
                highest = rank(extent, use + left - 1)
            if length < left:
                extent.ahead = use + length
                heapreplace(heap, (following, use + length, extent))
            else:
                extent.ahead = GONE  # an entry from before a split may name the use behind its end
                heappop(heap)
            if extent.step > 0:
                start += extent.low
                run = range(start, start + length)
            else:
                start = extent.high - 1 - start
                run = range(start, start - length, -1)
            read.append((run, extent, highest))
            yield run

    def _place(self, run: range, base: float, uses: int = 0, position: int = 0) -> RankedExtent:
        """Give chunks that are not filed a place as the last used ones."""
        low, high = (run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1)
        extent = RankedExtent(low, high, run.step, self._clock)
        extent.base, extent.uses = base, uses
        extent.origin = position - extent.step * extent.use(low)
        self._clock += high - low
        self._file(extent)
        self._enter(extent)
        return extent

    def _retire(self, extents: list[RankedExtent]) -> None:
        """Let nothing find extents any more that are not filed."""
        for extent in extents:
            extent.first = extent.ahead = GONE

    def _rerank(self, run: range, base: float) -> None:
        """Give resident chunks another base; they keep their last use."""
        for extent in self._taken(run):
            changed = RankedExtent(extent.low, extent.high, extent.step, extent.first)
            changed.base, changed.uses, changed.origin = base, extent.uses, extent.origin
            extent.first = extent.ahead = GONE
            self._file(changed)
            self._enter(changed)

    def _enter(self, extent: RankedExtent) -> None:
        """Put an entry for the first chunk of an extent into the heap."""
        heappush(self._heap, (self._rank(extent, extent.first), extent.first, extent))

    def _settle(self) -> None:
        """Put back what was read and has not gone, and sweep the heap if most of it is out of date."""
        read, passed = self._read, self._passed
        if read:
            passed += [extent for _, extent, _ in read]
            read.clear()
        for extent in passed:
            if extent.ahead != extent.first:
                extent.ahead = extent.first
                self._enter(extent)
        passed.clear()
        if len(self._heap) > self._most_entries:
            alive = [extent for extents in self._strands.values() for extent in extents]
            self._heap = [(self._rank(extent, extent.first), extent.first, extent) for extent in alive]
            heapify(self._heap)
            self._most_entries = 2 * len(alive) + _SPARE

    def _evicted(self, run: range) -> float:
        """Forget chunks that went to make room and return the highest rank that one had."""
        read, length = self._read, len(run)
        while read:
            piece, extent, highest = read.popleft()
            # Mostly they go as they were read; the last ones read maybe not all.
            if piece is run or piece == run or (length < len(piece) and run == piece[:length]):
                if length < len(piece):
                    self._passed.append(extent)
                    highest = self._rank(extent, extent.first + length - 1)
                low, high = extent.low, extent.high
                if high - low == length:
                    self._taken(run)
                    extent.first = extent.ahead = GONE
                    return highest
                if extent.step > 0:
                    if low == run.start:
                        extent.low = low + length
                        extent.first += length
                        return highest
                elif high - 1 == run.start:
                    extent.high = high - length
                    extent.first += length
                    return highest
            self._passed.append(extent)
        return self._evicted_anyhow(run)

    def _evicted_anyhow(self, run: range) -> float:
        self._settle()
        taken = self._taken(run)
        highest = max(self._rank(extent, extent.first + extent.high - extent.low - 1) for extent in taken)
        self._retire(taken)
        return highest

    def _split(self, extent: RankedExtent, at: int) -> RankedExtent:
        """Keep the chunks below ``at`` in the extent and return the others."""
        upper = RankedExtent(at, extent.high, extent.step, extent.first)
        upper.base, upper.uses, upper.origin = extent.base, extent.uses, extent.origin
        if extent.step > 0:
            upper.first = upper.ahead = extent.first + at - extent.low
        else:
            extent.first = extent.ahead = extent.first + extent.high - at
        extent.high = at
        self._enter(upper)
        if extent.step < 0:
            self._enter(extent)
        return upper
