"""Write-back: what a tier evicts is saved in the tier below before it goes."""

from __future__ import annotations

from sim.clock import Clock
from sim.recording import TransferLog
from sim.run_sets import RunSet
from sim.runs import Runs, ascending, count, cut
from sim.tiers.attached import AttachedTier, fill_page_cache, keys_below
from sim.tiers.gate import Gate
from sim.tiers.tier import Tier
from sim.transfers.flows import WRITE, FlowNetwork
from sim.transfers.legs import move


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

    def spill(self, victims: Runs) -> Runs:
        """Start saving those victims that the lower tier lacks and return the others, which may go at once.

        Those for which the lower tier has no room, and gets none by a transfer under way, are lost.
        """
        lower = self._target.tier
        wanted: list[range] = []  # here the last victim comes first: what was kept longest is worth most
        upper: list[range] = []
        taken = RunSet()  # two views above may hold what is one chunk below
        for victim in map(ascending, reversed(victims)):
            below = keys_below(victim, self._target, keeps_views=self._keeps_views)
            for part in lower.missing(taken.absent(below)):
                taken.add(part)
                wanted.append(part)
                upper.append(victim[part.start - below.start : part.stop - below.start])
        if wanted and self._target.gate is not None:
            wanted, upper = _let_in(self._target.gate, wanted, upper)
        if not wanted:
            return victims
        granted = lower.reserve_or_wait(wanted)
        if granted is not None:
            lower.refused_chunks += count(wanted) - count(granted)
        leaving = wanted if granted is None else granted
        if not leaving:
            return victims
        leaving_above = cut(upper, 0, count(leaving))
        self._upper.leave(leaving_above)
        if granted is None:
            lower.wait_for_room(lambda: self._save_later(leaving_above, leaving))
        else:
            self._save(leaving_above, granted)
        stay = RunSet(leaving_above)
        return [part for victim in victims for part in stay.absent(victim)]

    def _save(self, upper_keys: Runs, keys: Runs) -> None:
        """Write reserved ``keys`` back; ``upper_keys`` leave the tier above when that has ended."""
        target, lower = self._target, self._target.tier
        n_chunks = count(keys)
        n_bytes = n_chunks * target.write_leg.chunk_bytes
        lower.in_transit += 1
        lower.storing_chunks += n_chunks
        began_s = self._clock.now_s

        def written() -> None:
            # In the order in which they were given up above, whichever end of a run enters first.
            lower.arrive(keys if lower.tail_first else keys[::-1])
            lower.storing_chunks -= n_chunks
            if target.on_kept is not None:
                target.on_kept(keys)
            lower.transfer_ended()
            if target.page_cache is not None:
                fill_page_cache(target.page_cache, keys)
            self._log.append(WRITE, lower.index, self._replica, -1, n_bytes, began_s, self._clock.now_s)
            self._upper.left(upper_keys)

        move(target.write_leg, n_chunks, self._network, began_s, written)

    def _save_later(self, upper_keys: Runs, keys: Runs) -> None:
        """Try again to save victims that had to wait for room; what finds none now is lost."""
        lower = self._target.tier
        wanted = lower.missing(keys)
        granted = lower.reserve_or_wait(wanted) if wanted else wanted
        if granted is None:
            lower.wait_for_room(lambda: self._save_later(upper_keys, keys))
            return
        lower.refused_chunks += count(wanted) - count(granted)
        if granted:
            self._save(upper_keys, granted)
        else:
            self._upper.left(upper_keys)


def _let_in(gate: Gate, wanted: list[range], upper: list[range]) -> tuple[list[range], list[range]]:
    """Return what may go in of ``wanted``, and the same chunks by their keys above."""
    admitted = gate.let_in(wanted)
    if admitted is wanted:
        return wanted, upper
    let_in = RunSet(admitted)
    below: list[range] = []
    above: list[range] = []
    for run, key in zip(wanted, upper, strict=True):
        for part in let_in.present(run):
            below.append(part)
            above.append(key[part.start - run.start : part.stop - run.start])
    return below, above
