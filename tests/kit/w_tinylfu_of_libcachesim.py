"""W-TinyLFU block by block, with the rules in which libcachesim 0.3.5 differs from the paper each to be switched on.

With none of them it is what `w-tinylfu` must count; with all of them, what libcachesim counts (WTinyLFU.c, SLRU.c and
minimalIncrementCBF.c of its source package).
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final

SKETCH: Final = "sketch"
"""A counting Bloom filter for as many keys as the main part holds, at an error of 0.001: 14.38 counters of 32 bits a
key, 10 of them counted up, where the paper has counters to 15. A trace with more keys fills it with collisions."""
WINDOW_HITS: Final = "window hits"
"""A hit in the window is not counted."""
JUDGED: Final = "judged"
"""The window's oldest is counted once more each time it leaves the window."""
HALVING: Final = "halving"
"""Counts are halved after 32 hits in the main part for each chunk that it holds, not after 10 accesses a chunk."""
ENTRY: Final = "entry"
"""What enters the main part enters the protected segment where the probation one is full and that is not."""
BOUND: Final = "bound"
"""Segments are cut to whole chunks apart; the probation one evicts what falls into it over its bound, at a hit."""
WINDOW: Final = "window"
"""A window of 1 % below one chunk holds none, and nothing is stored at all."""

DIFFERENCES: Final = frozenset({SKETCH, WINDOW_HITS, JUDGED, HALVING, ENTRY, BOUND, WINDOW})

_WORD: Final = (1 << 64) - 1
_PRIMES: Final = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_SEEDS: Final = (0x12345678, 0x12344321)  # HASH_SEED0 and HASH_SEED1 of libCacheSim's hash.h


def xxh64(key: int, seed: int) -> int:
    """Return the XXH64 hash of a 64-bit integer, little-endian, as its specification has it."""
    first, second, third, fourth, fifth = _PRIMES
    value = (seed + fifth + 8) & _WORD
    value ^= _turned(key * second & _WORD, 31) * first & _WORD
    value = (_turned(value, 27) * first + fourth) & _WORD
    value = (value ^ value >> 33) * second & _WORD
    value = (value ^ value >> 29) * third & _WORD
    return value ^ value >> 32


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _WORD


class _Exact:
    """Counts to 15, each key its own."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, key: int) -> None:
        self._counts[key] = min(self._counts.get(key, 0) + 1, 15)

    def count(self, key: int) -> int:
        return self._counts.get(key, 0)

    def halve(self) -> None:
        self._counts = {key: count // 2 for key, count in self._counts.items()}


class _Bloom:
    """libcachesim's sketch: a key's count is the smallest of its counters, and all of them are counted up."""

    def __init__(self, keys: int) -> None:
        bits = -math.log(0.001) / 0.480453013918201
        self._hashes = math.ceil(0.693147180559945 * bits)
        self._counters = [0] * max(math.ceil(bits * keys), self._hashes)
        self._places: dict[int, list[int]] = {}

    def _of(self, key: int) -> list[int]:
        if key not in self._places:
            first, step = (xxh64(key, seed) & 0xFFFFFFFF for seed in _SEEDS)
            self._places[key] = [
                (first + n * step & 0xFFFFFFFF) % len(self._counters) for n in range(self._hashes)
            ]  # fmt: skip
        return self._places[key]

    def add(self, key: int) -> None:
        for place in self._of(key):
            self._counters[place] += 1

    def count(self, key: int) -> int:
        return min(map(self._counters.__getitem__, self._of(key)))

    def halve(self) -> None:
        self._counters = [count >> 1 for count in self._counters]


class WTinyLfuReference:
    """A cache of single blocks under W-TinyLFU with some of the DIFFERENCES."""

    def __init__(self, capacity: int, differences: Collection[str] = ()) -> None:
        assert set(differences) <= DIFFERENCES
        self._capacity = capacity
        self._has: Callable[[str], bool] = frozenset(differences).__contains__
        window = int(capacity * 0.01)
        if not self._has(WINDOW):
            window = max(window, 1)
        self._stores = window > 0
        self._main_most = capacity - window
        self._probation_most = int(self._main_most / 5) if self._has(BOUND) else math.inf
        self._protected_most = int(self._main_most * 4 / 5)
        self._window: OrderedDict[int, None] = OrderedDict()
        self._probation: OrderedDict[int, None] = OrderedDict()
        self._protected: OrderedDict[int, None] = OrderedDict()
        self._counts = _Bloom(self._main_most) if self._has(SKETCH) else _Exact()
        self._seen = 0

    def get(self, key: int) -> bool:
        """Use a block and return whether it was resident; a miss stores it."""
        if key in self._window:
            self._window.move_to_end(key)
            if not self._has(WINDOW_HITS):
                self._count_use(key, in_main=False)
            return True
        if key in self._probation or key in self._protected:
            self._promote(key)
            self._count_use(key, in_main=True)
            return True
        if self._stores:
            if len(self._window) + self._main_size() >= self._capacity:
                self._make_room()
            self._window[key] = None
            self._count_use(key, in_main=False)
        return False

    def _count_use(self, key: int, *, in_main: bool) -> None:
        self._counts.add(key)
        if not self._has(HALVING):
            self._seen += 1
            if self._seen >= 10 * self._capacity:
                self._seen //= 2
                self._counts.halve()
        elif in_main:
            self._seen += 1
            if self._seen >= 32 * self._main_most:
                self._seen = 0
                self._counts.halve()

    def _promote(self, key: int) -> None:
        if key in self._protected:
            self._protected.move_to_end(key)
            return
        del self._probation[key]
        self._protected[key] = None
        if len(self._protected) > self._protected_most:
            self._probation[self._protected.popitem(last=False)[0]] = None
            if len(self._probation) > self._probation_most:
                self._probation.popitem(last=False)

    def _enter_main(self, key: int) -> None:
        fits = self._has(ENTRY) and len(self._protected) < self._protected_most
        full = len(self._probation) >= int(self._main_most / 5)
        (self._protected if fits and full else self._probation)[key] = None

    def _make_room(self) -> None:
        while self._window and self._main_size() < self._main_most:
            self._enter_main(self._leaves_window())
        main = self._probation or self._protected
        if not self._window:
            main.popitem(last=False)
            return
        candidate, victim = next(iter(self._window)), next(iter(main), None)
        if victim is not None and self._counts.count(candidate) > self._counts.count(victim):
            del main[victim]
            del self._window[candidate]
            self._enter_main(candidate)
            if self._has(JUDGED):
                self._counts.add(candidate)
        else:
            self._leaves_window()

    def _leaves_window(self) -> int:
        key, _ = self._window.popitem(last=False)
        if self._has(JUDGED):
            self._counts.add(key)
        return key

    def _main_size(self) -> int:
        return len(self._probation) + len(self._protected)
