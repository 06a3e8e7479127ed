"""The traffic of others on the links of a scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from models.errors import ScenarioError
from scenarios.neighbours import Bursts, Neighbour
from scenarios.topology.links import Links
from scenarios.topology.parts import Part
from scenarios.topology.paths import Paths
from sim.clock import Clock
from sim.transfers import neighbours as running
from sim.transfers.flows import READ, WRITE, FlowNetwork, Hop


def neighbours_of(
    specs: Mapping[str, Neighbour],
    *,
    parts: Sequence[Part],
    replicas: Iterable[int],
    links: Links,
    paths: Paths,
    clock: Clock,
    network: FlowNetwork,
    phases: Sequence[str],
) -> running.Neighbours:
    """Return what a scenario's neighbours do; raises ScenarioError if one is for a link that is not there."""
    found = []
    for name, spec in specs.items():
        direction = READ if spec.direction == "read" else WRITE
        if spec.link is not None:
            if spec.link not in links.called:
                raise ScenarioError(f"neighbours.{name}.link", links.no_such_link())
            routes = [[Hop(link, direction)] for link in links.called[spec.link]]
        else:
            part = next(part for part in parts if part.name == spec.tier)
            users = {links.medium(part, replica): replica for replica in replicas}
            io_bytes = inf if spec.io_bytes is None else float(spec.io_bytes)
            routes = [paths.outside_hops(part, replica, direction, io_bytes) for replica in users.values()]
        ways = [network.path(hops) for hops in routes]
        found.append(running.Neighbour(name, clock, network, ways, _demand(spec, phases)))
    return running.Neighbours(network, found)


def _demand(spec: Neighbour, phases: Sequence[str]) -> running.Demand:
    return running.Demand(
        rate_bytes_per_s=inf if spec.rate is None else spec.rate,
        limit=1.0 if spec.limit is None else spec.limit,
        share=spec.weight * spec.senders,
        reserved=0.0 if spec.reserved is None else spec.reserved,
        bursts=None if spec.bursts is None else _bursts(spec.bursts, spec.rate),
        start_s=spec.start,
        stop_s=inf if spec.stop is None else spec.stop,
        phase=None if spec.phase is None else phases.index(spec.phase),
    )


def _bursts(spec: Bursts, rate_bytes_per_s: float | None) -> running.Bursts:
    return running.Bursts(spec.size_bytes(rate_bytes_per_s), inf if spec.every is None else spec.every)
