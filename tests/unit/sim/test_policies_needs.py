"""What policies are told: where a chunk stands, when it is used next; and what they say where they are not told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import InputError
from sim.policies.base import EVICTION, NEVER, PolicyContext
from sim.policies.future import KnownFuture
from sim.policies.making import make_policy
from sim.prefix_tree import KEY_BITS, PrefixTree


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("arc", "the capacity in chunks"),
        ("belady", "the future: requests that are all known beforehand"),
        ("gdsf-kv", "the position of chunks in their prompt"),
        ("ttl", "the time (a timed run)"),
        ("workload-aware", "the time (a timed run)"),
        ("lru-k", "the capacity in chunks"),
    ],
)
def test_a_policy_that_is_not_told_what_it_needs_says_so(name: str, needs: str) -> None:
    with pytest.raises(InputError, match=f"^eviction policy '{name}' needs ") as failure:
        make_policy(name, PolicyContext())
    assert str(failure.value) == f"eviction policy '{name}' needs {needs}, which is not known here"


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("lru-k", {"k": 0}),
        ("slru", {"segments": 1}),
        ("ttl", {"ttl_s": 0.0}),
        ("ttl-sliding", {"ttl_s": -1.0}),
        ("priority-lru", {"head_priority": 101}),
        ("workload-aware", {"window_s": 0.0}),
    ],
)
def test_parameters_out_of_range_are_refused(name: str, parameters: dict[str, object]) -> None:
    with pytest.raises(InputError, match=str(next(iter(parameters)))):
        EVICTION.create(name, **parameters)


def test_the_tree_knows_where_a_chunk_stands_and_in_which_turn_it_was_first_sent() -> None:
    tree = PrefixTree()
    tree.chain([1, 2])
    tree.chain([1, 2, 3, 4])  # the strand grows: turn 2
    fork = tree.chain([1, 2, 3, 9, 8])  # a strand of its own behind a chunk of turn 2
    grown = tree.chain([1, 2, 3, 4, 5])
    tree.chain([7])
    keys, forked = list(grown), list(fork)
    assert [tree.position(key) for key in keys] == [0, 1, 2, 3, 4]
    assert [tree.generation(key) for key in keys] == [1, 1, 2, 2, 3]
    assert [tree.position(key) for key in forked] == [0, 1, 2, 3, 4]
    assert [tree.generation(key) for key in forked] == [1, 1, 2, 3, 3]
    view = forked[4] + (3 << KEY_BITS)  # as replica 3 sees it
    assert (tree.position(view), tree.generation(view)) == (4, 3)


PROMPTS = st.lists(st.lists(st.integers(1, 2), min_size=1, max_size=6), min_size=1, max_size=12)


@given(prompts=PROMPTS, now=st.integers(0, 12), data=st.data())
def test_the_next_use_is_the_first_prompt_to_come_that_has_the_chunk(
    prompts: list[list[int]], now: int, data: st.DataObject
) -> None:
    # Ids must be equal where all before them are: the prompts' heads, numbered.
    numbers: dict[tuple[int, ...], int] = {}
    ids = [[numbers.setdefault(tuple(prompt[: n + 1]), len(numbers)) for n in range(len(prompt))] for prompt in prompts]
    tree = PrefixTree()
    chains = [tree.chain(prompt) for prompt in ids]
    future = KnownFuture((chain.runs for chain in chains), lambda: now)
    run = data.draw(st.sampled_from([run for chain in chains for run in chain.runs]))
    run = run[data.draw(st.integers(0, len(run) - 1)) :]
    parts = future.next_uses(run)
    assert [key for part, _ in parts for key in part] == list(run)
    for part, use in parts:
        for key in part:
            users = (number for number, chain in enumerate(chains) if number >= now and key in list(chain))
            assert use == next(users, NEVER)
