"""The types that recorded tables are made of, and how a row with a count becomes that many elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.arrays import Ints

# One table: arrays of equal length by column name. Any: a table mixes integer and float columns.
Columns: TypeAlias = dict[str, NDArray[Any]]
# For a column of small integer codes, the word that each code stands for.
Labels: TypeAlias = dict[str, tuple[str, ...]]

# Rows gathered before numpy works them off: enough to hide its cost a call, few enough to stay in the processor cache
BUFFERED_ROWS: Final = 8192
# Elements expanded at once, so that a few very long rows cannot take gigabytes.
_EXPANDED: Final = 1 << 20


def expand(counts: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield ``(row, offset)`` arrays: row i stands counts[i] times, with offsets 0, 1, ...; a million or so at once."""
    ends = np.cumsum(counts)
    start = 0
    while start < counts.size:
        done = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, done + _EXPANDED, side="right")), start + 1)
        piece = counts[start:stop]
        rows = np.repeat(np.arange(start, stop, dtype=np.int64), piece)
        firsts = np.repeat(ends[start:stop] - piece - done, piece)
        yield rows, np.arange(rows.size, dtype=np.int64) - firsts
        start = stop
