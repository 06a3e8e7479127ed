"""Replays of any policy, through the class that the timed engine uses too; the trace's own times are the clock."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from sim.arrays import Ints
from sim.mrc.segments import Flags, Visits
from sim.policies.base import Future, PolicyContext
from sim.policies.future import KnownFuture
from sim.policies.making import make_policy
from sim.replay import block_hits, prefix_hits
from sim.runs import STRAND_BITS, Chain, Runs

_PROGRESS_EVERY: Final = 256  # requests


def check_replayable(policy: str) -> None:
    """Raise what making the policy for a replay raises: before the trace is read, which may take minutes."""
    context = PolicyContext(
        capacity_chunks=1,
        now_s=lambda: 0.0,
        position=lambda _: 0,
        generation=lambda _: 1,
        future=KnownFuture([(range(1),)], lambda: 0),
    )
    make_policy(policy, context)


class PolicyReplays:
    """Replays of one trace, one at a time.

    A policy is told the capacity, the time (that of the arrival), place and generation of a chunk, and the future.
    What chunks cost to recompute and to reload is not known here.
    """

    def __init__(self, visits: Visits, on_progress: Callable[[float], None] = lambda _: None) -> None:
        self._visits = visits
        self._on_progress = on_progress
        self._used = 0  # requests, or block references, that have begun in this replay
        self._now_s = 0.0
        self._futures: dict[bool, Future] = {}

    def block_flags(self, policy: str, capacity_blocks: int) -> Flags:
        """Return by block reference whether it hits, each block being on its own; raises as :meth:`leaf_hits`."""
        visits = self._visits
        context = self._context(
            capacity_blocks,
            position=lambda key: visits.position(visits.key(key >> STRAND_BITS)),
            generation=lambda key: visits.generation(visits.key(key >> STRAND_BITS)),
            future=self._future(by_block=True),
        )
        hits = block_hits(make_policy(policy, context), capacity_blocks, self._blocks())
        return np.frombuffer(hits, dtype=np.bool_)

    def leaf_hits(self, policy: str, capacity_blocks: int) -> Ints:
        """Return by request the blocks that hit where only leaves are evicted.

        Raises UnknownNameError or InputError for a policy that cannot be made, or that needs what is not known here;
        InvariantError for one that breaks its contract.
        """
        visits = self._visits
        context = self._context(
            capacity_blocks, position=visits.position, generation=visits.generation, future=self._future(by_block=False)
        )
        made = make_policy(policy, context, leaf_constrained=True)
        hits = [hit for hit, _ in prefix_hits(made, capacity_blocks, self._chains())]
        return np.array(hits, dtype=np.int64)

    def _context(
        self, capacity_blocks: int, *, position: Callable[[int], int], generation: Callable[[int], int], future: Future
    ) -> PolicyContext:
        self._used, self._now_s = 0, 0.0
        return PolicyContext(
            capacity_chunks=capacity_blocks,
            now_s=lambda: self._now_s,
            position=position,
            generation=generation,
            future=future,
        )

    def _future(self, *, by_block: bool) -> Future:
        if by_block not in self._futures:
            uses = self._block_uses if by_block else self._chain_uses
            self._futures[by_block] = _LaterKnown(uses, lambda: self._used)
        return self._futures[by_block]

    def _block_uses(self) -> Iterator[Runs]:
        for request in self._visits.block_numbers():
            for number in request:
                yield (range(number << STRAND_BITS, (number << STRAND_BITS) + 1),)

    def _chain_uses(self) -> Iterator[Runs]:
        return (chain.runs for chain in self._visits.chains())

    def _blocks(self) -> Iterator[int]:
        for request, numbers in enumerate(self._visits.block_numbers()):
            self._begin(request)
            for number in numbers:
                self._used += 1
                yield number

    def _chains(self) -> Iterator[Chain]:
        for request, chain in enumerate(self._visits.chains()):
            self._begin(request)
            self._used += 1
            yield chain

    def _begin(self, request: int) -> None:
        self._now_s = float(self._visits.arrived_at_s[request])
        if request % _PROGRESS_EVERY == 0:
            self._on_progress(request / len(self._visits.ends))


class _LaterKnown:
    """A future that is worked out when a policy first asks for it; most never do."""

    def __init__(self, uses: Callable[[], Iterator[Runs]], used: Callable[[], int]) -> None:
        self._uses = uses
        self._used = used
        self._known: KnownFuture | None = None

    @property
    def now(self) -> int:
        return self._used()

    def next_uses(self, run: range) -> Sequence[tuple[range, int]]:
        if self._known is None:
            self._known = KnownFuture(self._uses(), self._used)
        return self._known.next_uses(run)
