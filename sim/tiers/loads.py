"""Loads: from the tiers below into HBM, through staging memory where the path leads through it.

A load pins its sources before it begins, takes staging room in the memory tier that reads pass through and moves the
bytes as flows; what it brings may stay in faster tiers.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.clock import Clock
from sim.recording import TransferLog
from sim.runs import Chain, Runs, count
from sim.tiers.attached import AttachedTier, Segment, fill_page_cache
from sim.tiers.stores import Stores
from sim.transfers.flows import READ, FlowNetwork
from sim.transfers.forecast import expected_s
from sim.transfers.legs import Countdown, Done, move


class Loads:
    """Reads what a look-up has found and pinned.

    Parameters
    ----------
    clock, network : Clock, FlowNetwork
        Time and links.
    tiers : sequence of AttachedTier
        Fastest first.
    staging : AttachedTier or None
        Which of them reads pass through, if any.
    serial : bool
        Whether a request's tiers are read one after another.
    replica : int
        For the transfer log.
    log : TransferLog
        Notes each transfer.
    stores : Stores
        Writes what is promoted.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        network: FlowNetwork,
        tiers: Sequence[AttachedTier],
        staging: AttachedTier | None,
        serial: bool,
        replica: int,
        log: TransferLog,
        stores: Stores,
    ) -> None:
        self._clock = clock
        self._network = network
        self._tiers = tiers
        self._staging = staging
        self._serial = serial
        self._replica = replica
        self._log = log
        self._stores = stores
        self.unstaged_chunks = 0

    def unloaded_s(self, segments: Sequence[Segment]) -> tuple[list[float], float]:
        """Return the time to load each segment, and all of them, with nobody else on the way [s]."""
        times_s = [self._tiers[segment.tier].load_s(segment.end - segment.start) for segment in segments]
        return times_s, self._together_s(times_s)

    def _together_s(self, times_s: Sequence[float]) -> float:
        """Return how long the segments of a request take that would take these times alone [s]."""
        return sum(times_s) if self._serial else max(times_s, default=0.0)

    def expected_s(self, segments: Sequence[Segment]) -> float:
        """Return how long these segments would take to load if that began now and nothing else after it [s]."""
        now_s = self._clock.now_s
        wanted = [(self._tiers[segment.tier].read_legs, segment.end - segment.start) for segment in segments]
        times_s = []
        for place, (legs, chunks) in enumerate(wanted):
            others = [] if self._serial else [*wanted[:place], *wanted[place + 1 :]]
            beside = [(other[0].path, n * other[0].chunk_bytes) for other, n in others]
            times_s.append(
                sum(
                    expected_s(leg.path, chunks * leg.chunk_bytes, leg.ceiling_bytes_per_s(chunks), now_s, beside)
                    for leg in legs
                )
            )
        return self._together_s(times_s)

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

        runs, turns = chunks.cut(segment.start, segment.end), self._tiers[segment.tier].turns
        if turns is None:
            self._load_segment(request_id, segment.tier, runs, ended)
            return

        def its_turn_ended() -> None:
            turns.ended()
            ended()

        turns.take(lambda: self._load_segment(request_id, segment.tier, runs, its_turn_ended))

    def _load_segment(self, request_id: int, segment_tier: int, chunks: Runs, on_done: Done) -> None:
        source = self._tiers[segment_tier]
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
            if source.leaves_for_hbm:
                source.tier.drop(keys)
            source.tier.transfer_ended()
            if staging is not None:
                if staged:  # what does not stay there
                    staging.tier.cancel(staged)
                staging.tier.transfer_ended()
            self._promote(segment_tier, chunks)
            on_done()

        def read() -> None:
            nonlocal staged
            if source.page_cache is not None:
                fill_page_cache(source.page_cache, keys)
            if staging is not None and staging.promote and staged:
                staged = self._stores.keep(staging, staged)
            if len(legs) == 1:
                copied()
            else:
                move(legs[1], n_chunks, self._network, self._clock.now_s, copied)

        move(legs[0], n_chunks, self._network, began_s, read)

    def _promote(self, source: int, chunks: Runs) -> None:
        """Write what came from a slower tier into faster ones that keep such chunks."""
        staged = self._staging if self._tiers[source].stages else None  # this one has it already
        for attached in self._tiers[:source]:
            if attached.promote and attached is not staged:
                self._stores.promote(attached, chunks)
