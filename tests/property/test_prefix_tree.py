"""The names that a prefix tree gives to chunks, beside a dict of all prefixes."""

from itertools import accumulate
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs_kit import STRAND

from sim import prefix_tree
from sim.prefix_tree import KEY_BITS, PrefixTree
from sim.runs import STRAND_BITS

Prompt = tuple[int, ...]


@st.composite
def prompts(draw: st.DrawFn) -> list[Prompt]:
    """Prompts that continue earlier ones, cut short or not; ids are few, so that equal ones stand behind others."""
    made: list[Prompt] = [()]
    tails = st.lists(st.integers(0, 3), max_size=5)
    for _ in range(draw(st.integers(1, 15))):
        before = draw(st.sampled_from(made))
        made.append((*before[: draw(st.integers(0, len(before)))], *draw(tails)))
        made.append((*made[-1], *draw(tails)))
    return made


# With the true limit no test would fill a strand.
@pytest.mark.parametrize("strand_chunks", [1, 3, STRAND])
@given(asked=prompts())
def test_a_key_is_a_prefix(strand_chunks: int, asked: list[Prompt]) -> None:
    tree = PrefixTree()
    keys: dict[Prompt, int] = {}
    with patch.object(prefix_tree, "_STRAND_CHUNKS", strand_chunks):
        for prompt in asked:
            prefixes = list(accumulate((chunk,) for chunk in prompt))
            chain = tree.chain(prompt)
            assert len(chain) == len(prompt)
            assert chain.seen == sum(prefix in keys for prefix in prefixes)
            for prefix, key in zip(prefixes, chain, strict=True):
                assert keys.setdefault(prefix, key) == key
            for run in chain.runs:
                assert len(run) > 0
                assert run.step == 1
                assert run[0] >> STRAND_BITS == run[-1] >> STRAND_BITS
                assert len(run) <= strand_chunks
    assert len(set(keys.values())) == len(keys)
    for prefix, key in keys.items():
        assert 0 <= key < 1 << KEY_BITS
        before = keys[prefix[:-1]] if len(prefix) > 1 else None
        for view in (0, 1, 5):
            offset = view << KEY_BITS
            assert tree.parent(key + offset) == (None if before is None else before + offset)


@given(st.lists(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=4), min_size=1, max_size=8), st.data())
def test_a_conversation_that_only_grows_is_one_run_whatever_comes_between(
    turns: list[list[int]], data: st.DataObject
) -> None:
    tree = PrefixTree()
    said: list[int] = [-1]  # an id that no other conversation begins with
    other: list[int] = [-2]
    first = tree.chain(said).runs[0][0]
    for turn in turns:
        said += turn
        assert tree.chain(said).runs == [range(first, first + len(said))]
        if data.draw(st.booleans()):
            other += turn
            assert len(tree.chain(other).runs) == 1


def test_a_fork_makes_another_strand() -> None:
    tree = PrefixTree()
    (trunk,) = tree.chain([1, 2, 3, 4]).runs
    shared, fork = tree.chain([1, 2, 9, 4]).runs
    assert shared == trunk[:2]
    assert len(fork) == 2
    assert fork[0] >> STRAND_BITS != trunk[0] >> STRAND_BITS
    assert tree.parent(fork[0]) == trunk[1]
    # Each goes on in its own strand.
    assert tree.chain([1, 2, 3, 4, 5]).runs == [range(trunk[0], trunk[0] + 5)]
    assert tree.chain([1, 2, 9, 4, 5]).runs == [shared, range(fork[0], fork[0] + 3)]
    assert tree.chain([1, 2]).runs == [shared]


def test_equal_ids_behind_different_prefixes_are_different_chunks() -> None:
    tree = PrefixTree()
    one, other = tree.chain([1, 7, 7]), tree.chain([2, 7, 7])
    assert other.seen == 0
    assert len({*one, *other}) == 6


def test_what_an_earlier_prompt_had_was_seen() -> None:
    tree = PrefixTree()
    asked = [[1, 2, 3], [1, 2, 3], [1, 2], [1, 2, 3, 4], [1, 5], [1, 5, 2], [9], []]
    assert [tree.chain(ids).seen for ids in asked] == [0, 3, 2, 3, 1, 2, 0, 0]


def test_a_prompt_longer_than_a_strand_goes_on_in_others() -> None:
    tree = PrefixTree()
    ids = range(100, 108)
    with patch.object(prefix_tree, "_STRAND_CHUNKS", 3):
        chain = tree.chain(ids)
        assert [len(run) for run in chain.runs] == [3, 3, 2]
        keys = list(chain)
        assert [tree.parent(key) for key in keys] == [None, *keys[:-1]]
        assert list(tree.chain(ids)) == keys
        assert [len(run) for run in tree.chain([*ids, 1]).runs] == [3, 3, 3]
