"""Max-min fair rates: resources, paths over them, classes of equal flows, and the filling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from operator import attrgetter

_level_cap = attrgetter("level_cap")


class Resource:
    """What flows share: one direction of a link, or both where they share its time.

    Capacities are normalised to 1: a flow's weight on a resource is the share of its time that one B/s takes.
    """

    __slots__ = ("classes", "demand", "full", "index", "rising", "room", "slope")

    def __init__(self, index: int) -> None:
        self.index = index
        self.classes: dict[FlowClass, float] = {}
        """The classes on it and their weights."""
        self.demand = 0.0
        """What its flows would take of it if each ran at its ceiling."""
        self.full = False
        """Whether that is more than there is: no other resource can bind."""
        # Scratch of the filling: what is left, what all rising flows take of it per unit of level, their classes.
        self.room = 1.0
        self.slope = 0.0
        self.rising = 0


class Path:
    """An ordered list of hops, resolved against a network: made by ``FlowNetwork.path``, shared by its flows."""

    __slots__ = (
        "all_terms",
        "capacity_bytes_per_s",
        "classes",
        "is_background",
        "links",
        "meter_class",
        "n",
        "reserved",
        "started_bytes",
        "terms",
    )

    def __init__(
        self, terms: tuple[tuple[Resource, float], ...], links: tuple[tuple[int, int, float], ...], meter_class: int
    ) -> None:
        self.all_terms = terms
        """(resource, weight), one a resource."""
        self.terms = terms
        """Those of them that can bind (see ``FlowNetwork.shadow``)."""
        self.links = links
        """(link, direction, how often each byte crosses it)."""
        self.meter_class = meter_class
        self.capacity_bytes_per_s = 1.0 / max(weight for _, weight in terms)
        """What one flow alone can get [B/s]."""
        self.classes: dict[tuple[float, float], FlowClass] = {}
        self.n = 0
        """Flows under way."""
        self.is_background = False
        """Whether its flows are others' traffic, which goes on and on and which nobody waits for."""
        self.reserved = 0.0
        """Share of each of its links that is kept from its flows while the tiers ask for it (``reserving.py``)."""
        self.started_bytes = 0.0
        """Payload of all flows so far."""


Flow = tuple[float, int, float, Callable[[], None]]
"""When a flow ends on the clock of its class [B], which one it is, its ceiling [B/s], and what is called then."""


class FlowClass:
    """Flows of equal path, ceiling and share: one rate, one virtual clock, one heap of ends.

    A class of ceiling inf is a pool: its flows have ceilings of their own, all above its rate.
    """

    __slots__ = (
        "at_s",
        "ceiling",
        "end_s",
        "ends",
        "least_ceiling",
        "level_cap",
        "n",
        "path",
        "rate",
        "served",
        "share",
        "terms",
    )

    def __init__(self, path: Path, ceiling: float, share: float, now_s: float) -> None:
        self.path = path
        self.terms = path.terms
        self.ceiling = ceiling
        self.least_ceiling = ceiling
        """No flow of it has a lower one; in a pool, none that is left may have one as low."""
        self.share = share
        self.level_cap = ceiling / share
        self.n = 0
        self.rate = 0.0
        self.served = 0.0
        """Bytes served to each flow since the class came to be: its virtual clock, as of ``at_s``."""
        self.at_s = now_s
        self.ends: list[Flow] = []
        self.end_s = inf
        """When its first flow ends at the present rate."""


def shadowed_resources(paths: Iterable[Path]) -> set[Resource]:
    """Return the resources that can never bind: every path over one crosses another that is tighter.

    A link behind another that is at least as tight on each path through it (a NIC behind slower array ports, ports
    behind slower drives) fills up only after that one has.
    """
    through: dict[Resource, list[dict[Resource, float]]] = {}
    for path in paths:
        weights = dict(path.all_terms)
        for resource in weights:
            through.setdefault(resource, []).append(weights)
    shadowed: set[Resource] = set()
    for resource, crossing in through.items():
        tighter = set(crossing[0]) - {resource} - shadowed
        for weights in crossing:
            tighter = {other for other in tighter if weights.get(other, 0.0) >= weights[resource]}
        if tighter:
            shadowed.add(resource)
    return shadowed


def reach(changed: Iterable[FlowClass], resources: dict[Resource, None]) -> dict[FlowClass, None]:
    """Return the classes that changed and all that share a full resource with them, directly or over others.

    ``resources`` are those touched by the change that are full or were; it gains the full ones met on the way.
    """
    found = dict.fromkeys(changed)
    queue = list(resources)
    while queue:
        for cls in queue.pop().classes:
            if cls not in found:
                found[cls] = None
                for resource, _ in cls.terms:
                    if resource.full and resource not in resources:
                        resources[resource] = None
                        queue.append(resource)
    return found


def fill(classes: Iterable[FlowClass], full: Sequence[Resource]) -> dict[FlowClass, float]:
    """Return the max-min fair rate [B/s] of one flow of each class that crosses a full resource (of others, maybe).

    Progressive filling (Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2): all flows rise together, each
    by its share, until it meets its ceiling or a resource is full; those stop, the others rise on. ``full`` are all
    full resources that these classes cross; every other one has room for all of them at their ceilings.
    """
    if len(full) == 1:
        return _fill_one(classes, full[0])
    rates: dict[FlowClass, float] = {}
    rising = sorted(classes, key=_level_cap)
    _rise(rising, full)
    while True:
        level, tightest = inf, full[0]
        for resource in full:
            if resource.rising and resource.room < level * resource.slope:
                level, tightest = resource.room / resource.slope, resource
        if rising[0].level_cap <= level:
            # Stopping them only raises the level of the others: all of them end at their ceilings, whatever comes next.
            stopped = [cls for cls in rising if cls.level_cap <= level]
        else:
            crossing = tightest.classes
            stopped = [cls for cls in rising if cls in crossing]
        for cls in stopped:
            rate = level * cls.share
            rates[cls] = rate if rate < cls.ceiling else cls.ceiling
        if len(stopped) == len(rising):
            return rates  # nobody is left to care for the room
        rising = [cls for cls in rising if cls not in rates]
        _stop(stopped, rates)


def _rise(rising: Iterable[FlowClass], full: Iterable[Resource]) -> None:
    """Begin with empty resources and all classes rising."""
    for resource in full:
        resource.room, resource.slope, resource.rising = 1.0, 0.0, 0
    for cls in rising:
        n, share = cls.n, cls.share
        for resource, weight in cls.terms:
            if resource.full:
                resource.slope += weight * n * share
                resource.rising += 1


def _stop(stopped: Iterable[FlowClass], rates: Mapping[FlowClass, float]) -> None:
    """Take what the stopped classes use out of the room of the others."""
    for cls in stopped:
        n, share, rate = cls.n, cls.share, rates[cls]
        for resource, weight in cls.terms:
            if resource.full:
                left = resource.room - rate * (weight * n)
                resource.room = left if left > 0.0 else 0.0
                resource.slope -= weight * n * share
                resource.rising -= 1


def _fill_one(classes: Iterable[FlowClass], resource: Resource) -> dict[FlowClass, float]:
    """Fill one full resource: the usual case, and then one pass over the classes in the order of their ceilings."""
    weights = resource.classes
    crossing = [cls for cls in classes if cls in weights]
    slope = 0.0
    for cls in crossing:
        slope += cls.n * cls.share * weights[cls]
    crossing.sort(key=_level_cap)
    room, level = 1.0, inf
    rates: dict[FlowClass, float] = {}
    for cls in crossing:
        if level == inf:
            if cls.level_cap * slope <= room:
                rates[cls] = cls.ceiling
                weight = cls.n * weights[cls]
                room = max(0.0, room - cls.ceiling * weight)
                slope -= cls.share * weight
                continue
            level = room / slope
        rate = level * cls.share
        rates[cls] = rate if rate < cls.ceiling else cls.ceiling
    return rates
