"""The links of a scenario, with the catalogue's rates or the scenario's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from models.errors import ScenarioError
from models.link import load_link
from models.storage import load_device
from scenarios.schema import Scenario
from scenarios.topology.parts import Engines, Part, Places
from sim.transfers.flows import READ, WRITE, Hop, Link

HOST_MEMORY: Final = "ddr5"
"""What bounce buffers live in where the scenario has no memory tier."""


class Links:
    """All links by name, and what each replica calls them.

    ``delivered`` is the share of each link's nominal rate that its rates are; ``nominal`` has nominal rate [B/s] and
    latency [s] of reads under each key that a scenario may override, ``called`` the names of the links that it means.

    Parameters
    ----------
    scenario, engines, places, parts
        What they follow from.
    decode : Engines or None
        The replicas that only decode.

    Raises
    ------
    ScenarioError
        If the scenario overrides a link that is not there.
    """

    def __init__(
        self,
        scenario: Scenario,
        engines: Engines,
        places: Places,
        parts: Sequence[Part],
        decode: Engines | None = None,
    ) -> None:
        self._scenario = scenario
        self._changes = scenario.changes()
        self._engines = engines
        self._decode = decode
        self._sizes = engines.sizes
        self._places = places
        self._parts = parts
        self._used_overrides: set[str] = set()
        self.by_name: dict[str, Link] = {}
        self.delivered: dict[str, float] = {}
        self.nominal: dict[str, tuple[float, float]] = {}
        self.called: dict[str, dict[str, None]] = {}
        self._latency_s: dict[str, tuple[float, float]] = {}
        self.caveats: dict[str, tuple[str, ...]] = {}
        for replica in range(places.replicas):
            self._add_host_link(replica)
            self._add_network(replica)
            for part in parts:
                self._add_device(part, replica)
                self._add_codec(part, replica)
            self._add_host_memory(replica)
        for replica in places.decoding:
            self._add_host_link(replica)
            self._add_network(replica)
        if self._share_nodes():
            for replica in places.everyone:
                self._add_scale_up(replica)
        self._refuse_unused_overrides()

    # Names -----------------------------------------------------------------------------------------------------------

    def host_link(self, replica: int) -> str:
        """Return the link between a replica's GPUs and their host."""
        return "host-link" + self._places.replica_suffix(replica)

    def network(self, replica: int) -> list[str]:
        """Return the links between a replica's node and remote tiers: its NIC and its port of the switch."""
        families = {"nic": self._scenario.cluster.nic, "switch": self._scenario.cluster.switch}
        return [name + self._places.node_suffix(replica) for name, entry in families.items() if entry is not None]

    def ports(self, part: Part, replica: int) -> str:
        """Return the device's own link: its ports where it is reached over the network."""
        return part.name + self._places.suffix(part, replica)

    def medium(self, part: Part, replica: int) -> str:
        """Return the link of what holds the bytes: drives or memory."""
        if part.has_ports:
            return f"{part.name}.drives{self._places.suffix(part, replica)}"
        return self.ports(part, replica)

    def codec(self, part: Part, replica: int) -> str:
        """Return the workers of a replica as they encode and decode the KV of a tier."""
        return f"{part.name}.codec{self._places.replica_suffix(replica)}"

    def memory(self, replica: int) -> str:
        """Return the link of the memory that staging and bounce buffers of a replica live in."""
        for part in self._parts:
            if part.is_host_memory:
                return self.ports(part, replica)
        return "host-memory" + self._places.node_suffix(replica)

    def between(self, source: int, target: int, passes: float) -> list[Hop]:
        """Return the hops from the GPUs of one replica to those of another.

        Between nodes, RDMA from GPU memory: the GPUs' links to the host's PCIe, and the networks of both nodes. Within
        a node the GPUs' own fabric.
        """
        if self._places.node(source) == self._places.node(target):
            out, into = [self._scale_up(source)], [self._scale_up(target)]
        else:
            out = [self.host_link(source), *self.network(source)]
            into = [*reversed(self.network(target)), self.host_link(target)]
        return [Hop(link, WRITE, passes) for link in out] + [Hop(link, READ, passes) for link in into]

    def _scale_up(self, replica: int) -> str:
        """Return the fabric between the GPUs of a node (NVLink and its like), as far as a replica's GPUs reach it."""
        return "scale-up" + self._places.replica_suffix(replica)

    def _share_nodes(self) -> bool:
        """Whether a replica that decodes shares a node with one that prefills."""
        places = self._places
        decoding = {places.node(replica) for replica in places.decoding}
        return not decoding.isdisjoint(places.node(replica) for replica in range(places.replicas))

    def _engines_of(self, replica: int) -> Engines:
        if self._decode is not None and replica in self._places.decoding:
            return self._decode
        return self._engines

    def latency_s(self, hops: Sequence[Hop]) -> float:
        """Return the latency of a path [s]: the sum over its hops, each in its direction."""
        return sum(self._latency_s[hop.link][hop.direction] for hop in hops)

    # Making them -----------------------------------------------------------------------------------------------------

    def _add_host_link(self, replica: int) -> None:
        name = self.host_link(replica)
        if self._scenario.cluster.host_link is None:
            gpu = self._engines_of(replica).accelerator
            rate, delivered, latency_s = gpu.delivered_host_link_bytes_per_s, gpu.host_link_delivered_fraction, 0.0
        else:
            link = load_link(self._scenario.cluster.host_link, self._changes)
            self.caveats[link.name] = link.caveats
            rate, delivered, latency_s = link.delivered_bytes_per_s, link.delivered_fraction, link.latency_s
        rate *= self._engines_of(replica).sizes.workers
        self._add(Link(name, rate, rate), "host-link", latency_s, latency_s, delivered=delivered)

    def _add_scale_up(self, replica: int) -> None:
        engines = self._engines_of(replica)
        rate = engines.accelerator.scale_up_bytes_per_s * engines.sizes.workers
        self._add(Link(self._scale_up(replica), rate, rate), "scale-up", 0.0, 0.0)

    def _add_network(self, replica: int) -> None:
        if self._decode is None and not any(part.is_remote for part in self._parts):
            return
        cluster = self._scenario.cluster
        for name in self.network(replica):
            family = name.partition(".")[0]
            entry = cluster.nic if family == "nic" else cluster.switch
            assert entry is not None  # network() names only those that there are
            part = load_link(entry, self._changes)
            self.caveats[part.name] = part.caveats
            rate = part.delivered_bytes_per_s
            self._add(Link(name, rate, rate), family, part.latency_s, part.latency_s, delivered=part.delivered_fraction)

    def _add_device(self, part: Part, replica: int) -> None:
        device = part.device
        self.caveats[device.name] = device.caveats
        if part.is_page_cache:
            return  # it lives in the host's memory and shares that link
        family = part.name
        if device.network_bytes_per_s is not None:
            delivered, latency_s = device.network_delivered_fraction or 1.0, 0.0
            if part.spec.transport is not None:
                transport = load_link(part.spec.transport, self._changes)
                self.caveats[transport.name] = transport.caveats
                delivered, latency_s = transport.delivered_fraction, transport.latency_s
            rate = device.network_bytes_per_s * delivered
            self._add(Link(self.ports(part, replica), rate, rate), family, latency_s, latency_s, delivered=delivered)
            family += ".drives"
        medium = Link(self.medium(part, replica), device.read_bytes_per_s, device.write_bytes_per_s, device.duplex)
        self._add(medium, family, device.read_latency_s, device.write_latency_s)

    def _add_codec(self, part: Part, replica: int) -> None:
        """Add the workers as a link of its own, over which KV goes as the engine holds it.

        What moves is decoded while more of it is read, chunk by chunk: a chunk's time is the latency.
        """
        encoding, workers = part.encoding, self._sizes.workers
        if encoding is None or part.is_page_cache:
            return
        link = Link(self.codec(part, replica), encoding.decode_bandwidth * workers, encoding.encode_bandwidth * workers)
        chunk_bytes = self._sizes.chunk_bytes * self._sizes.replication
        latencies_s = chunk_bytes / link.read_bytes_per_s, chunk_bytes / link.write_bytes_per_s
        self._add(link, f"{part.name}.codec", *latencies_s)

    def _add_host_memory(self, replica: int) -> None:
        """Add the memory of bounce buffers where no tier of the scenario is memory."""
        if any(part.is_host_memory for part in self._parts):
            return
        # A write-back from one device to another passes through memory, also where GPUs reach both directly.
        between_devices = any(part.writes == "at-eviction" for part in self._parts[1:])
        if not between_devices and all(part.spec.gds for part in self._parts):
            return
        memory = load_device(HOST_MEMORY, self._changes).configure()
        link = Link(self.memory(replica), memory.read_bytes_per_s, memory.write_bytes_per_s, memory.duplex)
        self._add(link, "host-memory", 0.0, 0.0)

    def _add(
        self, link: Link, family: str, read_latency_s: float, write_latency_s: float, *, delivered: float = 1.0
    ) -> None:
        """Add a link unless it is there; what the scenario says of its family or of itself wins.

        ``delivered`` is the share of the nominal rate that the catalogue's figures contain: a nominal rate of the
        scenario's delivers the same share unless that is given too.
        """
        if link.name in self.by_name:
            return
        for key in dict.fromkeys((family, link.name)):
            override = self._scenario.links.get(key)
            if override is None:
                continue
            self._used_overrides.add(key)
            share = override.delivered_fraction or delivered
            if override.bandwidth is not None:
                link.read_bytes_per_s = link.write_bytes_per_s = override.bandwidth * share
            else:
                link.read_bytes_per_s *= share / delivered
                link.write_bytes_per_s *= share / delivered
            delivered = share
            if override.latency is not None:
                read_latency_s = write_latency_s = override.latency
        self.by_name[link.name] = link
        self.delivered[link.name] = delivered
        self._latency_s[link.name] = read_latency_s, write_latency_s
        for key in (family, link.name):
            self.nominal.setdefault(key, (link.read_bytes_per_s / delivered, read_latency_s))
            self.called.setdefault(key, {})[link.name] = None

    def _refuse_unused_overrides(self) -> None:
        unused = set(self._scenario.links) - self._used_overrides
        if unused:
            raise ScenarioError(f"links.{min(unused)}", self.no_such_link())

    def no_such_link(self) -> str:
        """Return what to say of a name that no link has."""
        families = sorted({name.split(".")[0] for name in self.by_name} | set(self.by_name))
        return f"no such link here; allowed: {', '.join(families)}"
