"""Filling where a share of each link is kept from others' traffic, for the tiers' transfers whenever they ask for it.

Reservation, limit and weight are those of mClock (Gulati, Merchant and Varman, OSDI 2010), for rates in place of queues
of requests. On each link, flows of others that ``Path.reserved`` keeps a share r or more from get no more together than
``1 - min(r, what the tiers ask for)``, where the tiers ask for what their flows would take at their ceilings. What is
left for all that, because the tiers' flows are held back elsewhere, goes to those others by weight: no link has room
that anybody on it could use. Others that nothing is kept from compete with the tiers by weight, as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sim.transfers.max_min import FlowClass, Resource, fill

_NO_ROOM: Final = 1e-12
"""Less than this left of a link is a rounding."""


def fill_reserved(classes: Iterable[FlowClass], full: Sequence[Resource]) -> dict[FlowClass, float]:
    """Return rates as :func:`sim.transfers.max_min.fill` does, with what is reserved kept from others' flows."""
    held = [cls for cls in classes if cls.path.reserved]
    parts = [part for resource in full for part in _parts(resource)]
    if not parts:
        return fill(classes, full)
    terms = {cls: cls.terms for cls in held}
    for part in parts:
        for cls, weight in part.classes.items():
            cls.terms = (*cls.terms, (part, weight))
    rates = fill(classes, [*full, *parts])
    for cls in held:
        cls.terms = terms[cls]
    for cls, more in _fill_rest(held, full, rates).items():
        rates[cls] = min(rates[cls] + more, cls.ceiling)
    return rates


def asked_share(resource: Resource) -> float:
    """Return what the tiers' flows would take of a resource if each ran at its ceiling; above 1 where it lacks room."""
    return sum(
        weight * sum(ceiling for _, _, ceiling, _ in cls.ends)
        for cls, weight in resource.classes.items()
        if not cls.path.is_background
    )


def _parts(resource: Resource) -> list[Resource]:
    """Return the parts of a full resource that flows of others are held to, one for each share kept from any."""
    shares = {cls.path.reserved for cls in resource.classes if cls.path.reserved}
    asked = asked_share(resource) if shares else 0.0
    if not asked:
        return []
    parts = []
    for share in sorted(shares):
        part = Resource(resource.index)
        part.full = True
        size = 1.0 - min(share, asked)
        part.classes = {c: weight / size for c, weight in resource.classes.items() if c.path.reserved >= share}
        parts.append(part)
    return parts


def _fill_rest(
    held: Iterable[FlowClass], full: Iterable[Resource], rates: dict[FlowClass, float]
) -> dict[FlowClass, float]:
    """Return what the held flows may rise by [B/s]: what is left is a network of its own, filled like any."""
    lefts: dict[Resource, Resource] = {}
    rooms: dict[Resource, float] = {}
    for resource in full:
        left = lefts[resource] = Resource(resource.index)
        left.full = True
        rooms[resource] = 1.0 - sum(cls.n * rates[cls] * weight for cls, weight in resource.classes.items())
    rising: dict[FlowClass, FlowClass] = {}
    for cls in held:
        weights = {resource: weight for resource, weight in cls.terms if resource in lefts}
        if rates[cls] >= cls.ceiling or any(rooms[resource] <= _NO_ROOM for resource in weights):
            continue
        more = rising[cls] = FlowClass(cls.path, cls.ceiling - rates[cls], cls.share, cls.at_s)
        more.n = cls.n
        more.terms = tuple((lefts[resource], weight / rooms[resource]) for resource, weight in weights.items())
        for left, weight in more.terms:
            left.classes[more] = weight
    found = fill(rising.values(), list(lefts.values())) if rising else {}
    return {cls: found[more] for cls, more in rising.items()}
