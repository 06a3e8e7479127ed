"""From a scenario's tiers to links, pools and paths: which bytes cross what.

Links are named after what people order: ``<tier>`` (a device or an array's ports), ``<tier>.drives`` (the drives behind
ports), ``nic``, ``host-link`` (PCIe or C2C of a replica's GPUs); where there are several, the number of the node or replica
follows a dot. ``links.<name>`` in a scenario overrides the catalogue's figures for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from models.accelerator import Accelerator
from models.errors import ScenarioError
from models.link import load_link
from models.llm import Llm
from models.software import SoftwarePath
from models.storage import DeviceCost, load_device
from scenarios.schema import Scenario, TierSpec
from sim.clock import Clock
from sim.cluster import Parents
from sim.flows import READ, WRITE, FlowNetwork, Hop, Link
from sim.hierarchy import KEY_BITS, AttachedTier, KvHierarchy, Leg, WriteCache
from sim.policies.base import EVICTION, EvictionPolicy
from sim.policies.leaf import constrain_to_leaves
from sim.recording import LinkMeter, TransferLog
from sim.tier import Tier

_HOST_MEMORY: Final = "ddr5"
"""What bounce buffers live in where the scenario has no memory tier."""
_DMA: Final = 1 << 30
"""Chunks in flight of a copy that hardware does: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Sizes that everything shares.

    Parameters
    ----------
    chunk_tokens, block_tokens : int
        Unit of residency below HBM and engine block [tokens].
    chunk_bytes : int
        KV of one chunk, stored once [B].
    replication : float
        Copies of each KV byte over a replica's GPUs.
    workers : int
        GPUs of a replica.
    """

    chunk_tokens: int
    block_tokens: int
    chunk_bytes: int
    replication: float
    workers: int


def geometry(scenario: Scenario, llm: Llm, chunk_tokens: int) -> Geometry:
    """Return the sizes of a scenario's chunks."""
    cluster, engine = scenario.cluster, scenario.engine
    return Geometry(
        chunk_tokens=chunk_tokens,
        block_tokens=engine.block_tokens,
        chunk_bytes=chunk_tokens * llm.kv_bytes_per_token(engine.kv_dtype),
        replication=llm.kv_replication(cluster.tensor_parallel),
        workers=cluster.tensor_parallel * cluster.pipeline_parallel,
    )


@dataclass(slots=True, kw_only=True)
class _Part:
    """A tier below HBM, before it is attached to replicas."""

    name: str
    index: int
    spec: TierSpec
    device: DeviceCost
    scope: str
    pools: dict[int, Tier] = field(default_factory=dict)
    caches: dict[int, WriteCache] = field(default_factory=dict)

    @property
    def is_memory(self) -> bool:
        return self.device.device_class == "memory"

    @property
    def is_page_cache(self) -> bool:
        return self.spec.page_cache_of is not None

    @property
    def is_host_memory(self) -> bool:
        """Whether it is memory that reads can be staged in."""
        return self.is_memory and not self.is_page_cache

    @property
    def is_remote(self) -> bool:
        return self.device.network_bytes_per_s is not None

    @property
    def promotes(self) -> bool:
        if self.is_page_cache:
            return False
        return self.is_memory if self.spec.promotion is None else self.spec.promotion == "always"


class Topology:
    """Links, pools and hierarchies of one scenario.

    Parameters
    ----------
    scenario : Scenario
        As loaded.
    accelerator : Accelerator
        The GPUs.
    sizes : Geometry
        Chunk sizes.
    hbm_bytes : int
        KV cache in HBM of one replica [B].

    Raises
    ------
    ScenarioError
        If a tier holds no chunk, or a link or scope does not fit the cluster.
    """

    def __init__(self, scenario: Scenario, accelerator: Accelerator, sizes: Geometry, hbm_bytes: int) -> None:
        self._scenario = scenario
        self._accelerator = accelerator
        self._sizes = sizes
        self._links: dict[str, Link] = {}
        self._latency_s: dict[str, float] = {}
        self.caveats: dict[str, tuple[str, ...]] = {}
        self._used_overrides: set[str] = set()
        self._parts = [self._part(i, name, spec) for i, (name, spec) in enumerate(scenario.tiers.items()) if i]
        trees = any(spec.structure == "leaf_constrained" for spec in scenario.tiers.values())
        self.parents = Parents() if trees else None
        self.hbm = [self._hbm_pool(hbm_bytes) for _ in range(scenario.cluster.replicas)]
        for replica in range(scenario.cluster.replicas):
            self._make_links(replica)
            for part in self._parts:
                self._pool(part, replica)
        unused = set(scenario.links) - self._used_overrides
        if unused:
            families = ", ".join(sorted({name.split(".")[0] for name in self._links} | set(self._links)))
            raise ScenarioError(f"links.{min(unused)}", f"no such link here; allowed: {families}")

    # Links -----------------------------------------------------------------------------------------------------------

    def _node(self, replica: int) -> int:
        return replica // self._scenario.cluster.replicas_per_node

    def _several(self, count: int, number: int) -> str:
        return f".{number}" if count > 1 else ""

    @property
    def _nodes(self) -> int:
        return self._node(self._scenario.cluster.replicas - 1) + 1

    def _node_suffix(self, replica: int) -> str:
        return self._several(self._nodes, self._node(replica))

    def _host_link(self, replica: int) -> str:
        return "host-link" + self._several(self._scenario.cluster.replicas, replica)

    def _nic(self, replica: int) -> str:
        return "nic" + self._node_suffix(replica)

    def _place(self, part: _Part, replica: int) -> str:
        """Return the suffix of the instance that a replica uses."""
        if part.scope == "shared":
            return ""
        return self._node_suffix(replica)

    def _add(self, name: str, family: str, read: float, write: float, latency_s: float, *, duplex: bool) -> None:
        """Add a link with delivered rates [B/s], unless it is there; the scenario's override wins."""
        if name in self._links:
            return
        for key in (family, name):
            override = self._scenario.links.get(key)
            if override is None:
                continue
            self._used_overrides.add(key)
            if override.bandwidth is not None:
                # A nominal rate is given: it delivers the same share as the catalogue's link unless that is given too.
                share = override.delivered_fraction or self._delivered(family)
                read = write = override.bandwidth * share
            elif override.delivered_fraction is not None:
                scale = override.delivered_fraction / self._delivered(family)
                read, write = read * scale, write * scale
            if override.latency is not None:
                latency_s = override.latency
        self._links[name] = Link(name, read, write, duplex)
        self._latency_s[name] = latency_s

    def _delivered(self, family: str) -> float:
        """Return the delivered share of the catalogue's part behind a link family."""
        cluster = self._scenario.cluster
        if family == "host-link":
            if cluster.host_link is not None:
                return load_link(cluster.host_link).delivered_fraction
            return self._accelerator.host_link_delivered_fraction
        if family == "nic" and cluster.nic is not None:
            return load_link(cluster.nic).delivered_fraction
        for part in self._parts:
            if part.name == family and part.device.network_delivered_fraction is not None:
                return part.device.network_delivered_fraction
        return 1.0

    def _make_links(self, replica: int) -> None:
        cluster = self._scenario.cluster
        if cluster.host_link is None:
            host_bytes_per_s, host_latency_s = self._accelerator.delivered_host_link_bytes_per_s, 0.0
        else:
            link = load_link(cluster.host_link)
            self.caveats[link.name] = link.caveats
            host_bytes_per_s, host_latency_s = link.delivered_bytes_per_s, link.latency_s
        rate = host_bytes_per_s * self._sizes.workers
        self._add(self._host_link(replica), "host-link", rate, rate, host_latency_s, duplex=True)
        if any(part.is_remote for part in self._parts) and cluster.nic is not None:
            nic = load_link(cluster.nic)
            self.caveats[nic.name] = nic.caveats
            rate = nic.delivered_bytes_per_s
            self._add(self._nic(replica), "nic", rate, rate, nic.latency_s, duplex=True)
        for part in self._parts:
            self._make_device_links(part, replica)
        if not any(part.is_host_memory for part in self._parts) and any(not part.spec.gds for part in self._parts):
            memory = load_device(_HOST_MEMORY).configure()
            name = self._memory(replica)
            self._add(name, "host-memory", memory.read_bytes_per_s, memory.write_bytes_per_s, 0.0, duplex=memory.duplex)

    def _make_device_links(self, part: _Part, replica: int) -> None:
        device, name = part.device, part.name + self._place(part, replica)
        if part.is_page_cache:
            return  # it lives in the host's memory and shares that link
        if not part.is_remote:
            latency_s = device.read_latency_s
            self._add(
                name, part.name, device.read_bytes_per_s, device.write_bytes_per_s, latency_s, duplex=device.duplex
            )
            return
        assert device.network_bytes_per_s is not None
        rate = device.network_bytes_per_s * (device.network_delivered_fraction or 1.0)
        self._add(name, part.name, rate, rate, 0.0, duplex=True)
        drives = f"{part.name}.drives{self._place(part, replica)}"
        self._add(
            drives,
            f"{part.name}.drives",
            device.read_bytes_per_s,
            device.write_bytes_per_s,
            device.read_latency_s,
            duplex=device.duplex,
        )

    def _memory(self, replica: int) -> str:
        """Return the link of the memory that staging and bounce buffers of a replica live in."""
        for part in self._parts:
            if part.is_host_memory:
                return part.name + self._place(part, replica)
        return "host-memory" + self._node_suffix(replica)

    def network(self, clock: Clock) -> tuple[FlowNetwork, LinkMeter]:
        """Return the network of all links, and what meters it."""
        links = list(self._links.values())
        meter = LinkMeter([link.name for link in links])
        return FlowNetwork(clock, links, meter), meter

    # Pools -----------------------------------------------------------------------------------------------------------

    def _part(self, index: int, name: str, spec: TierSpec) -> _Part:
        assert spec.device is not None
        device = load_device(spec.device).configure(spec.count, spec.ports, spec.drives)
        self.caveats[device.name] = device.caveats
        scope = spec.scope or ("shared" if device.device_class in {"array", "object"} else "node")
        if scope == "worker" and device.device_class != "memory":
            raise ScenarioError(f"tiers.{name}.scope", "is 'worker'; only memory can belong to one worker")
        return _Part(name=name, index=index, spec=spec, device=device, scope=scope)

    def _policy(self, spec: TierSpec, *, tail_first: bool) -> EvictionPolicy:
        policy = EVICTION.create(spec.eviction)
        return constrain_to_leaves(policy, tail_first=tail_first) if spec.structure == "leaf_constrained" else policy

    def _tree(self, spec: TierSpec) -> Parents | None:
        return self.parents if spec.structure == "leaf_constrained" else None

    def _hbm_pool(self, hbm_bytes: int) -> Tier:
        spec = self._scenario.tiers["hbm"]
        sizes = self._sizes
        blocks_per_chunk = sizes.chunk_tokens // sizes.block_tokens
        unit_bytes = sizes.chunk_bytes * sizes.replication / blocks_per_chunk
        units = int(hbm_bytes // unit_bytes)
        if units < blocks_per_chunk:
            raise ScenarioError("tiers.hbm", f"holds {units} blocks of {sizes.block_tokens} tokens; not even one chunk")
        return Tier(
            name="hbm",
            index=0,
            capacity_units=units,
            units_per_chunk=blocks_per_chunk,
            unit_bytes=unit_bytes,
            policy=self._policy(spec, tail_first=True),
            parents=self._tree(spec),
        )

    def _instance(self, part: _Part, replica: int) -> int:
        if part.scope in {"worker", "replica"}:
            return replica
        return self._node(replica) if part.scope == "node" else 0

    def _pool(self, part: _Part, replica: int) -> None:
        instance = self._instance(part, replica)
        if instance in part.pools:
            return
        sizes, spec = self._sizes, part.spec
        device_bytes = part.device.capacity_bytes
        capacity = spec.capacity if spec.capacity is not None else device_bytes
        where = f"tiers.{part.name}.capacity"
        if capacity is None:
            raise ScenarioError(where, f"is missing, and the catalogue knows none for {part.device.name}")
        if part.scope == "worker":
            units = int(capacity // (sizes.chunk_bytes * sizes.replication / sizes.workers))
            chunk_bytes = sizes.chunk_bytes * sizes.replication
        else:
            units, chunk_bytes = int(capacity // sizes.chunk_bytes), float(sizes.chunk_bytes)
        if units < 1:
            raise ScenarioError(where, f"is {capacity:g} B; must hold at least one chunk of {chunk_bytes:g} B")
        tail_first = self._scenario.transfer.insertion == "tail-first"
        part.pools[instance] = Tier(
            name=part.name,
            index=part.index,
            capacity_units=units,
            units_per_chunk=1,
            unit_bytes=chunk_bytes,
            policy=self._policy(spec, tail_first=tail_first),
            tail_first=tail_first,
            parents=self._tree(spec),
        )
        device = part.device
        if device.write_cache_bytes is not None and device.sustained_write_bytes_per_s is not None:
            part.caches[instance] = WriteCache(device.write_cache_bytes, device.sustained_write_bytes_per_s)

    def pools(self) -> dict[str, list[Tier]]:
        """Return all pools by tier, fastest first."""
        return {"hbm": self.hbm} | {part.name: list(part.pools.values()) for part in self._parts}

    def process_tiers(self) -> frozenset[str]:
        """Return the tiers that an engine restart loses."""
        return frozenset({"hbm"} | {part.name for part in self._parts if part.spec.index == "process"})

    # Paths -----------------------------------------------------------------------------------------------------------

    def _device_hops(self, part: _Part, replica: int, direction: int, *, sustained: bool = False) -> list[Hop]:
        """Return the hops between a tier's medium and its node's memory."""
        device = part.device
        if part.is_page_cache:
            return [Hop(self._memory(replica), direction)]
        place = self._place(part, replica)
        piece_bytes = self._sizes.chunk_bytes / self._sizes.workers
        if direction == READ:
            rate = device.read_limit_bytes_per_s(piece_bytes)
        else:
            rate = device.write_limit_bytes_per_s(piece_bytes, sustained=sustained)
        medium = f"{part.name}.drives{place}" if part.is_remote else part.name + place
        link = self._links[medium]
        # The link's own rate may have been overridden: a slow I/O size can only lower it.
        limit = min(rate, link.read_bytes_per_s if direction == READ else link.write_bytes_per_s)
        hops = [Hop(medium, direction, 1.0, limit)]
        if part.is_remote:
            hops.append(Hop(part.name + place, direction))
            if self._scenario.cluster.nic is not None:
                hops.append(Hop(self._nic(replica), direction))
        return hops

    def _host_hop(self, replica: int, direction: int) -> Hop:
        return Hop(self._host_link(replica), direction, self._sizes.replication)

    def _bounce(self, part: _Part, replica: int) -> list[Hop]:
        """Return the passes through host memory: in and out of a buffer, and of the page cache where there is one."""
        memory = self._memory(replica)
        copies = 2.0 if self._is_cached(part) else 1.0
        return [Hop(memory, WRITE, copies), Hop(memory, READ, copies)]

    def _is_cached(self, part: _Part) -> bool:
        return any(other.spec.page_cache_of == part.name for other in self._parts)

    def _latency(self, hops: Sequence[Hop]) -> float:
        return sum(self._latency_s[hop.link] for hop in hops)

    def _leg(self, network: FlowNetwork, hops: Sequence[Hop], software: SoftwarePath) -> Leg:
        return Leg(network.path(hops), self._sizes.chunk_bytes, software, self._sizes.workers)

    def _dma(self, hops: Sequence[Hop]) -> SoftwarePath:
        return SoftwarePath(in_flight=_DMA, software_s=self._latency(hops))

    def _reader(self, part: _Part, hops: Sequence[Hop]) -> SoftwarePath:
        transfer = self._scenario.transfer
        if part.is_host_memory:
            return self._dma(hops)
        return SoftwarePath(
            in_flight=transfer.reads_in_flight,
            software_s=transfer.read_software + self._latency(hops),
            stream_bytes_per_s=_least(transfer.read_stream_bandwidth, part.device.stream_bytes_per_s),
            process_bytes_per_s=transfer.process_bandwidth,
        )

    def _writer(self, part: _Part, hops: Sequence[Hop]) -> SoftwarePath:
        transfer = self._scenario.transfer
        if part.is_memory:
            return self._dma(hops)
        latency_s = self._latency(hops) - part.device.read_latency_s + part.device.write_latency_s
        return SoftwarePath(
            in_flight=transfer.writes_in_flight,
            software_s=transfer.write_software + max(latency_s, 0.0),
            stream_bytes_per_s=_least(transfer.write_stream_bandwidth, part.device.stream_bytes_per_s),
        )

    def _read_legs(self, network: FlowNetwork, part: _Part, replica: int) -> tuple[Leg, ...]:
        host = self._host_hop(replica, READ)
        device = self._device_hops(part, replica, READ)
        if part.spec.gds or part.is_host_memory:
            hops = [*device, host]
            return (self._leg(network, hops, self._reader(part, hops)),)
        bounce = self._bounce(part, replica)
        if self._scenario.transfer.staging == "pipelined":
            hops = [*device, *bounce, host]
            return (self._leg(network, hops, self._reader(part, hops)),)
        # Store-and-forward: everything is in host memory before the copy into HBM begins.
        out = [Hop(self._memory(replica), READ), host]
        into = [*device, bounce[0]]
        return self._leg(network, into, self._reader(part, into)), self._leg(network, out, self._dma(out))

    def _write_leg(self, network: FlowNetwork, part: _Part, replica: int, source: _Part | None) -> Leg:
        """Return the leg that feeds a tier from HBM (``source`` None) or from another tier."""

        def hops(*, sustained: bool) -> list[Hop]:
            target = self._device_hops(part, replica, WRITE, sustained=sustained)
            if source is None:
                host = self._host_hop(replica, WRITE)
                if part.is_memory or part.spec.gds:
                    return [host, *target]
                return [host, *self._bounce(part, replica), *target]
            origin = self._device_hops(source, replica, READ)
            if part.is_memory or (source.is_memory and not self._is_cached(part)):
                return [*origin, *target]
            return [*origin, *self._bounce(part, replica), *target]

        burst = hops(sustained=False)
        leg = self._leg(network, burst, self._writer(part, burst))
        cache = part.caches.get(self._instance(part, replica))
        if cache is not None:
            leg.write_cache = cache
            leg.sustained_path = network.path(hops(sustained=True))
        return leg

    # Hierarchies -----------------------------------------------------------------------------------------------------

    def hierarchies(self, clock: Clock, network: FlowNetwork, log: TransferLog) -> list[KvHierarchy]:
        """Return what each replica sees of the tiers below HBM, with write-backs and page caches wired up."""
        views = [self._hierarchy(clock, network, log, r) for r in range(self._scenario.cluster.replicas)]
        self._wire_page_caches()
        return views

    def _hierarchy(self, clock: Clock, network: FlowNetwork, log: TransferLog, replica: int) -> KvHierarchy:
        transfer = self._scenario.transfer
        staging = next((i for i, part in enumerate(self._parts) if part.is_host_memory), None)
        attached = [self._attach(network, position, replica, staging) for position in range(len(self._parts))]
        hierarchy = KvHierarchy(
            clock=clock,
            network=network,
            tiers=attached,
            staging=staging,
            grouped_lookup=transfer.lookup == "grouped",
            serial_loads=transfer.load == "sync",
            replica=replica,
            log=log,
        )
        for position, view in enumerate(attached):
            if not view.write_back:
                continue
            upper = self._above(position)
            pool = self.hbm[replica] if upper is None else attached[upper].tier
            if pool.spill is None:
                pool.spill = hierarchy.spill_to(pool, view)
        return hierarchy

    def _above(self, position: int) -> int | None:
        """Return the next faster tier that holds chunks of its own, None for HBM."""
        for above in range(position - 1, -1, -1):
            if not self._parts[above].is_page_cache:
                return above
        return None

    def _attach(self, network: FlowNetwork, position: int, replica: int, staging: int | None) -> AttachedTier:
        part = self._parts[position]
        spec = part.spec
        pool = part.pools[self._instance(part, replica)]
        behind = staging is not None and position > staging and not spec.gds
        feeder: int | None = None
        if spec.placement == "write-back":
            feeder = self._above(position)
        elif behind and staging is not None and self._parts[staging].spec.placement == "write-through":
            feeder = staging
        source = None if feeder is None else self._parts[feeder]
        return AttachedTier(
            tier=pool,
            key_offset=self._key_offset(part, replica),
            read_legs=self._read_legs(network, part, replica),
            write_leg=self._write_leg(network, part, replica, source),
            fed_from_staging=feeder is not None and feeder == staging,
            stages=behind,
            write_through=spec.placement == "write-through" and not part.is_page_cache,
            write_back=spec.placement == "write-back",
            promote=part.promotes,
            waits_when_full=spec.on_full == "wait",
            page_cache=self._page_cache(part.name, replica),
        )

    def _key_offset(self, part: _Part, replica: int) -> int:
        """Keep apart what replicas write where none sees another's index."""
        by_name = {p.name: p for p in self._parts}
        owner = by_name[part.spec.page_cache_of] if part.spec.page_cache_of else part
        shared = part.scope in {"node", "shared"}
        return replica << KEY_BITS if shared and owner.spec.index == "process" else 0

    def _wire_page_caches(self) -> None:
        for cache in self._parts:
            if not cache.is_page_cache:
                continue
            target = next(p for p in self._parts if p.name == cache.spec.page_cache_of)
            pools = list(cache.pools.values())
            for pool in target.pools.values():
                pool.on_removed = _drop_from(pools)

    def _page_cache(self, tier: str, replica: int) -> Tier | None:
        for cache in self._parts:
            if cache.spec.page_cache_of == tier:
                return cache.pools[self._instance(cache, replica)]
        return None

    def loading_links(self) -> dict[str, list[str]]:
        """Return for each tier below HBM the links that its loads cross."""
        return {
            part.name: sorted(
                {
                    hop.link
                    for replica in range(self._scenario.cluster.replicas)
                    for hop in [
                        *self._device_hops(part, replica, READ),
                        *([] if part.spec.gds or part.is_memory else [Hop(self._memory(replica), READ)]),
                        self._host_hop(replica, READ),
                    ]
                }
            )
            for part in self._parts
        }


def _least(*rates: float | None) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return min(known) if known else None


def _drop_from(pools: Sequence[Tier]) -> Callable[[list[int]], None]:
    def drop(keys: list[int]) -> None:
        for pool in pools:
            pool.drop(keys)

    return drop
