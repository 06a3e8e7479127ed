"""A tier's waiters, write-backs, dropped pins and order of insertion; test_tier_ledger.py has the books."""

from collections.abc import Callable, Sequence

import pytest
from runs_kit import flat, members, runs

from sim.policies.eviction import Lru
from sim.policies.leaf import constrain_to_leaves
from sim.runs import Runs
from sim.tiers.tier import Tier


def tier(capacity: int = 4, *, tail_first: bool = False, parents: dict[int, int] | None = None) -> Tier:
    policy = Lru() if parents is None else constrain_to_leaves(Lru())
    return Tier(
        name="t",
        index=1,
        capacity_units=capacity,
        units_per_chunk=1,
        unit_bytes=10.0,
        policy=policy,
        tail_first=tail_first,
        parent_of=None if parents is None else parents.get,
    )


def holding(keys: Sequence[int], capacity: int = 4, *, tail_first: bool = False) -> Tier:
    made = tier(capacity, tail_first=tail_first)
    assert made.reserve(runs(*keys))
    made.arrive(runs(*keys))
    return made


def test_pending_chunks_are_no_hits_but_are_not_asked_for_again() -> None:
    t = tier()
    assert t.reserve(runs(1, 2))
    assert 1 not in t.ready
    assert t.missing(runs(1, 2, 3)) == runs(3)
    t.arrive(runs(1))
    assert 1 in t.ready
    t.cancel(runs(2))
    assert t.missing(runs(1, 2, 3)) == runs(2, 3)
    assert (t.used_units, t.used_bytes, t.capacity_bytes, t.chunk_bytes) == (1, 10.0, 40.0, 10.0)


@pytest.mark.parametrize(("tail_first", "goes"), [(False, 1), (True, 3)])
def test_a_run_loses_the_end_that_entered_first(tail_first: bool, goes: int) -> None:
    t = holding([1, 2, 3], 3, tail_first=tail_first)
    assert t.reserve(runs(9))
    assert goes not in t.ready
    assert len(t.ready) == 2


@pytest.mark.parametrize("chain", [[1, 2, 3], [1, 2, 20], [30, 20, 10]], ids=["one run", "two runs", "three runs"])
@pytest.mark.parametrize("tail_first", [False, True])
def test_after_a_touch_the_head_stays_longest(tail_first: bool, chain: list[int]) -> None:
    t = holding(chain, 3, tail_first=tail_first)
    t.touch(runs(*chain))
    for key, gone in zip((7, 8, 9), reversed(chain), strict=True):
        assert gone in t.ready
        t.reserve(runs(key))
        assert gone not in t.ready


def test_a_tree_keeps_the_ancestors_of_what_is_pinned_and_grants_what_is_left() -> None:
    t = tier(5, tail_first=True, parents={2: 1, 3: 2, 11: 10})
    t.reserve(runs(1, 2, 3, 10, 11))
    t.arrive(runs(1, 2, 3))
    t.arrive(runs(10, 11))
    t.pin(runs(3))
    assert t.available_units == 4
    assert not t.reserve(runs(21, 22, 23))
    assert flat(t.reserve_some(runs(21, 22, 23))) == [21, 22]
    assert members(t.ready) == {1, 2, 3}
    assert flat(t.reserve_some(runs(24))) == []


def test_pins_count() -> None:
    t = holding([1, 2], 2)
    t.pin(runs(1, 2))
    t.pin(runs(1))
    t.pin(runs(1))
    t.unpin(runs(1, 2))
    t.unpin(runs(1))
    assert members(t.pinned) == {1}
    assert not t.reserve(runs(3, 4))
    t.unpin(runs(1))
    assert not t.pinned
    assert t.reserve(runs(3, 4))


def test_a_chunk_dropped_while_pinned_goes_with_its_last_pin() -> None:
    t = holding([1, 2, 3])
    gone: list[int] = []
    t.on_removed = lambda removed: gone.extend(flat(removed))
    t.pin(runs(1, 2))
    t.pin(runs(1))
    t.drop(runs(1, 2, 3, 99))
    assert gone == [3]
    t.unpin(runs(1, 2))
    assert gone == [3, 2]
    t.unpin(runs(1))
    assert gone == [3, 2, 1]
    assert t.dropped_chunks == 3
    t.check()


def test_a_chunk_that_was_dropped_and_comes_back_stays() -> None:
    t = holding([1, 2, 3])
    t.pin(runs(2))
    t.drop(runs(1, 2, 3))
    t.unpin(runs(2))
    assert not t.ready
    t.reserve(runs(1, 2, 3))
    t.arrive(runs(1, 2, 3))
    t.pin(runs(1, 2, 3))
    t.unpin(runs(1, 2, 3))
    assert members(t.ready) == {1, 2, 3}


def test_adopting_takes_no_units_and_pins_only_what_is_new() -> None:
    t = holding([1])
    assert t.take(2)
    assert t.adopt(runs(1, 2, 3)) == runs(2, 3)
    assert members(t.pinned) == {2, 3}
    assert t.used_units == 3
    t.unpin(runs(2, 3))
    t.check()


def test_reserve_or_wait_waits_only_for_what_is_under_way() -> None:
    t = holding([1, 2, 3])
    t.pin(runs(1, 2, 3))
    t.in_transit = 1
    assert t.reserve_or_wait(runs(7, 8)) is None
    t.transfer_ended()
    assert t.reserve_or_wait(runs(7, 8)) == runs(7)
    assert t.reserve_or_wait(runs(9)) == ()


def test_what_can_never_fit_is_not_waited_for() -> None:
    t = tier(3)
    t.in_transit = 1
    assert t.reserve_or_wait(runs(1, 2, 3, 4, 5)) == runs(1, 2, 3)


class WrittenBack:
    """A tier whose victims leave when told."""

    def __init__(self, t: Tier) -> None:
        self.tier = t
        self.leaving: list[Runs] = []
        t.spill = self.spill

    def spill(self, victims: Runs) -> Runs:
        self.tier.leave(victims)
        self.leaving.append(victims)
        return []


def test_victims_that_are_leaving_count_as_room_to_come_and_are_not_evicted_twice() -> None:
    t = holding([1, 2, 3, 4])
    back = WrittenBack(t)
    assert not t.take(2)
    assert back.leaving == [runs(1, 2)]
    assert not t.take(2)  # waits for the same two
    assert back.leaving == [runs(1, 2)]
    assert not t.take(3)
    assert back.leaving == [runs(1, 2), runs(3)]
    t.left(runs(1, 2))
    assert t.take(2)
    t.left(runs(3))
    assert t.evicted_chunks == 3
    assert t.used_units == 3


def test_a_leaving_chunk_that_somebody_reads_stays() -> None:
    t = holding([1, 2])
    back = WrittenBack(t)
    assert not t.take(4)
    t.pin(runs(2))  # a hit in the meantime
    t.left(back.leaving[0])
    assert members(t.ready) == {2}
    assert members(t.pinned) == {2}


def test_reserving_may_start_a_write_back_and_is_then_worth_waiting_for() -> None:
    t = holding([1, 2, 3, 4])
    t.pin(runs(4))
    back = WrittenBack(t)
    assert t.reserve_or_wait(runs(5, 6, 7, 8)) is None  # three can go, once they are saved
    t.left(back.leaving[0])
    assert t.reserve_or_wait(runs(5, 6, 7, 8)) == runs(5, 6, 7)


def test_each_waiter_is_asked_once_a_change_in_order() -> None:
    t = tier(2)
    assert t.take(2)
    asked: list[str] = []

    def waiter(name: str, units: int) -> Callable[[], None]:
        def wait() -> None:
            asked.append(name)
            if not t.take(units):
                t.wait_for_room(wait)

        return wait

    for name, units in (("both", 2), ("one", 1), ("other", 1)):
        t.wait_for_room(waiter(name, units))
    t.give(1)
    assert asked == ["both", "one", "other"]
    asked.clear()
    t.give(1)
    assert asked == ["both", "other"]
    t.give(2)
    assert asked == ["both", "other", "both"]


def test_a_waiter_that_frees_room_wakes_the_others_without_asking_anybody_for_ever() -> None:
    t = tier(8)
    assert t.take(8)
    asked = 0

    def probe() -> None:
        nonlocal asked
        asked += 1
        t.wait_for_room(probe)

    def frees() -> None:
        t.give(1)

    for _ in range(7):
        t.wait_for_room(probe)
    for _ in range(3):
        t.wait_for_room(frees)
    t.give(1)
    assert t.used_units == 4
    assert asked <= 7 * 4  # once for each of the four changes


@pytest.mark.parametrize("change", ["give", "cancel", "drop", "unpin", "left", "transfer_ended"])
def test_no_change_that_frees_room_forgets_those_who_wait(change: str) -> None:
    t = holding([1, 2, 3])
    t.reserve(runs(4))
    t.pin(runs(1))
    if change == "left":
        t.leave(runs(2))
    else:
        t.in_transit = 1
    woken: list[int] = []
    t.wait_for_room(lambda: woken.append(1))
    arguments: dict[str, tuple[object, ...]] = {"give": (0,), "cancel": (runs(4),), "transfer_ended": ()}
    getattr(t, change)(*arguments.get(change, (runs({"drop": 3, "unpin": 1, "left": 2}.get(change, 0)),)))
    assert woken == [1]
