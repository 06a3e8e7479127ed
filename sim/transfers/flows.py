"""Transfers as flows: max-min fair sharing of named links, filled over classes of equal flows.

A flow is bytes + a path + a ceiling of its own. Flows of equal path, ceiling and share form one class with a virtual
clock (bytes served to each of its flows so far), so that a change costs work per class, not per flow; where ceilings do
not bind, they need not be equal (``classes.py``). Only links whose summed ceilings exceed their capacity can bind;
classes that touch none of them simply run at their ceiling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf, ulp
from operator import attrgetter
from typing import Final

from sim.clock import COMPLETION, SETTLE, Clock, Wakeup
from sim.transfers.classes import CROWD, Classes, Meter
from sim.transfers.max_min import FlowClass, Path, Resource, reach, shadowed_resources

READ: Final = 0
WRITE: Final = 1

_index = attrgetter("index")

_FULL: Final = 1.0 + 1e-9
"""Demand above which a link counts as over-subscribed: above the drift of summed ceilings, below any effect."""
_DUST_BYTES: Final = 1e-3
"""A flow with less than this left has ended."""


@dataclass(slots=True)
class Link:
    """A named, shared link.

    Parameters
    ----------
    name : str
        Unique name, as in results.
    read_bytes_per_s, write_bytes_per_s : float
        Delivered capacity towards HBM and away from it [B/s], > 0.
    duplex : bool
        True: the two directions do not disturb each other (PCIe, NICs). False: they share the link's time, so that
        ``read/read_capacity + write/write_capacity <= 1`` (drives, DRAM buses).
    """

    name: str
    read_bytes_per_s: float
    write_bytes_per_s: float
    duplex: bool = True


@dataclass(frozen=True, slots=True)
class Hop:
    """One link of a path; ``passes`` counts how often each byte crosses it (2 for a bounce through DRAM).

    ``bytes_per_s`` overrides the link's capacity for this kind of flow (a device that is slower at this I/O size).
    """

    link: str
    direction: int
    passes: float = 1.0
    bytes_per_s: float | None = None


class FlowNetwork:
    """All links and the flows on them.

    Parameters
    ----------
    clock : Clock
        The simulated clock.
    links : sequence of Link
        The links, names unique.
    meter : Meter
        Notes what moved.
    """

    def __init__(self, clock: Clock, links: Sequence[Link], meter: Meter) -> None:
        self._clock = clock
        self._meter = meter
        self.links = list(links)
        self._index = {link.name: i for i, link in enumerate(links)}
        if len(self._index) != len(links):
            raise ValueError("link names must be unique")
        # Resource 2i carries reads of link i and 2i+1 its writes; a half-duplex link uses 2i for both.
        self._resources = [Resource(i) for i in range(2 * len(links))]
        self._paths: list[Path] = []
        self._shadows_known = False
        self._classes = Classes(meter)
        self._active = self._classes.active
        # What has changed since the rates were last settled.
        self._dirty: dict[FlowClass, None] = {}
        self._touched: dict[Resource, None] = {}
        self._settling = False
        self._wakeup: Wakeup | None = None
        self._wake_s = inf
        self._started = 0
        self.on_idle: Callable[[], None] | None = None
        self.flows_ended = 0
        self._busy_s = [0.0] * len(links)
        self._busy_since_s = [0.0] * len(links)
        self._paths_busy = [0] * len(links)

    @property
    def active_flows(self) -> int:
        """How many flows are under way, those of others (``Path.is_background``) aside."""
        return sum(cls.n for cls in self._active if not cls.path.is_background)

    @property
    def link_bytes(self) -> list[list[float]]:
        """Bytes that all flows so far take over each link, by direction; each counts as often as it crosses."""
        return self.over_links({path: path.started_bytes for path in self._paths})

    def moved_until_now(self) -> dict[Path, float]:
        """Return what the flows of each path have moved by now [B]."""
        now = self._clock.now_s
        moved = {path: path.started_bytes for path in self._paths}
        for cls in self._active:
            served = cls.served + cls.rate * (now - cls.at_s)
            moved[cls.path] -= sum(max(0.0, end - served) for end, *_ in cls.ends)
        return moved

    def over_links(self, path_bytes: Mapping[Path, float]) -> list[list[float]]:
        """Return what bytes on these paths come to over each link, by direction [B]."""
        totals = [[0.0, 0.0] for _ in self.links]
        for path, n_bytes in path_bytes.items():
            for i, direction, passes in path.links:
                totals[i][direction] += n_bytes * passes
        return totals

    def busy_until_now(self) -> list[float]:
        """Return for each link the time in which at least one flow was on it [s]."""
        now = self._clock.now_s
        return [
            busy + (now - since if on else 0.0)
            for busy, since, on in zip(self._busy_s, self._busy_since_s, self._paths_busy, strict=True)
        ]

    def path(self, hops: Sequence[Hop]) -> Path:
        """Resolve hops into a path of this network.

        Raises
        ------
        KeyError
            If a hop names no link of the network.
        """
        terms: dict[Resource, float] = {}
        crossings: dict[tuple[int, int], float] = {}
        for hop in hops:
            resource, i, weight = self._term(hop)
            terms[resource] = terms.get(resource, 0.0) + weight
            crossings[i, hop.direction] = crossings.get((i, hop.direction), 0.0) + hop.passes
        links = tuple((i, direction, passes) for (i, direction), passes in crossings.items())
        path = Path(tuple(terms.items()), links, self._meter.register(links))
        self._paths.append(path)
        self._shadows_known = False
        return path

    def give_to_others(self, path: Path, reserved: float = 0.0) -> None:
        """Let others' traffic use a path; ``reserved`` of each link is kept from it while the tiers ask for that."""
        path.is_background = True
        path.reserved = reserved
        self._classes.reserves |= reserved > 0.0

    def _term(self, hop: Hop) -> tuple[Resource, int, float]:
        """Return what a hop uses, the number of its link, and the time that a byte takes of it [s/B]."""
        i = self._index[hop.link]
        link = self.links[i]
        capacity = hop.bytes_per_s or (link.read_bytes_per_s if hop.direction == READ else link.write_bytes_per_s)
        return self._resources[2 * i + (hop.direction if link.duplex else 0)], i, hop.passes / capacity

    def shadow(self) -> None:
        """Leave out of the filling what can never bind; called by the first flow after a new path.

        Raises
        ------
        RuntimeError
            If a path was added while flows are under way.
        """
        if self._active:
            raise RuntimeError("paths must be made before flows are under way")
        self._shadows_known = True
        shadowed = shadowed_resources(self._paths)
        for path in self._paths:
            path.terms = tuple(term for term in path.all_terms if term[0] not in shadowed)

    def start(
        self, path: Path, n_bytes: float, on_done: Callable[[], None], ceiling: float = inf, share: float = 1.0
    ) -> None:
        """Start a flow of ``n_bytes`` now; ``on_done()`` is called when its last byte has arrived.

        Parameters
        ----------
        ceiling : float
            The flow's own upper bound [B/s], for example from the software path.
        share : float
            Weight in the max-min filling (1 for an ordinary flow).
        """
        if not n_bytes > 0:
            message = f"a flow needs a positive number of bytes, not {n_bytes}"
            raise ValueError(message)
        if not self._shadows_known:
            self.shadow()
        ceiling = min(ceiling, path.capacity_bytes_per_s)
        now = self._clock.now_s
        touched = self._touched
        cls = self._classes.joined(path, ceiling, share, now)
        cls.n += 1
        self._dirty[cls] = None
        for resource, weight in path.terms:
            resource.demand += ceiling * weight
            touched[resource] = None
        self._started += 1
        heappush(cls.ends, (cls.served + n_bytes, self._started, ceiling, on_done))
        if not path.n:
            self._path_busy(path, now)
        path.n += 1
        path.started_bytes += n_bytes
        if not self._settling:
            self._settling = True
            self._clock.at(now, SETTLE, self._on_settle)

    def _path_busy(self, path: Path, now: float) -> None:
        """Note that a path has a flow now."""
        for i, _, _ in path.links:
            if not self._paths_busy[i]:
                self._busy_since_s[i] = now
            self._paths_busy[i] += 1

    def _path_idle(self, path: Path, now: float) -> None:
        """Note that a path has no flow any more."""
        for i, _, _ in path.links:
            self._paths_busy[i] -= 1
            if not self._paths_busy[i]:
                self._busy_s[i] += now - self._busy_since_s[i]

    def _on_settle(self, _: Wakeup) -> None:
        self._settle()

    def _settle(self) -> None:
        """Give every class its max-min fair rate, and wake when the first flow ends."""
        self._settling = False
        changed, self._dirty = self._dirty, {}
        touched, self._touched = self._touched, {}
        now = self._clock.now_s
        refilled: dict[Resource, None] = {}
        for resource in touched:
            full = resource.demand > _FULL
            if full or resource.full:
                refilled[resource] = None
                resource.full = full
        affected = changed
        rates: dict[FlowClass, float] = {}
        if refilled:
            affected = reach(changed, refilled)
            full_ones = sorted((resource for resource in refilled if resource.full), key=_index)
            rates = self._classes.fill(affected, full_ones, changed, now)
        meter_add = self._meter.add
        held_back: list[FlowClass] = []
        for cls in affected:
            rate = rates.get(cls, cls.ceiling)
            old = cls.rate
            if rate != old:
                # As Classes.advance does, which would cost a call for every class at every change.
                at_s = cls.at_s
                if at_s < now:
                    moved = old * (now - at_s)
                    cls.served += moved
                    cls.at_s = now
                    meter_add(cls.path.meter_class, at_s, now, moved * cls.n)
                cls.rate = rate
            elif cls not in changed:
                continue
            remaining = cls.ends[0][0] - cls.served
            cls.end_s = now + remaining / rate if remaining > 0.0 else now
            if rate < cls.ceiling < inf and len(cls.path.classes) >= CROWD:
                held_back.append(cls)
        if held_back:
            self._classes.pool(held_back, now)
        self._wake_at_first_end()

    def _wake_at_first_end(self) -> None:
        ends_s = [cls.end_s for cls in self._active]
        first_s = min(ends_s) if ends_s else inf
        if first_s != self._wake_s or self._wakeup is None:
            self._wake_s = first_s
            self._wakeup = self._clock.at(first_s, COMPLETION, self._on_wake) if first_s < inf else None

    def _on_wake(self, event: Wakeup) -> None:
        if self._wakeup is not event:
            return
        self._wakeup = None
        now = self._clock.now_s
        # Changes of this instant are settled at its end; that is now, unless something else is due.
        deferred, self._settling = self._settling, True
        done: list[Callable[[], None]] = []
        for cls in [cls for cls in self._active if cls.end_s <= now]:
            self._classes.advance(cls, now)
            self._end_flows(cls, now, done)
        for on_done in done:
            on_done()
        if self.on_idle is not None and not self.active_flows:
            self.on_idle()
        if deferred:
            return
        if self._clock.more_now():
            self._clock.at(now, SETTLE, self._on_settle)
        else:
            self._settle()

    def _end_flows(self, cls: FlowClass, now: float, done: list[Callable[[], None]]) -> None:
        """Take out the flows of a class whose last byte has arrived."""
        # Whatever lies within a few roundings of the clock cannot be waited for: it has ended.
        served = cls.served
        horizon = served + max(_DUST_BYTES, cls.rate * 8.0 * ulp(now), 4.0 * ulp(served))
        ends = cls.ends
        ended, freed = 0, 0.0
        while ends and ends[0][0] <= horizon:
            _, _, ceiling, on_done = heappop(ends)
            done.append(on_done)
            ended += 1
            freed += ceiling
        cls.n -= ended
        if ends:
            # Too early by a rounding, or flows of the class remain: the settling that follows finds the next end.
            self._dirty[cls] = None
        else:
            self._classes.close(cls)
            self._dirty.pop(cls, None)
        for resource, weight in cls.terms:
            # An idle resource is set to exactly zero so that rounding cannot pile up.
            resource.demand = resource.demand - freed * weight if resource.classes else 0.0
            self._touched[resource] = None
        self.flows_ended += ended
        path = cls.path
        path.n -= ended
        if not path.n:
            self._path_idle(path, now)
