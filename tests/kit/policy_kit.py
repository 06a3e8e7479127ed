"""Eviction policies outside a run: what they are told, and small caches to play them in."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sim.policies.base import EvictionPolicy, PolicyContext
from sim.policies.future import KnownFuture
from sim.policies.hooks import hooks
from sim.policies.making import make_policy
from sim.runs import STRAND_BITS


def key_of(number: int) -> int:
    """The first chunk of a strand of its own: nothing continues it."""
    return number << STRAND_BITS


class Cache:
    """A cache of single blocks, by small numbers: a miss evicts one where the cache is full, and is stored.

    Time passes by 1 s an access; a block's place in its prompt and its turn are what the test says, 0 and 1 if nothing.
    """

    def __init__(
        self,
        name: str,
        capacity: int,
        *,
        positions: dict[int, int] | None = None,
        turns: dict[int, int] | None = None,
        future: Iterable[int] | None = None,
        known: dict[str, Any] | None = None,
        **parameters: object,
    ) -> None:
        self.now = 0
        self.capacity = capacity
        places, generations = positions or {}, turns or {}
        context = PolicyContext(
            capacity_chunks=capacity,
            now_s=lambda: float(self.now),
            position=lambda key: places.get(key >> STRAND_BITS, 0),
            generation=lambda key: generations.get(key >> STRAND_BITS, 1),
            recompute_s=lambda position: 1.0 + position,
            reload_s=0.5,
            future=None
            if future is None
            else KnownFuture(([range(key_of(n), key_of(n) + 1)] for n in future), lambda: self.now),
        )
        self.policy = make_policy(name, replace(context, **(known or {})), **parameters)
        self._hooks = hooks(self.policy)
        self.resident: set[int] = set()
        self.hits: list[int] = []

    def access(self, *numbers: int) -> list[int]:
        """Ask for blocks one after another; return those that were evicted."""
        return [gone for number in numbers for gone in self._access(number)]

    def _access(self, number: int) -> list[int]:
        self.now += 1
        run = range(key_of(number), key_of(number) + 1)
        if self._hooks.expired is not None:
            for gone in self._hooks.expired():
                self.policy.remove(gone)
                self.resident.difference_update(key >> STRAND_BITS for key in gone)
        if number in self.resident:
            self.hits.append(number)
            self.policy.touch(run)
            return []
        if self._hooks.miss is not None:
            self._hooks.miss(run)
        evicted = []
        if len(self.resident) == self.capacity:
            evicted = [self.order()[0]]
            self._hooks.evict(range(key_of(evicted[0]), key_of(evicted[0]) + 1))
            self.resident.remove(evicted[0])
        self.policy.insert(run)
        self.resident.add(number)
        return evicted

    def order(self) -> list[int]:
        """The blocks in the order in which they would go."""
        return [key >> STRAND_BITS for run in self.policy.victims() for key in run]


def evicted(name: str, capacity: int, accesses: Sequence[int], **known: Any) -> list[int]:
    """The blocks that a cache evicts, one after another; its future, if asked for, is these accesses."""
    return Cache(name, capacity, future=accesses, **known).access(*accesses)


class MadeUpFuture:
    """Next uses that have nothing to do with anything, for laws that must hold under any."""

    now = 0

    def next_uses(self, run: range) -> list[tuple[range, int]]:
        return [(range(key, key + 1), key * 7919 % 11) for key in run]


def any_context() -> PolicyContext:
    """Something of everything that a policy may ask for."""
    return PolicyContext(
        capacity_chunks=10,
        now_s=lambda: 0.0,
        position=lambda key: key % 5,
        generation=lambda key: 1 + key % 3,
        recompute_s=lambda position: 1.0 + position,
        reload_s=0.5,
        future=MadeUpFuture(),
    )


def prepared(policy: EvictionPolicy) -> EvictionPolicy:
    hooks(policy).prepare(any_context())
    return policy
