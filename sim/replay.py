"""Replay without time: what a cache of one tier would hit, for checks against other tools and for miss-ratio curves.

The policies are those of the timed engine. There is no clock, no transfer and no second tier here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from models.errors import InputError
from sim.policies.base import EvictionPolicy
from sim.policies.leaf import select_victims
from sim.prefix_tree import PrefixTree
from sim.run_sets import RunSet
from sim.runs import STRAND_BITS, Chain, ascending, count


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
        run = range(key << STRAND_BITS, (key << STRAND_BITS) + 1)  # a strand of its own: nothing continues it
        if key in resident:
            hits += 1
            policy.touch(run)
            continue
        if len(resident) == capacity_blocks:
            victim = next(policy.victims())[:1]
            policy.remove(victim)
            resident.remove(victim.start >> STRAND_BITS)
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
    prefixes = PrefixTree()
    resident = RunSet()
    hit_tokens = prompt_tokens = evicted_blocks = 0
    for number, request in enumerate(requests):
        path = prefixes.chain(request.block_ids)
        here = RunSet()
        for run in path.runs:
            here.add(run)
        absent = [part for run in path.runs for part in resident.absent(run)]
        hit_blocks = resident.leading_of(path)
        if number >= first_counted:
            hit_tokens += min(hit_blocks * block_tokens, request.prompt_tokens)
            prompt_tokens += request.prompt_tokens
        wanted = count(absent)
        victims = select_victims(policy, wanted - (capacity_blocks - len(resident)), here)
        for victim in victims:
            policy.remove(victim)
            resident.remove(ascending(victim))
        evicted_blocks += count(victims)
        room = capacity_blocks - len(resident)
        # The peer makes room for the first block too many by evicting the one inserted just before, and then stops
        # because the parent is gone: a prompt that does not fit leaves one block empty.
        _use(policy, resident, path, prefixes, wanted if wanted <= room else max(room - 1, 0))
    return PrefixReplay(hit_tokens=hit_tokens, prompt_tokens=prompt_tokens, evicted_blocks=evicted_blocks)


def _use(policy: EvictionPolicy, resident: RunSet, path: Chain, prefixes: PrefixTree, insertable: int) -> None:
    """Touch the resident blocks of *path* and insert the first *insertable* others; a block beyond them ends it."""
    for run in path.runs:
        rest = run
        while rest:
            length = resident.leading(rest)
            if length > 0:  # a hit, or an orphan behind a gap: no hit, but used
                policy.touch(rest[:length])
            else:
                length = min(-length, insertable)
                if not length:
                    return
                policy.insert(rest[:length], prefixes.parent(rest.start))
                resident.add(rest[:length])
                insertable -= length
            rest = rest[length:]


def _check_capacity(capacity_blocks: int) -> None:
    if capacity_blocks < 1:
        raise InputError(f"a cache of {capacity_blocks} blocks cannot be replayed; it must have at least 1")
