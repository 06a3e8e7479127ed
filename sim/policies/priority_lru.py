"""Priority LRU, as in TensorRT-LLM."""

from collections import deque
from collections.abc import Iterator
from typing import Final

from models.errors import InputError
from sim.policies.base import EVICTION, PolicyContext
from sim.policies.chunkwise import ChunkPolicy
from sim.policies.hooks import known
from sim.policies.ranking import Ranking

_DEFAULT_PRIORITY: Final = 35
"""TensorRT-LLM's (kDefaultRetentionPriority)."""
_MOST: Final = 100


@EVICTION.register("priority-lru")
class PriorityLru(ChunkPolicy):
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
        self._head_chunks = head_chunks
        self._head_priority = head_priority
        self._duration_s = duration_s
        self._ranking = Ranking()
        self._clock = 0
        self._ending: deque[tuple[float, int, int]] = deque()  # when, which chunk, and which use of it

    def prepare(self, context: PolicyContext) -> None:
        """Learn where chunks stand in their prompts, and the time."""
        self._position = known(context.position, self, "the position of chunks in their prompt")
        if self._duration_s is not None:
            self._now_s = known(context.now_s, self, "the time (a timed run)")

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident."""
        self._end_priorities()
        super().insert(run, parent)

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again; KeyError if one is not resident."""
        self._end_priorities()
        super().touch(run)

    def miss(self, run: range) -> None:
        """Note that room is about to be made."""
        self._end_priorities()

    def _insert(self, key: int) -> None:
        self._clock += 1
        if self._position(key) >= self._head_chunks:
            self._ranking.set(key, _DEFAULT_PRIORITY, self._clock)
            return
        self._ranking.set(key, self._head_priority, self._clock)
        if self._duration_s is not None:
            self._ending.append((self._now_s() + self._duration_s, key, self._clock))

    def _touch(self, key: int) -> None:
        if key not in self._ranking:
            raise KeyError(key)
        self._insert(key)

    def _remove(self, key: int) -> None:
        self._ranking.remove(key)

    def _victims(self) -> Iterator[int]:
        return self._ranking.ordered()

    def _end_priorities(self) -> None:
        """Take its priority from each chunk whose time is up; it keeps its last use."""
        while self._ending and self._ending[0][0] <= self._now_s():
            _, key, use = self._ending.popleft()
            entry = self._ranking.entries.get(key)
            if entry is not None and entry[1] == use:
                self._ranking.set(key, _DEFAULT_PRIORITY, use)
