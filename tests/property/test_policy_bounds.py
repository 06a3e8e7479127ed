"""The bounds hold: nobody hits more blocks than Belady, nor Belady more than a cache without end."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_kit import Cache

from sim.policies.base import EVICTION, PolicyContext
from sim.policies.future import KnownFuture
from sim.policies.making import make_policy
from sim.prefix_tree import PrefixTree
from sim.replay import prefix_hits
from sim.runs import Chain

OTHERS = [name for name in EVICTION.names() if name not in {"belady", "belady-prefix", "infinite"}]

# What caches meet: a few numbers again and again, with stretches of others in between.
ACCESSES = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 20)), min_size=1, max_size=80)


def block_hits(name: str, capacity: int, accesses: Sequence[int]) -> int:
    cache = Cache(name, capacity, future=accesses)
    cache.access(*accesses)
    return len(cache.hits)


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=30)
@given(accesses=ACCESSES, capacity=st.integers(1, 8))
def test_no_policy_hits_more_blocks_than_belady(name: str, accesses: list[int], capacity: int) -> None:
    best = block_hits("belady", capacity, accesses)
    assert block_hits(name, capacity, accesses) <= best
    assert best <= len(accesses) - len(set(accesses))  # what a cache without end hits


@given(accesses=ACCESSES, capacity=st.integers(1, 8))
def test_infinite_hits_all_but_first_uses_where_it_has_the_room(accesses: list[int], capacity: int) -> None:
    unbounded = Cache("infinite", 1 << 50)
    unbounded.access(*accesses)
    assert len(unbounded.hits) == len(accesses) - len(set(accesses))
    assert block_hits("belady", capacity, accesses) <= len(unbounded.hits)


@given(accesses=ACCESSES, capacity=st.integers(1, 4))
def test_belady_is_the_best_of_all_ways_to_evict(accesses: list[int], capacity: int) -> None:
    """By trying all of them on short loads."""
    accesses = accesses[:12]
    states = {frozenset[int](): 0}
    for number in accesses:
        after: dict[frozenset[int], int] = {}
        for state, hits in states.items():
            if number in state:
                ways = [(state, hits + 1)]
            elif len(state) < capacity:
                ways = [(state | {number}, hits)]
            else:
                ways = [((state - {gone}) | {number}, hits) for gone in state]
            for way, reached in ways:
                after[way] = max(after.get(way, 0), reached)
        states = after
    assert block_hits("belady", capacity, accesses) == max(states.values())


@st.composite
def prompts(draw: st.DrawFn) -> list[list[int]]:
    """Prompts that share heads; of at most 6 blocks, so that each fits."""
    made: list[list[int]] = []
    for number in range(draw(st.integers(1, 25))):
        base = draw(st.sampled_from(made))[: draw(st.integers(0, 6))] if made else []
        new = draw(st.integers(0 if base else 1, 3))
        made.append([*base, *range(10 * number, 10 * number + new)][:6])
    return made


def prefix_hit_blocks(name: str, capacity: int, ids: list[list[int]], *, leaf_constrained: bool = False) -> int:
    tree = PrefixTree()
    chains = [tree.chain(prompt) for prompt in ids]
    begun = 0

    def sent() -> Chain:  # type: ignore[misc]
        nonlocal begun
        for chain in chains:
            begun += 1
            yield chain

    context = PolicyContext(
        capacity_chunks=capacity,
        now_s=lambda: float(begun),
        position=tree.position,
        generation=tree.generation,
        recompute_s=lambda position: 1.0 + position,
        reload_s=0.5,
        future=KnownFuture((chain.runs for chain in chains), lambda: begun),
    )
    policy = make_policy(name, context, leaf_constrained=leaf_constrained)
    return sum(hits for hits, _ in prefix_hits(policy, capacity, sent()))  # type: ignore[arg-type]


@pytest.mark.parametrize("leaf_constrained", [False, True])
@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=30)
@given(ids=prompts(), capacity=st.integers(7, 14))
def test_no_policy_hits_more_of_prefixes_than_the_prefix_bound(
    name: str, leaf_constrained: bool, ids: list[list[int]], capacity: int
) -> None:
    best = prefix_hit_blocks("belady-prefix", capacity, ids)
    assert prefix_hit_blocks(name, capacity, ids, leaf_constrained=leaf_constrained) <= best
    assert prefix_hit_blocks("belady", capacity, ids) == best  # in one tier the two bounds are one
