"""A tier under random operations beside a naive model of it."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from runs_kit import flat, members, run_set, runs, some_of

from models.errors import InvariantError
from sim.policies.eviction import Lru
from sim.policies.leaf import constrain_to_leaves
from sim.runs import Runs, as_runs, ascending, count
from sim.tiers.tier import Tier

CHUNKS = some_of(list(range(16)), min_size=1)


class TierMachine(RuleBasedStateMachine):
    """Reservations, arrivals, pins, evictions, drops and write-backs; the model is a list in LRU order and counters."""

    units_per_chunk = 2
    capacity_units = 13  # six chunks, and a unit that never fits one
    writes_back = False

    def __init__(self) -> None:
        super().__init__()
        self.tier = Tier(
            name="t",
            index=1,
            capacity_units=self.capacity_units,
            units_per_chunk=self.units_per_chunk,
            unit_bytes=10.0,
            policy=Lru(),
        )
        self.order: list[int] = []  # least recently used first
        self.pins: Counter[int] = Counter()
        self.pending: list[Runs] = []
        self.leaving: list[Runs] = []
        self.saved: set[int] = set()
        self.doomed: set[int] = set()  # dropped while pinned
        self.private_units = 0
        self.removed: list[int] = []
        self.tier.on_removed = lambda removed: self.removed.extend(flat(removed))
        if self.writes_back:
            self.tier.spill = self.spill

    def spill(self, victims: Runs) -> Runs:
        """Save what was not saved yet (it leaves later), and let the rest go."""
        saved = run_set(self.saved)
        going = [ascending(part) for victim in victims for part in saved.absent(victim)]
        if going:
            self.tier.leave(going)
            self.pins.update(flat(going))
            self.leaving.append(going)
            self.saved.update(flat(going))
        return as_runs((key for key in flat(victims) if key in saved), step=-1)

    def forget_removed(self) -> None:
        """Take over what the tier evicted: nothing that is pinned, and no more than the model says it may."""
        for key in self.removed:
            assert not self.pins[key]
            self.order.remove(key)
            self.saved.discard(key)
            self.doomed.discard(key)
        self.removed.clear()

    @property
    def model_used(self) -> int:
        chunks = len(self.order) + sum(map(count, self.pending))
        return chunks * self.units_per_chunk + self.private_units

    def expect_take(self, units: int) -> tuple[bool, list[int]]:
        """Return whether units fit after evicting, and which chunks must go (without write-back)."""
        short = self.model_used + units - self.capacity_units
        victims = [key for key in self.order if not self.pins[key]]
        going = max(0, -(-short // self.units_per_chunk))
        return going <= len(victims), victims[:going]

    @property
    def model_pending(self) -> set[int]:
        return {key for batch in self.pending for key in flat(batch)}

    @rule(chunks=CHUNKS)
    def reserve(self, chunks: Runs) -> None:
        wanted = self.tier.missing(chunks)
        known = self.model_pending.union(self.order)
        assert flat(wanted) == [key for key in flat(chunks) if key not in known]
        if not wanted:
            return
        fits, victims = self.expect_take(count(wanted) * self.units_per_chunk)
        granted = self.tier.reserve(wanted)
        if not self.writes_back:
            assert granted == fits
            assert self.removed == (victims if fits else [])
        self.forget_removed()
        if granted:
            self.pending.append(wanted)

    @rule(chunks=CHUNKS)
    def reserve_some(self, chunks: Runs) -> None:
        wanted = self.tier.missing(chunks)
        if not wanted or self.writes_back:
            return
        evictable = sum(not self.pins[key] for key in self.order)
        room = (self.capacity_units - self.model_used) // self.units_per_chunk + evictable
        granted = self.tier.reserve_some(wanted)
        assert flat(granted) == flat(wanted)[:room]
        self.forget_removed()
        if granted:
            self.pending.append(granted)

    @rule(units=st.integers(1, 5))
    def take(self, units: int) -> None:
        fits, _ = self.expect_take(units)
        taken = self.tier.take(units)
        assert taken == fits or self.writes_back
        self.forget_removed()
        self.private_units += units * taken

    @precondition(lambda self: self.private_units)
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        units = data.draw(st.integers(1, self.private_units))
        self.tier.give(units)
        self.private_units -= units

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), arrives=st.booleans())
    def end_reservation(self, data: st.DataObject, arrives: bool) -> None:
        chunks = self.pending.pop(data.draw(st.integers(0, len(self.pending) - 1)))
        if arrives:
            self.tier.arrive(chunks)
            self.order += flat(chunks)[::-1]  # tail first: the head is the most recent
        else:
            self.tier.cancel(chunks)

    @precondition(lambda self: self.order)
    @rule(data=st.data())
    def pin_and_touch(self, data: st.DataObject) -> None:
        chunks = data.draw(some_of(self.order, max_size=4))
        self.tier.pin(chunks)
        self.tier.touch(chunks)
        self.pins.update(flat(chunks))
        for key in flat(chunks)[::-1]:
            self.order.remove(key)
            self.order.append(key)

    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        leaving = Counter(key for batch in self.leaving for key in flat(batch))
        mine = sorted((self.pins - leaving).keys())
        if mine:
            chunks = data.draw(some_of(mine, max_size=4))
            self.tier.unpin(chunks)
            self.pins -= Counter(flat(chunks))
            assert self.removed == [key for key in flat(chunks) if key in self.doomed and not self.pins[key]]
            self.forget_removed()

    @precondition(lambda self: self.leaving)
    @rule(data=st.data())
    def left(self, data: st.DataObject) -> None:
        chunks = self.leaving.pop(data.draw(st.integers(0, len(self.leaving) - 1)))
        self.pins -= Counter(flat(chunks))
        free = [key for key in flat(chunks) if not self.pins[key]]
        self.tier.left(chunks)
        assert set(free) <= set(self.removed)
        self.forget_removed()

    @rule(chunks=CHUNKS)
    def drop(self, chunks: Runs) -> None:
        going = [key for key in flat(chunks) if key in self.order and not self.pins[key]]
        self.tier.drop(chunks)
        assert self.removed == going
        self.doomed.update(key for key in flat(chunks) if key in self.order and self.pins[key])
        self.forget_removed()

    @invariant()
    def books_balance(self) -> None:
        tier = self.tier
        assert flat(tier.policy.victims()) == self.order
        assert members(tier.ready) == set(self.order)
        assert members(tier.pinned) == {key for key, pins in self.pins.items() if pins}
        assert members(tier.pending) == self.model_pending
        assert tier.used_units == self.model_used <= tier.capacity_units
        assert tier.peak_units <= tier.capacity_units
        assert tier.arrived_chunks == len(tier.ready) + tier.evicted_chunks + tier.dropped_chunks
        assert tier.used_bytes == tier.used_units * 10.0
        # Those that write-backs hold are pinned, so what is available needs no transfer.
        evictable = sum(not self.pins[key] for key in self.order)
        assert tier.available_units == tier.capacity_units - self.model_used + evictable * self.units_per_chunk

    def teardown(self) -> None:
        for chunks in self.leaving:
            self.tier.left(chunks)
            self.pins -= Counter(flat(chunks))
        self.leaving.clear()
        for key, pins in self.pins.items():
            for _ in range(pins):
                self.tier.unpin(runs(key))
        for chunks in self.pending:
            self.tier.cancel(chunks)
        self.tier.give(self.private_units)
        self.tier.check()
        self.tier.clear()
        assert self.tier.used_units == 0
        self.tier.check()


class WritingBack(TierMachine):
    """The same, with victims that leave only when they have been saved."""

    writes_back = True


TestTier = TierMachine.TestCase
TestTierWithWriteBack = WritingBack.TestCase
TestTier.settings = TestTierWithWriteBack.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), max_size=25), st.booleans())
def test_a_prefix_tree_never_leaves_a_gap_before_a_pinned_or_resident_chunk(
    uses: list[tuple[int, int]], tail_first: bool
) -> None:
    # Chains that share their first two chunks; each is stored in turn, and one stays pinned.
    parents = {1: 0} | {100 * chain + 2: 1 for chain in range(6)}
    parents |= {100 * chain + at: 100 * chain + at - 1 for chain in range(6) for at in range(3, 8)}
    tier = Tier(
        name="tree",
        index=1,
        capacity_units=9,
        units_per_chunk=1,
        unit_bytes=1.0,
        policy=constrain_to_leaves(Lru()),
        tail_first=tail_first,
        parent_of=parents.get,
    )
    pinned: Runs = []
    for chain, length in uses:
        path = runs(0, 1, *(100 * chain + at for at in range(2, length + 2)))
        tier.unpin(pinned)
        pinned = [part for run in path for part in tier.ready.present(run)]
        tier.pin(pinned)
        tier.touch(pinned)
        wanted = tier.missing(path)
        if wanted:
            granted = tier.reserve_some(wanted)
            tier.arrive(granted)
        resident = flat(tier.ready.runs())
        assert all(parents[key] in tier.ready for key in resident if key in parents)
        assert set(flat(pinned)) <= set(resident)
        assert tier.used_units == len(tier.ready) <= 9
    tier.unpin(pinned)
    tier.check()


def test_the_check_sees_each_kind_of_leak() -> None:
    def tier() -> Tier:
        made = Tier(name="x", index=1, capacity_units=4, units_per_chunk=1, unit_bytes=1.0, policy=Lru())
        made.reserve(runs(1, 2))
        made.arrive(runs(1, 2))
        made.check()
        return made

    leaks = {
        "came in": lambda t: t.ready.remove(range(1, 2)),
        "units are taken": lambda t: t.take(1),
        "pins": lambda t: t.pin(runs(1)),
        "1 reservations": lambda t: t.reserve(runs(3)),
        "callers wait": lambda t: t.wait_for_room(list),
        "transfers are under way": lambda t: setattr(t, "in_transit", 1),
    }
    for said, leak in leaks.items():
        leaky = tier()
        leak(leaky)
        with pytest.raises(InvariantError, match=f"tier x: .*{said}"):
            leaky.check()
