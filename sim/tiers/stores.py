"""Stores: out of HBM and from tier to tier.

A store takes room first and writes through tier by tier, so that a slower tier is fed from memory, not from HBM,
wherever there is a memory tier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sim.clock import COMPLETION, Clock
from sim.recording import TransferLog
from sim.run_sets import RunSet
from sim.runs import Runs, count, shifted
from sim.tiers.attached import AttachedTier, fill_page_cache
from sim.transfers.flows import WRITE, FlowNetwork
from sim.transfers.legs import Countdown, Done, move

_NOTHING: Final[Mapping[int, Runs]] = {}


class Stores:
    """Writes chunks into the tiers that lack them.

    Parameters
    ----------
    clock, network : Clock, FlowNetwork
        Time and links.
    tiers : sequence of AttachedTier
        Fastest first.
    staging : AttachedTier or None
        Which of them feeds slower ones, if any.
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
        staging: AttachedTier | None,
        replica: int,
        log: TransferLog,
    ) -> None:
        self._clock = clock
        self._network = network
        self._tiers = tiers
        self._staging = staging
        self._replica = replica
        self._log = log
        self._writes_anything = any(t.write_through for t in tiers)
        self._watching = [t for t in tiers if t.selects is not None or (t.gate is not None and t.gate.watches_uses)]
        self._fed = [t for t in tiers if t.write_through and t.fed_from_staging and t.selects is None]
        self._fed_selectively = [t for t in tiers if t.write_through and t.fed_from_staging and t.selects is not None]

    def store(self, request_id: int, chunks: Runs, on_left_hbm: Done, used: Runs = ()) -> bool:
        """Write a prompt's chunks through to the tiers that lack them.

        ``used`` are all chunks of the prompt, where this is its first time in HBM; ``chunks`` leaves out those that
        slower tiers served. Returns True if bytes leave HBM; then ``on_left_hbm()`` is called once when the last of
        them has left.
        """
        selected = self._note_use(used) if self._watching and used else _NOTHING
        if not self._writes_anything or not (chunks or selected):
            return False
        return self._write_through(request_id, chunks, selected, on_left_hbm)

    def store_answer(self, request_id: int, chunks: Runs, on_left_hbm: Done) -> bool:
        """Write what an answer has added through to the tiers that take answers; as :meth:`store` otherwise."""
        return self._write_through(request_id, chunks, _NOTHING, on_left_hbm, is_answer=True)

    def _write_through(
        self,
        request_id: int,
        chunks: Runs,
        selected: Mapping[int, Runs],
        on_left_hbm: Done,
        *,
        is_answer: bool = False,
    ) -> bool:
        leaving = Countdown(on_left_hbm)

        def staged() -> None:
            leaving.ended()
            self._cascade(request_id, chunks, selected, is_answer)

        for attached in self._tiers:
            if not attached.write_through or attached.fed_from_staging:
                continue
            if is_answer and not attached.takes_answers:
                continue
            is_staging = attached is self._staging
            offered = chunks if attached.selects is None else selected.get(attached.tier.index, ())
            if self.write(attached, offered, staged if is_staging else leaving.ended, request_id):
                leaving.under_way += 1
            elif is_staging:
                self._cascade(request_id, chunks, selected, is_answer)
        return leaving.under_way > 0

    def _note_use(self, used: Runs) -> dict[int, Runs]:
        """Tell filters and choosy placements of a prompt; return by tier what the latter want written."""
        selected = {}
        for attached in self._watching:
            keys = attached.keys(used)
            if attached.gate is not None:
                attached.gate.use(keys)
            if attached.selects is not None:
                chosen = attached.selects(keys)
                if chosen:
                    selected[attached.tier.index] = shifted(chosen, -attached.key_offset)
        return selected

    def _cascade(self, request_id: int, chunks: Runs, selected: Mapping[int, Runs], is_answer: bool) -> None:
        """Feed slower tiers from the staging tier."""
        fed = [attached for attached in self._fed if attached.takes_answers] if is_answer else self._fed
        if fed:
            self._feed(request_id, chunks, fed)
        for attached in self._fed_selectively:
            self._feed(request_id, selected.get(attached.tier.index, ()), [attached])

    def _feed(self, request_id: int, chunks: Runs, fed: Sequence[AttachedTier]) -> None:
        """Write what the staging tier has of these chunks; it keeps them until the last reader has them."""
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
        for attached in fed:
            readers.under_way += self.write(attached, held, readers.ended, request_id)
        if readers.under_way:
            # One pin for all that read from here: a second one would have to be counted chunk by chunk.
            source.pin(keys)
            source.in_transit += 1

    def promote(self, target: AttachedTier, chunks: Runs) -> None:
        """Write chunks that came from a slower tier into one that keeps such chunks, if it keeps these."""
        if target.touches is not None:
            chunks = shifted(target.touches.let_in(target.keys(chunks)), -target.key_offset)
        self.write(target, chunks)

    def keep(self, staging: AttachedTier, staged: Runs) -> Runs:
        """Make chunks resident that a load has brought into the room reserved for them; return those not kept."""
        kept = staged if staging.touches is None else staging.touches.let_in(staged)
        if kept and staging.gate is not None:
            kept = staging.gate.let_in(kept)
        staging.tier.arrive(kept)
        if staging.on_kept is not None:
            staging.on_kept(kept)
        if kept is staged:
            return ()
        here = RunSet(kept)
        return [part for run in staged for part in here.absent(run)]

    def write(
        self,
        target: AttachedTier,
        chunks: Runs,
        on_done: Done | None = None,
        request_id: int = -1,
        *,
        is_let_in: bool = False,
    ) -> bool:
        """Write those chunks that the target lacks and lets in; False if there is nothing to write or no room for it.

        ``is_let_in`` says that the gate has been passed.
        """
        tier = target.tier
        wanted: Runs = tier.missing(target.keys(chunks))
        if wanted and target.gate is not None and not is_let_in:
            wanted = target.gate.let_in(wanted)
            chunks = shifted(wanted, -target.key_offset)
        if not wanted:
            return False
        evicted_before = tier.evicted_chunks
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
        tier.storing_chunks += n_chunks
        began_s = self._clock.now_s

        def written() -> None:
            tier.arrive(keys)
            tier.storing_chunks -= n_chunks
            if target.on_kept is not None:
                target.on_kept(keys)
            if target.page_cache is not None:
                fill_page_cache(target.page_cache, keys)
            self._log.append(WRITE, tier.index, self._replica, request_id, n_bytes, began_s, self._clock.now_s)
            if on_done is not None:
                on_done()
            # Last, so that slower tiers have pinned what they read from here before those who wait take the room.
            tier.transfer_ended()

        evicted = tier.evicted_chunks - evicted_before
        if not (target.eviction_s and evicted):
            move(target.write_leg, n_chunks, self._network, began_s, written)
            return True
        # One file after another under a lock, whoever asks.
        begin_s = max(began_s, target.evicting_until_s) + evicted * target.eviction_s
        target.evicting_until_s = begin_s
        self._clock.at(begin_s, COMPLETION, lambda _: move(target.write_leg, n_chunks, self._network, begin_s, written))
        return True

    def _write_later(self, target: AttachedTier, chunks: Runs, on_done: Done | None, request_id: int) -> bool:
        def again() -> None:
            if not self.write(target, chunks, on_done, request_id, is_let_in=True) and on_done is not None:
                on_done()

        target.tier.wait_for_room(again)
        return True
