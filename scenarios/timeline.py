"""From the events of a scenario to those of a run, and what cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from models.storage import load_device
from scenarios.choices import Path, Problem, named
from scenarios.events import Event as Spec
from scenarios.schema import Scenario
from scenarios.topology import Topology
from scenarios.topology.parts import Places
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
    for name, tier in scenario.tiers.items():
        if tier.layout is not None:
            yield from _layout_problems(scenario, name)
    for index, event in enumerate(scenario.events or ()):
        path: Path = ["events", index]
        if event.tier is not None:
            yield from _loss_problems(scenario, event, path)
        else:
            yield from _replica_problems(scenario, event, path)
    if scenario.events and not _somebody_serves(scenario):
        yield ["events"], "leave no replica in the end; requests would wait for ever"


def _devices(scenario: Scenario, name: str) -> tuple[int, int | None] | None:
    """Return drives and ports of a tier, None where it is memory."""
    spec = scenario.tiers[name]
    if spec.device is None:
        return None
    device = load_device(spec.device, scenario.changes())
    if device.device_class == "memory":
        return None
    cost = device.configure(spec.count, spec.ports, spec.drives)
    return cost.drives, cost.ports


def _layout_problems(scenario: Scenario, name: str) -> Iterator[Problem]:
    layout, devices = scenario.tiers[name].layout, _devices(scenario, name)
    assert layout is not None
    path: Path = ["tiers", name, "layout"]
    if devices is None:
        yield path, f"is for drives; {name} is memory"
    elif layout.data + layout.parity > devices[0]:
        pieces = f"{layout.data} + {layout.parity} pieces a chunk"
        yield path, f"has {pieces}, each on its own drive; {name} has {devices[0]}"


def _loss_problems(scenario: Scenario, event: Spec, path: Path) -> Iterator[Problem]:
    assert event.tier is not None
    below = [name for name in scenario.tiers if name != "hbm"]
    if event.tier not in below:
        yield [*path, "tier"], f"is '{event.tier}'; must be one of {', '.join(below) or 'none here'}"
        return
    devices = _devices(scenario, event.tier)
    if devices is None:
        yield [*path, "tier"], f"is '{event.tier}', which is memory; write kind: restart and its node or replica"
        return
    drives, ports = devices
    if event.kind == "port" and ports is None:
        yield [*path, "kind"], f"is port; {scenario.tiers[event.tier].device} has none in the catalogue"
        return
    there = {"drive": drives, "port": ports or 1, "target": scenario.tiers[event.tier].count}[event.kind]
    if event.number > there:
        yield [*path, "number"], f"is {event.number}; {event.tier} has {there}"
    spec = scenario.tiers[event.tier]
    if event.rebuild_bandwidth is not None and (spec.layout is None or not spec.layout.parity):
        yield [*path, "rebuild_bandwidth"], f"there is nothing to rebuild from: set tiers.{event.tier}.layout.parity"
    places = Places.of(scenario.cluster)
    remote = ports is not None or load_device(spec.device or "").device_class in {"array", "object"}
    scope = spec.scope or ("shared" if remote else "node")
    instances = {"shared": 1, "node": places.node(places.replicas - 1) + 1}.get(scope, places.replicas)
    if event.instance >= instances:
        yield [*path, "instance"], f"is {event.instance}; there are {instances} of {event.tier}, counted from 0"


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
