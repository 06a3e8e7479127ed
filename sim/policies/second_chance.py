"""FIFO with a bit that a hit sets: CLOCK and SIEVE."""

from __future__ import annotations

from collections.abc import Iterator

from sim.policies.base import EVICTION
from sim.policies.extents import Extent, ExtentPolicy


class _Visited(ExtentPolicy):
    """A queue in order of insertion whose chunks carry a bit: whether they were hit since they were last passed."""

    def touch(self, run: range) -> None:
        """Set the bit of resident chunks; they stay where they are. KeyError if one is not resident."""
        for extent in self._isolated(run):
            extent.mark = 1

    def _walk(self, first: Extent) -> Iterator[Extent]:
        """Yield all extents from ``first`` on, once around."""
        extent = first
        while True:
            if extent is not self._ends:
                yield extent
            extent = extent.newer
            if extent is first:
                return

    def _order(self, first: Extent) -> Iterator[range]:
        """Yield what has no bit, and then, where the hand comes by again, what had one."""
        yield from (extent.run for extent in self._walk(first) if not extent.mark)
        yield from (extent.run for extent in self._walk(first) if extent.mark)


@EVICTION.register("clock")
class Clock(_Visited):
    """FIFO in which a chunk that was hit goes round once more: at the front, its bit is cleared and it enters anew.

    CLOCK as FIFO-reinsertion with one bit (libCacheSim's Clock.c; Corbato 1968).
    """

    def victims(self) -> Iterator[range]:
        """Yield what was not hit in order of insertion, then what was."""
        return self._order(self._ends.newer)

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room; those in front of them that were hit have entered anew."""
        for gone in self._isolated(run):
            # One that was hit went only after all others had lost their bit.
            stop = self._ends if gone.mark else gone
            extent, newest = self._ends.newer, self._ends.older
            while extent is not stop:
                following = self._ends if extent is newest else extent.newer
                if extent.mark:
                    extent.mark = 0
                    extent.unlink()
                    extent.link_before(self._ends)
                extent = following
                if extent is self._ends:
                    break
            self.remove(gone.run)


@EVICTION.register("sieve")
class Sieve(_Visited):
    """FIFO with a hand that moves from the oldest to the newest and evicts what was not hit since it last came by.

    What was hit loses its bit and stays in place; new chunks enter at the new end; past the newest, the hand begins
    again at the oldest. Zhang et al., SIEVE is simpler than LRU, NSDI 2024; libCacheSim's Sieve.c.
    """

    def __init__(self) -> None:
        super().__init__()
        self._hand = self._ends  # the next one to be looked at; the ends stand for the oldest

    def victims(self) -> Iterator[range]:
        """Yield what was not hit from the hand on, once around, then what was."""
        return self._order(self._hand)

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room, the hand having come to them."""
        for gone in self._isolated(run):
            if self._hand is not gone or gone.mark:
                visited = gone.mark  # then all others have lost their bit before the hand comes to this one again
                for extent in self._walk(self._hand):
                    if extent is gone and not visited:
                        break
                    extent.mark = 0
            self._hand = gone
        self.remove(run)

    def remove(self, run: range) -> None:
        """Forget the chunks of *run*; the hand moves on from them. KeyError if one is not resident."""
        for extent in self._taken(run):
            if extent is self._hand:
                self._hand = extent.newer
            extent.unlink()

    def _split(self, extent: Extent, at: int) -> Extent:
        upper = super()._split(extent, at)
        if extent is self._hand and extent.step < 0:  # the part that goes first is the new one
            self._hand = upper
        return upper
