"""How long a flow would take if it began now, from what is under way on its links. Looking changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from sim.transfers.max_min import Path, Resource
from sim.transfers.reserving import asked_share

_ROUNDS: Final = 16
"""Most rounds of the fixed point; it falls towards the answer from above."""


def expected_s(
    path: Path,
    n_bytes: float,
    ceiling_bytes_per_s: float,
    now_s: float,
    beside: Sequence[tuple[Path, float]] = (),
) -> float:
    """Return how long ``n_bytes`` would take from now on if nothing else began after them [s].

    ``beside`` are flows (path, bytes) that begin with it. On each link by itself all flows advance alike (processor
    sharing): while this one moves n bytes, every other one moves no more than n times its share, than what it has left
    (others' traffic always has more), and than its ceiling lets it; those that something is kept from have the rest of
    the link's time at most. The slowest link, or its own ceiling, decides. Exact where one and the same of them binds
    all the time and the other flows of that link are held up nowhere else.
    """
    slowest_s = alone_s = n_bytes / min(ceiling_bytes_per_s, path.capacity_bytes_per_s)
    for resource, weight in path.terms:
        own_s = weight * n_bytes
        for other, other_bytes in beside:
            own_s += dict(other.terms).get(resource, 0.0) * min(other_bytes, n_bytes)
        shared_s = _shared_s(resource, own_s, n_bytes, alone_s=alone_s, least_s=slowest_s, now_s=now_s)
        slowest_s = max(slowest_s, shared_s)
    return slowest_s


_Others = dict[float, list[tuple[float, list[tuple[float, float]]]]]
"""By the share that is kept from them: weight, and of each flow what it moves at most [B] and its ceiling [B/s]."""


def _shared_s(
    resource: Resource, own_s: float, n_bytes: float, *, alone_s: float, least_s: float, now_s: float
) -> float:
    """Return how long a resource needs for ``own_s`` of its time and what its flows move of theirs meanwhile [s]."""
    others: _Others = {}
    for cls, weight in resource.classes.items():
        served = cls.served + cls.rate * (now_s - cls.at_s)
        # Others' traffic goes on and on: what is under way of it is only its next piece.
        goes_on = cls.path.is_background
        own = n_bytes * cls.share
        most = [
            (own if goes_on else min(end - served, own), ceiling) for end, _, ceiling, _ in cls.ends if end > served
        ]
        others.setdefault(cls.path.reserved, []).append((weight, most))
    asked = own_s / alone_s + asked_share(resource) if any(others) else 0.0
    total_s = _moved_s(own_s, others, asked, inf)
    for _ in range(_ROUNDS):
        if total_s <= least_s:
            break
        # In that time a flow moves no more than its ceiling lets it; so the resource is done sooner.
        moved_s = _moved_s(own_s, others, asked, total_s)
        if moved_s >= total_s * (1.0 - 1e-9):
            break
        total_s = moved_s
    return total_s


def _moved_s(own_s: float, others: _Others, asked: float, total_s: float) -> float:
    """Return the time of a resource that is taken within ``total_s``; whoever something is kept from gets the rest."""
    moved_s, most_s = own_s, inf
    for reserved in sorted(others):
        if reserved:
            most_s = min(most_s, moved_s / min(reserved, asked))
        for weight, most in others[reserved]:
            moved_s += weight * sum(min(part, ceiling * total_s) for part, ceiling in most)
    return min(moved_s, most_s)
