"""One tier's contents: which chunks are resident, pending or pinned, and a ledger that must balance.

The tier owns capacity, bytes, pins and statistics; its policy owns order only. Chunks come as runs, head first. Space
is taken when a transfer starts, pending chunks are no hits until they arrive, and pinned chunks cannot be evicted.
"""

from __future__ import annotations

from collections.abc import Callable

from models.errors import InvariantError
from sim.policies.base import EvictionPolicy
from sim.policies.hooks import hooks
from sim.policies.leaf import select_victims
from sim.run_sets import RunCounts, RunSet
from sim.runs import Runs, ascending, count, cut

Spill = Callable[[Runs], Runs]
"""Takes victims, starts write-backs for those that need one and returns the rest, which may go at once."""

ParentOf = Callable[[int], int | None]
"""Returns the chunk before another one in its chain, as :meth:`sim.prefix_tree.PrefixTree.parent` does."""


class Tier:
    """A pool of KV chunks.

    Parameters
    ----------
    name : str
        As in results.
    index : int
        Its place in the list of tiers (0 is HBM).
    capacity_units : int
        Room, in units: engine blocks in HBM, chunks elsewhere.
    units_per_chunk : int
        Units that one chunk takes.
    unit_bytes : float
        Bytes of one unit.
    policy : EvictionPolicy
        Orders the chunks.
    tail_first : bool
        Whether a run of chunks enters tail first, so that its tail is evicted before its head.
    parent_of : callable or None
        Given to policies that keep the prefix tree (``structure: leaf_constrained``).
    evicts : bool
        Whether chunks are evicted to make room; else what does not fit is refused.
    """

    __slots__ = (
        "_evict_from_policy",
        "_largest_units",
        "_leaving_units",
        "_miss",
        "_parent_of",
        "_waiters",
        "arrived_chunks",
        "capacity_units",
        "doomed",
        "dropped_chunks",
        "evicted_chunks",
        "evicts",
        "expired",
        "failed_loads",
        "filtered_chunks",
        "hit_tokens",
        "in_transit",
        "index",
        "name",
        "on_removed",
        "peak_units",
        "pending",
        "pinned",
        "policy",
        "read_bytes",
        "ready",
        "refused_chunks",
        "skipped_chunks",
        "spill",
        "storing_chunks",
        "tail_first",
        "unit_bytes",
        "units_per_chunk",
        "used_units",
        "write_bytes",
    )

    def __init__(
        self,
        *,
        name: str,
        index: int,
        capacity_units: int,
        units_per_chunk: int,
        unit_bytes: float,
        policy: EvictionPolicy,
        tail_first: bool = True,
        parent_of: ParentOf | None = None,
        evicts: bool = True,
    ) -> None:
        self.name = name
        self.index = index
        self.capacity_units = self._largest_units = capacity_units
        self.units_per_chunk = units_per_chunk
        self.unit_bytes = unit_bytes
        self.policy = policy
        _, self._miss, self._evict_from_policy, self.expired = hooks(policy)
        self.tail_first = tail_first
        self._parent_of = parent_of
        self.evicts = evicts
        self.ready = RunSet()
        self.pending = RunSet()
        self.pinned = RunCounts()
        self.doomed = RunSet()
        """Chunks that go with their last pin, or as soon as they have arrived: their owner has dropped them."""
        self.used_units = 0
        self.peak_units = 0
        self._leaving_units = 0
        self.in_transit = 0
        """Transfers under way that will free room or unpin chunks when they end."""
        self._waiters: list[Callable[[], None]] = []
        self.spill: Spill | None = None
        self.on_removed: Callable[[Runs], None] | None = None
        self.arrived_chunks = 0
        self.evicted_chunks = 0
        self.dropped_chunks = 0
        self.refused_chunks = 0
        self.filtered_chunks = 0
        self.skipped_chunks = 0
        self.failed_loads = 0
        self.storing_chunks = 0
        """Chunks that are being written here now; counted where something depends on it."""
        self.hit_tokens = 0
        self.read_bytes = 0.0
        self.write_bytes = 0.0  # all that arrives: stores, write-backs, promotions, what the kernel caches

    @property
    def chunk_bytes(self) -> float:
        """Bytes of one chunk here."""
        return self.units_per_chunk * self.unit_bytes

    @property
    def used_bytes(self) -> float:
        """Bytes taken, pending ones included."""
        return self.used_units * self.unit_bytes

    @property
    def capacity_bytes(self) -> float:
        """Bytes that fit."""
        return self.capacity_units * self.unit_bytes

    @property
    def free_units(self) -> int:
        """Units that nobody holds."""
        return self.capacity_units - self.used_units

    @property
    def available_units(self) -> int:
        """Units that are free or could be made so by evicting unpinned chunks."""
        return self.free_units + (len(self.ready) - len(self.pinned)) * self.units_per_chunk

    # Taking and giving room ------------------------------------------------------------------------------------------

    def take(self, units: int) -> bool:
        """Take units, evicting as needed; False (and nothing taken) where there is no room now."""
        if self.used_units + units > self.capacity_units and not self._make_room(units):
            return False
        used = self.used_units = self.used_units + units
        if used > self.peak_units:  # noqa: PLR1730 - max() is a call more on the hot path
            self.peak_units = used
        return True

    def give(self, units: int) -> None:
        """Give units back."""
        self.used_units -= units
        if self._waiters:
            self._wake_waiters()

    def _make_room(self, units: int) -> bool:
        short = self.used_units + units - self.capacity_units - self._leaving_units
        if short > 0:
            if not self.evicts:
                return False
            wanted = -(-short // self.units_per_chunk)
            if wanted > len(self.ready) - len(self.pinned):
                return False
            victims = select_victims(self.policy, wanted, self.pinned, self.ready)
            if count(victims) < wanted:
                return False  # a prefix tree keeps the ancestors of pinned chunks too
            self._evict(victims if self.spill is None else self.spill(victims))
        return self.used_units + units <= self.capacity_units

    def make_free(self, units: int) -> None:
        """Evict until so many units are free or leaving, as far as pins let it."""
        wanted = -(-(units - self.free_units - self._leaving_units) // self.units_per_chunk)
        victims = self.victims(min(wanted, len(self.ready) - len(self.pinned))) if wanted > 0 else ()
        if victims:
            self._evict(victims if self.spill is None else self.spill(victims))
            if self._waiters:
                self._wake_waiters()

    def victims(self, chunks: int) -> Runs:
        """Return whom so many more chunks would evict, the first to go first; fewer where pins keep the others."""
        return select_victims(self.policy, chunks, self.pinned, self.ready) if self.evicts else ()

    def _evict(self, runs: Runs) -> None:
        self.evicted_chunks += self._remove(runs, self._evict_from_policy)

    def _remove(self, runs: Runs, remove_from_policy: Callable[[range], None]) -> int:
        """Forget resident chunks and return how many they were."""
        removed = 0
        for run in runs:
            remove_from_policy(run)
            self.ready.remove(ascending(run))
            removed += len(run)
        self.used_units -= removed * self.units_per_chunk
        if self.on_removed is not None and removed:
            self.on_removed(runs)
        return removed

    def leave(self, runs: Runs) -> None:
        """Mark victims whose write-back has begun: they stay, pinned, until :meth:`left`."""
        self.pin(runs)
        self.in_transit += 1
        self._leaving_units += count(runs) * self.units_per_chunk

    def left(self, runs: Runs) -> None:
        """Evict victims whose write-back has ended (those that somebody reads now stay until the next eviction)."""
        self._leaving_units -= count(runs) * self.units_per_chunk
        free = [part for run in runs for part in self.pinned.remove(run)]
        self._drop_doomed(free)
        self._evict([part for run in free for part in self.ready.present(run)])
        self.transfer_ended()

    def transfer_ended(self) -> None:
        """Note the end of a transfer counted in ``in_transit``, once its room and pins have been given back."""
        self.in_transit -= 1
        if self._waiters:
            self._wake_waiters()

    def wait_for_room(self, callback: Callable[[], None]) -> None:
        """Call once, when room may have come free.

        Whoever waits while ``in_transit`` is not 0 will be called: the end of every such transfer wakes all.
        """
        self._waiters.append(callback)

    def stop_waiting(self, callback: Callable[[], None]) -> None:
        """Do not call one that waits for room."""
        self._waiters.remove(callback)

    def _wake_waiters(self) -> None:
        # Each is asked once a change; one that still finds no room queues up again. A new list, because what a waiter
        # does may free room and come back here.
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()

    # Chunks ----------------------------------------------------------------------------------------------------------

    def missing(self, runs: Runs) -> list[range]:
        """Return the parts of ``runs`` that are neither resident nor on their way."""
        ready, pending = self.ready, self.pending
        absent = []
        for run in runs:
            if ready.leading(run) != len(run):
                absent += ready.absent(run)
        return [part for run in absent for part in pending.absent(run)] if absent and pending else absent

    def reserve(self, runs: Runs) -> bool:
        """Take room for chunks that are on their way; False (nothing taken) where there is none."""
        if self._miss is not None:
            for run in runs:
                self._miss(run)
        if not self.take(count(runs) * self.units_per_chunk):
            return False
        for run in runs:
            self.pending.add(run)
        return True

    def reserve_some(self, runs: Runs) -> Runs:
        """Reserve as many of these chunks, from the head, as there is room for now, and return those."""
        if self.reserve(runs):
            return runs
        free = self.free_units // self.units_per_chunk
        most = cut(runs, 0, free + count(self.victims(count(runs))))
        return most if most and self.reserve(most) else ()

    def reserve_or_wait(self, runs: Runs) -> Runs | None:
        """Reserve all of these chunks that can ever fit; None where a transfer under way will free room to wait for.

        Where there is none, reserves as many as there is room for.
        """
        if self.reserve(runs):
            return runs
        most = cut(runs, 0, self.capacity_units // self.units_per_chunk)
        if count(most) < count(runs) and self.reserve(most):
            return most
        some = () if self.in_transit else self.reserve_some(most)
        # To reserve may be to write back: then that is what will free room.
        return some if some or not self.in_transit else None

    def arrive(self, runs: Runs) -> None:
        """Make reserved chunks resident: from now on they are hits."""
        for run in runs:
            self.pending.remove(run)
        self.write_bytes += self._admit(runs) * self.chunk_bytes
        self._drop_doomed(runs)

    def bring_back(self, runs: Runs) -> int:
        """Make chunks resident that are there already, as far as there is free room; return how many."""
        back = cut(self.missing(runs), 0, max(self.free_units, 0) // self.units_per_chunk)
        return self._admit(back) if back and self.take(count(back) * self.units_per_chunk) else 0

    def cancel(self, runs: Runs) -> None:
        """Give up reserved chunks that will not become resident."""
        for run in runs:
            self.pending.remove(run)
            if self.doomed:
                self.doomed.discard(run)
        self.give(count(runs) * self.units_per_chunk)

    def adopt(self, runs: Runs) -> list[range]:
        """Make chunks resident and pinned whose units are held already; return those that were new here."""
        new = [part for run in runs for part in self.ready.absent(run)]
        self._admit(new)
        self.pin(new)
        return new

    def _admit(self, runs: Runs) -> int:
        """Make chunks resident and return how many they are."""
        admitted = 0
        for run in reversed(runs) if self.tail_first else runs:
            self.ready.add(run)
            parent = None if self._parent_of is None else self._parent_of(run.start)
            self.policy.insert(run[::-1] if self.tail_first else run, parent)
            admitted += len(run)
        self.arrived_chunks += admitted
        return admitted

    def pin(self, runs: Runs) -> None:
        """Keep resident chunks from eviction; pins count."""
        for run in runs:
            self.pinned.add(run)

    def unpin(self, runs: Runs, *, wake: bool = True) -> None:
        """Take one pin off each chunk."""
        for run in runs:
            self._drop_doomed(self.pinned.remove(run))
        if wake and self._waiters:
            self._wake_waiters()

    def touch(self, runs: Runs) -> None:
        """Count a use of resident chunks, given head first; their head becomes the most recent."""
        for run in reversed(runs):
            self.policy.touch(run[::-1])

    def drop(self, runs: Runs) -> None:
        """Remove chunks because their owner says so (not to make room); pinned ones go with their last pin."""
        going: list[range] = []
        for run in runs:
            for here in self.ready.present(ascending(run)):
                free = self.pinned.absent(here)
                going += free
                if free != [here]:
                    self.doomed.add(here)
        for run in going:
            self.doomed.discard(run)
        if not going:
            return
        self.dropped_chunks += self._remove(going, self.policy.remove)
        if self._waiters:
            self._wake_waiters()

    def _drop_doomed(self, runs: Runs) -> None:
        """Remove those chunks, no longer pinned, that their owner dropped meanwhile."""
        if self.doomed:
            self.drop([part for run in runs for part in self.doomed.present(run)])

    def clear(self) -> None:
        """Drop everything."""
        self.drop(list(self.ready.runs()))

    def lose(self, runs: Runs) -> None:
        """Drop chunks, those on their way here too: they go when they arrive."""
        for run in runs:
            for part in self.pending.present(run):
                self.doomed.add(part)
        self.drop(runs)

    def resize(self, units: int) -> None:
        """Change the capacity; what does not fit any more is evicted, as far as pins let it."""
        self.capacity_units = units
        self._largest_units = max(units, self._largest_units)
        self.make_free(0)
        if self._waiters:
            self._wake_waiters()

    def check(self, private_units: int = 0) -> None:
        """Check the ledger once all transfers have ended.

        Raises
        ------
        InvariantError
            If chunks that came in are not accounted for, pins or reservations are left over, or capacity is exceeded.
        """
        resident = len(self.ready)
        problems = []
        if self.arrived_chunks != resident + self.evicted_chunks + self.dropped_chunks:
            problems.append(
                f"{self.arrived_chunks} chunks came in, but {resident} are resident, {self.evicted_chunks} evicted "
                f"and {self.dropped_chunks} dropped"
            )
        if self.used_units != resident * self.units_per_chunk + private_units:
            problems.append(f"{self.used_units} units are taken for {resident} chunks and {private_units} other units")
        if self.pinned or self.pending:
            problems.append(f"{len(self.pinned)} pins and {len(self.pending)} reservations are left over")
        if self.storing_chunks:
            problems.append(f"{self.storing_chunks} chunks are still being stored")
        if self.in_transit or self._waiters:
            problems.append(f"{self.in_transit} transfers are under way and {len(self._waiters)} callers wait")
        if self.peak_units > self._largest_units:
            problems.append(f"{self.peak_units} of {self._largest_units} units were taken")
        if problems:
            message = f"tier {self.name}: the ledger does not balance: " + "; ".join(problems)
            raise InvariantError(message)
