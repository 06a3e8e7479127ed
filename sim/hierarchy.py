"""The tiers below HBM as one replica sees them: look-up, loads, stores and write-backs.

A look-up has no side effects. A load pins its sources, takes staging room in the memory tier that reads pass through and
moves the bytes as flows; a store takes room first and writes through tier by tier, so that a slower tier is fed from
memory, not from HBM, wherever there is a memory tier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from models.software import SoftwarePath
from sim.clock import Clock
from sim.flows import READ, WRITE, FlowNetwork, Path
from sim.recording import TransferLog
from sim.tier import Tier

KEY_BITS: Final = 62
"""Chunk keys are below 2**62; what lies above tells apart the files of replicas that do not see each other's index."""
_KEY_MASK: Final = (1 << KEY_BITS) - 1

Done = Callable[[], None]


@dataclass(slots=True)
class WriteCache:
    """The fast write buffer of a drive: writes are quick until it is full and it drains at the sustained rate.

    Parameters
    ----------
    capacity_bytes : float
        Its size [B].
    drain_bytes_per_s : float
        The sustained write rate [B/s].
    """

    capacity_bytes: float
    drain_bytes_per_s: float
    _level_bytes: float = 0.0
    _at_s: float = 0.0

    def absorbs(self, n_bytes: float, now_s: float) -> bool:
        """Add a write and say whether it still fits."""
        drained = (now_s - self._at_s) * self.drain_bytes_per_s
        self._level_bytes = max(0.0, self._level_bytes - drained)
        self._at_s = now_s
        if self._level_bytes + n_bytes > self.capacity_bytes:
            return False
        self._level_bytes += n_bytes
        return True


@dataclass(slots=True)
class Leg:
    """One stage of a transfer: a path and the software that drives it.

    Parameters
    ----------
    path : Path
        The links that its bytes cross.
    chunk_bytes : int
        Bytes of one chunk over all workers [B].
    software : SoftwarePath
        Chunks in flight, time of a round (device and network latency included), bandwidth of one stream and one process.
    processes : int
        Workers that move their shards at once (one a GPU).
    write_cache, sustained_path : WriteCache or None, Path or None
        A drive's fast write buffer, and the path that writes take once it is full.
    """

    path: Path
    chunk_bytes: int
    software: SoftwarePath
    processes: int
    write_cache: WriteCache | None = None
    sustained_path: Path | None = None
    _ceilings: dict[int, float] = field(default_factory=dict)

    def ceiling_bytes_per_s(self, chunks: int) -> float:
        """Return the most that a flow of that many chunks can get [B/s], links unshared.

        The smaller of the software path's law (rounds of software time + piece / stream) and of the path's capacity with
        one round's software time before the first byte.
        """
        ceiling = self._ceilings.get(chunks)
        if ceiling is None:
            n_bytes = chunks * self.chunk_bytes
            alone = n_bytes / (self.software.software_s + n_bytes / self.path.capacity_bytes_per_s)
            law = self.software.ceiling_bytes_per_s(
                chunks=chunks, chunk_bytes=self.chunk_bytes, processes=self.processes
            )
            ceiling = self._ceilings[chunks] = min(alone, law)
        return ceiling


@dataclass(slots=True)
class AttachedTier:
    """A tier below HBM as one replica reaches it.

    Parameters
    ----------
    tier : Tier
        The pool.
    key_offset : int
        Added to chunk keys where replicas do not see each other's entries; 0 otherwise.
    read_legs : tuple of Leg
        From the tier to HBM: one leg, or two where the copy into HBM follows the read (store-and-forward).
    write_leg : Leg
        From HBM, or from the staging tier where there is one and this tier is fed from it.
    fed_from_staging : bool
        Whether its writes start from the staging tier.
    stages : bool
        Whether its reads pass through the staging tier.
    write_through, write_back : bool
        Placement.
    promote : bool
        Whether chunks read from slower tiers stay here.
    waits_when_full : bool
        Whether a store waits for room (or drops what does not fit).
    page_cache : Tier or None
        The host's page cache in front of it, which its reads and writes fill.
    """

    tier: Tier
    key_offset: int
    read_legs: tuple[Leg, ...]
    write_leg: Leg
    fed_from_staging: bool
    stages: bool
    write_through: bool
    write_back: bool
    promote: bool
    waits_when_full: bool
    page_cache: Tier | None = None

    def keys(self, chunks: Sequence[int]) -> Sequence[int]:
        """Return the tier's keys of these chunks."""
        offset = self.key_offset
        return [chunk + offset for chunk in chunks] if offset else chunks


class Segment(NamedTuple):
    """A run of chunks ``start .. end - 1`` of a request that one tier serves."""

    tier: int
    start: int
    end: int


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
        True: a prefix is served tier after tier, never back to a faster one (LMCache). False: each chunk from the fastest
        tier that holds it.
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
        self._writes_anything = any(t.write_through for t in self.tiers)

    # Look-up ---------------------------------------------------------------------------------------------------------

    def lookup(self, chunks: Sequence[int], start: int) -> list[Segment]:
        """Return which tier serves which chunks from ``start`` on, as far as an unbroken chain reaches."""
        segments: list[Segment] = []
        views = [(i, t.tier.ready, t.key_offset) for i, t in enumerate(self.tiers) if t.tier.ready]
        first = 0
        run_tier, run_start, position = -1, start, start
        for position in range(start, len(chunks)):
            chunk = chunks[position]
            for place in range(first, len(views)):
                i, ready, offset = views[place]
                if chunk + offset in ready:
                    if i != run_tier:
                        if run_tier >= 0:
                            segments.append(Segment(run_tier, run_start, position))
                        run_tier, run_start = i, position
                        if self._grouped:
                            first = place
                    break
            else:
                break
        else:
            position = len(chunks)
        if run_tier >= 0:
            segments.append(Segment(run_tier, run_start, position))
        return segments

    # Loads -----------------------------------------------------------------------------------------------------------

    def pin(self, chunks: Sequence[int], segments: Sequence[Segment]) -> None:
        """Keep what a look-up found until it has been read, and count the use."""
        for segment in segments:
            attached = self.tiers[segment.tier]
            keys = attached.keys(chunks[segment.start : segment.end])
            attached.tier.pin(keys)
            attached.tier.touch(keys)

    def load(
        self, request_id: int, chunks: Sequence[int], segments: Sequence[Segment], spent_s: list[float], on_done: Done
    ) -> None:
        """Read pinned segments into HBM; ``spent_s`` gains each tier's loading time [s]."""
        if self._serial or len(segments) == 1:
            self._load_in_turn(request_id, chunks, list(segments), spent_s, on_done)
            return
        left = len(segments)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                on_done()

        for segment in segments:
            self._load_in_turn(request_id, chunks, [segment], spent_s, one_done)

    def _load_in_turn(
        self, request_id: int, chunks: Sequence[int], segments: list[Segment], spent_s: list[float], on_done: Done
    ) -> None:
        segment = segments.pop(0)
        began_s = self._clock.now_s

        def ended() -> None:
            spent_s[segment.tier + 1] += self._clock.now_s - began_s
            if segments:
                self._load_in_turn(request_id, chunks, segments, spent_s, on_done)
            else:
                on_done()

        self._load_segment(request_id, segment.tier, chunks[segment.start : segment.end], ended)

    def _load_segment(self, request_id: int, tier: int, chunks: Sequence[int], on_done: Done) -> None:
        source = self.tiers[tier]
        keys = source.keys(chunks)
        staging = self._staging if source.stages else None
        staged: list[int] = []
        if staging is not None:
            wanted = staging.tier.missing(staging.keys(chunks))
            staged = _reserve_some(staging.tier, wanted)
            if len(staged) < len(wanted):
                if staging.tier.in_transit:
                    # Somebody will free room: wait for it, with what was granted already given back.
                    if staged:
                        staging.tier.cancel(staged)
                    staging.tier.wait_for_room(lambda: self._load_segment(request_id, tier, chunks, on_done))
                    return
                self.unstaged_chunks += len(wanted) - len(staged)
            staging.tier.in_transit += 1
        legs = source.read_legs
        began_s = self._clock.now_s
        n_bytes = len(keys) * legs[0].chunk_bytes
        source.tier.read_bytes += n_bytes

        def copied() -> None:
            source.tier.unpin(keys)
            if staging is not None:
                staging.tier.in_transit -= 1
                if not staging.promote and staged:
                    staging.tier.cancel(staged)
            self._log.append(READ, source.tier.index, self._replica, request_id, n_bytes, began_s, self._clock.now_s)
            self._promote(tier, chunks)
            on_done()

        def read() -> None:
            if source.page_cache is not None:
                _fill_page_cache(source.page_cache, keys)
            if staging is not None and staging.promote and staged:
                staging.tier.arrive(staged)
            if len(legs) == 1:
                copied()
            else:
                self._flow(legs[1], len(keys), copied)

        self._flow(legs[0], len(keys), read)

    def _promote(self, source: int, chunks: Sequence[int]) -> None:
        """Write what came from a slower tier into faster ones that keep such chunks (the staging tier has it already)."""
        for attached in self.tiers[:source]:
            if attached.promote and attached is not self._staging:
                self._write(attached, chunks, None)

    def _flow(self, leg: Leg, chunks: int, on_done: Done) -> None:
        n_bytes = chunks * leg.chunk_bytes
        path = leg.path
        if (
            leg.write_cache is not None
            and leg.sustained_path is not None
            and not leg.write_cache.absorbs(n_bytes, self._clock.now_s)
        ):
            path = leg.sustained_path
        self._network.start(path, n_bytes, on_done, leg.ceiling_bytes_per_s(chunks))

    # Stores ----------------------------------------------------------------------------------------------------------

    def store(self, request_id: int, chunks: Sequence[int], on_left_hbm: Done) -> bool:
        """Write a prompt's chunks through to the tiers that lack them.

        Returns True if bytes leave HBM; then ``on_left_hbm()`` is called once when the last of them has left.
        """
        if not self._writes_anything or not chunks:
            return False
        under_way = 0

        def left() -> None:
            nonlocal under_way
            under_way -= 1
            if not under_way:
                on_left_hbm()

        def staged() -> None:
            left()
            self._cascade(request_id, chunks)

        for attached in self.tiers:
            if not attached.write_through or attached.fed_from_staging:
                continue
            is_staging = attached is self._staging
            if self._write(attached, chunks, staged if is_staging else left, request_id):
                under_way += 1
            elif is_staging:
                self._cascade(request_id, chunks)
        return under_way > 0

    def _cascade(self, request_id: int, chunks: Sequence[int]) -> None:
        """Feed slower tiers from the staging tier, which pins what they read."""
        staging = self._staging
        if staging is None:
            return
        held = self._held(staging, chunks)
        for attached in self.tiers:
            if attached.write_through and attached.fed_from_staging:
                self._write(attached, held, None, request_id, staging)

    @staticmethod
    def _held(source: AttachedTier, chunks: Sequence[int]) -> Sequence[int]:
        """Return those chunks that the source still has."""
        ready, offset = source.tier.ready, source.key_offset
        return [chunk for chunk in chunks if chunk + offset in ready] if offset else list(
            filter(ready.__contains__, chunks)
        )

    def _write(
        self,
        target: AttachedTier,
        chunks: Sequence[int],
        on_done: Done | None,
        request_id: int = -1,
        source: AttachedTier | None = None,
    ) -> bool:
        """Write those chunks that the target lacks; False if there is nothing to write or no room for it."""
        tier = target.tier
        wanted = tier.missing(target.keys(chunks))
        if not wanted:
            return False
        keys = _reserve_some(tier, wanted)
        if len(keys) < len(wanted):
            if tier.in_transit and (target.waits_when_full or tier.spill is not None):
                if keys:
                    tier.cancel(keys)
                return self._write_later(target, chunks, on_done, request_id, source)
            tier.refused_chunks += len(wanted) - len(keys)
            if not keys:
                return False
        offset = target.key_offset
        source_keys: Sequence[int] = ()
        if source is not None:
            source_keys = source.keys([key - offset for key in keys] if offset else keys)
            source.tier.pin(source_keys)
            source.tier.in_transit += 1
        n_bytes = len(keys) * target.write_leg.chunk_bytes
        tier.write_bytes += n_bytes
        tier.in_transit += 1
        began_s = self._clock.now_s

        def written() -> None:
            tier.in_transit -= 1
            tier.arrive(keys)
            if target.page_cache is not None:
                _fill_page_cache(target.page_cache, keys)
            if source is not None:
                source.tier.in_transit -= 1
                source.tier.unpin(source_keys)
            self._log.append(WRITE, tier.index, self._replica, request_id, n_bytes, began_s, self._clock.now_s)
            if on_done is not None:
                on_done()

        self._flow(target.write_leg, len(keys), written)
        return True

    def _write_later(
        self,
        target: AttachedTier,
        chunks: Sequence[int],
        on_done: Done | None,
        request_id: int,
        source: AttachedTier | None,
    ) -> bool:
        def again() -> None:
            held = chunks if source is None else self._held(source, chunks)
            if not self._write(target, held, on_done, request_id, source) and on_done is not None:
                on_done()

        target.tier.wait_for_room(again)
        return True

    # Write-back ------------------------------------------------------------------------------------------------------

    def spill_to(self, upper: Tier, target: AttachedTier) -> Callable[[list[int]], list[int]]:
        """Return the function that saves ``upper``'s victims in ``target`` before they go."""

        def spill(victims: list[int]) -> list[int]:
            lower = target.tier
            offset = target.key_offset
            missing = set(lower.missing([(key & _KEY_MASK) + offset for key in victims]))
            saved = [key for key in victims if (key & _KEY_MASK) + offset in missing]
            if not saved:
                return victims
            lower_keys = [(key & _KEY_MASK) + offset for key in saved]
            upper.leave(saved)

            def go() -> None:
                if lower.reserve(lower_keys):
                    n_bytes = len(lower_keys) * target.write_leg.chunk_bytes
                    lower.write_bytes += n_bytes
                    lower.in_transit += 1
                    began_s = self._clock.now_s

                    def written() -> None:
                        lower.in_transit -= 1
                        lower.arrive(lower_keys)
                        self._log.append(WRITE, lower.index, self._replica, -1, n_bytes, began_s, self._clock.now_s)
                        upper.left(saved)

                    self._flow(target.write_leg, len(lower_keys), written)
                elif lower.in_transit:
                    lower.wait_for_room(go)
                else:
                    lower.refused_chunks += len(lower_keys)
                    upper.left(saved)

            go()
            gone = set(saved)
            return [key for key in victims if key not in gone]

        return spill


def _reserve_some(tier: Tier, keys: Sequence[int]) -> list[int]:
    """Reserve as many of ``keys``, from the head, as there is room for."""
    if not keys:
        return []
    if tier.reserve(keys):
        return list(keys)
    room = tier.available_units // tier.units_per_chunk
    if 0 < room < len(keys) and tier.reserve(keys[:room]):
        return list(keys[:room])
    return []


def _fill_page_cache(cache: Tier, keys: Sequence[int]) -> None:
    """Note in the page cache what the kernel has just read or written (its copy costs no transfer of its own)."""
    new = _reserve_some(cache, cache.missing(keys))
    if new:
        cache.arrive(new)

