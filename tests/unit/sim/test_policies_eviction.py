import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from runs_kit import STRAND, flat, run_set, stretches

from sim.policies.eviction import Lru
from sim.policies.leaf import LeafConstrained, LeafConstrainedLru, constrain_to_leaves, select_victims
from sim.run_sets import RunSet


class LruMachine(RuleBasedStateMachine):
    """Lru beside a list of chunks that is rewritten at every use."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = Lru()
        self.model: list[int] = []

    def resident_part(self, data: st.DataObject) -> range:
        """A run that is resident, from inside one stretch of chunks that may have been used at different times."""
        inside = set(self.model)
        low = high = data.draw(st.sampled_from(sorted(inside)))
        while low - 1 in inside and low % STRAND and data.draw(st.booleans()):
            low -= 1
        while high + 1 in inside and (high + 1) % STRAND and data.draw(st.booleans()):
            high += 1
        return range(low, high + 1)[:: data.draw(st.sampled_from([1, -1]))]

    @rule(run=stretches(), step=st.sampled_from([1, -1]))
    def insert(self, run: range, step: int) -> None:
        for part in run_set(self.model).absent(run[::step]):
            self.policy.insert(part)
            self.model += part

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        run = self.resident_part(data)
        self.policy.touch(run)
        self.model = [key for key in self.model if key not in run] + list(run)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        run = self.resident_part(data)
        self.policy.remove(run)
        self.model = [key for key in self.model if key not in run]

    @rule(run=stretches(), step=st.sampled_from([1, -1]))
    def not_all_resident(self, run: range, step: int) -> None:
        if not set(run) <= set(self.model):
            with pytest.raises(KeyError):
                self.policy.touch(run[::step])
            with pytest.raises(KeyError):
                self.policy.remove(run[::step])

    @invariant()
    def same_order(self) -> None:
        victims = list(self.policy.victims())
        assert flat(victims) == self.model
        assert all(victims), "an empty entry was kept"

    @invariant()
    def entries_are_found_by_strand(self) -> None:
        for strand, extents in self.policy._strands.items():
            assert extents, "an empty strand was kept"
            for one, other in pairwise(extents):
                assert one.high <= other.low
            assert all(extent.low // STRAND == (extent.high - 1) // STRAND == strand for extent in extents)
        assert sum(map(len, self.policy._strands.values())) == len(list(self.policy.victims()))


TestLruAgainstAList = LruMachine.TestCase
TestLruAgainstAList.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_a_prompt_is_one_entry_until_a_part_of_it_is_used() -> None:
    policy = Lru()
    policy.insert(range(99, -1, -1))
    policy.touch(range(99, -1, -1))
    assert list(policy.victims()) == [range(99, -1, -1)]
    policy.touch(range(59, 39, -1))
    assert list(policy.victims()) == [range(99, 59, -1), range(39, -1, -1), range(59, 39, -1)]
    policy.touch(range(100))
    assert list(policy.victims()) == [range(100)]


def test_touching_or_removing_what_is_not_resident_is_an_error() -> None:
    for policy in (Lru(), LeafConstrained(Lru()), LeafConstrainedLru()):
        policy.insert(range(1, 3))
        before = flat(policy.victims())
        for absent in (range(2, 4), range(3, 1, -1), range(0, 2), range(STRAND, STRAND + 1)):
            with pytest.raises(KeyError):
                policy.touch(absent)
        for absent in (range(3, 4), range(0, 1), range(STRAND, STRAND + 1)):
            with pytest.raises(KeyError):
                policy.remove(absent)
        assert flat(policy.victims()) == before


def test_a_parent_goes_with_its_old_recency() -> None:
    policy = constrain_to_leaves(Lru())
    policy.insert(range(1, 4))
    policy.insert(range(10, 12))
    policy.touch(range(3, 4))  # a tier above served 1 and 2
    assert flat(policy.victims()) == [11, 3]
    policy.remove(range(11, 12))
    assert flat(policy.victims()) == [10, 3]
    policy.remove(range(10, 11))
    policy.insert(range(20, 21))
    policy.remove(range(3, 4))
    assert flat(policy.victims()) == [2, 20]


def test_one_batch_equals_one_by_one() -> None:
    one_by_one, batch = constrain_to_leaves(Lru()), constrain_to_leaves(Lru())
    for policy in (one_by_one, batch):
        policy.insert(range(5))
        policy.insert(range(10, 15), parent=2)
        policy.insert(range(20, 23))
        policy.touch(range(2))
    gone = []
    for _ in range(13):
        victim = next(one_by_one.victims())
        one_by_one.remove(victim)
        gone += victim
    selected = select_victims(batch, 100, RunSet())
    assert flat(selected) == gone == [4, 3, 14, 13, 12, 11, 10, 2, 22, 21, 20, 1, 0]
    assert [len(run) for run in selected] == [2, 5, 1, 3, 2]


def test_a_pinned_chunk_keeps_its_ancestors_but_not_its_descendants() -> None:
    policy = constrain_to_leaves(Lru())
    policy.insert(range(1, 5))
    assert flat(select_victims(policy, 9, pinned=run_set({3}))) == [4]


def test_a_chunk_that_became_a_leaf_twice_goes_once() -> None:
    policy = constrain_to_leaves(Lru())
    policy.insert(range(1))
    policy.insert(range(10, 12), parent=0)
    policy.insert(range(20, 21), parent=11)
    policy.remove(range(20, 21))
    policy.insert(range(30, 31), parent=0)
    assert flat(policy.victims()) == [11, 30]
    assert flat(select_victims(policy, 9, RunSet())) == [11, 10, 30, 0]  # 0 waits for both of its children


def test_orphans_are_leaves_and_find_their_parent_again() -> None:
    policy = constrain_to_leaves(Lru())
    policy.insert(range(1, 4))
    policy.remove(range(2, 3))  # lost, not evicted
    assert flat(policy.victims()) == [1, 3]
    policy.insert(range(2, 3), parent=1)
    assert flat(policy.victims()) == [3]


@given(st.integers(1, 400))
def test_entries_out_of_date_do_not_pile_up(rounds: int) -> None:
    policy = LeafConstrainedLru()
    policy.insert(range(1))
    for number in range(1, rounds):
        policy.insert(range(number, number + 1))
        policy.remove(range(number, number + 1))  # dropped while older leaves stay: its entry never reaches the top
    assert len(policy._extents._heap) <= 2 * 2 + 64  # two entries were true at the last sweep
    assert flat(policy.victims()) == [0]


def test_the_fast_form_equals_the_general_one_over_a_long_run() -> None:
    # Longer and wider than hypothesis goes: the heap is swept while many touched leaves have entries out of date.
    rng = random.Random(0)
    fast, general = LeafConstrainedLru(), LeafConstrained(Lru())
    tails: list[int] = []
    resident: set[int] = set()
    for start in range(0, 8000, 4):  # with gaps, because a run does not go on where another begins
        run = range(start, start + 3)
        parent = rng.choice(tails) if tails and rng.random() < 0.6 else None
        used = sorted(rng.sample(sorted(resident), min(len(resident), 4)), key=lambda key: rng.random())
        pinned = run_set(used)
        shortage = max(0, len(resident) + 3 - 500)
        victims = select_victims(general, shortage, pinned)
        assert select_victims(fast, shortage, pinned) == victims
        for policy in (fast, general):
            for key in used:
                policy.touch(range(key, key + 1))
            for victim in victims:
                policy.remove(victim)
            policy.insert(run, parent)
        resident.difference_update(flat(victims))
        resident.update(run)
        tails = [*(tail for tail in tails[-200:] if tail in resident), run[-1]]
    assert flat(fast.victims()) == flat(general.victims())
    assert list(fast.evictable()) == list(general.evictable())
