"""Stores, write-backs and the page cache on a small node, by hand (its rates: hierarchy_kit)."""

from collections.abc import Callable

import pytest
from hierarchy_kit import CHUNK, GB, Node, check, load, pool
from runs_kit import STRAND, flat, members, run_set, runs

from models.errors import InvariantError
from sim.clock import ARRIVAL
from sim.prefix_tree import KEY_BITS
from sim.runs import Runs
from sim.tiers.attached import AttachedTier
from sim.tiers.gate import Gate
from sim.tiers.tier import Tier
from sim.transfers.flows import READ, WRITE, Hop
from sim.transfers.legs import WriteCache

# Stores --------------------------------------------------------------------------------------------------------------


def test_a_store_leaves_hbm_when_memory_has_it_and_goes_on_to_the_drive() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 9), pool("drive", 2, 9)
    hierarchy = node.hierarchy(node.dram(dram), node.drive(drive))
    node.network.on_idle = node.note("all written")
    assert hierarchy.stores.store(1, runs(1, 2, 3), node.note("left"))
    assert node.run() == {"left": pytest.approx(0.03), "all written": pytest.approx(0.03 + 0.3)}
    assert members(dram.ready) == members(drive.ready) == {1, 2, 3}
    assert (dram.write_bytes, drive.write_bytes) == (3 * CHUNK, 3 * CHUNK)
    check(dram, drive)
    assert not hierarchy.stores.store(1, runs(1, 2, 3), node.note("nothing to do"))


def test_the_drive_gets_what_memory_already_had() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 9, [1, 2]), pool("drive", 2, 9)
    assert not node.hierarchy(node.dram(dram), node.drive(drive)).stores.store(1, runs(1, 2), node.note("left"))
    node.run()
    assert members(drive.ready) == {1, 2}
    check(dram, drive)


def test_memory_keeps_what_the_drive_is_reading_from_it() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 3), pool("drive", 2, 9)
    hierarchy = node.hierarchy(node.dram(dram), node.drive(drive))
    hierarchy.stores.store(1, runs(1, 2, 3), node.note("first"))
    node.clock.at(0.05, ARRIVAL, lambda _: hierarchy.stores.store(2, runs(4, 5, 6), node.note("second")) and None)
    node.run()
    assert dram.refused_chunks == 3  # all of it is pinned by the write to the drive
    assert "second" not in node.ended_s
    check(dram, drive)


def test_a_store_that_waits_gets_in_when_pins_go() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 3), pool("drive", 2, 9)
    hierarchy = node.hierarchy(node.dram(dram, waits_when_full=True), node.drive(drive))
    hierarchy.stores.store(1, runs(1, 2, 3), node.note("first"))
    assert hierarchy.stores.store(2, runs(4, 5, 6), node.note("second"))
    node.run()
    # The drive has the first three at 0.03 + 0.3; then memory has room.
    assert node.ended_s["second"] == pytest.approx(0.33 + 0.03)
    assert members(drive.ready) == {1, 2, 3, 4, 5, 6}
    assert dram.refused_chunks == 0
    check(dram, drive)


def test_a_store_waits_for_chunks_on_their_way_without_being_forgotten() -> None:
    node = Node()
    dram = pool("dram", 1, 3)
    hierarchy = node.hierarchy(node.dram(dram, waits_when_full=True))
    for number in range(4):
        assert hierarchy.stores.store(number, [range(3 * number, 3 * number + 3)], node.note(f"store {number}"))
    assert list(node.run().values()) == [pytest.approx(0.03 * n) for n in (1, 2, 3, 4)]
    check(dram)


def test_two_requests_with_one_prefix_write_it_once() -> None:
    node = Node()
    dram = pool("dram", 1, 9)
    hierarchy = node.hierarchy(node.dram(dram))
    assert hierarchy.stores.store(1, runs(1, 2), node.note("one"))
    assert not hierarchy.stores.store(2, runs(1, 2), node.note("other"))
    node.run()
    assert dram.write_bytes == 2 * CHUNK
    check(dram)


def test_writes_beyond_the_drives_buffer_go_at_the_sustained_rate() -> None:
    node = Node()
    drive = pool("drive", 1, 9)
    attached = node.drive(drive, fed_from_staging=False)
    attached.write_leg.write_cache = WriteCache(2.5 * CHUNK, 0.25 * GB)
    attached.write_leg.sustained_path = node.network.path([Hop("dram", READ), Hop("drive", WRITE, 1.0, 0.25 * GB)])
    hierarchy = node.hierarchy(attached, staging=None)
    hierarchy.stores.store(1, runs(1, 2, 3, 4), node.note("over"))
    assert node.run()["over"] == pytest.approx(0.25 / 1 + 0.15 / 0.25)
    # 0.85 s later the buffer has drained (0.25 GB take 1 s to drain, so 37.5 MB are left): one chunk fits again.
    hierarchy.stores.store(2, runs(5), node.note("quick"))
    assert node.run()["quick"] == pytest.approx(0.85 + 0.1)
    check(drive)


def test_a_write_buffer_takes_what_fits_and_drains() -> None:
    cache = WriteCache(100.0, 10.0)
    assert cache.absorb(60.0, 0.0) == 60.0
    assert cache.absorb(60.0, 0.0) == 40.0
    assert cache.absorb(60.0, 0.0) == 0.0
    assert cache.absorb(60.0, 3.0) == 30.0
    assert cache.absorb(500.0, 1e6) == 100.0


# Write-back ----------------------------------------------------------------------------------------------------------


def written_back(node: Node, upper: Tier, lower: AttachedTier, *, keeps_views: bool = False) -> None:
    hierarchy = node.hierarchy(lower, staging=None)
    upper.spill = hierarchy.write_back(upper, lower, keeps_views=keeps_views).spill


@pytest.mark.parametrize(("below", "saved"), [(2, 1), (1, 2)])
def test_victims_are_saved_below_before_they_go(below: int, saved: int) -> None:
    node = Node()
    hbm, drive = pool("hbm", 0, 3, [1, 2, 3]), pool("drive", 2, 9, [below])
    written_back(node, hbm, node.drive(drive))
    assert not hbm.take(2)  # what is below already goes at once; the other has to be saved
    assert members(hbm.ready) == {saved, 3}
    hbm.wait_for_room(node.note("room"))
    assert node.run()["room"] == pytest.approx(0.1)
    assert members(hbm.ready) == {3}
    assert members(drive.ready) == {1, 2}
    assert hbm.take(2)
    check(drive)


def test_a_chain_of_write_backs_moves_on_what_is_pushed_out() -> None:
    node = Node()
    hbm, dram, drive = pool("hbm", 0, 2, [1, 2]), pool("dram", 1, 2, [3, 4]), pool("drive", 2, 9)
    written_back(node, hbm, node.dram(dram))
    written_back(node, dram, node.drive(drive))
    assert not hbm.take(2)
    assert hbm.in_transit
    hbm.wait_for_room(node.note("room"))
    assert node.run()["room"] == pytest.approx(0.2 + 0.02)
    assert (members(hbm.ready), members(dram.ready), members(drive.ready)) == (set(), {1, 2}, {3, 4})
    check(hbm, dram, drive)


def test_victims_without_room_below_are_lost_not_stuck() -> None:
    node = Node()
    hbm, drive = pool("hbm", 0, 3, [1, 2, 3]), pool("drive", 2, 2, [8, 9])
    written_back(node, hbm, node.drive(drive))
    drive.pin(runs(8))
    assert not hbm.take(3)  # one of the three can be saved
    node.run()
    assert hbm.take(3)
    assert drive.refused_chunks == 2
    assert members(drive.ready) == {8, 1}
    drive.pin(runs(1))
    hbm.give(3)
    hbm.reserve(runs(5))
    hbm.arrive(runs(5))
    assert hbm.take(3)  # none can be saved: at once
    drive.unpin(runs(8, 1))
    check(drive)


@pytest.mark.parametrize("room", [1, 2, 3, 4])
def test_room_for_some_of_the_victims_goes_to_those_used_last(room: int) -> None:
    node = Node()
    hbm, drive = pool("hbm", 0, 5, [1, 2], tail_first=True), pool("drive", 2, room, tail_first=True)
    hbm.reserve(runs(11, 12, 13))
    hbm.arrive(runs(11, 12, 13))
    hbm.pin(runs(13))
    written_back(node, hbm, node.drive(drive))
    assert not hbm.take(4)
    node.run()
    # The order of use is 2, 1, 13, 12, 11.
    assert members(drive.ready) == set([11, 12, 1, 2][:room])
    assert drive.refused_chunks == 4 - room
    assert hbm.take(4)
    hbm.unpin(runs(13))
    check(drive)


def test_room_for_some_of_a_chain_goes_to_its_head_across_strands() -> None:
    node = Node()
    fork = STRAND + 7
    hbm, drive = pool("hbm", 0, 4, [1, 2, fork, fork + 1], tail_first=True), pool("drive", 2, 3, tail_first=True)
    written_back(node, hbm, node.drive(drive))
    assert not hbm.take(4)
    node.run()
    assert sorted(flat(drive.ready.runs())) == [1, 2, fork]


@pytest.mark.parametrize(
    ("tail_first", "order"), [(True, [2, 1, 12, 11]), (False, [1, 2, 11, 12])], ids=["tail first", "head first"]
)
def test_what_was_saved_is_evicted_below_in_the_order_of_its_use_above(tail_first: bool, order: list[int]) -> None:
    node = Node()
    hbm, drive = pool("hbm", 0, 4, [1, 2], tail_first=True), pool("drive", 2, 4, tail_first=tail_first)
    hbm.reserve(runs(11, 12))
    hbm.arrive(runs(11, 12))
    written_back(node, hbm, node.drive(drive))
    assert not hbm.take(4)
    node.run()
    for number, gone in enumerate(order):
        assert gone in drive.ready
        assert drive.reserve(runs(90 + number))
        assert members(drive.ready) == set(order[number + 1 :])


def test_victims_wait_for_room_below_that_is_on_its_way() -> None:
    node = Node()
    hbm, drive = pool("hbm", 0, 2, [1, 2]), pool("drive", 2, 2)
    lower = node.drive(drive, fed_from_staging=False)
    written_back(node, hbm, lower)
    assert node.hierarchy(lower, staging=None).stores.store(1, runs(8, 9), node.note("stored"))
    assert not hbm.take(2)
    hbm.wait_for_room(node.note("room"))
    assert node.run() == {"stored": pytest.approx(0.2), "room": pytest.approx(0.4)}
    assert members(drive.ready) == {1, 2}
    check(hbm, drive)


@pytest.mark.parametrize(("keeps_views", "lower_key"), [(True, 1 + (5 << KEY_BITS)), (False, 1 + (2 << KEY_BITS))])
def test_a_written_back_chunk_stays_with_the_replica_that_sees_it(keeps_views: bool, lower_key: int) -> None:
    node = Node()
    dram, drive = pool("dram", 1, 1, [1 + (5 << KEY_BITS)]), pool("drive", 2, 9)
    written_back(node, dram, node.drive(drive, key_offset=2 << KEY_BITS), keeps_views=keeps_views)
    dram.take(1)
    node.run()
    assert flat(drive.ready.runs()) == [lower_key]


# Exclusive tiers -----------------------------------------------------------------------------------------------------


def test_what_hbm_has_loaded_leaves_an_exclusive_drive_when_its_last_reader_has_it() -> None:
    node = Node()
    drive = pool("drive", 1, 9, [1, 2, 3])
    hierarchy = node.hierarchy(node.drive(drive, leaves_for_hbm=True), staging=None)
    load(node, hierarchy, [1, 2], "first")
    load(node, hierarchy, [1, 2], "second", at_s=0.05)
    node.clock.at(0.16, ARRIVAL, lambda _: node.note("first is there")() if 1 in drive.ready else None)
    node.run()
    assert set(node.ended_s) == {"first", "second", "first is there"}
    assert members(drive.ready) == {3}
    assert drive.dropped_chunks == 2
    check(drive)


@pytest.mark.parametrize("promote", [True, False])
def test_what_memory_keeps_leaves_an_exclusive_drive(promote: bool) -> None:
    node = Node()
    dram, drive = pool("dram", 1, 9), pool("drive", 2, 9, [1, 2, 3])
    upper, lower = node.dram(dram, promote=promote), node.drive(drive, write_through=False)
    upper.on_kept = drive.drop
    hierarchy = node.hierarchy(upper, lower)
    load(node, hierarchy, [1, 2])
    node.run()
    assert members(dram.ready) == ({1, 2} if promote else set())
    assert members(drive.ready) == ({3} if promote else {1, 2, 3})
    hierarchy.stores.store(1, runs(3), node.note("stored"))
    node.run()
    assert 3 in dram.ready
    assert 3 not in drive.ready
    check(dram, drive)


# Gates ---------------------------------------------------------------------------------------------------------------


class Only:
    """A filter that lets only these chunks in."""

    def __init__(self, *keys: int) -> None:
        self.keys = runs(*keys)
        self.used: list[int] = []
        self.saw: list[tuple[int, list[int]]] = []

    def use(self, chunks: Runs) -> None:
        self.used += flat(chunks)

    def admit(self, chunks: Runs, room: int, victims: Callable[[int], Runs]) -> Runs:
        self.saw.append((room, flat(victims(2))))
        return [part for run in chunks for part in run_set(flat(self.keys)).present(run)]


def test_a_gate_stands_before_stores_promotions_and_write_backs() -> None:
    node = Node()
    only = Only(2, 3, 6)
    dram, drive = pool("dram", 1, 4, [8]), pool("drive", 2, 9, [5, 6])
    upper = node.dram(dram, gate=Gate(dram, admission=only, most_under_way_bytes=None))
    hierarchy = node.hierarchy(upper, node.drive(drive, write_through=False))
    assert hierarchy.stores.store(1, runs(1, 2, 3), node.note("left"), used=runs(0, 1, 2, 3))
    node.run()
    assert (members(dram.ready), only.used, only.saw) == ({2, 3, 8}, [0, 1, 2, 3], [(3, [8])])
    load(node, hierarchy, [5, 6], at_s=1.0)
    node.run()
    assert members(dram.ready) == {2, 3, 6}  # staging took 8's room
    assert dram.filtered_chunks == 2
    check(dram, drive)

    hbm, saved = pool("hbm", 0, 3, [1, 2, 3]), pool("drive", 1, 9)
    written_back(node, hbm, node.drive(saved, gate=Gate(saved, admission=Only(2), most_under_way_bytes=None)))
    assert not hbm.take(3)
    node.run()
    assert hbm.take(3)
    assert members(saved.ready) == {2}
    check(saved)


def test_what_is_kept_out_of_memory_is_staged_all_the_same() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 4), pool("drive", 2, 9, [5, 6])
    upper = node.dram(dram, gate=Gate(dram, admission=Only(), most_under_way_bytes=None))
    load(node, node.hierarchy(upper, node.drive(drive, write_through=False)), [5, 6])
    node.run()
    assert dram.peak_units == 2
    assert not dram.ready
    check(dram, drive)


def test_a_store_is_skipped_while_more_than_the_limit_is_under_way() -> None:
    node = Node()
    drive = pool("drive", 1, 9)
    gate = Gate(drive, admission=None, most_under_way_bytes=2 * CHUNK)
    hierarchy = node.hierarchy(node.drive(drive, gate=gate, fed_from_staging=False), staging=None)
    assert hierarchy.stores.store(1, runs(1, 2), node.note("first"))
    assert hierarchy.stores.store(2, runs(3), node.note("at the limit"))
    assert not hierarchy.stores.store(3, runs(4), node.note("over it"))
    node.run()
    assert hierarchy.stores.store(4, runs(5), node.note("after"))
    node.run()
    assert members(drive.ready) == {1, 2, 3, 5}
    assert drive.skipped_chunks == 1
    check(drive)


@pytest.mark.parametrize("answer", [runs(7), [*runs(1), *runs(1)], [range(2, 0, -1)], [range(3, 3)]])
def test_a_filter_that_admits_something_else_is_named(answer: Runs) -> None:
    class Odd(Only):
        def admit(self, chunks: Runs, room: int, victims: Callable[[int], Runs]) -> Runs:
            return answer

    node = Node()
    drive = pool("drive", 1, 9)
    gate = Gate(drive, admission=Odd(), most_under_way_bytes=None)
    hierarchy = node.hierarchy(node.drive(drive, gate=gate, fed_from_staging=False), staging=None)
    with pytest.raises(InvariantError, match=r"admission filter '.*:.*Odd' breaks its contract: it admits range"):
        hierarchy.stores.store(1, runs(1, 2), node.note("never"))


def test_what_two_views_above_have_of_one_chunk_is_saved_once() -> None:
    node = Node()
    views = [1 + (3 << KEY_BITS), 1 + (5 << KEY_BITS)]
    dram, drive = pool("dram", 1, 2, views), pool("drive", 2, 9)
    written_back(node, dram, node.drive(drive))
    assert not dram.take(2)
    assert flat(dram.ready.runs()) == views[1:]  # the one used last is saved, the other went at once
    node.run()
    assert members(drive.ready) == {1}
    assert drive.write_bytes == CHUNK
    assert dram.take(2)
    check(drive)


# The page cache ------------------------------------------------------------------------------------------------------


def test_the_page_cache_has_what_was_read_and_written() -> None:
    node = Node()
    cache, drive = pool("cache", 1, 9), pool("drive", 2, 9, [1, 2])
    hierarchy = node.hierarchy(node.drive(drive, page_cache=cache, fed_from_staging=False), staging=None)
    load(node, hierarchy, [1])
    node.run()
    assert members(cache.ready) == {1}
    hierarchy.stores.store(2, runs(3), node.note("stored"))
    node.run()
    assert members(cache.ready) == {1, 3}
    check(cache, drive)


def test_the_page_cache_has_what_was_written_back() -> None:
    node = Node()
    hbm, cache, drive = pool("hbm", 0, 1, [1]), pool("cache", 1, 9), pool("drive", 2, 9)
    written_back(node, hbm, node.drive(drive, page_cache=cache))
    hbm.take(1)
    node.run()
    assert members(cache.ready) == {1}
