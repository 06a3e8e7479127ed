"""A count-min sketch: roughly how often each of very many chunks was used lately, in fixed memory."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.prefix_tree import KEY_BITS, KEY_MASK
from sim.runs import Runs

_ROWS: Final = 4
_MOST: Final = 15
"""Counters have four bits, as in W-TinyLFU (arXiv 1512.00727, section 3.4.1)."""

_AT_ONCE: Final = 240
"""Uses counted before counters are cut to four bits again: they must not overflow a byte."""

_MULTIPLIERS: Final = np.array(
    # Odd constants of splitmix64 and of MurmurHash3's finaliser: each row hashes by multiply and shift.
    [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xFF51AFD7ED558CCD],
    dtype=np.uint64,
)
_MOST_WIDTH_BITS: Final = 22  # 16 MiB; beyond, counters are shared by more chunks


class CountMinSketch:
    """Estimates counts from above: chunks that share all four counters are not told apart.

    Parameters
    ----------
    capacity : int
        For how many chunks; each row has the next power of two of counters.
    samples : int
        After so many uses all counts are halved.
    """

    def __init__(self, capacity: int, samples: int) -> None:
        bits = min(max(capacity - 1, 1).bit_length(), _MOST_WIDTH_BITS)
        self._shift = np.uint64(64 - bits)
        self._counters = np.zeros((_ROWS, 1 << bits), dtype=np.uint8)
        self._rows = np.arange(_ROWS)[:, None]
        self._samples = samples
        self._seen = 0

    def add(self, runs: Runs) -> None:
        """Count a use of each chunk."""
        counters, places = self._counters, self._places(runs)
        uses = places.shape[1]
        for at in range(0, uses, _AT_ONCE):
            part = places[:, at : at + _AT_ONCE]
            np.add.at(counters, (self._rows, part), 1)
            counters[self._rows, part] = np.minimum(counters[self._rows, part], _MOST)
        self._seen += uses
        if self._seen >= self._samples:
            self._counters >>= 1
            self._seen //= 2

    def estimates(self, runs: Runs) -> NDArray[np.uint8]:
        """Return the estimated count of each chunk."""
        found: NDArray[np.uint8] = self._counters[self._rows, self._places(runs)].min(axis=0)
        return found

    def _places(self, runs: Runs) -> NDArray[np.int64]:
        parts = []
        for run in runs:
            first = (run.start & KEY_MASK) ^ ((run.start >> KEY_BITS) * 0x2545F4914F6CDD1D & KEY_MASK)
            parts.append(np.uint64(first) + np.arange(len(run), dtype=np.uint64) * np.uint64(run.step % (1 << 64)))
        keys = np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)
        keys ^= keys >> np.uint64(29)
        return ((keys * _MULTIPLIERS[:, None]) >> self._shift).astype(np.int64)
