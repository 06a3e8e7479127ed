"""Workload-aware eviction, after KVCache in the Wild."""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from models.errors import InputError
from sim.policies.base import EVICTION, PolicyContext
from sim.policies.extents import Extent, ExtentPolicy
from sim.policies.hooks import known
from sim.runs import ascending

_LAST_CATEGORY: Final = 16
"""Turns from this one on are one category: few conversations are so long, and a fit needs reuses."""


@dataclass(slots=True)
class _Category:
    """Chunks that were first sent in one turn, by last use, and what was seen of their reuse."""

    ends: Extent = field(default_factory=lambda: Extent(0, 0, 1))
    """Of a ring: the one used longest ago is newer than it, the last one is older. When is in their ``since``."""
    uses: int = 0
    reuses: int = 0
    reuse_time_s: float = 0.0

    def probability(self, idle_s: float, window_s: float) -> float:
        """Return how likely a chunk that was used so long ago is used within a window from now on.

        An exponential reuse time with the mean seen so far, times the share of uses that were followed by another; a
        category that nobody has seen reused yet counts as one reuse in the window.
        """
        uses, reuses = self.uses + 1, self.reuses + 1
        rate = reuses / (self.reuse_time_s + window_s)
        return reuses / uses * math.exp(-rate * idle_s) * -math.expm1(-rate * window_s)


@EVICTION.register("workload-aware")
class WorkloadAware(ExtentPolicy):
    """The chunk that is least likely to be used in the next window goes first, by what its category has shown so far.

    A category is the turn in which a chunk was first sent (the type of request, which the paper adds, is in no public
    trace but its own); in each, chunks go by last use, so that only the oldest of each are compared. Wang et al.,
    KVCache Cache in the Wild, USENIX ATC 2025 (arXiv 2506.02634), and vllm-project/vllm#22236.

    Parameters
    ----------
    window_s : float
        How far it looks ahead [s]: about as long as chunks stay.
    """

    def __init__(self, window_s: float = 60.0) -> None:
        if not window_s > 0:
            raise InputError(f"eviction policy 'workload-aware': window_s is {window_s:g}; must be above 0 s")
        super().__init__()
        self._window_s = window_s
        self._categories: dict[int, _Category] = {}
        self._at_s = 0.0  # the time of the last call that changed something: victims must not change with the clock

    def prepare(self, context: PolicyContext) -> None:
        """Learn the time and the turn of each chunk."""
        self._now_s = known(context.now_s, self, "the time (a timed run)")
        self._turn = known(context.generation, self, "the turn in which a chunk was first sent")

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident."""
        rest = ascending(run)
        while rest:  # later chunks of a chain are of later turns
            turn = self._turn(rest[0])
            length = len(rest) if turn >= _LAST_CATEGORY else bisect_right(rest, turn, lo=1, key=self._turn)
            self._use(rest[:length][:: run.step], min(turn, _LAST_CATEGORY))
            rest = rest[length:]

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again; KeyError if one is not resident."""
        now_s = self._now_s()
        used: list[tuple[range, int]] = []
        for extent in self._taken(run) if run.step > 0 else reversed(self._taken(run)):
            extent.unlink()
            category = self._categories[extent.mark]
            category.reuses += extent.high - extent.low
            for _ in range(extent.low, extent.high):  # one after another, as floats round
                category.reuse_time_s += now_s - extent.since
            low, high = extent.low, extent.high
            if used and used[-1][1] == extent.mark:
                before = ascending(used.pop()[0])
                low, high = min(low, before.start), max(high, before.stop)
            used.append((range(low, high)[:: run.step], extent.mark))
        for part, turn in used:
            self._use(part, turn)

    def miss(self, run: range) -> None:
        """Note the time."""
        self._at_s = self._now_s()

    def _use(self, run: range, turn: int) -> None:
        """Give chunks that are in no order yet their place as the last used ones of their category."""
        category = self._categories.get(turn)
        if category is None:
            category = self._categories[turn] = _Category()
        extent = self._add(run)
        extent.mark = turn
        extent.since = self._at_s = self._now_s()
        extent.link_before(category.ends)
        category.uses += len(run)

    def victims(self) -> Iterator[range]:
        """Yield runs, those of the least likely use first."""
        heads = []
        for turn, category in self._categories.items():
            if category.ends.newer is not category.ends:
                extent = category.ends.newer
                heads.append((category.probability(self._at_s - extent.since, self._window_s), turn, extent))
        heapify(heads)
        while heads:
            _, turn, extent = heappop(heads)
            category = self._categories[turn]
            used_s = extent.since
            while extent is not category.ends and extent.since == used_s:
                yield extent.run  # as likely as the one before it, so no other comes between
                extent = extent.newer
            if extent is not category.ends:
                chance = category.probability(self._at_s - extent.since, self._window_s)
                heappush(heads, (chance, turn, extent))
