import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sim.policies.eviction import Lru
from sim.policies.leaf import LeafConstrained, LeafConstrainedLru, constrain_to_leaves, select_victims


class LruMachine(RuleBasedStateMachine):
    """Lru beside a list that is rewritten at every use."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = Lru()
        self.model: list[int] = []

    @rule(keys=st.lists(st.integers(0, 30), unique=True, max_size=8))
    def insert(self, keys: list[int]) -> None:
        absent = [key for key in keys if key not in self.model]
        self.policy.insert(absent)
        self.model.extend(absent)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.sampled_from(self.model), max_size=8))
        self.policy.touch(keys)
        for key in keys:
            self.model.remove(key)
            self.model.append(key)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.sampled_from(self.model), unique=True, max_size=8))
        self.policy.remove(keys)
        self.model = [key for key in self.model if key not in keys]

    @invariant()
    def same_order(self) -> None:
        assert list(self.policy.victims()) == self.model


TestLruAgainstAList = LruMachine.TestCase


def test_touching_or_removing_what_is_not_resident_is_an_error() -> None:
    for policy in (Lru(), LeafConstrained(Lru()), LeafConstrainedLru()):
        policy.insert([1, 2])
        with pytest.raises(KeyError):
            policy.touch([1, 3])
        with pytest.raises(KeyError):
            policy.remove([3])


def test_a_parent_goes_with_its_old_recency() -> None:
    policy = constrain_to_leaves(Lru())
    policy.insert([1, 2, 3])
    policy.insert([10, 11])
    policy.touch([3])  # a tier above served 1 and 2
    assert list(policy.victims()) == [11, 3]
    policy.remove([11])
    assert list(policy.victims()) == [10, 3]
    policy.remove([10])
    policy.insert([20])
    policy.remove([3])
    assert list(policy.victims()) == [2, 20]


def test_one_batch_equals_one_by_one() -> None:
    one_by_one, batch = constrain_to_leaves(Lru()), constrain_to_leaves(Lru())
    for policy in (one_by_one, batch):
        policy.insert(range(5))
        policy.insert(range(10, 15), parent=2)
        policy.insert([20, 21, 22])
        policy.touch([0, 1])
    gone = []
    for _ in range(13):
        victim = next(one_by_one.victims())
        one_by_one.remove([victim])
        gone.append(victim)
    assert select_victims(batch, 100) == gone == [4, 3, 14, 13, 12, 11, 10, 2, 22, 21, 20, 1, 0]


def test_a_pinned_chunk_keeps_its_ancestors_but_not_its_descendants() -> None:
    policy = constrain_to_leaves(Lru())
    policy.insert([1, 2, 3, 4])
    assert select_victims(policy, 9, pinned={3}) == [4]


def test_orphans_are_leaves_and_find_their_parent_again() -> None:
    policy = constrain_to_leaves(Lru())
    policy.insert([1, 2, 3])
    policy.remove([2])  # lost, not evicted
    assert list(policy.victims()) == [1, 3]
    policy.insert([2], parent=1)
    assert list(policy.victims()) == [3]


@given(st.integers(1, 400))
def test_entries_out_of_date_do_not_pile_up(rounds: int) -> None:
    policy = LeafConstrainedLru()
    policy.insert([0])
    for number in range(1, rounds):
        policy.insert([number])
        policy.remove([number])  # dropped while older leaves stay: its entry never reaches the top
    assert len(policy._heap) <= 2 * 2 + 64  # two entries were true at the last sweep
    assert list(policy.victims()) == [0]


def test_the_fast_form_equals_the_general_one_over_a_long_run() -> None:
    # Longer and wider than hypothesis goes: the heap is swept while many touched leaves have entries out of date.
    rng = random.Random(0)
    fast, general = LeafConstrainedLru(), LeafConstrained(Lru())
    tails: list[int] = []
    resident: set[int] = set()
    for start in range(0, 6000, 3):
        run = list(range(start, start + 3))
        parent = rng.choice(tails) if tails and rng.random() < 0.6 else None
        used = sorted(rng.sample(sorted(resident), min(len(resident), 4)), key=lambda key: rng.random())
        pinned = set(used)
        shortage = max(0, len(resident) + 3 - 500)
        victims = select_victims(general, shortage, pinned)
        assert select_victims(fast, shortage, pinned) == victims
        for policy in (fast, general):
            policy.touch(used)
            policy.remove(victims)
            policy.insert(run, parent)
        resident.difference_update(victims)
        resident.update(run)
        tails = [*(tail for tail in tails[-200:] if tail in resident), run[-1]]
    assert list(fast.victims()) == list(general.victims())
    assert list(fast.evictable()) == list(general.evictable())
