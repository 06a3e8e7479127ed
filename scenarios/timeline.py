"""From the events of a scenario to those of a run, and what cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from scenarios.choices import Path, Problem, named
from scenarios.events import Event as Spec
from scenarios.schema import Scenario
from scenarios.tier_spec import Layout
from scenarios.topology import Topology
from scenarios.topology.parts import Part, Places, parts_of
from sim.clock import Clock
from sim.cluster import Cluster
from sim.events.replicas import Add, Drain, Restart
from sim.events.tier_health import TierHealth
from sim.events.tier_losses import TierLoss
from sim.events.timeline import Event, Timeline
from sim.transfers.flows import FlowNetwork


def timeline(
    scenario: Scenario, topology: Topology, clock: Clock, network: FlowNetwork, cluster: Cluster
) -> Timeline | None:
    """Return the events of a scenario, None where it has none; called before anything is under way."""
    if not scenario.events:
        return None
    cluster.restarts_fail = scenario.engine.kv_load_failure_policy == "fail"
    pools: dict[tuple[str, int], tuple[TierHealth, list[int]]] = {}
    events: list[Event] = []
    for spec in scenario.events:
        if spec.tier is None:
            events.append(_of_replicas(scenario, spec, topology, clock, cluster))
            continue
        key = spec.tier, spec.instance
        if key not in pools:
            pools[key] = topology.health(clock, network, *key)
        events.append(_loss(scenario, spec, *pools[key]))
    return Timeline(clock, events)


def _loss(scenario: Scenario, spec: Spec, health: TierHealth, users: Sequence[int]) -> Event:
    assert spec.tier is not None
    return TierLoss(
        kind=spec.kind,
        target=spec.tier if not spec.instance else f"{spec.tier} ({spec.instance})",
        at_s=spec.at,
        lasts_s=spec.lasts,
        number=spec.number,
        health=health,
        rebuild_bytes_per_s=spec.rebuild_bandwidth or inf,
        replicas=None if len(users) == scenario.cluster.replicas else users,
    )


def _of_replicas(scenario: Scenario, spec: Spec, topology: Topology, clock: Clock, cluster: Cluster) -> Event:
    if spec.node is not None:
        places = Places.of(scenario.cluster)
        indices = [replica for replica in range(places.replicas) if places.node(replica) == spec.node]
        target = f"node {spec.node}"
    else:
        assert spec.replica is not None
        indices, target = [spec.replica], f"replica {spec.replica}"
    if spec.kind == "drain":
        return Drain(target=target, at_s=spec.at, cluster=cluster, replicas=indices)
    if spec.kind == "add":
        return Add(target=target, at_s=spec.at, lasts_s=spec.lasts, clock=clock, cluster=cluster, replicas=indices)
    return Restart(
        target=target,
        at_s=spec.at,
        lasts_s=spec.lasts,
        clock=clock,
        cluster=cluster,
        replicas=indices,
        memory=topology.memory(indices, whole_node=spec.node is not None),
    )


def event_problems(scenario: Scenario) -> Iterator[Problem]:
    """Yield key path and problem of every event that cannot happen to this cluster and its tiers."""
    if not scenario.events and all(tier.layout is None for tier in scenario.tiers.values()):
        return
    parts = {part.name: part for part in parts_of(scenario)}
    for part in parts.values():
        if part.spec.layout is not None:
            yield from _layout_problems(part, part.spec.layout)
    for index, event in enumerate(scenario.events or ()):
        path: Path = ["events", index]
        if event.tier is not None:
            yield from _loss_problems(scenario, parts, event, path)
        else:
            yield from _replica_problems(scenario, event, path)
    if scenario.events and not _somebody_serves(scenario):
        yield ["events"], "leave no replica in the end; requests would wait for ever"


def _layout_problems(part: Part, layout: Layout) -> Iterator[Problem]:
    path: Path = ["tiers", part.name, "layout"]
    if part.is_memory:
        yield path, f"is for drives; {part.name} is memory"
    elif layout.pieces > part.device.drives:
        pieces = f"{layout.data} + {layout.parity} pieces a chunk"
        yield path, f"has {pieces}, each on its own drive; {part.name} has {part.device.drives}"


def _loss_problems(scenario: Scenario, parts: Mapping[str, Part], event: Spec, path: Path) -> Iterator[Problem]:
    name = event.tier
    part = parts.get(name or "")
    if part is None:
        yield [*path, "tier"], f"is '{name}'; must be one of {', '.join(parts) or 'none here'}"
        return
    if part.is_memory:
        yield [*path, "tier"], f"is '{name}', which is memory; write kind: restart and its node or replica"
        return
    drives, ports = part.device.drives, part.device.ports
    if event.kind == "port" and ports is None:
        yield [*path, "kind"], f"is port; {part.spec.device} has none in the catalogue"
        return
    there = {"drive": drives, "port": ports or 1, "target": part.spec.count}[event.kind]
    if event.number > there:
        yield [*path, "number"], f"is {event.number}; {name} has {there}"
    if event.rebuild_bandwidth is not None and not part.layout.parity:
        yield [*path, "rebuild_bandwidth"], f"there is nothing to rebuild from: set tiers.{name}.layout.parity"
    places = Places.of(scenario.cluster)
    instances = len({places.instance(part, replica) for replica in range(places.replicas)})
    if event.instance >= instances:
        yield [*path, "instance"], f"is {event.instance}; there are {instances} of {name}, counted from 0"


def _replica_problems(scenario: Scenario, event: Spec, path: Path) -> Iterator[Problem]:
    places = Places.of(scenario.cluster)
    if scenario.cluster.decode is not None:
        yield [*path, "kind"], f"is {event.kind}, which is not for a cluster with decode replicas"
    if event.replica is not None and event.replica >= places.replicas:
        yield [*path, "replica"], f"is {event.replica}; must be below cluster.replicas ({places.replicas})"
    nodes = places.node(places.replicas - 1) + 1
    if event.node is not None and event.node >= nodes:
        yield [*path, "node"], f"is {event.node}; must be below the number of nodes ({nodes})"
    if event.kind == "restart":
        transfer = scenario.transfer
        if named(transfer.prefetch)[0] != "none":
            yield [*path, "kind"], "is restart, which is for transfer.prefetch: none"
        if named(transfer.load_or_recompute)[0] == "two-ended":
            yield [*path, "kind"], "is restart, which is not for transfer.load_or_recompute: two-ended"


def _somebody_serves(scenario: Scenario) -> bool:
    """Whether a replica takes requests once all events have happened."""
    drained = {event.replica for event in scenario.events or () if event.kind == "drain"}
    return not drained.issuperset(range(scenario.cluster.replicas))
