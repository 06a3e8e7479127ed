"""Laws that every registered eviction policy keeps, with and without the leaf constraint."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_kit import prepared
from runs_kit import flat, run_set

from sim.policies import leaf_extents
from sim.policies.base import EVICTION, EvictionPolicy
from sim.policies.contract import check_policy
from sim.policies.leaf import LeafConstrained, constrain_to_leaves, select_victims
from sim.prefix_tree import PrefixTree
from sim.run_sets import RunSet
from sim.runs import STRAND_BITS, Runs, as_runs

NAMES = EVICTION.names()
# Those that are a tree of their own, whatever the structure of the tier.
TREES = [name for name in NAMES if issubclass(EVICTION.get(name), LeafConstrained)]
LISTS = [name for name in NAMES if name not in TREES]

# For each law of each of so many policies.
FEW = settings(max_examples=20)

Step = tuple[str, int, int]
Forest = dict[int, int | None]  # the chunk before each chunk


def create(name: str) -> EvictionPolicy:
    if name == "shuffled":
        return Shuffled()
    return prepared(EVICTION.create(name))


class Shuffled:
    """An order that has nothing to do with use, so that parents come before and after their children."""

    def __init__(self) -> None:
        self.keys: set[int] = set()

    def insert(self, run: range, parent: int | None = None) -> None:
        self.keys.update(run)

    def touch(self, run: range) -> None:
        pass

    def remove(self, run: range) -> None:
        self.keys.difference_update(run)

    def victims(self) -> Iterator[range]:
        return (range(key, key + 1) for key in sorted(self.keys, key=lambda key: key * 7919 % 101))


@dataclass
class World:
    """A forest of chunks and the calls that a tier would make about them."""

    parents: Forest
    tail_first: bool = False
    resident: set[int] = field(default_factory=set)
    policies: list[EvictionPolicy] = field(default_factory=list)

    def path(self, key: int | None) -> list[int]:
        path: list[int] = []
        while key is not None:
            path.append(key)
            key = self.parents[key]
        return path[::-1]

    def use(self, key: int, skipped: int) -> None:
        """Use the path to *key* less its first *skipped* chunks, as a tier under another tier sees it."""
        path = self.path(key)
        path = path[min(skipped, len(path) - 1) :]
        hit = as_runs(chunk for chunk in path if chunk in self.resident)
        new = as_runs(chunk for chunk in path if chunk not in self.resident)
        for policy in self.policies:
            for run in reversed(hit) if self.tail_first else hit:
                policy.touch(run[::-1] if self.tail_first else run)
            for run in reversed(new) if self.tail_first else new:
                policy.insert(run[::-1] if self.tail_first else run, self.parents[run[0]])
        self.resident.update(path)

    def remove(self, runs: Runs) -> None:
        for policy in self.policies:
            for run in runs:
                policy.remove(run)
        self.resident.difference_update(flat(runs))

    def is_leaf(self, key: int, resident: set[int]) -> bool:
        return not any(self.parents[child] == key for child in resident)

    def expected_evictions(self, order: Sequence[int], pinned: set[int]) -> list[int]:
        """Take the first leaf in *order* that is not pinned, then look again from the start, until there is none."""
        resident = set(self.resident)
        gone: list[int] = []
        while True:
            found = next((k for k in order if k in resident and k not in pinned and self.is_leaf(k, resident)), None)
            if found is None:
                return gone
            gone.append(found)
            resident.remove(found)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("use"), st.integers(0, 10**6), st.integers(0, 3)),
        st.tuples(st.just("evict"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 10**6), st.just(0)),
    ),
    max_size=40,
)


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    # Mostly long chains, some branches, a few roots; the prefix tree names the chunks, so each chain is a few runs.
    tree = PrefixTree()
    paths: list[tuple[int, ...]] = [()]
    parents: Forest = {}
    for number in range(1, draw(st.integers(1, 25)) + 1):
        before = paths[draw(st.sampled_from([number - 1, number - 1, draw(st.integers(0, number - 1)), 0]))]
        paths.append((*before, number))
        *path, key = tree.chain(paths[-1])
        parents[key] = path[-1] if path else None
    return parents


def pinned_among(parents: Forest, numbers: set[int]) -> set[int]:
    return {key for number, key in enumerate(parents) if number in numbers}


def play(world: World, steps: list[Step], check: Callable[[], None]) -> None:
    for what, number, skipped in steps:
        if what == "use":
            world.use(list(world.parents)[number % len(world.parents)], skipped)
        elif what == "evict":
            world.remove(select_victims(world.policies[0], number, RunSet()))
        elif world.resident:
            lost = sorted(world.resident)[number % len(world.resident)]
            world.remove([range(lost, lost + 1)])
        check()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("leaf_constrained", [False, True])
def test_every_policy_keeps_the_contract(name: str, leaf_constrained: bool) -> None:
    check_policy(name, leaf_constrained=leaf_constrained)


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(parents=forests(), steps=STEPS)
def test_victims_are_the_residents_once_each(name: str, parents: Forest, steps: list[Step]) -> None:
    world = World(parents, policies=[create(name)])

    def check() -> None:
        victims = flat(world.policies[0].victims())
        assert len(victims) == len(set(victims))
        assert set(victims) == world.resident

    play(world, steps, check)


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(parents=forests(), steps=STEPS)
def test_looking_at_victims_changes_nothing(name: str, parents: Forest, steps: list[Step]) -> None:
    watched, alone = create(name), create(name)
    world = World(parents, policies=[alone, watched])

    def look() -> None:
        first = flat(watched.victims())
        next(watched.victims(), None)
        assert flat(watched.victims()) == first

    play(world, steps, look)
    assert flat(watched.victims()) == flat(alone.victims())


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(parents=forests(), steps=STEPS)
def test_equal_calls_give_equal_orders(name: str, parents: Forest, steps: list[Step]) -> None:
    world = World(parents, policies=[create(name), create(name)])

    def check() -> None:
        one, other = world.policies
        assert flat(one.victims()) == flat(other.victims())

    play(world, steps, check)


@pytest.mark.parametrize("name", NAMES)
def test_new_and_emptied_policies_have_no_victims(name: str) -> None:
    policy = create(name)
    assert list(policy.victims()) == []
    policy.insert(range(0), None)
    policy.touch(range(0))
    policy.remove(range(0))
    policy.insert(range(1, 4))
    policy.remove(range(2, 0, -1))
    policy.remove(range(3, 4))
    assert list(policy.victims()) == []
    policy.insert(range(2, 3), parent=1)
    assert flat(policy.victims()) == [2]


@pytest.mark.parametrize("name", LISTS)
@FEW
@given(parents=forests(), steps=STEPS, pins=st.sets(st.integers(0, 24)))
def test_selected_victims_are_the_first_that_are_not_pinned(
    name: str, parents: Forest, steps: list[Step], pins: set[int]
) -> None:
    world = World(parents, policies=[create(name)])
    play(world, steps, lambda: None)
    policy = world.policies[0]
    pinned = pinned_among(parents, pins)
    free = [key for key in flat(policy.victims()) if key not in pinned]
    for wanted in (0, 1, 3, 100):
        selected = select_victims(policy, wanted, run_set(pinned))
        assert flat(selected) == free[:wanted]
        assert all(run[0] >> STRAND_BITS == run[-1] >> STRAND_BITS for run in selected)


@pytest.mark.parametrize("tail_first", [False, True])
@pytest.mark.parametrize(
    ("name", "form"), [("lru", "fastest"), ("lru", "swept"), *((name, "general") for name in [*LISTS, "shuffled"])]
)
@FEW
@given(parents=forests(), steps=STEPS, pins=st.sets(st.integers(0, 24)))
def test_leaf_constraint_equals_brute_force(
    name: str, form: str, tail_first: bool, parents: Forest, steps: list[Step], pins: set[int]
) -> None:
    free = create(name)
    constrained = LeafConstrained(create(name)) if form == "general" else constrain_to_leaves(create(name))
    world = World(parents, tail_first=tail_first, policies=[constrained, free])
    pinned = pinned_among(parents, pins)

    def check() -> None:
        order = flat(free.victims())
        assert flat(constrained.victims()) == [key for key in order if world.is_leaf(key, world.resident)]
        assert list(constrained.evictable()) == world.expected_evictions(order, set())
        assert list(constrained.evictable(run_set(pinned))) == world.expected_evictions(order, pinned)
        selected = select_victims(constrained, 3, run_set(pinned))
        assert flat(selected) == world.expected_evictions(order, pinned)[:3]
        assert all(run[0] >> STRAND_BITS == run[-1] >> STRAND_BITS for run in selected)

    # A heap so short is swept again and again, as it is in a long run.
    with patch.object(leaf_extents, "_SPARE", 0 if form == "swept" else leaf_extents._SPARE):
        play(world, steps, check)
