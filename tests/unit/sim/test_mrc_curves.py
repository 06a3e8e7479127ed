"""Curves: which replay a policy gets, what is counted, and what a policy is told."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import InputError, UnknownNameError
from sim.mrc.curves import HASHMAP, LEAF_CONSTRAINED, Curves, check_policy, structure_of
from sim.mrc.segments import Visits, read_accesses, read_requests
from sim.policies.base import PolicyContext
from sim.policies.eviction import Lru
from sim.traces.block_trace import open_block_trace
from sim.traces.record import NO_ID, TraceRecord

LRU_BY_CLASS = "sim.policies.eviction:Lru"  # the same policy, replayed through its class


class Records:
    """A trace of (ids, prompt tokens, partial id), one request every ten seconds, blocks of 512 tokens."""

    name: ClassVar[str] = "records"
    block_tokens: ClassVar[int] = 512
    has_prefixes: ClassVar[bool] = True

    def __init__(self, *requests: tuple[list[int], int, int]) -> None:
        self.requests = requests

    def records(self) -> Iterator[TraceRecord]:
        for number, (ids, tokens, partial) in enumerate(self.requests):
            yield TraceRecord(10.0 * number, tokens, 1, ids, partial_block_id=partial)


def full(*prompts: list[int]) -> Visits:
    return read_requests(Records(*((ids, 512 * len(ids), NO_ID) for ids in prompts)))


@pytest.fixture
def seeing(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A policy `seen:Seeing`, LRU that notes what it is told; returns its notes."""
    notes: list[Any] = []

    class Seeing(Lru):
        def prepare(self, context: PolicyContext) -> None:
            self.context = context
            notes.append(context.capacity_chunks)

        def miss(self, run: range) -> None:
            told: Any = self.context  # all of it is there
            uses = [use for _, use in told.future.next_uses(run)]
            places = [told.position(key) for key in run], [told.generation(key) for key in run]
            notes.append((told.now_s(), told.future.now, *places, uses))

    module = ModuleType("seen")
    module.Seeing = Seeing  # type: ignore[attr-defined]  # a module made for this test
    monkeypatch.setitem(sys.modules, "seen", module)
    return notes


def test_tokens_of_prefix_hits_are_those_of_the_prompt() -> None:
    # 1100 tokens are two blocks and a partial one of 76, which the second request hits as well.
    visits = read_requests(Records(([1, 2], 1100, 3), ([1, 2], 1100, 3), ([1, 2, 9], 1536, NO_ID)))
    point = Curves(visits).point("lru", 10)
    assert (point.hit_blocks, point.blocks) == (5, 9)
    assert (point.hit_tokens, point.prompt_tokens) == (1100 + 1024, 1100 + 1100 + 1536)
    assert point.hit_ratio_tokens == point.hit_ratio_bytes == 2124 / 3736
    plain = Curves(visits, plain=True).point("lru", 10)
    assert (plain.hit_blocks, plain.blocks, plain.hit_tokens) == (5, 9, 2124)
    assert plain.hit_ratio_blocks == 5 / 9


def test_requests_before_the_first_counted_only_warm() -> None:
    visits = full([1], [1, 2], [1, 2])
    for plain in (False, True):
        point = Curves(visits, plain=plain, first_counted=2).point("lru", 2)
        assert (point.hit_blocks, point.blocks, point.hit_tokens, point.prompt_tokens) == (2, 2, 1024, 1024)
    with pytest.raises(InputError, match="3 requests to warm up leave none of 3"):
        Curves(visits, first_counted=3)
    with pytest.raises(InputError, match="nothing to count"):
        Curves(full([1], []), first_counted=1)


def test_objects_count_one_each_and_their_bytes_weigh(tmp_path: Path) -> None:
    file = tmp_path / "blocks.csv"
    file.write_text("time,obj_id,obj_size\n1,7,100\n2,8,1\n3,7,100\n4,9,1\n5,8,1\n")
    curves = Curves(read_accesses(open_block_trace(file)), plain=True)
    two, three = curves.point("lru", 2), curves.point("lru", 3)
    assert (two.hit_blocks, two.blocks, two.hit_bytes, two.bytes) == (1, 5, 100, 203)
    assert (three.hit_ratio_blocks, three.hit_ratio_bytes) == (2 / 5, 101 / 203)
    assert three.hit_ratio_tokens is None


def test_structures() -> None:
    assert [structure_of(name, None) for name in ("lru", "fifo", "belady")] == [
        LEAF_CONSTRAINED,
        HASHMAP,
        LEAF_CONSTRAINED,
    ]
    # Room for 3: without the constraint the head of the first prompt is the oldest and goes; what is left is no hit.
    visits = full([1, 2, 3], [9], [1, 2, 3])
    assert Curves(visits, structure=LEAF_CONSTRAINED).point("lru", 3).hit_blocks == 2
    assert Curves(visits, structure=HASHMAP).point("lru", 3).hit_blocks == 0
    assert Curves(visits, plain=True).point("belady", 3).hit_blocks == 2
    assert Curves(visits, structure=LEAF_CONSTRAINED).point("fifo", 4).structure == LEAF_CONSTRAINED


PROMPTS = st.lists(
    st.sampled_from([[1], [1, 2], [1, 2, 3], [1, 4], [5, 6, 7, 8], [5, 9], [10], [1, 2, 3, 11, 12]]),
    min_size=1,
    max_size=30,
)


@given(PROMPTS, st.integers(1, 14), st.sampled_from([(True, None), (False, HASHMAP), (False, LEAF_CONSTRAINED)]))
def test_a_class_counts_what_the_quick_replay_of_the_same_policy_does(
    prompts: list[list[int]], capacity: int, mode: tuple[bool, str | None]
) -> None:
    curves = Curves(full(*prompts), plain=mode[0], structure=mode[1])
    assert curves.point(LRU_BY_CLASS, capacity).hit_blocks == curves.point("lru", capacity).hit_blocks


@given(PROMPTS, st.integers(1, 14), st.booleans())
def test_nothing_hits_more_than_belady_nor_belady_more_than_everything(
    prompts: list[list[int]], capacity: int, plain: bool
) -> None:
    curves = Curves(full(*prompts), plain=plain)
    hits = {name: curves.point(name, capacity).hit_blocks for name in ("lru", "fifo", "belady")}
    assert max(hits.values()) == hits["belady"] <= curves.point("lru", 100).hit_blocks
    assert curves.point("lru", 10**30).hit_blocks == curves.point("belady", 10**30).hit_blocks
    assert curves.point("lru", capacity + 1).hit_blocks >= hits["lru"] or not plain


def test_a_policy_is_told_time_place_and_future(seeing: list[Any]) -> None:
    visits = full([1, 2], [3], [1, 2, 4])
    Curves(visits).point("seen:Seeing", 9)
    assert seeing[0] == 4  # all there is
    assert seeing[1:] == [
        (0.0, 1, [0, 1], [1, 1], [2]),
        (10.0, 2, [0], [1], [1 << 62]),
        (20.0, 3, [2], [2], [1 << 62]),
    ]
    seeing.clear()
    Curves(visits, plain=True).point("seen:Seeing", 2)
    assert seeing[0] == 2
    assert [note[:4] for note in seeing[1:4]] == [(0.0, 1, [0], [1]), (0.0, 2, [1], [1]), (10.0, 3, [0], [1])]
    assert [note[4] for note in seeing[1:4]] == [[3], [4], [1 << 62]]


def test_the_clock_is_that_of_the_trace() -> None:
    # What was stored 130 s ago has expired, what was stored 60 s ago has not.
    visits = full([1], *([2], [3]) * 3, *([4], [5]) * 3, [1], [5])
    for plain in (True, False):
        curves = Curves(visits, plain=plain, first_counted=13)
        assert [curves.point(name, 9).hit_blocks for name in ("ttl", "infinite")] == [1, 2]


def test_names() -> None:
    for name in ("belady", "lru", "ttl", "belady-prefix", LRU_BY_CLASS):
        check_policy(name)
    with pytest.raises(InputError, match="needs the time to compute a chunk"):
        check_policy("gdsf-kv")
    with pytest.raises(UnknownNameError, match="did you mean 'belady'"):
        check_policy("beladyy")
    with pytest.raises(InputError, match="has no Nothing"):
        check_policy("sim.policies.eviction:Nothing")


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("capacity", [0, -1])
def test_a_cache_needs_a_block(capacity: int, plain: bool) -> None:
    with pytest.raises(InputError, match="at least 1"):
        Curves(full([1]), plain=plain).point("lru", capacity)


def test_a_request_without_blocks_has_no_hit() -> None:
    visits = read_requests(Records(([], 5, NO_ID), ([1], 512, NO_ID), ([], 5, NO_ID), ([1], 512, NO_ID)))
    for plain in (False, True):
        point = Curves(visits, plain=plain).point("fifo", 1)
        assert (point.hit_blocks, point.blocks, point.hit_tokens, point.prompt_tokens) == (1, 2, 512, 1034)
        assert not math.isnan(point.hit_ratio_blocks)
