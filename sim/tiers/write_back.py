"""Write-back: what a tier evicts is saved in the tier below before it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sim.clock import Clock
from sim.recording import TransferLog
from sim.tiers.attached import KEY_BITS, AttachedTier, fill_page_cache
from sim.tiers.tier import Tier
from sim.transfers.flows import WRITE, FlowNetwork
from sim.transfers.legs import move

_KEY_MASK: Final = (1 << KEY_BITS) - 1


class WriteBack:
    """Saves the victims of one pool in a slower tier.

    Parameters
    ----------
    clock, network, log : Clock, FlowNetwork, TransferLog
        Time, links, and what notes each transfer.
    replica : int
        Whose path is taken, for the log.
    upper : Tier
        The pool that evicts.
    target : AttachedTier
        Where its victims go.
    keeps_views : bool
        Whether both tell apart the chunks of different replicas, so that a key is the same in both.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        network: FlowNetwork,
        log: TransferLog,
        replica: int,
        upper: Tier,
        target: AttachedTier,
        keeps_views: bool,
    ) -> None:
        self._clock = clock
        self._network = network
        self._log = log
        self._replica = replica
        self._upper = upper
        self._target = target
        self._keeps_views = keeps_views

    def _lower_key(self, key: int) -> int:
        return key if self._keeps_views else (key & _KEY_MASK) + self._target.key_offset

    def spill(self, victims: list[int]) -> list[int]:
        """Start saving those victims that the lower tier lacks and return the others, which may go at once.

        Those for which the lower tier has no room, and gets none by a transfer under way, are lost.
        """
        lower = self._target.tier
        by_lower_key = {self._lower_key(key): key for key in victims}
        wanted = lower.missing(list(by_lower_key))
        if not wanted:
            return victims
        granted = lower.reserve_or_wait(wanted)
        if granted is not None:
            lower.refused_chunks += len(wanted) - len(granted)
        leaving = wanted if granted is None else granted
        if not leaving:
            return victims
        upper_keys = [by_lower_key[key] for key in leaving]
        self._upper.leave(upper_keys)
        if granted is None:
            lower.wait_for_room(lambda: self._save_later(upper_keys, leaving))
        else:
            self._save(upper_keys, granted)
        stay = set(upper_keys)
        return [key for key in victims if key not in stay]

    def _save(self, upper_keys: Sequence[int], keys: Sequence[int]) -> None:
        """Write reserved ``keys`` back; ``upper_keys`` leave the tier above when that has ended."""
        target, lower = self._target, self._target.tier
        n_bytes = len(keys) * target.write_leg.chunk_bytes
        lower.in_transit += 1
        began_s = self._clock.now_s

        def written() -> None:
            lower.arrive(keys)
            lower.transfer_ended()
            if target.page_cache is not None:
                fill_page_cache(target.page_cache, keys)
            self._log.append(WRITE, lower.index, self._replica, -1, n_bytes, began_s, self._clock.now_s)
            self._upper.left(upper_keys)

        move(target.write_leg, len(keys), self._network, began_s, written)

    def _save_later(self, upper_keys: Sequence[int], keys: Sequence[int]) -> None:
        """Try again to save victims that had to wait for room; what finds none now is lost."""
        lower = self._target.tier
        wanted = lower.missing(keys)
        granted = lower.reserve_or_wait(wanted) if wanted else wanted
        if granted is None:
            lower.wait_for_room(lambda: self._save_later(upper_keys, keys))
            return
        lower.refused_chunks += len(wanted) - len(granted)
        if granted:
            self._save(upper_keys, granted)
        else:
            self._upper.left(upper_keys)
