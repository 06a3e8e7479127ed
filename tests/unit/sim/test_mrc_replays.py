"""Replays by the segment against replays block by block, on random prefix trees and on sequences worked out by hand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import naive_caches as naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import TraceError
from sim.mrc import by_segment
from sim.mrc.segments import Visits, read_requests
from sim.mrc.stack_distances import leaf_distances, plain_distances
from sim.policies.eviction import Lru
from sim.policies.leaf import constrain_to_leaves
from sim.replay import block_hits, prefix_hits
from sim.traces.record import NO_ID, TraceRecord

BLOCK_TOKENS = 10
Prompt = tuple[int, ...]


@dataclass
class Prompts:
    """A trace whose blocks are named by the whole path up to them; a prompt may end in a partial block of 3 tokens."""

    prompts: Sequence[tuple[Prompt, int]]
    has_prefixes: ClassVar[bool] = True
    name: ClassVar[str] = "prompts"
    block_tokens: ClassVar[int] = BLOCK_TOKENS
    ids: dict[Prompt, int] = field(default_factory=dict)

    def records(self) -> Iterator[TraceRecord]:
        for number, (prompt, partial) in enumerate(self.prompts):
            paths = [prompt[: end + 1] for end in range(len(prompt))]
            block_ids = [self.ids.setdefault(path, len(self.ids)) for path in paths]
            partial_id = NO_ID if not partial else self.ids.setdefault((*prompt, -partial), len(self.ids))
            tokens = BLOCK_TOKENS * len(prompt) + (3 if partial else 0)
            yield TraceRecord(float(number), max(tokens, 1), 1, block_ids, partial_block_id=partial_id)


def paths(prompts: Sequence[tuple[Prompt, int]]) -> list[Prompt]:
    return [(*prompt, -partial) if partial else prompt for prompt, partial in prompts]


def accesses(prompts: Sequence[tuple[Prompt, int]]) -> list[Prompt]:
    return [path[: end + 1] for path in paths(prompts) for end in range(len(path))]


def visits(prompts: Sequence[tuple[Prompt, int]]) -> Visits:
    return read_requests(Prompts(prompts))


# Few names, so that prompts share, part, end inside one another and come back; now and then a partial last block.
PROMPTS = st.lists(
    st.tuples(st.lists(st.integers(1, 2), max_size=7).map(tuple), st.sampled_from([0, 0, 0, 1, 2])),
    min_size=1,
    max_size=30,
).filter(lambda prompts: any(paths(prompts)))
CAPACITY = st.integers(1, 24)


@given(PROMPTS)
def test_visits_hold_every_block_reference_in_order(prompts: list[tuple[Prompt, int]]) -> None:
    found = visits(prompts)
    assert found.request_blocks.tolist() == [len(path) for path in paths(prompts)]
    numbers = [number for request in found.block_numbers() for number in request]
    assert len(set(zip(numbers, accesses(prompts), strict=True))) == len(set(numbers)) == len(set(accesses(prompts)))
    assert found.distinct_blocks == len(set(numbers))
    keys = [key for chain in found.chains() for key in chain]
    assert keys == [found.key(number) for number in numbers]
    positions = [len(path) - 1 for path in accesses(prompts)]
    assert [found.position(key) for key in keys] == positions


def test_prompts_are_cut_only_where_one_begins_parts_or_ends() -> None:
    found = visits([((1, 2, 3, 4), 0), ((1, 2, 5), 0), ((1, 2, 3, 4), 1)])
    assert found.sizes.tolist() == [2, 2, 1, 1]  # 1 2 | 3 4 | 5 | partial
    assert found.segments.tolist() == [0, 1, 0, 2, 0, 1, 3]
    assert found.ends.tolist() == [2, 4, 7]
    assert [found.generation(key) for key in found.keys.tolist()] == [1, 1, 2, 1]


@given(PROMPTS, CAPACITY)
def test_fifo(prompts: list[tuple[Prompt, int]], capacity: int) -> None:
    found = visits(prompts)
    hits = by_segment.fifo(found, capacity)
    assert hits.tolist() == naive.fifo(accesses(prompts), capacity)
    lengths = [len(path) for path in paths(prompts)]
    assert found.unbroken(hits).tolist() == naive.unbroken(hits.tolist(), lengths)


@given(PROMPTS, CAPACITY)
def test_plain_lru(prompts: list[tuple[Prompt, int]], capacity: int) -> None:
    found = visits(prompts)
    expected = naive.lru(accesses(prompts), capacity)
    assert np.repeat(plain_distances(found) < capacity, found.blocks).tolist() == expected
    numbers = (number for request in found.block_numbers() for number in request)
    assert [bool(hit) for hit in block_hits(Lru(), capacity, numbers)] == expected


@given(PROMPTS, CAPACITY)
def test_plain_belady(prompts: list[tuple[Prompt, int]], capacity: int) -> None:
    hits = by_segment.belady(visits(prompts), capacity)
    assert hits.tolist() == naive.belady(accesses(prompts), capacity)


@given(PROMPTS, CAPACITY)
def test_leaf_lru(prompts: list[tuple[Prompt, int]], capacity: int) -> None:
    found = visits(prompts)
    expected = [hits for hits, _ in prefix_hits(constrain_to_leaves(Lru()), capacity, found.chains())]
    assert by_segment.leaf_lru(found, capacity).tolist() == expected
    if capacity >= found.request_blocks.max():
        depths = leaf_distances(found)
        assert found.per_request(np.clip(capacity - depths, 0, found.blocks)).tolist() == expected


@given(PROMPTS, CAPACITY)
def test_leaf_belady(prompts: list[tuple[Prompt, int]], capacity: int) -> None:
    assert by_segment.leaf_belady(visits(prompts), capacity).tolist() == naive.leaf_belady(paths(prompts), capacity)


def test_belady_by_hand() -> None:
    # Room for 2: 3 must go in and takes the place of 2, which is used later than 1; then 2 takes that of 1; 3 hits.
    prompts = [((block,), 0) for block in (1, 2, 3, 1, 2, 3, 1)]
    assert by_segment.belady(visits(prompts), 2).tolist() == [False, False, False, True, False, True, False]
    # With the right to stay out, 3 does not push out 2: 1 and 2 hit whenever they come.
    assert by_segment.leaf_belady(visits(prompts), 2).tolist() == [0, 0, 0, 1, 1, 0, 1]


def test_a_trace_without_blocks_is_refused() -> None:
    with pytest.raises(TraceError, match="which blocks"):
        visits([((), 0)])


def test_partial_blocks_can_be_left_out() -> None:
    found = read_requests(Prompts([((1,), 1), ((1,), 1)]), partial_blocks=False)
    assert found.request_blocks.tolist() == [1, 1]
