"""The parts of a tier's pools that events can take away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from scenarios.topology.links import Links
from scenarios.topology.parts import Part
from scenarios.topology.paths import Paths
from sim.clock import Clock
from sim.events.layout import Layout
from sim.events.tier_health import LinkShare, LostChunks, TierHealth
from sim.tiers.tier import Tier
from sim.transfers.varying import VaryingNetwork


def health_of(
    part: Part,
    user: int,
    *,
    clock: Clock,
    network: VaryingNetwork,
    links: Links,
    paths: Paths,
    tier: Tier,
    faults: LostChunks,
) -> TierHealth:
    """Return the health of the pool that a replica uses, all its parts there."""
    layout, rebuild = part.layout, paths.rebuild_hops(part, user)
    return TierHealth(
        clock=clock,
        network=network,
        tier=tier,
        faults=faults,
        layout=Layout(data=layout.data, parity=layout.parity, drives=part.device.drives),
        boxes=part.spec.count,
        ports=part.device.ports or 1,
        left_of_links=_left_of_links(part, links, user),
        rebuild_path=network.path(rebuild) if layout.parity else None,
        drive_bytes_per_s=(rebuild[-1].bytes_per_s or inf) / part.device.drives,
    )


def _left_of_links(part: Part, links: Links, user: int) -> Callable[[int, int], Sequence[LinkShare]]:
    """Return what drives and ports that are left make of the rates of a tier's medium and ports."""
    medium, ports = links.medium(part, user), links.ports(part, user)

    def left(drives_left: int, ports_left: int) -> Sequence[LinkShare]:
        of_drives = drives_left / part.device.drives
        shares = [LinkShare(medium, of_drives, of_drives)]
        if part.device.ports is not None:
            of_ports = ports_left / part.device.ports
            shares.append(LinkShare(ports, of_ports, of_ports))
        return shares

    return left
