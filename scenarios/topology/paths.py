"""Which links the bytes of each tier cross, and the software that moves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from models.software import SoftwarePath
from scenarios.schema import Transfer
from scenarios.topology.links import Links
from scenarios.topology.parts import Geometry, Part
from sim.transfers.flows import READ, WRITE, FlowNetwork, Hop
from sim.transfers.legs import Leg, WriteCache

_DMA: Final = 1 << 30
"""Chunks in flight of a copy that hardware does: no limit."""


class Paths:
    """Legs of loads and stores.

    Parameters
    ----------
    transfer : Transfer
        The scenario's software path.
    sizes, links, parts
        What the paths lead over.
    """

    def __init__(self, transfer: Transfer, sizes: Geometry, links: Links, parts: Sequence[Part]) -> None:
        self._transfer = transfer
        self._sizes = sizes
        self._links = links
        self._parts = parts
        self._splits = -(-sizes.chunk_tokens // transfer.chunk_tokens) if transfer.split_chunks else 1
        self._processes = sizes.pieces if transfer.io_process == "worker" else 1.0

    # Hops ------------------------------------------------------------------------------------------------------------

    def device_hops(self, part: Part, replica: int, direction: int, *, sustained: bool = False) -> list[Hop]:
        """Return the hops between a tier's medium and its node's memory."""
        if part.is_page_cache:
            return [Hop(self._links.memory(replica), direction)]
        medium = self._links.medium(part, replica)
        limit = self._medium_limit(part, medium, direction, sustained=sustained)
        # Each worker has copies of its own where the scope says so, so replicated KV crosses the bus more than once.
        passes = self._sizes.replication if part.scope == "worker" else 1.0
        if direction == WRITE:
            passes *= part.layout.overhead
        hops = [Hop(medium, direction, passes, limit)]
        if part.has_ports:
            hops.append(Hop(self._links.ports(part, replica), direction))
        if part.is_remote:
            hops.extend(Hop(link, direction) for link in self._links.network(replica))
        return hops

    def outside_hops(self, part: Part, replica: int, direction: int, io_bytes: float) -> list[Hop]:
        """Return the hops of others' I/Os of that size to the device that a replica uses: its medium, and its ports."""
        medium = self._links.medium(part, replica)
        limit = self._medium_limit(part, medium, direction, sustained=True, io_bytes=io_bytes)
        ports = [Hop(self._links.ports(part, replica), direction)] if part.has_ports else []
        return [Hop(medium, direction, 1.0, limit), *ports]

    def _medium_limit(
        self, part: Part, medium: str, direction: int, *, sustained: bool, io_bytes: float | None = None
    ) -> float:
        """Return what all I/Os of a size get together [B/s]: the link's rate, or less by IOPS or a full buffer."""
        link = self._links.by_name[medium]
        # The link's rates: they may be the scenario's own.
        device = replace(part.device, read_bytes_per_s=link.read_bytes_per_s, write_bytes_per_s=link.write_bytes_per_s)
        io_bytes = self.piece_bytes(part) if io_bytes is None else io_bytes
        if direction == READ:
            return device.read_limit_bytes_per_s(io_bytes)
        return device.write_limit_bytes_per_s(io_bytes, sustained=sustained)

    def piece_bytes(self, part: Part) -> float:
        """Return the size of one I/O to a tier's medium [B]."""
        return self._sizes.held_bytes(part) / self._processes / self._splits / self._sizes.layer_objects

    def _host_hop(self, replica: int, direction: int) -> Hop:
        # A copy for each GPU that holds one; what one GPU moves for all of them takes as long, over its own link only.
        return Hop(self._links.host_link(replica), direction, self._sizes.replication)

    def _through_memory(self, replica: int, copies: int) -> list[Hop]:
        """Return the passes through host memory of bytes that are copied there that many times, in and out each."""
        memory = self._links.memory(replica)
        return [Hop(memory, WRITE, float(copies)), Hop(memory, READ, float(copies))] if copies else []

    def _cache_copies(self, part: Part) -> int:
        """Return how many copies the page cache adds."""
        return sum(other.spec.page_cache_of == part.name for other in self._parts)

    # Legs ------------------------------------------------------------------------------------------------------------

    def _leg(self, network: FlowNetwork, hops: Sequence[Hop], software: SoftwarePath, form: Part) -> Leg:
        held_bytes = self._sizes.held_bytes(form)
        return Leg(network.path(hops), held_bytes, software, self._processes, self._splits, self._sizes.layer_objects)

    # Encodings: a leg counts bytes as one tier holds them; what crosses a link in another form counts for more or less.

    def _codec(self, part: Part, replica: int, direction: int, form: Part) -> list[Hop]:
        """Return the hop at which KV is decoded from (or encoded as) what a tier holds, on a leg of ``form``."""
        if part.encoding is None:
            return []
        owner = part if part.spec.page_cache_of is None else self._named(part.spec.page_cache_of)
        passes = self._sizes.replication * self._sizes.chunk_bytes / self._sizes.held_bytes(form)
        return [Hop(self._links.codec(owner, replica), direction, passes)]

    def _in_form(self, hops: Sequence[Hop], part: Part, form: Part) -> list[Hop]:
        """Return hops that KV crosses as ``part`` holds it, on a leg of ``form``."""
        share = self._sizes.held_bytes(part) / self._sizes.held_bytes(form)
        return [hop if share == 1.0 else replace(hop, passes=hop.passes * share) for hop in hops]

    def _stop(self, part: Part) -> Part:
        """Return whose form KV takes in the memory that it is staged in, the part itself where that is none other."""
        memory = next((p for p in self._parts if p.is_host_memory), None)
        behind = memory is not None and memory.index < part.index and not part.is_host_memory and not part.spec.gds
        return memory if memory is not None and behind and not memory.holds_alike(part) else part

    def _named(self, name: str) -> Part:
        return next(part for part in self._parts if part.name == name)

    def _dma(self, hops: Sequence[Hop]) -> SoftwarePath:
        return SoftwarePath(in_flight=_DMA, software_s=self._links.latency_s(hops))

    def _reader(self, part: Part, hops: Sequence[Hop]) -> SoftwarePath:
        if part.is_host_memory:
            return self._dma(hops)
        transfer = self._transfer
        return SoftwarePath(
            in_flight=transfer.reads_in_flight,
            software_s=transfer.read_software + self._links.latency_s(hops),
            stream_bytes_per_s=_least(transfer.read_stream_bandwidth, part.device.stream_bytes_per_s),
            process_bytes_per_s=transfer.process_bandwidth,
        )

    def _writer(self, part: Part, hops: Sequence[Hop]) -> SoftwarePath:
        if part.is_memory:
            return self._dma(hops)
        transfer = self._transfer
        return SoftwarePath(
            in_flight=transfer.writes_in_flight,
            software_s=transfer.write_software + self._links.latency_s(hops),
            stream_bytes_per_s=_least(transfer.write_stream_bandwidth, part.device.stream_bytes_per_s),
        )

    def read_legs(self, network: FlowNetwork, part: Part, replica: int) -> tuple[Leg, ...]:
        """Return the stages from a tier to HBM: one, or with ``staging: store-and-forward`` two."""
        host = self._host_hop(replica, READ)
        device = self.device_hops(part, replica, READ)
        if part.spec.gds or part.is_host_memory:
            hops = [*device, host, *self._codec(part, replica, READ, part)]
            return (self._leg(network, hops, self._reader(part, hops), part),)
        memory, cache_copies, stop = self._links.memory(replica), self._cache_copies(part), self._stop(part)
        if self._transfer.staging == "pipelined":
            staged = self._in_form([Hop(memory, WRITE), Hop(memory, READ), host], stop, part)
            decoded = self._codec(stop, replica, READ, part)
            recoded = [] if stop is part else self._codec(part, replica, READ, part)
            hops = [*device, *self._through_memory(replica, cache_copies), *recoded, *staged, *decoded]
            return (self._leg(network, hops, self._reader(part, hops), part),)
        # Store-and-forward: everything is in host memory before the copy into HBM begins.
        out = [Hop(memory, READ), host, *self._codec(stop, replica, READ, stop)]
        return self.prefetch_leg(network, part, replica), self._leg(network, out, self._dma(out), stop)

    def prefetch_leg(self, network: FlowNetwork, part: Part, replica: int) -> Leg:
        """Return the stage from a tier into the memory that its reads pass through."""
        stop = self._stop(part)
        recoded = [] if stop is part else self._codec(part, replica, READ, part)
        staged = self._in_form([Hop(self._links.memory(replica), WRITE)], stop, part)
        copied = self._through_memory(replica, self._cache_copies(part))
        into = [*self.device_hops(part, replica, READ), *copied, *recoded, *staged]
        return self._leg(network, into, self._reader(part, into), part)

    def write_leg(
        self, network: FlowNetwork, part: Part, replica: int, source: Part | None, write_cache: WriteCache | None
    ) -> Leg:
        """Return the stage that feeds a tier from HBM (``source`` None) or from another tier."""
        hops = self._write_hops(part, replica, source)
        leg = self._leg(network, hops, self._writer(part, hops), part)
        if write_cache is not None:
            leg.write_cache = write_cache
            leg.sustained_path = network.path(self._write_hops(part, replica, source, sustained=True))
        return leg

    def _write_hops(self, part: Part, replica: int, source: Part | None, *, sustained: bool = False) -> list[Hop]:
        target = self.device_hops(part, replica, WRITE, sustained=sustained)
        if source is None:
            encoded = self._codec(part, replica, WRITE, part)
            origin, buffered = [*encoded, self._host_hop(replica, WRITE)], False
        else:
            origin, buffered = self._in_form(self.device_hops(source, replica, READ), source, part), source.is_memory
            if not source.holds_alike(part):
                decoded = self._codec(source, replica, READ, part)
                origin += [*decoded, *self._codec(part, replica, WRITE, part)]
        if part.is_memory or (source is None and part.spec.gds):
            return [*origin, *target]
        copies = (0 if buffered else 1) + self._cache_copies(part)
        return [*origin, *self._through_memory(replica, copies), *target]

    def handover_leg(self, network: FlowNetwork, source: int, target: int, sizes: Geometry, software_s: float) -> Leg:
        """Return the stage from the HBM of one replica to that of another, whose ``sizes`` are given, block by block.

        Each GPU of the target reads what it holds, so KV that several of them hold crosses the links as often.
        """
        hops = self._links.between(source, target, sizes.replication)
        block_bytes = sizes.chunk_bytes * sizes.block_tokens // sizes.chunk_tokens
        software = SoftwarePath(in_flight=_DMA, software_s=software_s + self._links.latency_s(hops))
        return Leg(network.path(hops), block_bytes, software, sizes.pieces)

    def rebuild_hops(self, part: Part, replica: int) -> list[Hop]:
        """Return the hops of a piece that is made again inside a tier: its sources are read, and it is written."""
        medium = self._links.medium(part, replica)
        read, written = (self._medium_limit(part, medium, direction, sustained=True) for direction in (READ, WRITE))
        return [Hop(medium, READ, float(part.layout.data), read), Hop(medium, WRITE, 1.0, written)]

    def loading_links(self, part: Part, replica: int) -> set[str]:
        """Return the links that a replica's loads from a tier cross."""
        names = {hop.link for hop in self.device_hops(part, replica, READ)} | {self._links.host_link(replica)}
        if not part.spec.gds and not part.is_memory:
            names.add(self._links.memory(replica))
        for form in (part, self._stop(part)):
            names |= {hop.link for hop in self._codec(form, replica, READ, form)}
        return names


def _least(*rates: float | None) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return min(known) if known else None
