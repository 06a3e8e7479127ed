"""Prefetches: from slower tiers into the memory that their reads pass through, before anybody loads."""

from __future__ import annotations

from collections.abc import Sequence

from sim.clock import Clock
from sim.recording import TransferLog
from sim.run_sets import RunSet
from sim.runs import Chain, Runs, count, cut, shifted
from sim.tiers.attached import AttachedTier, Segment, fill_page_cache
from sim.tiers.faults import Read
from sim.transfers.flows import READ, FlowNetwork
from sim.transfers.legs import Done, Leg, move


class UnderWay:
    """One prefetch under way: what it brings, and who waits for it."""

    __slots__ = ("keys", "request_id", "stopped", "waiting")

    def __init__(self, request_id: int, keys: Runs) -> None:
        self.request_id = request_id
        self.keys = RunSet(keys)
        self.waiting: list[Done] = []
        self.stopped = False
        """Whether it ends with the batch that is being read."""

    def brings(self, keys: Runs) -> bool:
        """Whether some of these keys are among them."""
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
        self._under_way: dict[UnderWay, None] = {}
        self._chunks_under_way = 0
        self.most_bytes: float = 0.5 * memory.tier.capacity_bytes if memory is not None else 0.0
        """Most bytes on their way at once [B]."""
        self.batch_chunks: int | None = None
        """Chunks that are read at once, one prefetch after another; None: all, all at once."""
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

    def storage_chunks(self, segments: Sequence[Segment]) -> int:
        """Return how many chunks of these segments could be brought."""
        return sum(each.end - each.start for each in segments if self._tiers[each.tier].prefetch_leg is not None)

    def of(self, chunks: Chain) -> list[UnderWay]:
        """Return the prefetches under way that bring some of these chunks."""
        memory = self._memory
        if memory is None or not self._under_way:
            return []
        keys = memory.keys(chunks.runs)
        return [under_way for under_way in self._under_way if under_way.brings(keys)]

    def _fetch(self, request_id: int, memory: AttachedTier, lacking: tuple[AttachedTier, Leg, Runs, int]) -> bool:
        """Read chunks that memory lacks, if there is room for all of them."""
        source, _, wanted, _ = lacking
        tier, n_chunks = memory.tier, count(wanted)
        if (self._chunks_under_way + n_chunks) * tier.chunk_bytes > self.most_bytes:
            return False
        # Where an eviction takes a write-back, that would come too late: only free room is taken.
        if tier.spill is not None and n_chunks * tier.units_per_chunk > tier.free_units:
            return False
        if not tier.reserve(wanted):
            return False
        source.tier.pin(source.keys(shifted(wanted, -memory.key_offset)))
        source.tier.in_transit += 1
        tier.in_transit += 1
        self._chunks_under_way += n_chunks
        under_way = UnderWay(request_id, wanted)
        self._under_way[under_way] = None
        turns = source.turns if self.batch_chunks is not None else None
        if turns is None:
            self._read(request_id, memory, lacking, under_way)
        else:
            turns.take(lambda: self._read(request_id, memory, lacking, under_way))
        return True

    def _read(
        self, request_id: int, memory: AttachedTier, lacking: tuple[AttachedTier, Leg, Runs, int], under_way: UnderWay
    ) -> None:
        """Read the next batch of chunks, or leave off."""
        source, leg, wanted, start = lacking
        n_chunks = count(wanted)
        if under_way.stopped or not n_chunks:
            self._end(memory, source, wanted, under_way)
            return
        n_chunks = min(n_chunks, self.batch_chunks or n_chunks)
        batch, rest = (
            (wanted, ())
            if n_chunks == count(wanted)
            else (cut(wanted, 0, n_chunks), cut(wanted, n_chunks, count(wanted)))
        )
        keys = source.keys(shifted(batch, -memory.key_offset))
        source.tier.read_bytes += n_chunks * source.tier.chunk_bytes
        n_bytes, began_s = n_chunks * leg.chunk_bytes, self._clock.now_s

        def read() -> None:
            now_s = self._clock.now_s
            self._log.append(READ, source.tier.index, self._replica, request_id, n_bytes, began_s, now_s)
            if source.failed(Read(request_id, -1, start, began_s, now_s, keys)):
                self._end(memory, source, wanted, under_way)
                return
            if source.page_cache is not None:
                fill_page_cache(source.page_cache, keys)
            source.tier.unpin(keys, wake=False)
            memory.tier.arrive(batch)
            if memory.on_kept is not None:
                memory.on_kept(batch)
            self._read(request_id, memory, (source, leg, rest, start + n_chunks), under_way)

        move(leg, n_chunks, self._network, began_s, read)

    def _end(self, memory: AttachedTier, source: AttachedTier, missing: Runs, under_way: UnderWay) -> None:
        """End a prefetch, of which some chunks may not have come."""
        self._chunks_under_way -= len(under_way.keys)
        del self._under_way[under_way]
        if missing:
            source.tier.unpin(source.keys(shifted(missing, -memory.key_offset)), wake=False)
            memory.tier.cancel(missing)
        source.tier.transfer_ended()
        memory.tier.transfer_ended()
        if self.batch_chunks is not None and source.turns is not None:
            source.turns.ended()
        for on_done in under_way.waiting:
            on_done()
        if self.on_ended is not None:
            self.on_ended()
