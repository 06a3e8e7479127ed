"""Transfers as flows: max-min fair sharing of named links, filled over classes of equal flows.

A flow is bytes + a path + a ceiling of its own. Flows of equal path, ceiling and share form one class with a virtual
clock (bytes served to each of its flows so far), so that a change costs work per class, not per flow. Only links whose
summed ceilings exceed their capacity can bind; classes that touch none of them simply run at their ceiling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf, ulp
from typing import Final, Protocol

from sim.clock import COMPLETION, SETTLE, Clock, Wakeup

READ: Final = 0
WRITE: Final = 1

_SLACK: Final = 1e-9
"""Relative slack before a link counts as over-subscribed: above the drift of summed ceilings, below any effect."""
_DUST_BYTES: Final = 1e-3
"""A flow with less than this left has ended."""


class Meter(Protocol):
    """Takes note of what moved over which links."""

    def register(self, links: Sequence[tuple[int, int]]) -> int:
        """Return a class id for flows that cross these (link, direction) pairs."""

    def add(self, class_id: int, t0_s: float, t1_s: float, n_bytes: float) -> None:
        """Note that ``n_bytes`` moved evenly over [t0, t1] on every link of the class."""


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


class Path:
    """An ordered list of hops, resolved against a network: made by :meth:`FlowNetwork.path`, shared by its flows."""

    __slots__ = ("all_terms", "capacity_bytes_per_s", "classes", "links", "meter_class", "terms", "weights")

    def __init__(
        self, terms: tuple[tuple[int, float], ...], links: tuple[tuple[int, int], ...], meter_class: int
    ) -> None:
        self.all_terms = terms
        """(resource index, share of the resource's time that one B/s takes), one a hop."""
        self.terms = terms
        """Those of them that can bind (see :meth:`FlowNetwork.shadow`)."""
        self.weights = dict(terms)
        self.links = links
        self.meter_class = meter_class
        self.capacity_bytes_per_s = 1.0 / max(weight for _, weight in terms)
        """What one flow alone can get [B/s]."""
        self.classes: dict[tuple[float, float], FlowClass] = {}


class FlowClass:
    """Flows of equal path, ceiling and share: one rate, one virtual clock, one heap of ends."""

    __slots__ = ("at_s", "ceiling", "end_s", "ends", "level_cap", "n", "path", "rate", "served", "share")

    def __init__(self, path: Path, ceiling: float, share: float) -> None:
        self.path = path
        self.ceiling = ceiling
        self.share = share
        self.level_cap = ceiling / share
        self.n = 0
        self.rate = 0.0
        self.served = 0.0
        self.at_s = 0.0
        self.ends: list[tuple[float, int, Callable[[], None]]] = []
        self.end_s = inf
        """When its first flow ends at the present rate."""


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
        # Resource 2i carries reads of link i and 2i+1 its writes; a half-duplex link uses 2i for both. Capacities are
        # normalised to 1: a flow's weight on a resource is the share of its time that one byte a second takes.
        self._paths: list[Path] = []
        self._shadows_known = False
        self._demand = [0.0] * (2 * len(links))
        self._on_resource = [0] * (2 * len(links))
        self._classes_on: list[dict[FlowClass, None]] = [{} for _ in range(2 * len(links))]
        self._binding: set[int] = set()
        self._bound: set[int] = set()
        self._touched: dict[int, None] = {}
        self._active: dict[FlowClass, None] = {}
        self._dirty: dict[FlowClass, None] = {}
        self._settling = False
        self._wakeup: Wakeup | None = None
        self._wake_s = inf
        self._serial = 0
        self.on_idle: Callable[[], None] | None = None
        self.flows_ended = 0
        self.link_bytes = [[0.0, 0.0] for _ in links]
        """Payload bytes of ended flows by link and direction, passes not counted."""
        self.busy_s = [0.0] * len(links)
        self._busy_since = [0.0] * len(links)
        self._on_link = [0] * len(links)

    @property
    def active_flows(self) -> int:
        """How many flows are under way."""
        return sum(c.n for c in self._active)

    def busy_until_now(self) -> list[float]:
        """Return for each link the time in which at least one flow was on it [s]."""
        now = self._clock.now_s
        return [
            busy + (now - since if on else 0.0)
            for busy, since, on in zip(self.busy_s, self._busy_since, self._on_link, strict=True)
        ]

    def path(self, hops: Sequence[Hop]) -> Path:
        """Resolve hops into a path of this network.

        Raises
        ------
        KeyError
            If a hop names no link of the network.
        """
        terms: dict[int, float] = {}
        links: list[tuple[int, int]] = []
        for hop in hops:
            i = self._index[hop.link]
            link = self.links[i]
            capacity = hop.bytes_per_s or (link.read_bytes_per_s if hop.direction == READ else link.write_bytes_per_s)
            resource = 2 * i + (hop.direction if link.duplex else 0)
            terms[resource] = terms.get(resource, 0.0) + hop.passes / capacity
            if (i, hop.direction) not in links:
                links.append((i, hop.direction))
        path = Path(tuple(terms.items()), tuple(links), self._meter.register(links))
        self._paths.append(path)
        self._shadows_known = False
        return path

    def shadow(self) -> None:
        """Leave out of the filling what can never bind: a link that every path crosses together with a tighter one.

        A link behind another that is at least as tight on each path through it (a NIC behind slower array ports, ports
        behind slower drives) fills up only after that one has. Called by the first flow after a new path.

        Raises
        ------
        RuntimeError
            If a path was added while flows are under way.
        """
        if self._active:
            raise RuntimeError("paths must be made before flows are under way")
        self._shadows_known = True
        through: dict[int, list[dict[int, float]]] = {}
        for path in self._paths:
            weights = dict(path.all_terms)
            for resource in weights:
                through.setdefault(resource, []).append(weights)
        shadowed: set[int] = set()
        for resource, crossing in through.items():
            tighter = set(crossing[0]) - {resource} - shadowed
            for weights in crossing:
                tighter = {other for other in tighter if weights.get(other, 0.0) >= weights[resource]}
            if tighter:
                shadowed.add(resource)
        for path in self._paths:
            path.terms = tuple(term for term in path.all_terms if term[0] not in shadowed)
            path.weights = dict(path.terms)

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
        cls = path.classes.get((ceiling, share))
        if cls is None:
            cls = path.classes[(ceiling, share)] = FlowClass(path, ceiling, share)
        now = self._clock.now_s
        if cls.n:
            self._advance(cls, now)
        else:
            cls.served = 0.0
            cls.at_s = now
            cls.rate = 0.0
            self._active[cls] = None
            for resource, _ in path.terms:
                self._classes_on[resource][cls] = None
        self._serial += 1
        heappush(cls.ends, (cls.served + n_bytes, self._serial, on_done))
        self._change(cls, 1, now)
        for i, direction in path.links:
            self.link_bytes[i][direction] += n_bytes

    def _change(self, cls: FlowClass, by: int, now: float) -> None:
        """Add or take away one flow of a class; its resources' demand follows."""
        cls.n += by
        demand, on_resource, binding, touched = self._demand, self._on_resource, self._binding, self._touched
        for resource, weight in cls.path.terms:
            count = on_resource[resource] + by
            on_resource[resource] = count
            # An idle resource is set to exactly zero so that rounding cannot pile up.
            level = demand[resource] + by * cls.ceiling * weight if count else 0.0
            demand[resource] = level
            touched[resource] = None
            if level > 1.0 + _SLACK:
                binding.add(resource)
            else:
                binding.discard(resource)
        for i, _ in cls.path.links:
            count = self._on_link[i] + by
            self._on_link[i] = count
            if by > 0 and count == 1:
                self._busy_since[i] = now
            elif by < 0 and count == 0:
                self.busy_s[i] += now - self._busy_since[i]
        self._dirty[cls] = None
        if not self._settling:
            self._settling = True
            self._clock.at(now, SETTLE, self._on_settle)

    def _advance(self, cls: FlowClass, now: float) -> None:
        """Bring a class's virtual clock to the present."""
        elapsed = now - cls.at_s
        if elapsed > 0.0:
            moved = cls.rate * elapsed
            cls.served += moved
            self._meter.add(cls.path.meter_class, cls.at_s, now, moved * cls.n)
            cls.at_s = now

    def _on_settle(self, _: Wakeup) -> None:
        self._settle()

    def _settle(self) -> None:
        """Give every class its max-min fair rate, and wake when the first flow ends."""
        self._settling = False
        changed, self._dirty = self._dirty, {}
        touched, self._touched = self._touched, {}
        now = self._clock.now_s
        rates: dict[FlowClass, float] = {}
        if self._binding or self._bound:
            affected, reached = self._affected(changed, touched)
            rates = fill(affected, reached & self._binding)
            self._bound = set(self._binding)
        else:
            # Without a full link, now and before, only the classes that changed have something new.
            affected = list(changed)
        for cls in affected:
            rate = rates.get(cls, cls.ceiling)
            if rate != cls.rate:
                self._advance(cls, now)
                cls.rate = rate
            elif cls not in changed:
                continue
            remaining = cls.ends[0][0] - cls.served
            cls.end_s = now + remaining / rate if remaining > 0.0 else now
        self._wake_at_first_end()

    def _affected(
        self, changed: dict[FlowClass, None], touched: dict[int, None]
    ) -> tuple[list[FlowClass], set[int]]:
        """Return the classes that changed and all that share a full link with them, directly or over others.

        Also the links that are full, or were, on the way.
        """
        full = self._binding | self._bound
        found = dict(changed)
        queue = [resource for resource in touched if resource in full]
        seen = set(queue)
        while queue:
            for cls in self._classes_on[queue.pop()]:
                if cls in found and cls not in changed:
                    continue
                found[cls] = None
                for resource, _ in cls.path.terms:
                    if resource in full and resource not in seen:
                        seen.add(resource)
                        queue.append(resource)
        return list(found), seen

    def _wake_at_first_end(self) -> None:
        first_s = min([cls.end_s for cls in self._active], default=inf)
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
            self._advance(cls, now)
            self._end_flows(cls, now, done)
        for on_done in done:
            on_done()
        if not self._active and self.on_idle is not None:
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
        dust = max(_DUST_BYTES, cls.rate * 8.0 * ulp(now), 4.0 * ulp(cls.served))
        horizon = cls.served + dust
        ends = cls.ends
        while ends and ends[0][0] <= horizon:
            done.append(heappop(ends)[2])
            self.flows_ended += 1
            self._change(cls, -1, now)
        if not ends:
            cls.end_s = inf
            for resource, _ in cls.path.terms:
                del self._classes_on[resource][cls]
            del self._active[cls]
            del self._dirty[cls]
            del cls.path.classes[(cls.ceiling, cls.share)]
        else:
            # Too early by a rounding, or flows of the class remain: the settling that follows finds the next end.
            self._dirty[cls] = None


def fill(classes: Sequence[FlowClass], resources: set[int]) -> dict[FlowClass, float]:
    """Return the max-min fair rate [B/s] of one flow of each class.

    Progressive filling (Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2): all flows rise together, each
    by its share, until it meets its ceiling or a resource is full; those stop, the others rise on. ``resources`` are
    the ones that can bind; every other one is known to have room.
    """
    if not resources:
        return {}
    if len(resources) == 1:
        return _fill_one(classes, next(iter(resources)))
    room = dict.fromkeys(sorted(resources), 1.0)
    slope = dict.fromkeys(room, 0.0)
    rising_on = dict.fromkeys(room, 0)
    rates: dict[FlowClass, float] = {}
    rising: dict[FlowClass, list[tuple[int, float]]] = {}
    for cls in sorted(classes, key=_level_cap):
        terms = [(resource, weight * cls.n) for resource, weight in cls.path.terms if resource in room]
        rising[cls] = terms
        for resource, weight in terms:
            slope[resource] += weight * cls.share
            rising_on[resource] += 1

    while rising:
        level, tightest = inf, -1
        for resource, count in rising_on.items():
            if count and room[resource] < level * slope[resource]:
                level, tightest = room[resource] / slope[resource], resource
        stopped: list[FlowClass] = []
        for cls in rising:
            if cls.level_cap > level:
                break
            stopped.append(cls)  # stopping these only raises the level of the rest: all of them end at their ceiling
        if not stopped:
            stopped = [cls for cls in rising if tightest in cls.path.weights]
        for cls in stopped:
            rate = level * cls.share
            if rate > cls.ceiling:
                rate = cls.ceiling
            rates[cls] = rate
            for resource, weight in rising.pop(cls):
                left = room[resource] - rate * weight
                room[resource] = left if left > 0.0 else 0.0
                slope[resource] -= weight * cls.share
                rising_on[resource] -= 1
    return rates


def _fill_one(classes: Sequence[FlowClass], resource: int) -> dict[FlowClass, float]:
    """Fill one full resource: the usual case, and then one pass over the classes in the order of their ceilings."""
    crossing = [cls for cls in classes if resource in cls.path.weights]
    slope = sum(cls.n * cls.share * cls.path.weights[resource] for cls in crossing)
    room = 1.0
    rates: dict[FlowClass, float] = {}
    level = inf
    for cls in sorted(crossing, key=_level_cap):
        if level == inf and cls.level_cap * slope <= room:
            rates[cls] = cls.ceiling
            weight = cls.n * cls.path.weights[resource]
            room = max(0.0, room - cls.ceiling * weight)
            slope -= cls.share * weight
        else:
            if level == inf:
                level = room / slope
            rate = level * cls.share
            rates[cls] = rate if rate < cls.ceiling else cls.ceiling
    return rates


def _level_cap(cls: FlowClass) -> float:
    return cls.level_cap
