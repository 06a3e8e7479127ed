import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import InputError
from sim.policies.eviction import Lru
from sim.policies.leaf import constrain_to_leaves
from sim.replay import PrefixReplay, block_hit_ratio, prefix_replay


@dataclass
class Request:
    block_ids: list[int]
    prompt_tokens: int


def replay(capacity_blocks: int, *requests: tuple[list[int], int], first_counted: int = 0) -> PrefixReplay:
    return prefix_replay(
        constrain_to_leaves(Lru()),
        capacity_blocks,
        [Request(*request) for request in requests],
        block_tokens=512,
        first_counted=first_counted,
    )


def test_block_hit_ratio_by_hand() -> None:
    # 1 and 2 miss, 1 hits, 3 evicts 2, 2 evicts 1, 3 hits.
    assert block_hit_ratio(Lru(), 2, [1, 2, 1, 3, 2, 3]) == 2 / 6


def test_nothing_replayed_has_no_ratio() -> None:
    assert math.isnan(block_hit_ratio(Lru(), 2, []))
    assert math.isnan(replay(2).hit_ratio_tokens)


@pytest.mark.parametrize("capacity_blocks", [0, -1])
def test_a_cache_needs_a_block(capacity_blocks: int) -> None:
    with pytest.raises(InputError, match="at least 1"):
        block_hit_ratio(Lru(), capacity_blocks, [1])
    with pytest.raises(InputError, match="at least 1"):
        replay(capacity_blocks)


@given(st.lists(st.integers(0, 12), max_size=80), st.integers(1, 14))
def test_a_larger_lru_cache_never_hits_less(ids: list[int], capacity_blocks: int) -> None:
    ratios = [block_hit_ratio(Lru(), size, ids) for size in (capacity_blocks, capacity_blocks + 1)]
    assert not ids or ratios[0] <= ratios[1]


def test_a_partial_last_block_counts_what_the_prompt_has() -> None:
    result = replay(10, ([1, 2, 3], 1100), ([1, 2, 3], 1100), ([1, 2, 9], 1100))
    assert result.hit_tokens == 1100 + 1024
    assert result.prompt_tokens == 3300
    assert result.hit_ratio_tokens == 2124 / 3300


def test_a_hit_needs_an_unbroken_chain() -> None:
    # Without the constraint head 1 is the oldest and goes first; 2 and 3 stay as orphans, touched but no hits.
    requests = [Request([1, 2, 3], 1536), Request([9], 512), Request([1, 2, 3], 1536)]
    free = prefix_replay(Lru(), 3, requests, block_tokens=512)
    assert free.hit_tokens == 0
    bound = prefix_replay(constrain_to_leaves(Lru()), 3, requests, block_tokens=512)
    assert bound.hit_tokens == 1024


def test_requests_before_the_first_counted_only_warm() -> None:
    result = replay(10, ([1], 512), ([1], 512), ([1], 512), first_counted=2)
    assert (result.hit_tokens, result.prompt_tokens) == (512, 512)


def test_what_a_request_hits_is_not_evicted_for_it() -> None:
    # 1 and 2 fill the cache and are the oldest; the prompt that continues them finds no room and keeps them.
    result = replay(2, ([1, 2], 1024), ([1, 2, 3, 4], 2048), ([1, 2], 1024))
    assert result.hit_tokens == 2048
    assert result.evicted_blocks == 0


def test_a_prompt_that_does_not_fit_leaves_one_block_empty() -> None:
    # The rule of kvcache-simulator 0.1.3, seen in its counts on the synthetic Mooncake trace at 6 to 51 blocks.
    assert replay(3, ([1, 2, 3, 4], 2048), ([1, 2, 3, 4], 2048)).hit_tokens == 1024
    assert replay(4, ([1, 2, 3, 4], 2048), ([1, 2, 3, 4], 2048)).hit_tokens == 2048


paths = st.lists(st.sampled_from([[1], [1, 2], [1, 2, 3], [1, 4], [5, 6, 7, 8], [5, 9], [10]]), max_size=30)


@given(paths, st.integers(1, 8))
def test_evictions_and_hits_stay_within_bounds(used: list[list[int]], capacity_blocks: int) -> None:
    result = replay(capacity_blocks, *((path, 512 * len(path)) for path in used))
    unlimited = replay(100, *((path, 512 * len(path)) for path in used))
    assert 0 <= result.hit_tokens <= unlimited.hit_tokens <= result.prompt_tokens
    assert unlimited.evicted_blocks == 0
