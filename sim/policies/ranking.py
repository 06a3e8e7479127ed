"""Keys in the order of a rank that changes: O(log n) a change, and the order can be read without changing it."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

_SPARE = 64
"""Entries out of date that are always tolerated."""


class Ranking:
    """Keys by rank, lowest first. Ranks must differ; a tuple may end in a number that makes them."""

    __slots__ = ("_heap", "ranks")

    def __init__(self) -> None:
        self.ranks: dict[int, tuple[float, ...]] = {}
        self._heap: list[tuple[tuple[float, ...], int]] = []

    def __len__(self) -> int:
        return len(self.ranks)

    def __contains__(self, key: int) -> bool:
        return key in self.ranks

    def set(self, key: int, *rank: float) -> None:
        """Give a key this rank, whether it had one or not."""
        self.ranks[key] = rank
        heap = self._heap
        heappush(heap, (rank, key))
        if len(heap) > 2 * len(self.ranks) + _SPARE:
            self._heap = [(rank, key) for key, rank in self.ranks.items()]
            heapify(self._heap)

    def remove(self, key: int) -> tuple[float, ...]:
        """Take a key out and return its rank; KeyError if it is not there."""
        return self.ranks.pop(key)

    def ordered(self) -> Iterator[int]:
        """Yield the keys, lowest rank first. Entries out of date above the first one are dropped for good."""
        heap, ranks = self._heap, self.ranks
        while heap and ranks.get(heap[0][1]) is not heap[0][0]:
            heappop(heap)
        if not heap:
            return
        yield heap[0][1]
        # The entries that may come next, by their place in the heap.
        frontier = [(*heap[at], at) for at in range(1, min(3, len(heap)))]
        heapify(frontier)
        while frontier:
            rank, key, at = heappop(frontier)
            if ranks.get(key) is rank:
                yield key
            for below in range(2 * at + 1, min(2 * at + 3, len(heap))):
                heappush(frontier, (*heap[below], below))
