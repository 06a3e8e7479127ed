"""Prefetches: from slower tiers into the memory that their reads pass through, before anybody loads."""

from __future__ import annotations

from collections.abc import Sequence

from sim.clock import Clock
from sim.recording import TransferLog
from sim.run_sets import RunSet
from sim.runs import Chain, Runs, count, shifted
from sim.tiers.attached import AttachedTier, Segment, fill_page_cache
from sim.tiers.faults import Read
from sim.transfers.flows import READ, FlowNetwork
from sim.transfers.legs import Done, Leg, move


class _UnderWay:
    """One prefetch under way: what it brings, and who waits for it."""

    __slots__ = ("keys", "waiting")

    def __init__(self, keys: Runs) -> None:
        self.keys = RunSet(keys)
        self.waiting: list[Done] = []

    def brings(self, keys: Runs) -> bool:
        return any(self.keys.present(run) for run in keys)


class Prefetches:
    """Brings chunks into memory.

    Parameters
    ----------
    clock, network : Clock, FlowNetwork
        Time and links.
    tiers : sequence of AttachedTier
        Fastest first.
    memory : AttachedTier or None
        Where to, if there is any.
    replica : int
        For the transfer log.
    log : TransferLog
        Notes each transfer.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        network: FlowNetwork,
        tiers: Sequence[AttachedTier],
        memory: AttachedTier | None,
        replica: int,
        log: TransferLog,
    ) -> None:
        self._clock = clock
        self._network = network
        self._tiers = tiers
        self._memory = memory
        self._replica = replica
        self._log = log
        self._under_way: dict[_UnderWay, None] = {}
        self._chunks_under_way = 0
        self.most_bytes: float = 0.5 * memory.tier.capacity_bytes if memory is not None else 0.0
        """Most bytes on their way at once [B]."""
        self.on_ended: Done | None = None
        """Called when one has ended, after those who waited for it."""

    def begin(self, request_id: int, chunks: Chain, segments: Sequence[Segment]) -> bool:
        """Bring what memory lacks of these segments; False if there was no room for some of it."""
        memory = self._memory
        if memory is None:
            return True
        lacking: list[tuple[AttachedTier, Leg, Runs, int]] = []
        for segment in segments:
            source = self._tiers[segment.tier]
            if source.prefetch_leg is not None:
                wanted = memory.tier.missing(memory.keys(chunks.cut(segment.start, segment.end)))
                if wanted:
                    lacking.append((source, source.prefetch_leg, wanted, segment.start))
        if not lacking:
            return True
        # What memory has of the prompt must not make room for the rest of it.
        here = [part for run in memory.keys(chunks.runs) for part in memory.tier.ready.present(run)]
        memory.tier.pin(here)
        begun = [self._fetch(request_id, memory, part) for part in lacking]
        memory.tier.unpin(here)
        if any(begun):
            memory.tier.touch(here)
        return all(begun)

    def wait(self, chunks: Chain, on_done: Done) -> int:
        """Call ``on_done()`` at the end of each prefetch that brings some of these chunks; return how many."""
        memory = self._memory
        if memory is None or not self._under_way:
            return 0
        keys = memory.keys(chunks.runs)
        awaited = [under_way for under_way in self._under_way if under_way.brings(keys)]
        for under_way in awaited:
            under_way.waiting.append(on_done)
        return len(awaited)

    def _fetch(self, request_id: int, memory: AttachedTier, lacking: tuple[AttachedTier, Leg, Runs, int]) -> bool:
        """Read chunks that memory lacks, if there is room for all of them."""
        source, leg, wanted, start = lacking
        tier, n_chunks = memory.tier, count(wanted)
        if (self._chunks_under_way + n_chunks) * tier.chunk_bytes > self.most_bytes:
            return False
        # Where an eviction takes a write-back, that would come too late: only free room is taken.
        if tier.spill is not None and n_chunks * tier.units_per_chunk > tier.free_units:
            return False
        if not tier.reserve(wanted):
            return False
        keys = source.keys(shifted(wanted, -memory.key_offset))
        source.tier.pin(keys)
        source.tier.in_transit += 1
        source.tier.read_bytes += n_chunks * source.tier.chunk_bytes
        tier.in_transit += 1
        self._chunks_under_way += n_chunks
        under_way = _UnderWay(wanted)
        self._under_way[under_way] = None
        n_bytes, began_s = n_chunks * leg.chunk_bytes, self._clock.now_s

        def read() -> None:
            now_s = self._clock.now_s
            self._log.append(READ, source.tier.index, self._replica, request_id, n_bytes, began_s, now_s)
            self._chunks_under_way -= n_chunks
            del self._under_way[under_way]
            failed = source.failed(Read(request_id, -1, start, began_s, now_s))
            if source.page_cache is not None and not failed:
                fill_page_cache(source.page_cache, keys)
            source.tier.unpin(keys, wake=False)
            if failed:
                tier.cancel(wanted)
            else:
                tier.arrive(wanted)
                if memory.on_kept is not None:
                    memory.on_kept(wanted)
            source.tier.transfer_ended()
            tier.transfer_ended()
            for on_done in under_way.waiting:
                on_done()
            if self.on_ended is not None:
                self.on_ended()

        move(leg, n_chunks, self._network, began_s, read)
        return True
