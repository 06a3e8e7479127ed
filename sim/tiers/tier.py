"""One tier's contents: which chunks are resident, pending or pinned, and a ledger that must balance.

The tier owns capacity, bytes, pins and statistics; its policy owns order only. Space is taken when a transfer starts,
pending chunks are no hits until they arrive, and pinned chunks cannot be evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import filterfalse

from models.errors import InvariantError
from sim.policies.base import EvictionPolicy
from sim.policies.leaf import select_victims

Spill = Callable[[list[int]], list[int]]
"""Takes victims, starts write-backs for those that need one and returns the rest, which may go at once."""


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
    parents : mapping or None
        Each chunk's predecessor in its chain, for policies that keep the prefix tree (``structure: leaf_constrained``).
    """

    __slots__ = (
        "_doomed",
        "_leaving_units",
        "_parents",
        "_pinned_again",
        "_waiters",
        "arrived_chunks",
        "capacity_units",
        "dropped_chunks",
        "evicted_chunks",
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
        "spill",
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
        parents: Mapping[int, int] | None = None,
    ) -> None:
        self.name = name
        self.index = index
        self.capacity_units = capacity_units
        self.units_per_chunk = units_per_chunk
        self.unit_bytes = unit_bytes
        self.policy = policy
        self.tail_first = tail_first
        self._parents = parents
        self.ready = policy.residents
        self.pending: set[int] = set()
        self.pinned: set[int] = set()
        self._pinned_again: dict[int, int] = {}
        self._doomed: set[int] = set()
        self.used_units = 0
        self.peak_units = 0
        self._leaving_units = 0
        self.in_transit = 0
        """Transfers under way that will free room or unpin chunks when they end."""
        self._waiters: list[Callable[[], None]] = []
        self.spill: Spill | None = None
        self.on_removed: Callable[[list[int]], None] | None = None
        self.arrived_chunks = 0
        self.evicted_chunks = 0
        self.dropped_chunks = 0
        self.refused_chunks = 0
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
            count = -(-short // self.units_per_chunk)
            if count > len(self.ready) - len(self.pinned):
                return False
            victims = select_victims(self.policy, count, self.pinned)
            if len(victims) < count:
                return False  # a prefix tree keeps the ancestors of pinned chunks too
            self._evict(victims if self.spill is None else self.spill(victims))
        return self.used_units + units <= self.capacity_units

    def _evict(self, keys: list[int]) -> None:
        self.evicted_chunks += len(keys)
        self._remove(keys)

    def _remove(self, keys: list[int]) -> None:
        self.policy.remove(keys)
        self.used_units -= len(keys) * self.units_per_chunk
        if self.on_removed is not None and keys:
            self.on_removed(keys)

    def leave(self, keys: Sequence[int]) -> None:
        """Mark victims whose write-back has begun: they stay, pinned, until :meth:`left`."""
        self.pin(keys)
        self.in_transit += 1
        self._leaving_units += len(keys) * self.units_per_chunk

    def left(self, keys: Sequence[int]) -> None:
        """Evict victims whose write-back has ended (those that somebody reads now stay until the next eviction)."""
        self._leaving_units -= len(keys) * self.units_per_chunk
        self.unpin(keys, wake=False)
        self._evict([key for key in keys if key not in self.pinned and key in self.ready])
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

    def _wake_waiters(self) -> None:
        # Each is asked once a change; one that still finds no room queues up again. A new list, because what a waiter
        # does may free room and come back here.
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()

    # Chunks ----------------------------------------------------------------------------------------------------------

    def missing(self, keys: Sequence[int]) -> list[int]:
        """Return those of ``keys`` that are neither resident nor on their way."""
        absent = list(filterfalse(self.ready.__contains__, keys))
        return list(filterfalse(self.pending.__contains__, absent)) if self.pending else absent

    def reserve(self, keys: Sequence[int]) -> bool:
        """Take room for chunks that are on their way; False (nothing taken) where there is none."""
        if not self.take(len(keys) * self.units_per_chunk):
            return False
        self.pending.update(keys)
        return True

    def reserve_some(self, keys: Sequence[int]) -> Sequence[int]:
        """Reserve as many of ``keys``, from the head, as there is room for now, and return those."""
        if self.reserve(keys):
            return keys
        free = self.free_units // self.units_per_chunk
        most = keys[: free + len(select_victims(self.policy, len(keys), self.pinned))]
        return most if most and self.reserve(most) else ()

    def reserve_or_wait(self, keys: Sequence[int]) -> Sequence[int] | None:
        """Reserve all of ``keys`` that can ever fit; None where a transfer under way will free room to wait for.

        Where there is none, reserves as many as there is room for.
        """
        if self.reserve(keys):
            return keys
        most = keys[: self.capacity_units // self.units_per_chunk]
        if len(most) < len(keys) and self.reserve(most):
            return most
        some = () if self.in_transit else self.reserve_some(most)
        # To reserve may be to write back: then that is what will free room.
        return some if some or not self.in_transit else None

    def arrive(self, keys: Sequence[int]) -> None:
        """Make reserved chunks resident: from now on they are hits."""
        self.pending.difference_update(keys)
        self.write_bytes += len(keys) * self.chunk_bytes
        self._admit(keys)

    def cancel(self, keys: Sequence[int]) -> None:
        """Give up reserved chunks that will not become resident."""
        self.pending.difference_update(keys)
        self.give(len(keys) * self.units_per_chunk)

    def adopt(self, keys: Sequence[int]) -> list[int]:
        """Make chunks resident and pinned whose units are held already; return those that were new here."""
        new = list(filterfalse(self.ready.__contains__, keys))
        if new:
            self._admit(new)
            self.pinned.update(new)
        return new

    def _admit(self, keys: Sequence[int]) -> None:
        if self._parents is None:
            self.policy.insert(keys[::-1] if self.tail_first else keys)
        else:
            # A tree needs each chunk's parent: keys that arrive together need not be one unbroken run.
            for key in keys[::-1] if self.tail_first else keys:
                self.policy.insert((key,), self._parents.get(key))
        self.arrived_chunks += len(keys)

    # Most pins are the only one of their chunk: a set holds them at C speed, and a dict counts the others.
    def pin(self, keys: Sequence[int]) -> None:
        """Keep resident chunks from eviction; pins count."""
        pinned, again = self.pinned, self._pinned_again
        for key in pinned.intersection(keys):
            again[key] = again.get(key, 0) + 1
        pinned.update(keys)

    def unpin(self, keys: Sequence[int], *, wake: bool = True) -> None:
        """Take one pin off each chunk."""
        again = self._pinned_again
        kept = again.keys() & keys if again else ()
        self.pinned.difference_update(keys)
        if kept:
            self.pinned.update(kept)
            for key in kept:
                if again[key] == 1:
                    del again[key]
                else:
                    again[key] -= 1
        if self._doomed:
            self.drop(self._doomed.intersection(keys))
        if wake and self._waiters:
            self._wake_waiters()

    def touch(self, keys: Sequence[int]) -> None:
        """Count a use of a run of resident chunks, given head first; its head becomes the most recent."""
        self.policy.touch(keys[::-1])

    def drop(self, keys: Iterable[int]) -> None:
        """Remove chunks because their owner says so (not to make room); pinned ones go with their last pin."""
        ready, pinned, doomed = self.ready, self.pinned, self._doomed
        going = []
        for key in keys:
            if key in pinned:
                doomed.add(key)
            elif key in ready:
                going.append(key)
        if not going:
            return
        doomed.difference_update(going)
        self.dropped_chunks += len(going)
        self._remove(going)
        if self._waiters:
            self._wake_waiters()

    def clear(self) -> None:
        """Drop everything."""
        self.drop(list(self.ready))

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
        if self.pinned or self._pinned_again or self.pending:
            problems.append(f"{len(self.pinned)} pins and {len(self.pending)} reservations are left over")
        if self.in_transit or self._waiters:
            problems.append(f"{self.in_transit} transfers are under way and {len(self._waiters)} callers wait")
        if self.peak_units > self.capacity_units:
            problems.append(f"{self.peak_units} of {self.capacity_units} units were taken")
        if problems:
            message = f"tier {self.name}: the ledger does not balance: " + "; ".join(problems)
            raise InvariantError(message)
