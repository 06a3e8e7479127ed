"""The distribution of inter-token latencies without a cost per token."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

import numpy as np

from sim.arrays import Floats, Ints
from sim.recording.tables import BUFFERED_ROWS, expand
from sim.results.percentiles import PercentileRule, rank_positions

_DTYPE: Final = np.dtype([("first_s", "f8"), ("last_s", "f8"), ("steps", "i8"), ("tokens", "i8")])

# Bins 0.1 % wide from a microsecond to a day; what lies outside is counted in the end bins. A step of an LLM takes
# milliseconds to minutes, so the ends are never met; 0.1 % is far below what any cost model here can promise.
_BIN_RATIO: Final = 1.001
_FLOOR_S: Final = 1e-6
_CEILING_S: Final = 86_400.0
_N_BINS: Final = int(np.ceil(np.log(_CEILING_S / _FLOOR_S) / np.log(_BIN_RATIO)))


class TokenIntervals:
    """Inter-token latencies of a run: exact count, sum, least and greatest, percentiles to 0.1 %.

    The engine adds a whole decode jump at once: its step times go linearly from the first to the last. Jumps are
    buffered and folded into log-spaced bins 0.1 % wide, so memory does not grow with the run.
    """

    __slots__ = ("_at", "_buffer", "_counts", "_edges_s", "_max_s", "_min_s", "_n", "_pack_into", "_total_s")

    def __init__(self) -> None:
        self._pack_into = Struct("=ddqq").pack_into
        self._buffer = bytearray(BUFFERED_ROWS * _DTYPE.itemsize)
        self._at = 0
        self._edges_s: Floats = _FLOOR_S * _BIN_RATIO ** np.arange(_N_BINS + 1, dtype=np.float64)
        self._counts: Ints = np.zeros(_N_BINS, dtype=np.int64)
        self._n = 0
        self._total_s = 0.0
        self._min_s = np.inf
        self._max_s = -np.inf

    def add(self, first_s: float, last_s: float, steps: int, tokens_per_step: int) -> None:
        """Add *steps* step durations going linearly from *first_s* to *last_s*, each for *tokens_per_step* tokens.

        With one step the duration is *first_s*. Nothing is added where *steps* or *tokens_per_step* is 0.
        """
        at = self._at
        self._pack_into(self._buffer, at, first_s, last_s, steps, tokens_per_step)
        self._at = at = at + 32
        if at == 262_144:  # BUFFERED_ROWS rows of 32 bytes; literals here: this runs once a decode jump
            self._fold()

    def _fold(self) -> None:
        rows = np.frombuffer(self._buffer, dtype=_DTYPE, count=self._at // _DTYPE.itemsize)
        rows = rows[(rows["steps"] > 0) & (rows["tokens"] > 0)]
        self._at = 0
        if rows.size == 0:
            return
        steps, tokens = rows["steps"], rows["tokens"]
        first_s = rows["first_s"]
        last_s = np.where(steps > 1, rows["last_s"], first_s)
        low_s, high_s = np.minimum(first_s, last_s), np.maximum(first_s, last_s)
        self._n += int(np.sum(steps * tokens))
        self._total_s += float(np.sum(steps * tokens * (0.5 * (first_s + last_s))))
        self._min_s = min(self._min_s, float(low_s.min()))
        self._max_s = max(self._max_s, float(high_s.max()))
        stride_s = (high_s - low_s) / np.maximum(steps - 1, 1)
        bins = self._bins(low_s)
        spans = self._bins(high_s) - bins
        # A long jump of slowly growing steps crosses few bins: count by bin edges. A short one over many: by step.
        by_step = spans >= steps
        wide = np.flatnonzero(by_step)
        for row, step in expand(steps[wide]):
            picked = wide[row]
            np.add.at(self._counts, self._bins(low_s[picked] + stride_s[picked] * step), tokens[picked])
        narrow = np.flatnonzero(~by_step)
        np.add.at(self._counts, bins[narrow], (steps * tokens)[narrow])
        for row, edge in expand(spans[narrow]):
            picked = narrow[row]
            upper = bins[picked] + edge + 1
            below = np.ceil((self._edges_s[upper] - low_s[picked]) / stride_s[picked]).astype(np.int64)
            moved = (steps[picked] - np.minimum(below, steps[picked])) * tokens[picked]
            np.add.at(self._counts, upper, moved)
            np.subtract.at(self._counts, upper - 1, moved)

    def _bins(self, values_s: Floats) -> Ints:
        clipped = np.clip(values_s, _FLOOR_S, _CEILING_S)
        guess = np.log(clipped / _FLOOR_S) / np.log(_BIN_RATIO)
        bins: Ints = np.minimum(guess.astype(np.int64), _N_BINS - 1)
        # The logarithm may round over an edge; the edges decide, so that both ways of counting agree.
        bins -= clipped < self._edges_s[bins]
        bins += (clipped >= self._edges_s[bins + 1]) & (bins < _N_BINS - 1)
        return bins

    @property
    def count(self) -> int:
        """Inter-token latencies seen."""
        self._fold()
        return self._n

    @property
    def mean_s(self) -> float | None:
        """Their mean [s], None where there are none."""
        self._fold()
        return self._total_s / self._n if self._n else None

    @property
    def max_s(self) -> float | None:
        """The greatest of them [s], None where there are none."""
        self._fold()
        return self._max_s if self._n else None

    def percentiles(self, qs: Sequence[float], rule: PercentileRule = "linear") -> list[float | None]:
        """Return the quantiles *qs* (0 to 1) [s], each within 0.1 % of the exact one; None where there are none.

        Raises ValueError as :func:`sim.results.percentiles.rank_positions` does.
        """
        self._fold()
        if self._n == 0:
            return [None] * len(qs)
        ends = np.cumsum(self._counts)
        found: list[float | None] = []
        for q in qs:
            low, high, weight = rank_positions(self._n, q, rule)
            found.append(self._ranked_s(ends, low) * (1.0 - weight) + self._ranked_s(ends, high) * weight)
        return found

    def _ranked_s(self, ends: Ints, rank: int) -> float:
        if rank == 0:
            return self._min_s
        if rank == self._n - 1:
            return self._max_s
        chosen = int(np.searchsorted(ends, rank, side="right"))
        inside = (rank - (ends[chosen] - self._counts[chosen]) + 0.5) / self._counts[chosen]
        value_s = float(self._edges_s[chosen] * _BIN_RATIO**inside)
        return min(max(value_s, self._min_s), self._max_s)
