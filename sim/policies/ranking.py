"""Keys in the order of a rank that changes: O(log n) a change, and the order can be read without changing it."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

_SPARE = 64
"""Entries out of date that are always tolerated."""

Entry = tuple[float, float, int]
"""A rank, what decides between equals, and the key."""


class Ranking:
    """Keys by rank, lowest first; of equal ranks the one that got it first."""

    __slots__ = ("_ahead", "_clock", "_heap", "entries")

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self._heap: list[Entry] = []
        self._ahead: list[Entry] = []  # read from the heap before they left, in order
        self._clock = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, key: int) -> bool:
        return key in self.entries

    def set(self, key: int, rank: float, order: float | None = None) -> None:
        """Give a key this rank, whether it had one or not; *order* decides between equals if given."""
        if order is None:
            order = self._clock = self._clock + 1
        entry = self.entries[key] = (rank, order, key)
        heap = self._heap
        heappush(heap, entry)
        if len(heap) > 2 * len(self.entries) + _SPARE:
            self._heap = list(self.entries.values())
            heapify(self._heap)
            self._ahead = []

    def remove(self, key: int) -> float:
        """Take a key out and return its rank; KeyError if it is not there."""
        return self.entries.pop(key)[0]

    def ordered(self) -> Iterator[int]:
        """Yield the keys, lowest rank first. What it reads is kept aside in order, so that each entry costs once."""
        heap, entries = self._heap, self.entries
        ahead = self._ahead = [entry for entry in self._ahead if entries.get(entry[2]) is entry]
        at = 0
        while heap or at < len(ahead):
            if at == len(ahead) or (heap and heap[0] < ahead[at]):
                entry = heappop(heap)
                if entries.get(entry[2]) is not entry:
                    continue
                ahead.insert(at, entry)
            at += 1
            yield ahead[at - 1][2]
