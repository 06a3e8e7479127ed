"""Priority LRU, as in TensorRT-LLM."""

from collections import deque
from typing import Final

from models.errors import InputError
from sim.policies.base import EVICTION, PolicyContext
from sim.policies.extents import bisect_by_low
from sim.policies.hooks import known
from sim.policies.ranked_extents import RankedExtent, RankedExtents
from sim.runs import STRAND_BITS, ascending

_DEFAULT_PRIORITY: Final = 35
"""TensorRT-LLM's (kDefaultRetentionPriority)."""
_MOST: Final = 100


@EVICTION.register("priority-lru")
class PriorityLru(RankedExtents):
    """Lowest priority first, and the least recently used of these; the head of every prompt has a priority of its own.

    TensorRT-LLM takes priorities by token range from the request (KvCacheRetentionConfig, evictionPolicy.cpp); 35 is
    that of chunks without one, and what the others fall back to when their time is up. It evicts leaves only: use with
    ``structure: leaf_constrained`` for that.

    Parameters
    ----------
    head_chunks : int
        Chunks at the head of each prompt that have ``head_priority``.
    head_priority : int
        0 to 100.
    duration_s : float or None
        How long after its last use a chunk keeps that priority [s]; None: always.
    """

    def __init__(self, head_chunks: int = 4, head_priority: int = 100, duration_s: float | None = None) -> None:
        if not 0 <= head_priority <= _MOST:
            raise InputError(f"eviction policy 'priority-lru': head_priority is {head_priority}; must be 0 to {_MOST}")
        super().__init__()
        self._head_chunks = head_chunks
        self._head_priority = head_priority
        self._duration_s = duration_s
        self._ending: deque[tuple[float, RankedExtent]] = deque()  # when, and what the chunks were when they were used

    def prepare(self, context: PolicyContext) -> None:
        """Learn where chunks stand in their prompts, and the time."""
        self._position = known(context.position, self, "the position of chunks in their prompt")
        if self._duration_s is not None:
            self._now_s = known(context.now_s, self, "the time (a timed run)")

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident."""
        self._settle()
        self._end_priorities()
        self._use(run)

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again; KeyError if one is not resident."""
        self._settle()
        self._end_priorities()
        self._retire(self._taken(run))
        self._use(run)

    def miss(self, run: range) -> None:
        """Note that room is about to be made."""
        self._settle()
        self._end_priorities()

    def _use(self, run: range) -> None:
        """Place chunks; those at the head of a prompt are an extent of their own."""
        if not run:
            return
        head = min(max(self._head_chunks - self._position(ascending(run).start), 0), len(run))
        parts = ((run[:head], True), (run[head:], False))
        if run.step < 0:
            parts = ((run[: len(run) - head], False), (run[len(run) - head :], True))
        for part, is_head in parts:
            if part:
                extent = self._place(part, self._head_priority if is_head else _DEFAULT_PRIORITY)
                if is_head and self._duration_s is not None:
                    used = RankedExtent(extent.low, extent.high, extent.step, extent.first)
                    self._ending.append((self._now_s() + self._duration_s, used))

    def _rank(self, extent: RankedExtent, use: int) -> float:
        return extent.base

    def _end_priorities(self) -> None:
        """Take its priority from each chunk whose time is up; it keeps its last use."""
        while self._ending and self._ending[0][0] <= self._now_s():
            _, used = self._ending.popleft()
            extents = self._strands.get(used.low >> STRAND_BITS, [])
            for extent in extents[max(bisect_by_low(extents, used.low) - 1, 0) : bisect_by_low(extents, used.high - 1)]:
                low, high = max(extent.low, used.low), min(extent.high, used.high)
                if low < high and extent.use(low) == used.use(low):
                    self._rerank(range(low, high), _DEFAULT_PRIORITY)
