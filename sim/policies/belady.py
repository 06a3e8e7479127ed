"""Belady's MIN: the bound that knows the future."""

from collections.abc import Iterator
from heapq import heappop, heappush

from sim.policies.base import EVICTION, NEVER, Future, PolicyContext
from sim.policies.extents import Extent, ExtentPolicy
from sim.policies.hooks import known
from sim.policies.leaf import LeafConstrained
from sim.policies.ranking import Ranking


@EVICTION.register("belady")
class Belady(ExtentPolicy):
    """A bound: the chunk whose next use is farthest goes first, those never used again before all.

    In one tier whose chunks are of one size, and where every miss is stored, nobody hits more chunks (Belady, IBM
    Systems Journal 1966; libCacheSim's Belady.c). It does not bound TTFT, nor hits of a tier below another one: what
    the upper one serves is used, but not here. Among chunks of one next use the deepest goes first, so that no chunk
    outlives the one before it, and block hits are prefix hits.
    """

    def __init__(self) -> None:
        super().__init__()
        self._at_use: dict[int, Extent] = {}  # by number of the next use: a ring, as that of the whole order
        self._farthest = Ranking()
        self._soonest: list[int] = []

    def prepare(self, context: PolicyContext) -> None:
        """Learn the future."""
        self._future: Future = known(context.future, self, "the future: requests that are all known beforehand")

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident."""
        if run:
            self._pass()
            self._place(run)

    def touch(self, run: range) -> None:
        """Look ahead again: what is used now has another next use."""
        self._pass()

    def miss(self, run: range) -> None:
        """Look ahead again: time has passed."""
        self._pass()

    def victims(self) -> Iterator[range]:
        """Yield runs from the farthest next use to the nearest."""
        for use in self._farthest.ordered():
            ends = self._at_use[use]
            extent = ends.newer
            while extent is not ends:
                yield extent.run
                extent = extent.newer

    def remove(self, run: range) -> None:
        """Forget the chunks of *run*; KeyError if one is not resident."""
        for extent in self._taken(run):
            extent.unlink()
            self._drop_if_empty(extent.mark)

    def _place(self, run: range) -> None:
        """Put chunks where their next use is."""
        now = self._future.now
        for part, use in self._future.next_uses(run if run.step > 0 else run[::-1]):
            ends = self._at_use.get(use)
            if ends is None:
                ends = self._at_use[use] = Extent(0, 0, 1)
                self._farthest.set(use, -use)
                if use < NEVER:
                    heappush(self._soonest, use)
            extent = self._add(part[::-1])
            extent.mark, extent.since = use, now
            newer = ends
            # Chunks that came at the same time are of one chain, or nobody's: the deeper ones have higher keys.
            while newer.older is not ends and newer.older.since == now and newer.older.low < extent.low:
                newer = newer.older
            extent.link_before(newer)

    def _pass(self) -> None:
        """Look ahead again for the chunks whose next use has begun."""
        now = self._future.now
        while self._soonest and self._soonest[0] < now:
            use = heappop(self._soonest)
            ends = self._at_use.pop(use, None)
            if ends is None:
                continue
            self._farthest.remove(use)
            extent = ends.newer
            while extent is not ends:
                following = extent.newer
                self._taken(extent.run)
                self._place(extent.run)
                extent = following

    def _drop_if_empty(self, use: int) -> None:
        ends = self._at_use[use]
        if ends.newer is ends:
            del self._at_use[use]
            self._farthest.remove(use)


@EVICTION.register("belady-prefix")
class BeladyPrefix(LeafConstrained):
    """A bound: Belady's MIN under the rule that a chunk goes only after all that continue it.

    It bounds the chunks that any policy hits in one tier where a hit counts only as far as the chain from the head of
    the prompt is unbroken. There the two bounds are equal, for a chunk is never used later than those after it; they
    differ where chunks are lost or where the tail of a prompt was stored without its head. As for Belady, TTFT and
    tiers below another one are not bounded.
    """

    def __init__(self) -> None:
        super().__init__(Belady())

    def victims(self) -> Iterator[range]:
        """Yield every resident chunk in the order in which they would go."""
        return (range(key, key + 1) for key in self.evictable())
