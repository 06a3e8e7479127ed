"""Used bytes of every tier over time, in a bounded number of points."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from sim.recording.tables import Columns, Labels


class OccupancyLog:
    """Used bytes of every tier over time, at most *max_points* points a tier.

    Time is cut into intervals and the peak of each is kept with its time; when a tier has too many points the intervals
    become longer, and no peak is lost. The latest sample is always the last point.

    Parameters
    ----------
    tier_names : Sequence[str]
        Names behind the tier index, fastest first.
    max_points : int
        Points kept a tier, at least 4.
    """

    __slots__ = ("_ends_s", "_last", "_max_points", "_times_s", "_used", "_widths_s", "tier_names")

    def __init__(self, tier_names: Sequence[str], *, max_points: int = 4096) -> None:
        if max_points < 4:
            raise ValueError(f"max_points is {max_points}; must be at least 4")
        self.tier_names = tuple(tier_names)
        self._max_points = max_points
        n_tiers = len(self.tier_names)
        self._times_s = [array("d") for _ in range(n_tiers)]
        self._used = [array("d") for _ in range(n_tiers)]
        self._widths_s = [0.0] * n_tiers
        self._ends_s = [-np.inf] * n_tiers
        self._last: list[tuple[float, float] | None] = [None] * n_tiers

    def sample(self, tier: int, time_s: float, used_bytes: float) -> None:
        """Note that tier *tier* holds *used_bytes* from *time_s* [s] on; time must not go back."""
        self._last[tier] = (time_s, used_bytes)
        used = self._used[tier]
        if time_s < self._ends_s[tier]:
            if used_bytes > used[-1]:
                used[-1] = used_bytes
                self._times_s[tier][-1] = time_s
            return
        self._times_s[tier].append(time_s)
        used.append(used_bytes)
        width_s = self._widths_s[tier]
        if width_s:
            self._ends_s[tier] = (time_s // width_s + 1.0) * width_s
        if len(used) >= self._max_points:
            self._merge(tier)

    def _merge(self, tier: int) -> None:
        times_s = np.array(self._times_s[tier])
        used = np.array(self._used[tier])
        # Half as many intervals as points, so that the next merge is as far away as this one was.
        width_s = max(2.0 * self._widths_s[tier], float(times_s[-1] - times_s[0]) / (self._max_points // 2))
        interval = np.floor_divide(times_s, width_s) if width_s else np.zeros_like(times_s)
        order = np.lexsort((-used, interval))
        _, firsts = np.unique(interval[order], return_index=True)
        kept = order[firsts]
        self._times_s[tier] = array("d", times_s[kept].tolist())
        self._used[tier] = array("d", used[kept].tolist())
        self._widths_s[tier] = width_s
        self._ends_s[tier] = (float(interval[-1]) + 1.0) * width_s

    def columns(self) -> Columns:
        """Return one tidy table of all tiers: time_s, tier (a code), used_bytes."""
        times_s: list[float] = []
        used_bytes: list[float] = []
        tiers: list[int] = []
        for tier, last in enumerate(self._last):
            points = list(zip(self._times_s[tier], self._used[tier], strict=True))
            if last is not None and (last[0] > points[-1][0] or last[1] != points[-1][1]):
                points.append(last)
            times_s += [time_s for time_s, _ in points]
            used_bytes += [used for _, used in points]
            tiers += [tier] * len(points)
        return {
            "time_s": np.array(times_s, dtype=np.float64),
            "tier": np.array(tiers, dtype=np.int32),
            "used_bytes": np.array(used_bytes, dtype=np.float64),
        }

    def labels(self) -> Labels:
        """Return the words behind the numbers of coded columns."""
        return {"tier": self.tier_names}
