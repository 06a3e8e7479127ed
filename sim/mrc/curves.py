"""The curves: hit ratios of many policies at many capacities over one trace that was read once.

LRU comes for all capacities from one pass; FIFO, LRU at capacities below the longest prompt and Belady are replayed by
the segment; every other policy is replayed by the block or run through the classes that the timed engine uses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from models.errors import InputError
from sim.arrays import Ints
from sim.mrc import by_segment
from sim.mrc.by_policy import PolicyReplays, check_replayable
from sim.mrc.segments import Flags, Visits
from sim.mrc.stack_distances import leaf_distances, plain_distances
from sim.policies.making import is_unbounded

HASHMAP: Final = "hashmap"
LEAF_CONSTRAINED: Final = "leaf_constrained"
STRUCTURES: Final = (HASHMAP, LEAF_CONSTRAINED)

# Replayed in forms of their own.
_OWN: Final = ("belady", "fifo", "lru")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a curve.

    Parameters
    ----------
    policy
        Name of the eviction policy.
    structure
        ``leaf_constrained``, ``hashmap``, or ``plain`` where prefixes play no part.
    capacity_blocks
        Blocks that fit; objects in a block trace.
    hit_blocks, blocks
        Block references that hit, and all that were counted.
    hit_tokens, prompt_tokens
        Tokens of the prompts that hit, and all of the counted requests; 0 in a block trace.
    hit_bytes, bytes
        Bytes of the objects of a block trace; 0 elsewhere, where a token has the same KV bytes as any other.
    """

    policy: str
    structure: str
    capacity_blocks: int
    hit_blocks: int
    blocks: int
    hit_tokens: int
    prompt_tokens: int
    hit_bytes: int = 0
    bytes: int = 0

    @property
    def hit_ratio_blocks(self) -> float:
        """Share of the block references that hit [1]."""
        return self.hit_blocks / self.blocks

    @property
    def hit_ratio_tokens(self) -> float | None:
        """Share of the prompt tokens that hit [1]; None in a block trace."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def hit_ratio_bytes(self) -> float | None:
        """Share of the bytes that hit [1]: of objects, or that of the tokens; None where all have 0 bytes."""
        return self.hit_bytes / self.bytes if self.bytes else self.hit_ratio_tokens


def check_policy(name: str) -> None:
    """Raise UnknownNameError where no policy is called *name*, InputError where it cannot be replayed without time."""
    if name not in _OWN:
        check_replayable(name)


def structure_of(policy: str, structure: str | None) -> str:
    """Return the structure that a policy is replayed in where prefixes count: the given one or its default.

    By default leaves only are evicted and what a request hits stays while it is served, but ``fifo`` is a queue of
    insertions: with these, LRU, FIFO and Belady are what kvcache-simulator 0.1.3 counts.
    """
    return structure or (HASHMAP if policy == "fifo" else LEAF_CONSTRAINED)


class Curves:
    """Replays of one trace.

    Parameters
    ----------
    visits
        The trace.
    plain
        Whether every block counts by itself, in order, as in libCacheSim, and prefixes play no part.
    structure
        ``hashmap`` or ``leaf_constrained`` for all policies, None for the default of each (:func:`structure_of`).
        A hash map changes as with *plain*, but only what is unbroken from the head of a prompt is a hit.
    first_counted
        Requests before this number only warm the cache.
    on_progress
        Called with the share of a replay that is done, now and then.
    """

    def __init__(
        self,
        visits: Visits,
        *,
        plain: bool = False,
        structure: str | None = None,
        first_counted: int = 0,
        on_progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        if first_counted >= len(visits.ends):
            raise InputError(f"{first_counted} requests to warm up leave none of {len(visits.ends)} to count")
        if not visits.request_blocks[first_counted:].any():
            raise InputError(f"after {first_counted} requests to warm up none has a block: there is nothing to count")
        self._visits = visits
        self._plain = plain
        self._structure = structure
        self._first = first_counted
        self._distances: dict[bool, Ints] = {}
        self._by_policy = PolicyReplays(visits, on_progress)

    def point(self, policy: str, capacity_blocks: int) -> Point:
        """Return what *policy* hits at a capacity of at least 1 block.

        InputError where the policy needs to know what is not known without time, such as what it costs to recompute.
        """
        if capacity_blocks < 1:
            raise InputError(f"a cache of {capacity_blocks} blocks cannot be replayed; it must have at least 1")
        structure = "plain" if self._plain else structure_of(policy, self._structure)
        most = min(capacity_blocks, self._visits.distinct_blocks)  # where all fit, nothing is evicted
        if structure == LEAF_CONSTRAINED:
            hits = self._leaf_hits(policy, most)
        else:
            flags = self._block_hits(policy, most)
            if self._plain:
                return self._plain_point(policy, capacity_blocks, flags)
            hits = self._visits.unbroken(flags)
        visits, first = self._visits, self._first
        tokens = np.minimum(hits * visits.block_tokens, visits.prompt_tokens)
        return Point(
            policy=policy,
            structure=structure,
            capacity_blocks=capacity_blocks,
            hit_blocks=int(hits[first:].sum()),
            blocks=int(visits.request_blocks[first:].sum()),
            hit_tokens=int(tokens[first:].sum()),
            prompt_tokens=int(visits.prompt_tokens[first:].sum()),
        )

    def _plain_point(self, policy: str, capacity_blocks: int, flags: Flags) -> Point:
        visits, first = self._visits, self._first
        ends = np.cumsum(visits.request_blocks)
        counted = flags[ends[first - 1] if first else 0 :]
        hit_blocks = int(np.count_nonzero(counted))
        hit_tokens = hit_bytes = total_bytes = 0
        if visits.object_bytes is None:
            # A last block may be partial: it has fewer tokens.
            missing = np.maximum(visits.request_blocks * visits.block_tokens - visits.prompt_tokens, 0)
            last_hit = flags[ends - 1] & (visits.request_blocks > 0)
            hit_tokens = hit_blocks * visits.block_tokens - int(missing[first:][last_hit[first:]].sum())
        else:
            hit_bytes = int(visits.object_bytes[first:][counted].sum())
            total_bytes = int(visits.object_bytes[first:].sum())
        return Point(
            policy=policy,
            structure="plain",
            capacity_blocks=capacity_blocks,
            hit_blocks=hit_blocks,
            blocks=len(counted),
            hit_tokens=hit_tokens,
            prompt_tokens=int(visits.prompt_tokens[first:].sum()),
            hit_bytes=hit_bytes,
            bytes=total_bytes,
        )

    def _block_hits(self, policy: str, capacity_blocks: int) -> Flags:
        """Return by block reference whether it hits, each block being on its own."""
        visits = self._visits
        if policy == "fifo":
            return by_segment.fifo(visits, capacity_blocks)
        if policy == "belady":
            return by_segment.belady(visits, capacity_blocks)
        if policy == "lru" or is_unbounded(policy):
            capacity_blocks = self._bounded(policy, capacity_blocks)
            distances = self._stack_distances(leaf=False)
            return np.repeat(distances < capacity_blocks, visits.blocks)
        return self._by_policy.block_flags(policy, capacity_blocks)

    def _leaf_hits(self, policy: str, capacity_blocks: int) -> Ints:
        """Return by request the blocks that hit, only leaves being evicted."""
        visits = self._visits
        if policy == "belady":
            return by_segment.leaf_belady(visits, capacity_blocks)
        if policy == "lru" or is_unbounded(policy):
            capacity_blocks = self._bounded(policy, capacity_blocks)
            if capacity_blocks < visits.request_blocks.max():
                return by_segment.leaf_lru(visits, capacity_blocks)
            depths = self._stack_distances(leaf=True)
            return visits.per_request(np.clip(capacity_blocks - depths, 0, visits.blocks))
        return self._by_policy.leaf_hits(policy, capacity_blocks)

    def _bounded(self, policy: str, capacity_blocks: int) -> int:
        """Return the capacity, which is that of everything for a cache without bounds."""
        return capacity_blocks if policy == "lru" else self._visits.distinct_blocks

    def _stack_distances(self, *, leaf: bool) -> Ints:
        if leaf not in self._distances:
            self._distances[leaf] = (leaf_distances if leaf else plain_distances)(self._visits)
        return self._distances[leaf]
