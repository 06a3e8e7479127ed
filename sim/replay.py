"""Replay without time: what a cache of one tier would hit, for checks against other tools and for miss-ratio curves.

The policies are those of the timed engine. There is no clock, no transfer and no second tier here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from models.errors import InputError
from sim.policies.base import EvictionPolicy
from sim.policies.leaf import select_victims


class PrefixRequest(Protocol):
    """What a replay needs of a request; trace records have it."""

    @property
    def block_ids(self) -> Sequence[int]:
        """Ids of the prompt's blocks, head first, no id twice; a last id may stand for a partial block."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt [tokens]."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixReplay:
    """What a replay by prefixes counted: tokens over the counted requests, evicted blocks over all of them."""

    hit_tokens: int
    prompt_tokens: int
    evicted_blocks: int

    @property
    def hit_ratio_tokens(self) -> float:
        """Share of the counted prompt tokens that were hits, NaN if there were none [1]."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else float("nan")


def block_hit_ratio(policy: EvictionPolicy, capacity_blocks: int, ids: Iterable[int]) -> float:
    """Return the share of accesses to resident blocks, each id being one access and prefixes playing no part [1].

    A miss inserts the block, after one eviction where the cache is full: the rule of libCacheSim with objects of one
    size. *policy* must be new. NaN without accesses; InputError for a capacity below 1 block.
    """
    _check_capacity(capacity_blocks)
    resident: set[int] = set()
    accesses = hits = 0
    for key in ids:
        accesses += 1
        run = (key,)
        if key in resident:
            hits += 1
            policy.touch(run)
            continue
        if len(resident) == capacity_blocks:
            victim = next(policy.victims())
            policy.remove((victim,))
            resident.remove(victim)
        policy.insert(run)
        resident.add(key)
    return hits / accesses if accesses else float("nan")


def prefix_replay(
    policy: EvictionPolicy,
    capacity_blocks: int,
    requests: Iterable[PrefixRequest],
    *,
    block_tokens: int,
    first_counted: int = 0,
) -> PrefixReplay:
    """Return what a cache of *capacity_blocks* hits when a hit must reach unbroken from the head of the prompt.

    A request touches the blocks it hits and inserts the others, head first; no block it hit is evicted for it. A prompt
    that cannot fit loses its tail. A hit block counts *block_tokens*, all of them together at most the prompt. Requests
    before number *first_counted* only warm the cache. *policy* must be new. With leaves evicted only
    (:func:`sim.policies.leaf.constrain_to_leaves`) this is the rule of kvcache-simulator 0.1.3, counts being equal.
    InputError for a capacity below 1 block.
    """
    _check_capacity(capacity_blocks)
    resident: set[int] = set()
    hit_tokens = prompt_tokens = evicted_blocks = 0
    for number, request in enumerate(requests):
        path = request.block_ids
        hit_blocks = next((at for at, key in enumerate(path) if key not in resident), len(path))
        if number >= first_counted:
            hit_tokens += min(hit_blocks * block_tokens, request.prompt_tokens)
            prompt_tokens += request.prompt_tokens
        wanted = sum(key not in resident for key in path[hit_blocks:])
        shortage = wanted - (capacity_blocks - len(resident))
        if shortage > 0:
            victims = select_victims(policy, shortage, pinned=frozenset(path))
            policy.remove(victims)
            resident.difference_update(victims)
            evicted_blocks += len(victims)
        room = capacity_blocks - len(resident)
        # The peer makes room for the first block too many by evicting the one inserted just before, and then stops
        # because the parent is gone: a prompt that does not fit leaves one block empty.
        insertable = wanted if wanted <= room else max(room - 1, 0)
        _use(policy, resident, path, hit_blocks, insertable)
    return PrefixReplay(hit_tokens=hit_tokens, prompt_tokens=prompt_tokens, evicted_blocks=evicted_blocks)


def _use(policy: EvictionPolicy, resident: set[int], path: Sequence[int], hit_blocks: int, insertable: int) -> None:
    """Touch the resident blocks of *path* and insert the first *insertable* others; a block beyond them ends it."""
    if hit_blocks:
        policy.touch(path[:hit_blocks])
    start = hit_blocks
    while start < len(path):
        end = start
        if path[start] in resident:  # an orphan behind the gap: no hit, but used
            while end < len(path) and path[end] in resident:
                end += 1
            policy.touch(path[start:end])
        else:
            last = min(len(path), start + insertable)
            while end < last and path[end] not in resident:
                end += 1
            if end == start:
                return
            policy.insert(path[start:end], path[start - 1] if start else None)
            resident.update(path[start:end])
            insertable -= end - start
        start = end


def _check_capacity(capacity_blocks: int) -> None:
    if capacity_blocks < 1:
        raise InputError(f"a cache of {capacity_blocks} blocks cannot be replayed; it must have at least 1")
