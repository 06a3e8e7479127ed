"""Pools that make room ahead: eviction begins above a high mark and goes on down to a low one.

Sources: LMCache's server (above 0.8 of its memory, a fifth of the keys goes: 0.64) and Mooncake's
``master_service.cpp`` (above 0.90, at least 0.05). Both look by a clock, every second and every 10 ms; here a pool
looks when something has arrived.
"""

from __future__ import annotations

from typing import Any

from sim.runs import Runs
from sim.tiers.tier import Tier


class WatermarkedTier(Tier):
    """A pool of KV chunks with two marks.

    Parameters
    ----------
    high, low : float
        Share of the capacity above which it evicts, and down to which.
    pool
        As :class:`sim.tiers.tier.Tier` takes it.
    """

    __slots__ = ("_high", "_high_units", "_low", "_low_units")

    def __init__(self, *, high: float, low: float, **pool: Any) -> None:
        super().__init__(**pool)
        self._high, self._low = high, low
        self._mark()

    def _mark(self) -> None:
        self._high_units = self._high * self.capacity_units
        self._low_units = int(self._low * self.capacity_units)

    def resize(self, units: int) -> None:
        """Change the capacity, and with it the marks."""
        super().resize(units)
        self._mark()

    def arrive(self, runs: Runs) -> None:
        """Make reserved chunks resident; above the high mark, others go."""
        super().arrive(runs)
        if self.used_units > self._high_units:
            self.make_free(self.capacity_units - self._low_units)
