"""The tiers below HBM as one replica sees them: look-up, loads, stores and write-backs.

A look-up has no side effects. A load pins its sources, takes staging room in the memory tier that reads pass through
and moves the bytes as flows; a store takes room first and writes through tier by tier, so that a slower tier is fed
from memory, not from HBM, wherever there is a memory tier.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.clock import Clock
from sim.recording import TransferLog
from sim.run_sets import RunSet
from sim.runs import Chain, Runs, count, shifted
from sim.tiers.attached import AttachedTier, Segment, fill_page_cache
from sim.tiers.tier import Tier
from sim.tiers.write_back import WriteBack
from sim.transfers.flows import READ, WRITE, FlowNetwork
from sim.transfers.legs import Countdown, Done, move


class KvHierarchy:
    """What one replica knows of the tiers below HBM, and how it moves chunks.

    Parameters
    ----------
    clock, network : Clock, FlowNetwork
        Time and links.
    tiers : sequence of AttachedTier
        Fastest first.
    staging : int or None
        Which of them reads pass through (the fastest memory tier), if any.
    grouped_lookup : bool
        True: a prefix is served tier after tier, never back to a faster one (LMCache). False: each chunk from the
        fastest tier that holds it.
    serial_loads : bool
        Whether a request's tiers are read one after another.
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
        staging: int | None,
        grouped_lookup: bool,
        serial_loads: bool,
        replica: int,
        log: TransferLog,
    ) -> None:
        self._clock = clock
        self._network = network
        self.tiers = list(tiers)
        self._staging = None if staging is None else self.tiers[staging]
        self._grouped = grouped_lookup
        self._serial = serial_loads
        self._replica = replica
        self._log = log
        self.unstaged_chunks = 0
        self._views = [(i, t.tier.ready, t.key_offset) for i, t in enumerate(self.tiers)]
        self._local_views = [view for view in self._views if not self.tiers[view[0]].everywhere]
        self._writes_anything = any(t.write_through for t in self.tiers)

    # Look-up ---------------------------------------------------------------------------------------------------------

    def lookup(self, chunks: Chain, start: int, *, only_here: bool = False) -> list[Segment]:
        """Return which tier serves which chunks from ``start`` on, as far as an unbroken chain reaches.

        ``only_here`` leaves out tiers that serve every replica alike.
        """
        segments: list[Segment] = []
        views = self._local_views if only_here else self._views
        tier, begin, position = -1, start, start
        for run in chunks.cut(start):
            rest = run
            while rest:
                found, length = _fastest(views, rest)
                if found != tier:
                    if tier >= 0:
                        segments.append(Segment(tier, begin, position))
                    tier, begin = found, position
                    if self._grouped:
                        views = [view for view in views if view[0] >= tier]
                if found < 0:
                    return segments
                position += length
                rest = rest[length:]
        if tier >= 0:
            segments.append(Segment(tier, begin, position))
        return segments

    def load_s(self, segments: Sequence[Segment]) -> tuple[list[float], float]:
        """Return the time to load each segment, and all of them, with nobody else on the way [s]."""
        times_s = [self.tiers[segment.tier].load_s(segment.end - segment.start) for segment in segments]
        return times_s, sum(times_s) if self._serial else max(times_s, default=0.0)

    # Loads -----------------------------------------------------------------------------------------------------------

    def pin(self, chunks: Chain, segments: Sequence[Segment]) -> None:
        """Keep what a look-up found until it has been read, and count the use."""
        for segment in segments:
            attached = self.tiers[segment.tier]
            keys = attached.keys(chunks.cut(segment.start, segment.end))
            attached.tier.pin(keys)
            attached.tier.touch(keys)

    def load(
        self, request_id: int, chunks: Chain, segments: Sequence[Segment], spent_s: list[float], on_done: Done
    ) -> None:
        """Read pinned segments into HBM; ``spent_s`` gains each tier's loading time [s]."""
        if self._serial or len(segments) == 1:
            self._load_in_turn(request_id, chunks, list(segments), spent_s, on_done)
            return
        loads = Countdown(on_done, len(segments))
        for segment in segments:
            self._load_in_turn(request_id, chunks, [segment], spent_s, loads.ended)

    def _load_in_turn(
        self, request_id: int, chunks: Chain, segments: list[Segment], spent_s: list[float], on_done: Done
    ) -> None:
        segment = segments.pop(0)
        began_s = self._clock.now_s

        def ended() -> None:
            spent_s[segment.tier + 1] += self._clock.now_s - began_s
            if segments:
                self._load_in_turn(request_id, chunks, segments, spent_s, on_done)
            else:
                on_done()

        self._load_segment(request_id, segment.tier, chunks.cut(segment.start, segment.end), ended)

    def _load_segment(self, request_id: int, segment_tier: int, chunks: Runs, on_done: Done) -> None:
        source = self.tiers[segment_tier]
        keys = source.keys(chunks)
        staging = self._staging if source.stages else None
        staged: Runs = ()
        if staging is not None:
            wanted = staging.tier.missing(staging.keys(chunks))
            if wanted:
                granted = staging.tier.reserve_or_wait(wanted)
                if granted is None:
                    staging.tier.wait_for_room(lambda: self._load_segment(request_id, segment_tier, chunks, on_done))
                    return
                staged = granted
                self.unstaged_chunks += count(wanted) - count(staged)
            staging.tier.in_transit += 1
        legs = source.read_legs
        began_s = self._clock.now_s
        n_chunks = count(keys)
        n_bytes = n_chunks * legs[0].chunk_bytes
        source.tier.read_bytes += n_chunks * source.tier.chunk_bytes
        source.tier.in_transit += 1

        def copied() -> None:
            self._log.append(READ, source.tier.index, self._replica, request_id, n_bytes, began_s, self._clock.now_s)
            source.tier.unpin(keys, wake=False)
            source.tier.transfer_ended()
            if staging is not None:
                if staged and not staging.promote:
                    staging.tier.cancel(staged)
                staging.tier.transfer_ended()
            self._promote(segment_tier, chunks)
            on_done()

        def read() -> None:
            if source.page_cache is not None:
                fill_page_cache(source.page_cache, keys)
            if staging is not None and staging.promote and staged:
                staging.tier.arrive(staged)
            if len(legs) == 1:
                copied()
            else:
                move(legs[1], n_chunks, self._network, self._clock.now_s, copied)

        move(legs[0], n_chunks, self._network, began_s, read)

    def _promote(self, source: int, chunks: Runs) -> None:
        """Write what came from a slower tier into faster ones that keep such chunks."""
        staged = self._staging if self.tiers[source].stages else None  # this one has it already
        for attached in self.tiers[:source]:
            if attached.promote and attached is not staged:
                self._write(attached, chunks, None)

    # Stores ----------------------------------------------------------------------------------------------------------

    def store(self, request_id: int, chunks: Runs, on_left_hbm: Done) -> bool:
        """Write a prompt's chunks through to the tiers that lack them.

        Returns True if bytes leave HBM; then ``on_left_hbm()`` is called once when the last of them has left.
        """
        if not self._writes_anything or not chunks:
            return False
        leaving = Countdown(on_left_hbm)

        def staged() -> None:
            leaving.ended()
            self._cascade(request_id, chunks)

        for attached in self.tiers:
            if not attached.write_through or attached.fed_from_staging:
                continue
            is_staging = attached is self._staging
            if self._write(attached, chunks, staged if is_staging else leaving.ended, request_id):
                leaving.under_way += 1
            elif is_staging:
                self._cascade(request_id, chunks)
        return leaving.under_way > 0

    def _cascade(self, request_id: int, chunks: Runs) -> None:
        """Feed slower tiers from the staging tier, which keeps what they read until the last of them has it."""
        staging = self._staging
        if staging is None:
            return
        source = staging.tier
        keys = [part for run in staging.keys(chunks) for part in source.ready.present(run)]
        held = shifted(keys, -staging.key_offset)

        def let_go() -> None:
            source.unpin(keys, wake=False)
            source.transfer_ended()

        readers = Countdown(let_go)
        fed = [attached for attached in self.tiers if attached.write_through and attached.fed_from_staging]
        for attached in fed:
            readers.under_way += self._write(attached, held, readers.ended, request_id)
        if readers.under_way:
            # One pin for all that read from here: a second one would have to be counted chunk by chunk.
            source.pin(keys)
            source.in_transit += 1

    def _write(self, target: AttachedTier, chunks: Runs, on_done: Done | None, request_id: int = -1) -> bool:
        """Write those chunks that the target lacks; False if there is nothing to write or no room for it."""
        tier = target.tier
        wanted = tier.missing(target.keys(chunks))
        if not wanted:
            return False
        # With a write-back below, room takes a transfer, also where a store would rather drop than wait.
        waits = target.waits_when_full or tier.spill is not None
        granted = tier.reserve_or_wait(wanted) if waits else tier.reserve_some(wanted)
        if granted is None:
            return self._write_later(target, chunks, on_done, request_id)
        keys = granted
        n_chunks = count(keys)
        if keys is not wanted:
            tier.refused_chunks += count(wanted) - n_chunks
            if not keys:
                return False
        n_bytes = n_chunks * target.write_leg.chunk_bytes
        tier.in_transit += 1
        began_s = self._clock.now_s

        def written() -> None:
            tier.arrive(keys)
            if target.page_cache is not None:
                fill_page_cache(target.page_cache, keys)
            self._log.append(WRITE, tier.index, self._replica, request_id, n_bytes, began_s, self._clock.now_s)
            if on_done is not None:
                on_done()
            # Last, so that slower tiers have pinned what they read from here before those who wait take the room.
            tier.transfer_ended()

        move(target.write_leg, n_chunks, self._network, began_s, written)
        return True

    def _write_later(self, target: AttachedTier, chunks: Runs, on_done: Done | None, request_id: int) -> bool:
        def again() -> None:
            if not self._write(target, chunks, on_done, request_id) and on_done is not None:
                on_done()

        target.tier.wait_for_room(again)
        return True

    def write_back(self, upper: Tier, target: AttachedTier, *, keeps_views: bool) -> WriteBack:
        """Return what saves ``upper``'s victims in ``target``, as :class:`sim.tiers.write_back.WriteBack` says."""
        return WriteBack(
            clock=self._clock,
            network=self._network,
            log=self._log,
            replica=self._replica,
            upper=upper,
            target=target,
            keeps_views=keeps_views,
        )


def _fastest(views: Sequence[tuple[int, RunSet, int]], run: range) -> tuple[int, int]:
    """Return the fastest tier that has the head of ``run``, or -1, and for how many chunks that stays so."""
    most = len(run)
    for tier, ready, offset in views:
        length = ready.leading(range(run.start + offset, run.stop + offset) if offset else run)
        if length > 0:
            return tier, min(length, most)
        most = min(-length, most)  # as far as this one, which is faster than those to come, has nothing
    return -1, most
