"""Replay without time: what a cache of one tier would hit, for checks against other tools and for miss-ratio curves.

The policies are those of the timed engine. There is no clock, no transfer and no second tier here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from models.errors import InputError
from sim.policies.base import EvictionPolicy
from sim.policies.hooks import hooks
from sim.policies.leaf import broken, select_victims
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
    hits = block_hits(policy, capacity_blocks, ids)
    return sum(hits) / len(hits) if hits else float("nan")


def block_hits(policy: EvictionPolicy, capacity_blocks: int, ids: Iterable[int]) -> bytearray:
    """Return 1 for each access to a resident block and 0 for each other, by the rule of :func:`block_hit_ratio`.

    The policy sees the block *id* as the chunk ``id << STRAND_BITS``: a strand of its own, nothing continues it.
    InvariantError names a policy that gives up a block that is not resident.
    """
    _check_capacity(capacity_blocks)
    _, miss, evict, expired = hooks(policy)
    insert, touch, victims = policy.insert, policy.touch, policy.victims
    resident: set[int] = set()
    hits = bytearray()
    for block in ids:
        key = block << STRAND_BITS
        run = range(key, key + 1)
        if expired is not None:
            for gone in expired():
                policy.remove(gone)
                resident.difference_update(gone)
        hits.append(key in resident)
        if hits[-1]:
            touch(run)
            continue
        if miss is not None:
            miss(run)
        if len(resident) == capacity_blocks:
            victim = next(victims(), None)
            if not victim or victim[0] not in resident:
                raise broken(policy, f"victims() of a full cache began with {victim!r}, which is not resident")
            evict(victim[:1])
            resident.remove(victim[0])
        insert(run)
        resident.add(key)
    return hits


def prefix_replay(
    policy: EvictionPolicy,
    capacity_blocks: int,
    requests: Iterable[PrefixRequest],
    *,
    block_tokens: int,
    first_counted: int = 0,
) -> PrefixReplay:
    """Return what a cache of *capacity_blocks* hits when a hit must reach unbroken from the head of the prompt.

    The rule is that of :func:`prefix_hits`. A hit block counts *block_tokens*, all of them together at most the prompt.
    Requests before number *first_counted* only warm the cache.
    """
    prefixes = PrefixTree()
    lengths_tokens: list[int] = []

    def chains() -> Iterator[Chain]:
        for request in requests:
            lengths_tokens.append(request.prompt_tokens)
            yield prefixes.chain(request.block_ids)

    hit_tokens = evicted_blocks = 0
    for number, (hit_blocks, evicted) in enumerate(prefix_hits(policy, capacity_blocks, chains())):
        evicted_blocks += evicted
        if number >= first_counted:
            hit_tokens += min(hit_blocks * block_tokens, lengths_tokens[number])
    return PrefixReplay(
        hit_tokens=hit_tokens, prompt_tokens=sum(lengths_tokens[first_counted:]), evicted_blocks=evicted_blocks
    )


def prefix_hits(policy: EvictionPolicy, capacity_blocks: int, chains: Iterable[Chain]) -> Iterator[tuple[int, int]]:
    """Yield for each request the blocks it hits, unbroken from the head of its chain, and those evicted for it.

    A request touches the blocks it hits and inserts the others, head first; no block it hit is evicted for it. A prompt
    that cannot fit loses its tail. *policy* must be new. With leaves evicted only
    (:func:`sim.policies.leaf.constrain_to_leaves`) this is the rule of kvcache-simulator 0.1.3. InputError for a
    capacity below 1 block.
    """
    _check_capacity(capacity_blocks)
    _, miss, evict, expired = hooks(policy)
    resident = RunSet()
    for path in chains:
        if expired is not None:
            for gone in expired():
                policy.remove(gone)
                resident.remove(ascending(gone))
        hit_blocks = resident.leading_of(path)
        absent = [part for run in path.runs for part in resident.absent(run)]
        wanted = count(absent)
        if miss is not None:
            for part in absent:
                miss(part)
        evicted = 0
        short = wanted - (capacity_blocks - len(resident))
        if short > 0:
            victims = select_victims(policy, short, RunSet(path.runs), resident)
            for victim in victims:
                evict(victim)
                resident.remove(victim if victim.step > 0 else victim[::-1])
            evicted = count(victims)
        room = capacity_blocks - len(resident)
        # The peer makes room for the first block too many by evicting the one inserted just before, and then stops
        # because the parent is gone: a prompt that does not fit leaves one block empty.
        _use(policy, resident, path, wanted if wanted <= room else max(room - 1, 0))
        yield hit_blocks, evicted


def _use(policy: EvictionPolicy, resident: RunSet, path: Chain, insertable: int) -> None:
    """Touch the resident blocks of *path* and insert the first *insertable* others; a block beyond them ends it."""
    parent: int | None = None
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
                policy.insert(rest[:length], parent)
                resident.add(rest[:length])
                insertable -= length
            parent = rest[length - 1]
            rest = rest[length:]


def _check_capacity(capacity_blocks: int) -> None:
    if capacity_blocks < 1:
        raise InputError(f"a cache of {capacity_blocks} blocks cannot be replayed; it must have at least 1")
