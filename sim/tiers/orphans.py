"""Orphans: chunks that take room and cannot hit, because a chunk before them in their chain is in no tier at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sim.prefix_tree import KEY_MASK, PrefixTree
from sim.run_sets import RunSet
from sim.runs import STRAND_BITS
from sim.tiers.tier import Tier


def orphaned_chunks(tiers: Mapping[str, Sequence[Tier]], prefixes: PrefixTree) -> dict[str, int]:
    """Return by tier how many of its chunks no prompt can hit as things stand.

    A chunk is no orphan where all chunks before it lie in some pool, whoever reaches that pool: what is counted is a
    lower bound where replicas do not see each other's tiers.
    """
    reach = _Reach(RunSet(run for pools in tiers.values() for run in _own_keys(pools)), prefixes)
    return {name: sum(reach.orphans(run) for run in _own_keys(pools)) for name, pools in tiers.items()}


def _own_keys(pools: Iterable[Tier]) -> Iterable[range]:
    """Yield what pools hold, without the views of replicas in the keys."""
    for pool in pools:
        for run in pool.ready.runs():
            start = run.start & KEY_MASK
            yield range(start, start + len(run))


class _Reach:
    """How far each strand is held without a gap from the head of its chains."""

    def __init__(self, held: RunSet, prefixes: PrefixTree) -> None:
        self._held = held
        self._prefixes = prefixes
        self._ends: dict[int, int] = {}
        """By strand: the first key that cannot be reached."""

    def orphans(self, run: range) -> int:
        """Return how many chunks of a run lie behind a gap."""
        return max(run.stop - max(run.start, self._end(run.start)), 0)

    def _end(self, key: int) -> int:
        """Return the first key of this key's strand that cannot be reached."""
        pending = [key >> STRAND_BITS << STRAND_BITS]
        while pending:  # the strands before it, from the nearest to the first of the chain, and back
            first = pending[-1]
            parent = self._prefixes.parent(first)
            if parent is not None and parent >> STRAND_BITS not in self._ends:
                pending.append(parent >> STRAND_BITS << STRAND_BITS)
                continue
            pending.pop()
            connected = parent is None or parent < self._ends[parent >> STRAND_BITS]
            length = self._held.leading(range(first, first + (1 << STRAND_BITS))) if connected else 0
            self._ends[first >> STRAND_BITS] = first + max(length, 0)
        return self._ends[key >> STRAND_BITS]
