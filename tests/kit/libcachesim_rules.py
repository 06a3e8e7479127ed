"""LIRS and SLRU block by block, with the rules that libcachesim 0.3.5 adds to the papers each to be switched on.

With none of them they are what `lirs` and `slru` must count; with all of them, what libcachesim counts (its LIRS.c
and SLRU.c).
"""

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

COOLS: Final = "cools"
"""A hit on a cold block that has left the stack cools the oldest hot one where the hot share is full, though no block
becomes hot (hit_RD_HIRinQ calls evictLIR): the hot share is then short by one, and the oldest cold block goes."""
KEEPS: Final = "keeps"
"""Where the cold share is one block, the block that goes is the one that was hit: it takes no room any more but enters
the stack as resident, and is a hit the next time."""
DIFFERENCES: Final = frozenset({COOLS, KEEPS})

_HOT, _COLD, _GONE = "hot", "cold", "gone"


class LirsReference:
    """A cache of single blocks under LIRS with some of the DIFFERENCES."""

    def __init__(self, capacity: int, differences: Collection[str] = ()) -> None:
        assert set(differences) <= DIFFERENCES
        self._differences = frozenset(differences)
        self._most_cold = max(int(capacity * 0.01), 1)
        self._most_hot = capacity - self._most_cold
        self._most_stacked = 2 * capacity
        self._hot = 0
        self._stack: OrderedDict[int, str] = OrderedDict()
        self._queue: OrderedDict[int, None] = OrderedDict()
        self._names: OrderedDict[int, None] = OrderedDict()  # of those that are gone, by when they went

    def get(self, key: int) -> bool:
        """Use a block and return whether it was resident; a miss stores it."""
        state = self._stack.get(key)
        hit = state in (_HOT, _COLD) or key in self._queue
        if state is not None:
            self._stack.move_to_end(key)
        if state == _HOT:
            self._prune()
        elif state is not None:
            self._queue.pop(key, None)
            self._names.pop(key, None)
            if self._hot >= self._most_hot:
                self._cool()
            self._stack[key] = _HOT
            self._hot += 1
        elif hit:
            self._hit_outside_stack(key)
        elif self._hot < self._most_hot:
            self._stack[key] = _HOT
            self._hot += 1
        else:
            self._drop_cold()
            self._stack[key] = _COLD
            self._queue[key] = None
        while len(self._stack) > self._most_stacked and self._names:
            del self._stack[self._names.popitem(last=False)[0]]
        return hit

    def _hit_outside_stack(self, key: int) -> None:
        self._queue.move_to_end(key)
        if COOLS in self._differences and self._hot >= self._most_hot:
            self._cool()
        if key in self._queue or KEEPS in self._differences:
            self._stack[key] = _COLD

    def _cool(self) -> None:
        """Make the oldest hot block a cold one."""
        key, _ = self._stack.popitem(last=False)
        self._hot -= 1
        self._drop_cold()
        self._queue[key] = None
        self._prune()

    def _drop_cold(self) -> None:
        """Make room for one cold block."""
        while len(self._queue) >= self._most_cold:
            key, _ = self._queue.popitem(last=False)
            if key in self._stack:
                self._stack[key] = _GONE
                self._names[key] = None

    def _prune(self) -> None:
        while len(self._stack) > 1 and next(iter(self._stack.values())) != _HOT:
            self._names.pop(self._stack.popitem(last=False)[0], None)


class SlruReference:
    """A cache of single blocks under SLRU; *bound* evicts what falls into the lowest segment over its bound, at a hit.

    Segments hold the capacity divided by four, cut to whole blocks: where that leaves a rest, and new blocks have
    filled it, libcachesim's cache (SLRU_cool) evicts before it is full.
    """

    def __init__(self, capacity: int, *, bound: bool) -> None:
        self._capacity = capacity
        self._bound = bound
        self._most = capacity // 4
        self._segments: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(4)]

    def get(self, key: int) -> bool:
        """Use a block and return whether it was resident; a miss stores it."""
        at = next((at for at, segment in enumerate(self._segments) if key in segment), None)
        if at is not None:
            del self._segments[at][key]
            at = min(at + 1, 3)
            self._segments[at][key] = None
            while at and len(self._segments[at]) > self._most:
                fallen, _ = self._segments[at].popitem(last=False)
                at -= 1
                self._segments[at][fallen] = None
                while not at and self._bound and len(self._segments[0]) > self._most:
                    self._segments[0].popitem(last=False)
            return True
        if sum(map(len, self._segments)) >= self._capacity:
            next(segment for segment in self._segments if segment).popitem(last=False)
        place = next((at for at, segment in enumerate(self._segments) if len(segment) < self._most), 0)
        self._segments[place][key] = None
        return False
