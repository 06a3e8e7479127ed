"""Sets and counts of chunks beside Python's own."""

from collections import Counter
from copy import deepcopy
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from runs_kit import STRAND, UNIVERSE, flat, members, stretches

from sim.run_sets import RunCounts, RunSet
from sim.runs import Chain, as_runs


def stretch_around(key: int, inside: set[int]) -> range:
    """The longest run of these keys that has this one and lies in its strand."""
    low = high = key
    while low - 1 in inside and low % STRAND:
        low -= 1
    while high + 1 in inside and (high + 1) % STRAND:
        high += 1
    return range(low, high + 1)


def part_of(data: st.DataObject, inside: set[int]) -> range:
    """A run that is there, all of a stretch or any part of it."""
    whole = stretch_around(data.draw(st.sampled_from(sorted(inside))), inside)
    first = data.draw(st.integers(0, len(whole) - 1))
    return whole[first : data.draw(st.integers(first + 1, len(whole)))]


class SetMachine(RuleBasedStateMachine):
    """RunSet beside a set."""

    def __init__(self) -> None:
        super().__init__()
        self.set = RunSet()
        self.model: set[int] = set()

    @rule(run=stretches())
    def add(self, run: range) -> None:
        self.set.add(run)
        self.model.update(run)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        run = part_of(data, self.model)
        self.set.remove(run)
        self.model.difference_update(run)

    @rule(run=stretches())
    def remove_what_may_not_be_there(self, run: range) -> None:
        if self.model.issuperset(run):
            self.set.remove(run)
            self.model.difference_update(run)
            return
        before = deepcopy(self.set._bounds)
        with pytest.raises(KeyError):
            self.set.remove(run)
        assert self.set._bounds == before

    @rule(run=stretches())
    def discard(self, run: range) -> None:
        self.set.discard(run)
        self.model.difference_update(run)

    @rule(run=stretches())
    def ask(self, run: range) -> None:
        inside = [key in self.model for key in run]
        lead = next((at for at, there in enumerate(inside) if there != inside[0]), len(run))
        assert self.set.leading(run) == (lead if inside[0] else -lead)
        assert self.set.present(run) == as_runs(key for key in run if key in self.model)
        assert self.set.absent(run) == as_runs(key for key in run if key not in self.model)
        assert self.set.absent(run[::-1]) == as_runs((key for key in run[::-1] if key not in self.model), step=-1)

    @rule(parts=st.lists(stretches(), max_size=4))
    def ask_for_a_chain(self, parts: list[range]) -> None:
        there = [key in self.model for key in flat(parts)]
        assert self.set.leading_of(Chain(parts)) == (there.index(False) if False in there else len(there))

    @invariant()
    def same_keys(self) -> None:
        assert members(self.set, UNIVERSE) == self.model
        assert sorted(flat(self.set.runs())) == sorted(self.model)

    @invariant()
    def runs_are_as_long_as_can_be(self) -> None:
        for strand, bounds in self.set._bounds.items():
            assert bounds, "an empty strand was kept"
            assert len(bounds) % 2 == 0
            assert all(one < other for one, other in pairwise(bounds))
            assert strand * STRAND <= bounds[0]
            assert bounds[-1] <= (strand + 1) * STRAND


class CountMachine(RuleBasedStateMachine):
    """RunCounts beside a Counter."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = RunCounts()
        self.model: Counter[int] = Counter()

    @rule(run=stretches(), times=st.integers(1, 3))
    def add(self, run: range, times: int) -> None:
        for _ in range(times):
            self.counts.add(run)
            self.model.update(run)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), again=st.booleans())
    def change_a_step(self, data: st.DataObject, again: bool) -> None:
        """Count all of a step once more or less, or fill a gap between two of them."""
        bounds, counts = data.draw(st.sampled_from(list(self.counts._steps.values())))
        place = data.draw(st.integers(0, len(counts) - 1))
        run = range(bounds[place], bounds[place + 1])
        if len(run) > len(UNIVERSE):
            return  # the gap between two windows
        if again or not counts[place]:
            self.add(run, 1)
        else:
            self.take_off(run)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.take_off(part_of(data, set(self.model)))

    @rule(run=stretches())
    def remove_what_may_not_be_there(self, run: range) -> None:
        if self.model.keys() >= set(run):
            self.take_off(run)
            return
        before = deepcopy(self.counts._steps)
        with pytest.raises(KeyError):
            self.counts.remove(run)
        assert self.counts._steps == before

    def take_off(self, run: range) -> None:
        assert self.counts.remove(run) == as_runs(key for key in run if self.model[key] == 1)
        self.model -= Counter(run)  # and what is at 0 goes

    @rule(run=stretches())
    def ask(self, run: range) -> None:
        assert self.counts.absent(run) == as_runs(key for key in run if key not in self.model)
        assert self.counts.absent(run[::-1]) == as_runs((key for key in run[::-1] if key not in self.model), step=-1)

    @rule(run=stretches(), least=st.integers(1, 4))
    def ask_for_a_count(self, run: range, least: int) -> None:
        assert self.counts.at_least(run, least) == as_runs(key for key in run if self.model[key] >= least)

    @invariant()
    def same_keys(self) -> None:
        assert members(self.counts, UNIVERSE) == set(self.model)

    @invariant()
    def steps_are_the_counts_and_as_few_as_can_be(self) -> None:
        found: dict[int, int] = {}
        for strand, (bounds, counts) in self.counts._steps.items():
            assert len(bounds) == len(counts) + 1
            assert counts, "an empty strand was kept"
            assert counts[0]
            assert counts[-1]
            assert all(one != other for one, other in pairwise(counts))
            assert all(one < other for one, other in pairwise(bounds))
            assert strand * STRAND <= bounds[0]
            assert bounds[-1] <= (strand + 1) * STRAND
            for (low, high), times in zip(pairwise(bounds), counts, strict=True):
                if times:
                    found |= dict.fromkeys(range(low, high), times)
        assert found == self.model


TestRunSetAgainstASet = SetMachine.TestCase
TestRunCountsAgainstACounter = CountMachine.TestCase
TestRunSetAgainstASet.settings = TestRunCountsAgainstACounter.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None
)


def test_filling_a_gap_between_what_is_counted_twice() -> None:
    counts = RunCounts()
    for run in (range(3), range(3), range(5, 8), range(5, 8), range(3, 5)):
        counts.add(run)
    assert members(counts) == set(range(8))
    assert counts.remove(range(3, 5)) == [range(3, 5)]
    assert members(counts) == {0, 1, 2, 5, 6, 7}


@given(st.lists(stretches(), max_size=8))
def test_what_is_added_in_any_pieces_and_removed_again_leaves_nothing(parts: list[range]) -> None:
    counts = RunCounts()
    for run in parts:
        counts.add(run)
    freed = [part for run in parts for part in counts.remove(run)]
    assert sorted(flat(freed)) == sorted(set(flat(parts)))
    assert not counts
    assert not counts._steps
