"""Stores: out of HBM and from tier to tier.

A store takes room first and writes through tier by tier, so that a slower tier is fed from memory, not from HBM,
wherever there is a memory tier.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.clock import Clock
from sim.recording import TransferLog
from sim.runs import Runs, count, shifted
from sim.tiers.attached import AttachedTier, fill_page_cache
from sim.transfers.flows import WRITE, FlowNetwork
from sim.transfers.legs import Countdown, Done, move


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

        for attached in self._tiers:
            if not attached.write_through or attached.fed_from_staging:
                continue
            is_staging = attached is self._staging
            if self.write(attached, chunks, staged if is_staging else leaving.ended, request_id):
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
        fed = [attached for attached in self._tiers if attached.write_through and attached.fed_from_staging]
        for attached in fed:
            readers.under_way += self.write(attached, held, readers.ended, request_id)
        if readers.under_way:
            # One pin for all that read from here: a second one would have to be counted chunk by chunk.
            source.pin(keys)
            source.in_transit += 1

    def write(self, target: AttachedTier, chunks: Runs, on_done: Done | None = None, request_id: int = -1) -> bool:
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
            if not self.write(target, chunks, on_done, request_id) and on_done is not None:
                on_done()

        target.tier.wait_for_room(again)
        return True
