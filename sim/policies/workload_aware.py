"""Workload-aware eviction, after KVCache in the Wild."""

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from models.errors import InputError
from sim.policies.base import EVICTION, PolicyContext
from sim.policies.chunkwise import ChunkPolicy
from sim.policies.hooks import known

_LAST_CATEGORY: Final = 16
"""Turns from this one on are one category: few conversations are so long, and a fit needs reuses."""


@dataclass(slots=True)
class _Category:
    """Chunks that were first sent in one turn, by last use, and what was seen of their reuse."""

    last_use_s: OrderedDict[int, float] = field(default_factory=OrderedDict)
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
class WorkloadAware(ChunkPolicy):
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
        self._window_s = window_s
        self._categories: dict[int, _Category] = {}
        self._of: dict[int, _Category] = {}  # the category of each resident chunk
        self._at_s = 0.0  # the time of the last call that changed something: victims must not change with the clock

    def prepare(self, context: PolicyContext) -> None:
        """Learn the time and the turn of each chunk."""
        self._now_s = known(context.now_s, self, "the time (a timed run)")
        self._turn = known(context.generation, self, "the turn in which a chunk was first sent")

    def _insert(self, key: int) -> None:
        category = self._of[key] = self._category(key)
        self._use(category, key)

    def _touch(self, key: int) -> None:
        category = self._of[key]
        before_s = category.last_use_s.pop(key)
        self._use(category, key)
        category.reuses += 1
        category.reuse_time_s += self._at_s - before_s

    def miss(self, run: range) -> None:
        """Note the time."""
        self._at_s = self._now_s()

    def _remove(self, key: int) -> None:
        del self._of.pop(key).last_use_s[key]

    def _use(self, category: _Category, key: int) -> None:
        self._at_s = category.last_use_s[key] = self._now_s()
        category.uses += 1

    def _category(self, key: int) -> _Category:
        turn = min(self._turn(key), _LAST_CATEGORY)
        category = self._categories.get(turn)
        if category is None:
            category = self._categories[turn] = _Category()
        return category

    def _victims(self) -> Iterator[int]:
        heads = []
        for turn, category in self._categories.items():
            rest = iter(category.last_use_s.items())
            for key, last_s in rest:
                heads.append((category.probability(self._at_s - last_s, self._window_s), turn, key, last_s, rest))
                break
        heapify(heads)
        while heads:
            _, turn, key, used_s, rest = heappop(heads)
            yield key
            for following, last_s in rest:
                if last_s == used_s:  # as likely as the one before it, so no other comes between
                    yield following
                    continue
                chance = self._categories[turn].probability(self._at_s - last_s, self._window_s)
                heappush(heads, (chance, turn, following, last_s, rest))
                break
