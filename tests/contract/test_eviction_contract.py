"""Laws that every registered eviction policy keeps, with and without the leaf constraint."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.policies import leaf
from sim.policies.base import EVICTION, EvictionPolicy
from sim.policies.leaf import LeafConstrained, constrain_to_leaves, select_victims

# Arguments of the policies that cannot be made without; a new policy that needs none needs no line here.
ARGUMENTS: dict[str, dict[str, object]] = {}

NAMES = EVICTION.names()

Step = tuple[str, int, int]


def create(name: str) -> EvictionPolicy:
    if name == "shuffled":
        return Shuffled()
    return EVICTION.create(name, **ARGUMENTS.get(name, {}))


class Shuffled:
    """An order that has nothing to do with use, so that parents come before and after their children."""

    def __init__(self) -> None:
        self.keys: set[int] = set()

    def insert(self, keys: Sequence[int], parent: int | None = None) -> None:
        self.keys.update(keys)

    def touch(self, keys: Sequence[int]) -> None:
        pass

    def remove(self, keys: Iterable[int]) -> None:
        self.keys.difference_update(keys)

    def victims(self) -> Iterator[int]:
        return iter(sorted(self.keys, key=lambda key: key * 7919 % 101))


@dataclass
class World:
    """A forest of chunks and the calls that a tier would make about them."""

    parents: list[int | None]  # a parent has the lower number
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
        hit = [chunk for chunk in path if chunk in self.resident]
        runs: list[list[int]] = []
        for chunk in path:
            if chunk in self.resident:
                continue
            if runs and runs[-1][-1] == self.parents[chunk]:
                runs[-1].append(chunk)
            else:
                runs.append([chunk])
        for policy in self.policies:
            policy.touch(hit)
            for run in runs:
                policy.insert(run[::-1] if self.tail_first else run, self.parents[run[0]])
        self.resident.update(path)

    def remove(self, keys: Sequence[int]) -> None:
        for policy in self.policies:
            policy.remove(keys)
        self.resident.difference_update(keys)

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
def forests(draw: st.DrawFn) -> list[int | None]:
    # Mostly long chains, some branches, a few roots.
    size = draw(st.integers(1, 25))
    parents = [draw(st.sampled_from([k - 1, k - 1, draw(st.integers(-1, k - 1)), -1])) for k in range(size)]
    return [None if parent == -1 else parent for parent in parents]


def play(world: World, steps: list[Step], check: Callable[[], None]) -> None:
    for what, number, skipped in steps:
        if what == "use":
            world.use(number % len(world.parents), skipped)
        elif what == "evict":
            world.remove(select_victims(world.policies[0], number))
        elif world.resident:
            world.remove([sorted(world.resident)[number % len(world.resident)]])
        check()


@pytest.mark.parametrize("name", NAMES)
@given(parents=forests(), steps=STEPS)
def test_victims_are_the_residents_once_each(name: str, parents: list[int | None], steps: list[Step]) -> None:
    world = World(parents, policies=[create(name)])

    def check() -> None:
        victims = list(world.policies[0].victims())
        assert len(victims) == len(set(victims))
        assert set(victims) == world.resident

    play(world, steps, check)


@pytest.mark.parametrize("name", NAMES)
@given(parents=forests(), steps=STEPS)
def test_looking_at_victims_changes_nothing(name: str, parents: list[int | None], steps: list[Step]) -> None:
    watched, alone = create(name), create(name)
    world = World(parents, policies=[alone, watched])

    def look() -> None:
        first = list(watched.victims())
        next(watched.victims(), None)
        assert list(watched.victims()) == first

    play(world, steps, look)
    assert list(watched.victims()) == list(alone.victims())


@pytest.mark.parametrize("name", NAMES)
@given(parents=forests(), steps=STEPS)
def test_equal_calls_give_equal_orders(name: str, parents: list[int | None], steps: list[Step]) -> None:
    world = World(parents, policies=[create(name), create(name)])

    def check() -> None:
        one, other = world.policies
        assert list(one.victims()) == list(other.victims())

    play(world, steps, check)


@pytest.mark.parametrize("name", NAMES)
def test_new_and_emptied_policies_have_no_victims(name: str) -> None:
    policy = create(name)
    assert list(policy.victims()) == []
    policy.insert([], None)
    policy.touch([])
    policy.remove([])
    policy.insert([1, 2, 3])
    policy.remove(iter([2, 1, 3]))
    assert list(policy.victims()) == []
    policy.insert([2], parent=1)
    assert list(policy.victims()) == [2]


@pytest.mark.parametrize("name", NAMES)
@given(parents=forests(), steps=STEPS, pinned=st.sets(st.integers(0, 24)))
def test_selected_victims_are_the_first_that_are_not_pinned(
    name: str, parents: list[int | None], steps: list[Step], pinned: set[int]
) -> None:
    world = World(parents, policies=[create(name)])
    play(world, steps, lambda: None)
    policy = world.policies[0]
    free = [key for key in policy.victims() if key not in pinned]
    for wanted in (0, 1, 3, 100):
        assert select_victims(policy, wanted, pinned) == free[:wanted]


@pytest.mark.parametrize("form", ["fastest", "swept", "general"])
@pytest.mark.parametrize("tail_first", [False, True])
@pytest.mark.parametrize("name", [*NAMES, "shuffled"])
@given(parents=forests(), steps=STEPS, pinned=st.sets(st.integers(0, 24)))
def test_leaf_constraint_equals_brute_force(
    form: str, tail_first: bool, name: str, parents: list[int | None], steps: list[Step], pinned: set[int]
) -> None:
    free = create(name)
    constrained: LeafConstrained
    if form == "general":
        constrained = LeafConstrained(create(name), tail_first=tail_first)
    else:
        constrained = constrain_to_leaves(create(name), tail_first=tail_first)
    world = World(parents, tail_first=tail_first, policies=[constrained, free])

    def check() -> None:
        order = list(free.victims())
        assert list(constrained.victims()) == [key for key in order if world.is_leaf(key, world.resident)]
        assert list(constrained.evictable()) == world.expected_evictions(order, set())
        assert list(constrained.evictable(pinned)) == world.expected_evictions(order, pinned)
        assert select_victims(constrained, 3, pinned) == world.expected_evictions(order, pinned)[:3]

    # A heap so short is swept again and again, as it is in a long run.
    with patch.object(leaf, "_STALE_ENTRIES", 0 if form == "swept" else leaf._STALE_ENTRIES):
        play(world, steps, check)
