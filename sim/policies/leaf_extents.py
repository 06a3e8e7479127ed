"""The prefix tree under LRU, by extents: who is a leaf, when it was used, and who follows once it has gone."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from sim.policies.extents import Extent, ExtentTable, bisect_by_low
from sim.runs import STRAND_BITS

_SPARE: Final = 64
"""Entries of the heap that are always tolerated, true or not."""


class Pins(Protocol):
    """Chunks that must stay: :class:`sim.run_sets.RunCounts` or :class:`~sim.run_sets.RunSet`."""

    def __contains__(self, key: int, /) -> bool:
        """Whether this one must stay."""
        ...

    def absent(self, run: range) -> list[range]:
        """Return the parts of *run* that are not among them, in its order."""
        ...


class LeafExtent(Extent):
    """Chunks that continue one another and were last used one after another."""

    __slots__ = ("first", "parent")

    def __init__(self, low: int, high: int, step: int, first: int, parent: int | None) -> None:
        super().__init__(low, high, step)
        self.first = first
        """Number of the use of its first chunk (the head where ``step`` is 1, else the tail); the others follow."""
        self.parent = parent
        """The chunk before its head, resident or not."""

    def __lt__(self, other: LeafExtent) -> bool:
        """Decide between entries for the same use: all but one are out of date, so any order does."""
        return False

    def use(self, key: int) -> int:
        """Return the number of the last use of a chunk."""
        return self.first + (key - self.low if self.step > 0 else self.high - 1 - key)


class LeafExtents(ExtentTable[LeafExtent]):
    """Resident chunks as a forest of extents; leaves are found by last use in O(log n) an extent.

    The uses of an extent are consecutive numbers, so those of another one come before all of them or after: once its
    tail is the oldest leaf, all of it goes, up to a chunk that something else continues or that is pinned.
    """

    def __init__(self) -> None:
        super().__init__()
        self._clock = 0
        self._children: dict[int, int] = {}  # extents whose head continues a chunk, itself resident or not; never 0
        self._forks: dict[int, list[int]] = {}  # the keys of that table by strand, in order
        # An entry (use, extent) for the tail of each extent that is a leaf; what it says is checked when it comes up.
        self._heap: list[tuple[int, LeafExtent]] = []
        self._most_entries = 0

    def insert(self, run: range, parent: int | None) -> None:
        """Make the chunks of *run* resident and the most recently used ones."""
        if run:
            if parent is not None:
                self._adopt(parent)
            self._place(run, parent)
            self._sweep()

    def touch(self, run: range) -> None:
        """Make resident chunks the most recently used ones; KeyError if one is not resident."""
        if not run:
            return
        low, high = (run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1)
        extents = self._strands[low >> STRAND_BITS]
        extent = extents[bisect_by_low(extents, low) - 1]
        if extent.low == low and extent.high == high:  # mostly all that was used together is used together again
            extent.step, extent.first = run.step, self._clock
            self._clock += high - low
            self._enter(extent)
        else:
            joined: list[tuple[int, int, int | None]] = []
            for part in self._taken(run):
                if joined and part.parent == joined[-1][1] - 1:
                    self._orphan(joined[-1][1] - 1)
                    joined[-1] = (joined[-1][0], part.high, joined[-1][2])
                else:
                    joined.append((part.low, part.high, part.parent))
                part.high = part.low
            for first, stop, parent in joined if run.step > 0 else reversed(joined):
                self._place(range(first, stop)[:: run.step], parent)
        self._sweep()

    def remove(self, run: range) -> None:
        """Forget chunks, leaves or not; KeyError if one is not resident."""
        if not run:
            return
        low, high = (run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1)
        extents = self._strands[low >> STRAND_BITS]
        extent = extents[bisect_by_low(extents, low) - 1]
        if extent.low < low and extent.high == high:  # the tail of an extent, as when it is evicted
            extent.high = low
            if extent.step < 0:
                extent.first += high - low
            self._enter(extent)
        else:
            taken = self._taken(run)
            for part in taken:
                part.high = part.low
            for part in taken:
                if part.parent is not None and self._orphan(part.parent):
                    owner = self._owner(part.parent)
                    if owner is not None:
                        self._enter(owner)
        self._sweep()

    def leaves(self) -> Iterator[int]:
        """Yield the leaves of this moment, the least recently used first."""
        # One that was a leaf before may have two entries that are true.
        return (extent.high - 1 for use, extent in sorted(set(self._heap)) if self._is_true(use, extent))

    def leaving(self, pinned: Pins | tuple[()]) -> Iterator[range]:
        """Yield chunks, as runs from a tail on, in the order in which they would go one after another.

        Pinned chunks stay, and so do their ancestors. Changes nothing that a caller can see.
        """
        heap = self._heap
        while heap and not self._is_true(*heap[0]):
            heappop(heap)
        frontier = [(heap[0][0], 0, heap[0][1])] if heap else []
        gone: dict[int, int] = {}  # children of a chunk that have gone
        ends: dict[LeafExtent, int] = {}  # where what is left of an extent ends
        while frontier:
            use, at, extent = heappop(frontier)
            if at >= 0:  # an entry of the heap; -1 marks those made here
                for below in range(2 * at + 1, min(2 * at + 3, len(heap))):
                    heappush(frontier, (heap[below][0], below, heap[below][1]))
                if extent in ends or not self._is_true(use, extent):
                    continue
            end = ends.get(extent, extent.high)
            fork = self._fork(extent, end, gone)
            stop = end - _free(range(end - 1, fork - 1, -1), pinned)
            ends[extent] = stop
            if stop < end:
                yield range(end - 1, stop - 1, -1)
            parent = extent.parent
            if stop > extent.low or parent is None:
                continue
            gone[parent] = gone.get(parent, 0) + 1
            if gone[parent] == self._children[parent]:
                owner = self._owner(parent)
                if owner is not None and ends.get(owner, owner.high) == parent + 1:
                    ends[owner] = parent + 1
                    heappush(frontier, (owner.use(parent), -1, owner))

    def _place(self, run: range, parent: int | None) -> None:
        """Give chunks that are not filed a place as the last used ones."""
        low, high = (run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1)
        extent = LeafExtent(low, high, run.step, self._clock, parent)
        self._clock += high - low
        self._file(extent)
        self._enter(extent)

    def _enter(self, extent: LeafExtent) -> None:
        """Put an entry for the tail of an extent into the heap if it is a leaf."""
        if extent.high - 1 not in self._children:
            heappush(self._heap, (extent.use(extent.high - 1), extent))

    def _is_true(self, use: int, extent: LeafExtent) -> bool:
        tail = extent.high - 1
        return tail >= extent.low and extent.use(tail) == use and tail not in self._children

    def _sweep(self) -> None:
        """Make the heap anew if most of it is out of date."""
        if len(self._heap) > self._most_entries:
            self._heap = [entry for entry in set(self._heap) if self._is_true(*entry)]
            heapify(self._heap)
            self._most_entries = 2 * len(self._heap) + _SPARE

    def _adopt(self, key: int) -> None:
        """Count one child more of a chunk."""
        count = self._children.get(key, 0)
        self._children[key] = count + 1
        if not count:
            insort(self._forks.setdefault(key >> STRAND_BITS, []), key)

    def _orphan(self, key: int) -> bool:
        """Count one child less of a chunk; return whether it has none now."""
        count = self._children[key] - 1
        if count:
            self._children[key] = count
            return False
        del self._children[key]
        forks = self._forks[key >> STRAND_BITS]
        if len(forks) > 1:
            del forks[bisect_left(forks, key)]
        else:
            del self._forks[key >> STRAND_BITS]
        return True

    def _owner(self, key: int) -> LeafExtent | None:
        """Return the extent that ends with a chunk or has it inside, None where it is not resident."""
        extents = self._strands.get(key >> STRAND_BITS)
        if extents is None:
            return None
        at = bisect_by_low(extents, key)
        return extents[at - 1] if at and key < extents[at - 1].high else None

    def _fork(self, extent: LeafExtent, end: int, gone: dict[int, int]) -> int:
        """Return the first chunk of an extent behind the last one before ``end`` that something else continues."""
        forks = self._forks.get(extent.low >> STRAND_BITS)
        if forks is None:
            return extent.low
        at = bisect_left(forks, end)
        while at and forks[at - 1] >= extent.low:
            at -= 1
            if self._children[forks[at]] > gone.get(forks[at], 0):
                return forks[at] + 1
        return extent.low

    def _split(self, extent: LeafExtent, at: int) -> LeafExtent:
        """Keep the chunks below ``at`` in the extent and return the others."""
        upper = LeafExtent(at, extent.high, extent.step, extent.first, at - 1)
        if extent.step > 0:
            upper.first += at - extent.low
        else:
            extent.first += extent.high - at
        extent.high = at
        self._adopt(at - 1)
        self._enter(upper)
        return upper


def _free(run: range, pinned: Pins | tuple[()]) -> int:
    """Return how many chunks at the begin of a run are not pinned."""
    if not run or isinstance(pinned, tuple):
        return len(run)
    parts = pinned.absent(run)
    return len(parts[0]) if parts and parts[0].start == run.start else 0
