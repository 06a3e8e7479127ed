"""The classes of flows under way, and pools of those whose ceilings do not bind.

Hundreds of flows behind a full link may all have ceilings of their own, and none that matters: they get what the link
leaves to each. Where a crowd of such classes share a path, they become one, a pool: the class of that path and share
without a ceiling. A flow leaves it for a class of its own ceiling before it would run faster than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappush
from math import inf
from typing import Final, Protocol

from sim.transfers.max_min import Flow, FlowClass, Path, Resource, fill
from sim.transfers.reserving import fill_reserved

CROWD: Final = 8
"""So many classes of one path are brought together; fewer cost less than that does."""


class Meter(Protocol):
    """Takes note of what moved over which links."""

    def register(self, links: Sequence[tuple[int, int, float]]) -> int:
        """Return a class id for flows that cross these (link, direction, passes)."""

    def add(self, class_id: int, t0_s: float, t1_s: float, n_bytes: float) -> None:
        """Note that ``n_bytes`` of payload moved evenly over [t0, t1] on the path of the class."""


class Classes:
    """All classes that have flows.

    Parameters
    ----------
    meter : Meter
        Notes what moved.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.active: dict[FlowClass, None] = {}
        self._pools: dict[FlowClass, None] = {}
        self.reserves = False
        """Whether any path has something reserved."""

    def joined(self, path: Path, ceiling: float, share: float, now_s: float) -> FlowClass:
        """Return the class for a flow that begins now: the path's pool, where that is slower than its ceiling."""
        if self._pools:
            pool = path.classes.get((inf, share))
            if pool is not None and pool.rate < ceiling:
                self.advance(pool, now_s)
                pool.least_ceiling = min(pool.least_ceiling, ceiling)
                return pool
        return self._of(path, ceiling, share, now_s)

    def _of(self, path: Path, ceiling: float, share: float, now_s: float) -> FlowClass:
        """Return the class of this path, ceiling and share as of now, a new one if there is none."""
        cls = path.classes.get((ceiling, share))
        if cls is not None:
            self.advance(cls, now_s)
            return cls
        cls = path.classes[ceiling, share] = FlowClass(path, ceiling, share, now_s)
        self.active[cls] = None
        for resource, weight in path.terms:
            resource.classes[cls] = weight
        if ceiling == inf:
            self._pools[cls] = None
        return cls

    def close(self, cls: FlowClass) -> None:
        """Forget a class that has no flows any more."""
        cls.end_s = inf
        del self.active[cls]
        del cls.path.classes[cls.ceiling, cls.share]
        for resource, _ in cls.terms:
            del resource.classes[cls]
        self._pools.pop(cls, None)

    def advance(self, cls: FlowClass, now_s: float) -> None:
        """Bring a class's virtual clock to the present."""
        elapsed = now_s - cls.at_s
        if elapsed > 0.0:
            moved = cls.rate * elapsed
            cls.served += moved
            self._meter.add(cls.path.meter_class, cls.at_s, now_s, moved * cls.n)
            cls.at_s = now_s

    def fill(
        self, affected: dict[FlowClass, None], full: Sequence[Resource], changed: dict[FlowClass, None], now_s: float
    ) -> dict[FlowClass, float]:
        """Return the fair rates of the *affected* classes that cross *full* resources; others run at their ceilings.

        Flows that would run faster in a pool than their ceilings let them leave it first: the classes that they go to
        become *affected* and *changed*, as the pool does.
        """
        filling = fill_reserved if self.reserves else fill
        while True:
            rates = filling(affected, full) if full else {}
            slow = [pool for pool in self._pools if pool in affected and rates.get(pool, inf) > pool.least_ceiling]
            parted = [self._part(pool, rates.get(pool, inf), changed, now_s) for pool in slow]
            if not any(parted):
                return rates
            affected.update(changed)
            for pool in slow:
                if not pool.n:
                    self.close(pool)
                    del affected[pool], changed[pool]

    def _part(self, pool: FlowClass, rate: float, changed: dict[FlowClass, None], now_s: float) -> bool:
        """Let the flows leave a pool whose ceilings are below *rate*; return whether there were any."""
        leaving = [flow for flow in pool.ends if flow[2] < rate]
        pool.ends = [flow for flow in pool.ends if flow[2] >= rate]
        pool.least_ceiling = min((flow[2] for flow in pool.ends), default=inf)
        if not leaving:
            return False
        heapify(pool.ends)
        self.advance(pool, now_s)
        changed[pool] = None
        for flow in leaving:
            cls = self._of(pool.path, flow[2], pool.share, now_s)
            changed[cls] = None
            _move([flow], pool, cls)
        return True

    def pool(self, held_back: Iterable[FlowClass], now_s: float) -> None:
        """Pool classes that run below their ceilings, where there are several of one path, share and rate."""
        alike: dict[tuple[Path, float, float], list[FlowClass]] = {}
        for cls in held_back:
            alike.setdefault((cls.path, cls.share, cls.rate), []).append(cls)
        for (path, share, rate), classes in alike.items():
            pool = path.classes.get((inf, share))
            if len(classes) == 1 if pool is None else pool.rate != rate:
                continue
            pool = self._of(path, inf, share, now_s)
            pool.rate = rate
            for cls in classes:
                self.advance(cls, now_s)
                _move(cls.ends, cls, pool)
                pool.least_ceiling = min(pool.least_ceiling, cls.ceiling)
                pool.end_s = min(pool.end_s, cls.end_s)
                self.close(cls)


def _move(flows: Sequence[Flow], source: FlowClass, target: FlowClass) -> None:
    """Bring flows from one virtual clock to another."""
    for end, order, ceiling, on_done in flows:
        heappush(target.ends, (end - source.served + target.served, order, ceiling, on_done))
    source.n -= len(flows)
    target.n += len(flows)
