"""Inter-token latencies that also know when they were: for asking how much they vary in the course of a run."""

from __future__ import annotations

from typing import Final

import numpy as np

from sim.arrays import Floats, Ints
from sim.clock import Clock
from sim.recording.intervals import TokenIntervals

_FIRST_LENGTH_S: Final = 0.25
_MOST_WINDOWS: Final = 120


class WindowedIntervals(TokenIntervals):
    """Token intervals that are also counted by windows of time, of equal length, from the first one on.

    There are at most 120 windows, and in a run of half a minute or more at least 60: before there are more, every two
    become one. A decode jump counts where it ends.

    Parameters
    ----------
    clock : Clock
        That of the run.
    """

    __slots__ = ("_clock", "_counted", "_length_s", "_until_s", "_windows")

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._length_s = _FIRST_LENGTH_S
        self._until_s = np.inf
        self._counted: Ints = self._counts.copy()
        self._windows: list[tuple[Ints, Ints]] = []
        """Of each window that is over, the bins with something in them and how much."""

    def add(self, first_s: float, last_s: float, steps: int, tokens_per_step: int) -> None:
        """Add step durations as :meth:`TokenIntervals.add` does, to the window of this moment."""
        now_s = self._clock.now_s
        if now_s >= self._until_s:
            self._close(now_s)
        elif self._until_s == np.inf:
            self._until_s = now_s + self._length_s
        super().add(first_s, last_s, steps, tokens_per_step)

    def windows(self) -> tuple[Floats, Ints]:
        """Return the upper ends [s] of the bins that hold anything, and the counts by window and bin."""
        windows = [*self._windows, self._since()]
        bins = np.unique(np.concatenate([found for found, _ in windows]))
        counts = np.zeros((len(windows), bins.size), dtype=np.int64)
        for row, (found, many) in enumerate(windows):
            counts[row, np.searchsorted(bins, found)] = many
        return self._edges_s[bins + 1], counts

    def _since(self) -> tuple[Ints, Ints]:
        """Return the bins and counts of what came since the last window was closed."""
        self._fold()
        new = self._counts - self._counted
        bins = np.flatnonzero(new)
        return bins, new[bins]

    def _close(self, now_s: float) -> None:
        while now_s >= self._until_s:
            self._windows.append(self._since())
            self._counted = self._counts.copy()
            if len(self._windows) == _MOST_WINDOWS:
                pairs = zip(self._windows[::2], self._windows[1::2], strict=True)
                self._windows = [_merged(*pair) for pair in pairs]
                self._length_s *= 2.0
            self._until_s += self._length_s


def _merged(one: tuple[Ints, Ints], two: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    bins, places = np.unique(np.concatenate([one[0], two[0]]), return_inverse=True)
    counts = np.bincount(places, weights=np.concatenate([one[1], two[1]]), minlength=bins.size)
    return bins, counts.astype(np.int64)
