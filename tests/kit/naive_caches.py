"""Caches written as plainly as possible, one block after another, to hold the quick ones against."""

import math
from collections.abc import Hashable, Sequence

Path = Sequence[Hashable]


def next_uses(accesses: Sequence[Hashable]) -> list[float]:
    """Return for each access the index of the next one to the same block, infinity if there is none."""
    found: list[float] = []
    later: dict[Hashable, int] = {}
    for at in reversed(range(len(accesses))):
        found.append(later.get(accesses[at], math.inf))
        later[accesses[at]] = at
    return found[::-1]


def fifo(accesses: Path, capacity: int) -> list[bool]:
    """Return whether each access hits where the oldest insertion goes."""
    cache: list[Hashable] = []
    hits = []
    for block in accesses:
        hits.append(block in cache)
        if block not in cache:
            del cache[: max(len(cache) - capacity + 1, 0)]
            cache.append(block)
    return hits


def lru(accesses: Path, capacity: int) -> list[bool]:
    """Return whether each access hits where the least recently used block goes."""
    cache: list[Hashable] = []
    hits = []
    for block in accesses:
        hits.append(block in cache)
        if block in cache:
            cache.remove(block)
        del cache[: max(len(cache) - capacity + 1, 0)]
        cache.append(block)
    return hits


def belady(accesses: Path, capacity: int) -> list[bool]:
    """Return whether each access hits where the block goes whose next use is farthest."""
    cache: dict[Hashable, float] = {}
    hits = []
    for block, following in zip(accesses, next_uses(accesses), strict=True):
        hits.append(block in cache)
        if block not in cache and len(cache) == capacity:
            del cache[max(cache, key=lambda held: cache[held])]
        cache[block] = following
    return hits


def leaf_belady(prompts: Sequence[Path], capacity: int) -> list[int]:
    """Return the blocks that each prompt hits where the leaf used last goes, and a block used later stays out."""
    later: dict[Hashable, list[int]] = {}
    paths = [[tuple(prompt[: end + 1]) for end in range(len(prompt))] for prompt in prompts]
    for number, path in enumerate(paths):
        for block in path:
            later.setdefault(block, []).append(number)
    cache: set[tuple[Hashable, ...]] = set()
    hits = []
    for number, path in enumerate(paths):
        use = {block: next((n for n in later[block] if n > number), math.inf) for block in cache | set(path)}
        hits.append(next((n for n, block in enumerate(path) if block not in cache), len(path)))
        for block in path:
            if block in cache:
                continue
            if len(cache) == capacity:
                leaves = [held for held in cache if not any(other[:-1] == held for other in cache)]
                victim = max(leaves, key=lambda leaf: use[leaf])
                if use[victim] <= use[block]:
                    break
                cache.remove(victim)
            cache.add(block)
    return hits


def unbroken(hits: Sequence[bool], lengths: Sequence[int]) -> list[int]:
    """Return how many accesses at the begin of each stretch hit."""
    found, at = [], 0
    for length in lengths:
        stretch = [*hits[at : at + length], False]
        found.append(stretch.index(False))
        at += length
    return found
