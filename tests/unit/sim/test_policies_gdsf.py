"""GDSF in extents beside GDSF chunk by chunk, over runs that are cut, touched and lost anywhere."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from runs_kit import STRAND, flat, run_set, stretches

from sim.policies.base import PolicyContext
from sim.policies.gdsf import Gdsf, GdsfKv, GdsfKvNet
from sim.policies.hooks import hooks
from sim.policies.leaf import select_victims
from sim.run_sets import RunSet

# By position: costs that rise, that stay, and that fall here and there (so that an extent must end there).
COSTS = {
    "rising": lambda at: 1.0 + at / 7,
    "level": lambda _: 0.7,
    "stepped": lambda at: 1.0 + at // 3,
    "uneven": lambda at: 1.0 + at * 7919 % 5 / 3,
}


def position(key: int) -> int:
    """The end of a strand and its begin stand near the head of their prompts: costs are learned from there on."""
    return (key + 8) % STRAND


class GdsfMachine(RuleBasedStateMachine):
    """One of the policies beside a table of the rank and the last use of each chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[int, tuple[float, int]] = {}
        self.uses: dict[int, int] = {}
        self.base = 0.0
        self.clock = 0

    @initialize(policy=st.sampled_from([Gdsf, GdsfKv, GdsfKvNet]), cost=st.sampled_from(sorted(COSTS)))
    def create(self, policy: type[Gdsf], cost: str) -> None:
        self.policy = policy()
        context = PolicyContext(position=position, recompute_s=COSTS[cost], reload_s=1.3)
        hooks(self.policy).prepare(context)
        self.cost = {
            Gdsf: lambda _: 1.0,
            GdsfKv: COSTS[cost],
            GdsfKvNet: lambda at: max(COSTS[cost](at) - 1.3, 0.0),
        }[policy]

    def resident_part(self, data: st.DataObject) -> range:
        low = high = data.draw(st.sampled_from(sorted(self.model)))
        while low - 1 in self.model and low % STRAND and data.draw(st.integers(0, 3)):
            low -= 1
        while high + 1 in self.model and (high + 1) % STRAND and data.draw(st.integers(0, 3)):
            high += 1
        return range(low, high + 1)[:: data.draw(st.sampled_from([1, 1, -1]))]

    def use(self, run: range) -> None:
        for key in run:
            self.clock += 1
            self.uses[key] = self.uses.get(key, 0) + 1
            self.model[key] = (self.base + self.uses[key] * self.cost(position(key)), self.clock)

    def forget(self, run: range) -> None:
        for key in run:
            del self.model[key], self.uses[key]

    def order(self) -> list[int]:
        return sorted(self.model, key=self.model.__getitem__)

    @rule(run=stretches(), step=st.sampled_from([1, 1, -1]))
    def insert(self, run: range, step: int) -> None:
        for part in run_set(self.model).absent(run[::step]):
            self.policy.insert(part)
            self.use(part)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        run = self.resident_part(data)
        self.policy.touch(run)
        self.use(run)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        run = self.resident_part(data)
        self.policy.remove(run)
        self.forget(run)

    @precondition(lambda self: self.model)
    @rule(wanted=st.integers(1, 9), pins=st.sets(st.integers(0, 40), max_size=5))
    def evict(self, wanted: int, pins: set[int]) -> None:
        order = self.order()
        pinned = {order[at] for at in pins if at < len(order)}
        victims = select_victims(self.policy, wanted, run_set(pinned), run_set(self.model))
        assert flat(victims) == [key for key in order if key not in pinned][:wanted]
        self.go(victims)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def evict_anything(self, data: st.DataObject) -> None:
        """As under the leaf constraint, which takes leaves from anywhere in the order."""
        if data.draw(st.booleans()):
            next(self.policy.victims())
        self.go([self.resident_part(data)])

    def go(self, victims: list[range]) -> None:
        for victim in victims:
            self.base = max(self.base, *(self.model[key][0] for key in victim))
            self.policy.evict(victim)
            self.forget(victim)

    @rule(run=stretches(), step=st.sampled_from([1, -1]))
    def not_all_resident(self, run: range, step: int) -> None:
        if not set(run) <= set(self.model):
            with pytest.raises(KeyError):
                self.policy.touch(run[::step])
            with pytest.raises(KeyError):
                self.policy.remove(run[::step])

    @rule()
    def look(self) -> None:
        assert flat(self.policy.victims()) == self.order()

    @invariant()
    def entries_do_not_pile_up(self) -> None:
        if hasattr(self, "policy"):
            assert len(self.policy._heap) <= 40 * (len(self.model) + 8)


TestGdsfAgainstATable = GdsfMachine.TestCase
TestGdsfAgainstATable.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_a_prompt_is_one_entry_until_a_part_of_it_is_used() -> None:
    policy = Gdsf()
    policy.insert(range(30))
    assert len(policy._heap) == 1
    policy.touch(range(10))
    assert list(policy.victims()) == [range(10, 30), range(10)]
    policy.touch(range(10, 30))
    policy.touch(range(30))
    assert list(policy.victims()) == [range(30)]


def test_entries_out_of_date_are_swept_out() -> None:
    policy = Gdsf()
    policy.insert(range(10))
    for _ in range(1000):
        policy.touch(range(10))
        assert len(policy._heap) <= 64 + 4
    assert select_victims(policy, 3, RunSet()) == [range(3)]
