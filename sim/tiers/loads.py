"""Loads: from the tiers below into HBM, through staging memory where the path leads through it.

A load pins its sources before it begins, takes staging room in the memory tier that reads pass through and moves the
bytes as flows; what it brings may stay in faster tiers.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.clock import COMPLETION, Clock, Wakeup
from sim.recording import TransferLog
from sim.runs import Chain, Runs, count
from sim.tiers.attached import AttachedTier, Segment, fill_page_cache
from sim.tiers.faults import Read
from sim.tiers.stores import Stores
from sim.transfers.flows import READ, FlowNetwork
from sim.transfers.forecast import expected_s
from sim.transfers.legs import Countdown, Done, move


class Load:
    """One load of a request.

    Parameters
    ----------
    request_id, attempt : int
        For whom, and which of its loads it is, from 1.
    chunks : Chain
        The prompt.
    segments : sequence of Segment
        What is loaded of it, from where.
    spent_s : list of float
        Gains the loading time of each tier [s].
    """

    __slots__ = ("attempt", "chunks", "lost", "request_id", "segments", "spent_s")

    def __init__(
        self, request_id: int, attempt: int, chunks: Chain, segments: Sequence[Segment], spent_s: list[float]
    ) -> None:
        self.request_id = request_id
        self.attempt = attempt
        self.chunks = chunks
        self.segments = segments
        self.spent_s = spent_s
        self.lost: range | None = None
        """From the first to the last chunk that failed to arrive, once it has ended."""

    def lose(self, segment: Segment) -> None:
        """Note that a segment has not arrived."""
        lost = self.lost
        self.lost = range(
            segment.start if lost is None else min(lost.start, segment.start),
            segment.end if lost is None else max(lost.stop, segment.end),
        )


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
    staging_timeout_s : float or None
        How long a load waits for room in memory before it has failed [s]; None: as long as it takes, and where nothing
        under way will free any, it passes without.
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
        staging_timeout_s: float | None = None,
    ) -> None:
        self._clock = clock
        self._network = network
        self._tiers = tiers
        self._staging = staging
        self._serial = serial
        self._replica = replica
        self._log = log
        self._stores = stores
        self._staging_timeout_s = staging_timeout_s
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

    def load(self, load: Load, on_done: Done) -> None:
        """Read pinned segments into HBM."""
        segments = load.segments
        if self._serial or len(segments) == 1:
            self._load_in_turn(load, list(segments), on_done)
            return
        loads = Countdown(on_done, len(segments))
        for segment in segments:
            self._load_in_turn(load, [segment], loads.ended)

    def _load_in_turn(self, load: Load, segments: list[Segment], on_done: Done) -> None:
        segment = segments.pop(0)
        began_s = self._clock.now_s

        def ended() -> None:
            load.spent_s[segment.tier + 1] += self._clock.now_s - began_s
            if segments:
                self._load_in_turn(load, segments, on_done)
            else:
                on_done()

        turns = self._tiers[segment.tier].turns
        if turns is None:
            self._load_segment(load, segment, ended)
            return

        def its_turn_ended() -> None:
            turns.ended()
            ended()

        turns.take(lambda: self._load_segment(load, segment, its_turn_ended))

    def _load_segment(self, load: Load, segment: Segment, on_done: Done) -> None:
        """Read a segment, once memory has room for it where its reads pass through memory."""
        staging = self._staging if self._tiers[segment.tier].stages else None
        if staging is None:
            self._read(load, segment, None, (), on_done)
            return
        staged = self._stage(staging, load.chunks.cut(segment.start, segment.end))
        if staged is None:
            self._wait_for_room(staging, load, segment, on_done)
        else:
            self._read(load, segment, staging, staged, on_done)

    def _read(self, load: Load, segment: Segment, staging: AttachedTier | None, staged: Runs, on_done: Done) -> None:
        source, chunks = self._tiers[segment.tier], load.chunks.cut(segment.start, segment.end)
        keys = source.keys(chunks)
        if staging is not None:
            staging.tier.in_transit += 1
        legs = source.read_legs
        began_s = self._clock.now_s
        n_chunks = count(keys)
        n_bytes = n_chunks * legs[0].chunk_bytes
        source.tier.read_bytes += n_chunks * source.tier.chunk_bytes
        source.tier.in_transit += 1

        failed = False

        def copied() -> None:
            now_s = self._clock.now_s
            self._log.append(READ, source.tier.index, self._replica, load.request_id, n_bytes, began_s, now_s)
            source.tier.unpin(keys, wake=False)
            if source.leaves_for_hbm and not failed:
                source.tier.drop(keys)
            source.tier.transfer_ended()
            if staging is not None:
                if staged:  # what does not stay there
                    staging.tier.cancel(staged)
                staging.tier.transfer_ended()
            if failed:
                load.lose(segment)
            else:
                self._promote(segment.tier, chunks)
            on_done()

        def read() -> None:
            nonlocal staged, failed
            if source.fault is not None:
                now_s = self._clock.now_s
                failed = source.failed(Read(load.request_id, load.attempt, segment.start, began_s, now_s, keys))
                if failed:
                    copied()
                    return
            if source.page_cache is not None:
                fill_page_cache(source.page_cache, keys)
            if staging is not None and staging.promote and staged:
                staged = self._stores.keep(staging, staged)
            if len(legs) == 1:
                copied()
            else:
                move(legs[1], n_chunks, self._network, self._clock.now_s, copied)

        move(legs[0], n_chunks, self._network, began_s, read)

    def _stage(self, staging: AttachedTier, chunks: Runs) -> Runs | None:
        """Take room in memory for what it lacks of these chunks; None where there is none now."""
        tier = staging.tier
        wanted = tier.missing(staging.keys(chunks))
        if not wanted:
            return ()
        if self._staging_timeout_s is not None:
            return wanted if tier.reserve(wanted) else None
        granted = tier.reserve_or_wait(wanted)
        if granted is not None:
            self.unstaged_chunks += count(wanted) - count(granted)
        return granted

    def _wait_for_room(self, staging: AttachedTier, load: Load, segment: Segment, on_done: Done) -> None:
        """Read a segment when memory has room for it; where that takes too long, it has failed."""
        tier, timeout_s = staging.tier, self._staging_timeout_s
        if timeout_s is None:
            tier.wait_for_room(lambda: self._load_segment(load, segment, on_done))
            return
        source, chunks = self._tiers[segment.tier], load.chunks.cut(segment.start, segment.end)
        waits = True

        def look_again() -> None:
            nonlocal waits
            staged = self._stage(staging, chunks)
            if staged is None:
                tier.wait_for_room(look_again)
            else:
                waits = False
                self._read(load, segment, staging, staged, on_done)

        def give_up(_: Wakeup) -> None:
            if waits:
                tier.stop_waiting(look_again)
                source.tier.failed_loads += 1
                load.lose(segment)
                source.tier.unpin(source.keys(chunks))
                on_done()

        tier.wait_for_room(look_again)
        self._clock.at(self._clock.now_s + timeout_s, COMPLETION, give_up)

    def _promote(self, source: int, chunks: Runs) -> None:
        """Write what came from a slower tier into faster ones that keep such chunks."""
        staged = self._staging if self._tiers[source].stages else None  # this one has it already
        for attached in self._tiers[:source]:
            if attached.promote and attached is not staged:
                self._stores.promote(attached, chunks)
