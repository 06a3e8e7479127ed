"""Names what limits a run, by a rule that can be read in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

# A link that carries less than this share of its capacity while busy is not what holds loads back: a convention, far
# enough below 1 for the mix of sizes and the ramps at both ends of a burst.
SATURATED_FROM: Final = 0.7
# Requests wait for room in HBM where they do so most of the time.
_ROOM_FROM: Final = 0.5
# Neither compute nor stalls explain a queue while they fill less than half of the replicas' time: a convention too.
_FILLED_FROM: Final = 0.5
# A link with as much work as this over all the measured time falls behind whenever there is more: a convention as well.
FULL_FROM: Final = 0.9
ALSO_FULL: Final = "also full:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTime:
    """What the replicas did with the measured time, as shares of (replicas x time), each 0 to 1.

    Parameters
    ----------
    compute_fraction : float
        Share spent in steps, prefill and decode.
    load_stall_fraction : float
        Share in which a batch stood still for a synchronous load.
    room_wait_s : float
        Waiting time, summed over requests, in which the first of a queue did not fit in HBM [s].
    kind : str
        What they do, where not all do the same: ``prefill`` or ``decode``.
    """

    compute_fraction: float
    load_stall_fraction: float
    room_wait_s: float = 0.0
    kind: str = ""

    @property
    def name(self) -> str:
        """What to call them."""
        return f"{self.kind} replicas" if self.kind else "replicas"


def measured_time(pools: Sequence[ReplicaTime], counts: Sequence[int], window_s: float) -> dict[str, Any]:
    """Return what `SimulationResult.measured` holds: the measured time [s] and what the replicas did with it."""
    replicas = [
        {
            "kind": time.kind or "all",
            "count": count,
            "compute_fraction": time.compute_fraction,
            "load_stall_fraction": time.load_stall_fraction,
        }
        for time, count in zip(pools, counts, strict=True)
    ]
    return {"window_s": window_s, "replicas": replicas}


def name_bottleneck(
    *,
    parts_s: Mapping[str, float | None],
    load_by_tier_s: Mapping[str, float | None],
    links: Mapping[str, Mapping[str, Any]],
    loading_links: Mapping[str, Sequence[str]],
    replica_time: ReplicaTime,
    queue_total_s: float,
    handover_links: Sequence[str] = (),
) -> str:
    """Return one short line that names what to change first.

    The largest part of the mean TTFT decides the family. *queue*: room in HBM where most of the waiting
    (*queue_total_s*, over all requests) was for that; else what fills the replicas' time, stalls for loads (then the
    loads' own limit follows) or compute; where neither fills half of it, requests wait for a step or for room in the
    batch. *load*: of the links that loads from the slowest-loading tier cross, the one with most work, bytes over
    capacity (one that is full for a moment at the end of each load is not what they wait for); if that one carries less
    than SATURATED_FROM of its capacity while busy, the software path. *handover*: likewise, of *handover_links*.
    *compute*: prefill. *other*: look-ups and request handling. Links are entries of
    :func:`sim.results.link_use.link_use`; *loading_links* gives the links on a tier's read path.

    The mean does not show what a full link costs the slowest requests, or that what is written over it comes too late
    to be a hit. So the link with most work is told as well, whatever the family, if that fills FULL_FROM of the time.
    """
    known = {name: part_s for name, part_s in parts_s.items() if part_s is not None}
    if not known:
        return "none: no request completed"
    loads = _loads(load_by_tier_s, links, loading_links)
    lines = {
        "queue": f"queue: {_queue(replica_time, queue_total_s, loads)}",
        "load": f"load {loads}",
        "handover": f"handover of prompts: {_most_used(handover_links, links)}",
        "compute": f"compute: prefill ({replica_time.name} busy {100 * replica_time.compute_fraction:.0f} %)",
        "other": "other: look-ups and request handling",
    }
    line = lines[max(known, key=lambda name: known[name])]
    return f"{line}{_also_full(links, line)}"


def _queue(replica_time: ReplicaTime, queue_total_s: float, loads: str) -> str:
    """Return what requests wait for before they are computed."""
    who, computing, stalled = replica_time.name, replica_time.compute_fraction, replica_time.load_stall_fraction
    for_room = replica_time.room_wait_s / queue_total_s if queue_total_s > 0.0 else 0.0
    if for_room > _ROOM_FROM:
        waiting = f"{100 * min(for_room, 1.0):.0f} % of the waiting"
        return f"room for KV in HBM ({waiting}; {who} busy {100 * computing:.0f} %)"
    if max(computing, stalled) < _FILLED_FROM:
        return f"waiting for a step or for room in the batch ({who} busy {100 * computing:.0f} %)"
    if stalled > computing:
        return f"{who} stalled by loads ({100 * stalled:.0f} %) {loads}"
    return f"compute of the {who} (busy {100 * computing:.0f} %)"


def _loads(
    load_by_tier_s: Mapping[str, float | None],
    links: Mapping[str, Mapping[str, Any]],
    loading_links: Mapping[str, Sequence[str]],
) -> str:
    """Return what limits the loads of the tier with the largest part."""
    loading = {tier: load_s for tier, load_s in load_by_tier_s.items() if load_s}
    if not loading:
        return "of no tier in particular"
    tier = max(loading, key=lambda name: loading[name])
    return f"from {tier}: {_most_used(loading_links.get(tier, ()), links)}"


def _most_used(names: Sequence[str], links: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what limits transfers over the links of that name."""
    crossed = [name for name in names if name in links]
    if not crossed:
        return "software path (it crosses no metered link)"
    name = max(crossed, key=lambda link: links[link]["utilisation"] or 0.0)
    link = links[name]
    used = link["busy_utilisation"] or 0.0
    if used < SATURATED_FROM:
        return f"software path (its most used link, {name}, is {100 * used:.0f} % full while busy)"
    direction = _busier_way(link)
    capacity = link[f"{direction}_capacity_bytes_per_s"] or 0.0
    rate = (link[f"{direction}_utilisation"] or 0.0) * capacity
    busy = 100 * (link["busy_fraction"] or 0.0)
    carried = f"{rate / 1e9:.1f} of {capacity / 1e9:.1f} GB/s{_of_neighbours(link)}"
    return f"{name} link ({direction}, busy {busy:.0f} %, {carried})"


def _busier_way(link: Mapping[str, Any]) -> str:
    return max(("read", "write"), key=lambda way: link[f"{way}_utilisation"] or 0.0)


def _also_full(links: Mapping[str, Mapping[str, Any]], line: str) -> str:
    """Return what to add on the link with most work over the whole time, where that fills it and *line* has it not."""
    name = max(links, key=lambda link: links[link]["utilisation"] or 0.0, default=None)
    used = 0.0 if name is None else links[name]["utilisation"] or 0.0
    if name is None or used < FULL_FROM or f" {name} link (" in line:
        return ""
    work = f"{_busier_way(links[name])}, {100 * used:.0f} % of what it can carry in the whole time"
    return f"; {ALSO_FULL} {name} link ({work}{_of_neighbours(links[name])})"


def _of_neighbours(link: Mapping[str, Any]) -> str:
    """Say how much of what went over a link was traffic of others, where there was any."""
    others, moved = (
        sum(link.get(f"{prefix}{way}_bytes", 0.0) for way in ("read", "write")) for prefix in ("neighbour_", "")
    )
    return f", {100 * others / moved:.0f} % of its bytes others'" if others else ""
