"""Policies that break their contract are named, by the check that users run and by a tier that meets them."""

from collections.abc import Iterator
from itertools import repeat

import pytest
from runs_kit import run_set

from models.errors import InputError, InvariantError
from sim.policies.contract import check_policy
from sim.policies.eviction import Fifo, Lru
from sim.policies.leaf import constrain_to_leaves, select_victims
from sim.run_sets import RunSet
from sim.tiers.tier import Tier


class Forgetful(Lru):
    """Leaves out the newest."""

    def victims(self) -> Iterator[range]:
        *most, _ = [*super().victims(), range(0)]
        return iter(most[:-1])


class Haunted(Lru):
    """Never forgets."""

    def remove(self, run: range) -> None:
        pass


class Absent(Lru):
    """Makes a chunk up."""

    def victims(self) -> Iterator[range]:
        yield range(7 << 24, (7 << 24) + 1)
        yield from super().victims()


class Stuttering(Lru):
    """Says everything twice."""

    def victims(self) -> Iterator[range]:
        for run in super().victims():
            yield run
            yield run


class Looping(Lru):
    """Comes to no end."""

    def victims(self) -> Iterator[range]:
        return repeat(next(super().victims(), range(1)))


class Peeking(Fifo):
    """Changes its order when somebody looks."""

    def victims(self) -> Iterator[range]:
        found = list(super().victims())
        if found:
            self.remove(found[0])
            self.insert(found[0])
        return iter(found)


class Moody(Lru):
    """Equal calls, different orders."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Moody.made += 1
        self.turned = Moody.made % 2 == 0

    def victims(self) -> Iterator[range]:
        found = list(super().victims())
        return iter(found[::-1] if self.turned else found)


class Liar(Fifo):
    """What it gives up changes who is next."""

    gone = 0

    def remove(self, run: range) -> None:
        super().remove(run)
        self.gone += len(run)

    def victims(self) -> Iterator[range]:
        found = list(super().victims())
        return iter(found if self.gone % 2 else found[::-1])


class Numbers(Lru):
    """Yields ints, not runs."""

    def victims(self) -> Iterator[range]:
        return (key for run in super().victims() for key in run)  # type: ignore[misc]


BROKEN = {
    Forgetful: "left out",
    Haunted: "was removed, and victims\\(\\) returned it|twice",  # twice, where it came back meanwhile
    Absent: "which is not (all )?resident",
    Stuttering: "twice",
    Looping: "twice",
    Peeking: "looking at victims\\(\\) changed",
    Moody: "equal calls gave another order",
    Liar: "would go next",
    Numbers: "must be a range",
}


@pytest.mark.parametrize("policy", BROKEN)
def test_the_check_finds_what_is_broken_and_names_the_class(policy: type[Lru]) -> None:
    named = f"^eviction policy '{__name__}:{policy.__name__}' breaks its contract: .*({BROKEN[policy]})"
    with pytest.raises(InvariantError, match=named):
        check_policy(policy)


def test_the_check_takes_a_class_by_its_place_and_its_parameters() -> None:
    check_policy("sim.policies.lru_k:LruK", k=3)
    check_policy("sim.policies.lru_k:LruK", k=3, leaf_constrained=True)
    with pytest.raises(InputError, match="no parameter 'q'"):
        check_policy("sim.policies.lru_k:LruK", q=3)


def full_tier(policy: type[Lru]) -> Tier:
    """A tier of 9 chunks that are all taken."""
    tier = Tier(name="dram", index=1, capacity_units=9, units_per_chunk=1, unit_bytes=1.0, policy=policy())
    for at in (0, 10, 20):
        run = range(at, at + 3)
        assert tier.reserve([run])
        tier.arrive([run])
    return tier


@pytest.mark.parametrize(("policy", "wanted"), [(Absent, 1), (Stuttering, 4), (Looping, 4), (Numbers, 1)])
def test_a_tier_that_meets_a_broken_policy_names_it(policy: type[Lru], wanted: int) -> None:
    tier = full_tier(policy)
    with pytest.raises(InvariantError, match=f"^eviction policy '{__name__}:{policy.__name__}' breaks its contract: "):
        tier.reserve([range(100, 100 + wanted)])


def test_a_tier_whose_chunks_are_pinned_finds_a_policy_that_never_ends() -> None:
    tier = full_tier(Looping)
    tier.pin([range(3)])
    with pytest.raises(InvariantError, match=r"Looping' breaks its contract: victims\(\) returned more than the 9"):
        tier.reserve([range(100, 105)])


def test_a_tier_names_a_policy_that_leaves_chunks_out() -> None:
    with pytest.raises(InvariantError, match=r"Forgetful' breaks its contract: victims\(\) left out 3 of the 9"):
        full_tier(Forgetful).reserve([range(100, 109)])


def test_the_policy_under_the_leaf_constraint_is_the_one_that_is_named() -> None:
    for policy, wanted in ((Absent, 1), (Looping, 9)):
        constrained = constrain_to_leaves(policy())
        constrained.insert(range(3))
        with pytest.raises(InvariantError, match=f"{policy.__name__}' breaks its contract"):
            select_victims(constrained, wanted, run_set([0]), run_set(range(3)))


def test_a_sound_policy_is_left_alone() -> None:
    tier = full_tier(Lru)
    assert tier.reserve([range(100, 109)])
    assert select_victims(tier.policy, 3, RunSet(), tier.ready) == []
