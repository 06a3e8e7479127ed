"""Runs of chunks: cut, shifted, turned, and made of single keys."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs_kit import STRAND, flat

from sim.runs import STRAND_BITS, Chain, as_runs, ascending, count, cut, shifted

THREE = [range(4), range(10, 12), range(20, 25)]
KEYS = [0, 1, 2, 3, 10, 11, 20, 21, 22, 23, 24]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, 11, THREE),
        (0, 4, [range(4)]),
        (4, 6, [range(10, 12)]),
        (3, 7, [range(3, 4), range(10, 12), range(20, 21)]),
        (1, 3, [range(1, 3)]),
        (6, 99, [range(20, 25)]),
        (11, 12, []),
        (5, 5, []),
        (9, 7, []),
        (0, 0, []),
    ],
)
def test_a_cut_keeps_the_chunks_from_one_position_to_another(start: int, stop: int, expected: list[range]) -> None:
    assert cut(THREE, start, stop) == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 6)), max_size=6), st.integers(0, 15), st.integers(0, 15))
def test_a_cut_is_a_slice_without_empty_runs(shapes: list[tuple[int, int]], start: int, stop: int) -> None:
    made = [range(head, head + length) for head, length in shapes]
    found = cut(made, start, stop)
    assert flat(found) == flat(made)[start:stop]
    assert all(found)
    assert count(found) == len(flat(found))


def test_counting() -> None:
    assert [count([]), count(THREE[:1]), count(THREE)] == [0, 4, 11]


@pytest.mark.parametrize("offset", [0, 7, -3, 5 << 62])
def test_shifting_adds_to_each_key(offset: int) -> None:
    assert flat(shifted(THREE, offset)) == [key + offset for key in KEYS]
    assert flat(shifted(shifted(THREE, offset), -offset)) == KEYS


def test_keys_that_follow_each_other_are_one_run() -> None:
    assert as_runs([]) == []
    assert as_runs(KEYS) == THREE
    assert as_runs(iter([5, 6, 4, 3, 9])) == [range(5, 7), range(4, 5), range(3, 4), range(9, 10)]


def test_descending_keys_are_one_run_where_the_step_says_so() -> None:
    found = as_runs([24, 23, 22, 5, 4, 7, 8], step=-1)
    assert found == [range(24, 21, -1), range(5, 3, -1), range(7, 6, -1), range(8, 7, -1)]
    assert {run.step for run in found} == {-1}
    assert as_runs([2, 1, 0], step=-1) == [range(2, -1, -1)]


@given(st.lists(st.integers(STRAND - 4, STRAND + 4)), st.sampled_from([1, -1]))
def test_runs_have_all_keys_in_order_and_join_all_they_may(keys: list[int], step: int) -> None:
    found = as_runs(keys, step)
    assert flat(found) == keys
    assert all(run[0] >> STRAND_BITS == run[-1] >> STRAND_BITS for run in found)
    for one, other in pairwise(found):
        assert other[0] != one[-1] + step or other[0] >> STRAND_BITS != one[-1] >> STRAND_BITS


def test_strands_are_never_joined() -> None:
    around = [STRAND - 2, STRAND - 1, STRAND, STRAND + 1]
    assert as_runs(around) == [range(STRAND - 2, STRAND), range(STRAND, STRAND + 2)]
    assert as_runs(around[::-1], step=-1) == [range(STRAND + 1, STRAND - 1, -1), range(STRAND - 1, STRAND - 3, -1)]


@pytest.mark.parametrize("run", [range(3, 8), range(7, 2, -1), range(3, 4), range(3, 2, -1)])
def test_an_ascending_run_starts_with_its_head(run: range) -> None:
    assert list(ascending(run)) == sorted(run)
    assert ascending(run).step == 1


def test_a_chain_knows_its_length_its_keys_and_its_parts() -> None:
    made = Chain(THREE, seen=3)
    assert (len(made), list(made), made.seen) == (11, KEYS, 3)
    assert made.cut(0) == made.cut(0, 99) == THREE
    assert made.cut(3) == [range(3, 4), range(10, 12), range(20, 25)]
    assert made.cut(0, 5) == [range(4), range(10, 11)]
    assert made.cut(2, 4) == [range(2, 4)]
    assert made.cut(11) == []


def test_all_of_a_chain_may_have_been_seen_where_nobody_knows() -> None:
    assert Chain(THREE).seen == 11
    assert Chain(THREE, seen=0).seen == 0
    assert (len(Chain(())), list(Chain(())), Chain(()).seen) == (0, [], 0)
