"""GDSF: frequency times cost over an inflating base, with equal cost or with what a chunk of KV cache costs."""

from bisect import bisect_left
from collections.abc import Iterator

from sim.policies.base import EVICTION, PolicyContext
from sim.policies.hooks import known
from sim.policies.ranked_extents import RankedExtent, RankedExtents


@EVICTION.register("gdsf")
class Gdsf(RankedExtents):
    """Lowest H = L + uses x cost / size first; L becomes the H of what goes, so that old fame fades.

    Chunks have one size, and here one cost; equal H goes by last use. Cherkasova, Improving WWW proxies performance
    with greedy-dual-size-frequency, HPL-98-69R1, 1998; libCacheSim's GDSF.cpp.
    """

    def __init__(self) -> None:
        super().__init__()
        self._base = 0.0  # L

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident."""
        self._settle()
        if run:
            self._use(run, 1, self._position_of(run))

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again; KeyError if one is not resident."""
        self._settle()
        taken = self._taken(run)
        if run.step < 0:
            taken.reverse()
        at = 0
        while at < len(taken):  # those that were used as often are one extent from now on
            low, high, uses, position = taken[at].low, taken[at].high, taken[at].uses, taken[at].position
            at += 1
            while at < len(taken) and taken[at].uses == uses:
                low, high = min(low, taken[at].low), max(high, taken[at].high)
                position = min(position, taken[at].position)
                at += 1
            self._use(range(low, high)[:: run.step], uses + 1, position)
        self._retire(taken)

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room, and raise the base to what they were worth."""
        highest = self._evicted(run)
        self._base = max(self._base, highest)

    def _use(self, run: range, uses: int, position: int) -> None:
        self._place(run, self._base, uses, position)

    def _position_of(self, run: range) -> int:
        """Return the position of the lowest chunk of a run, 0 where it does not matter."""
        return 0

    def _rank(self, extent: RankedExtent, use: int) -> float:
        return extent.base + extent.uses * 1.0


@EVICTION.register("gdsf-kv")
class GdsfKv(Gdsf):
    """GDSF where a chunk costs the seconds that computing it again takes at its position in the prompt.

    Attention makes late chunks dearer than early ones, so among chunks used alike the head of a prompt goes first; use
    with ``structure: leaf_constrained`` where a chunk without its head is worthless.
    """

    def __init__(self) -> None:
        super().__init__()
        self._costs: list[float] = []  # by position
        self._falls: list[int] = []  # positions of chunks that cost less than the one before

    def prepare(self, context: PolicyContext) -> None:
        """Learn what chunks cost where."""
        self._position = known(context.position, self, "the position of chunks in their prompt")
        self._recompute_s = known(context.recompute_s, self, "the time to compute a chunk (a timed run)")

    def cost_at(self, position: int) -> float:
        """Return the time that computing the chunk at a position takes [s]."""
        return self._recompute_s(position)

    def _position_of(self, run: range) -> int:
        return self._position(min(run[0], run[-1]))

    def _use(self, run: range, uses: int, position: int) -> None:
        """Place chunks in parts along which the cost does not fall."""
        self._learn_costs(position + len(run))
        at = 0
        for following in self._parts(run, position):
            part = run[at:following]
            self._place(part, self._base, uses, position + (at if run.step > 0 else len(run) - following))
            at = following

    def _parts(self, run: range, position: int) -> Iterator[int]:
        """Yield where the parts of a run end: before each chunk that costs less than the one used before it."""
        if run.step > 0:
            falls = self._falls
            for at in range(bisect_left(falls, position + 1), bisect_left(falls, position + len(run))):
                yield falls[at] - position
        else:
            costs, last = self._costs, position + len(run) - 1
            for at in range(1, len(run)):
                if costs[last - at] < costs[last - at + 1]:
                    yield at
        yield len(run)

    def _learn_costs(self, positions: int) -> None:
        costs = self._costs
        for position in range(len(costs), positions):
            costs.append(self.cost_at(position))
            if position and costs[position] < costs[position - 1]:
                self._falls.append(position)

    def _rank(self, extent: RankedExtent, use: int) -> float:
        return extent.base + extent.uses * self._costs[extent.origin + extent.step * use]


@EVICTION.register("gdsf-kv-net")
class GdsfKvNet(GdsfKv):
    """GDSF where a chunk costs what a hit saves: the seconds to compute it again less those to read it from here.

    What is quicker to compute than to read costs nothing and goes first.
    """

    def prepare(self, context: PolicyContext) -> None:
        """Learn what chunks cost where and what reading one takes."""
        super().prepare(context)
        self._reload_s = known(context.reload_s, self, "the time to read a chunk from its tier")

    def cost_at(self, position: int) -> float:
        """Return the time that reading it instead of computing it saves, 0 or more [s]."""
        return max(self._recompute_s(position) - self._reload_s, 0.0)
