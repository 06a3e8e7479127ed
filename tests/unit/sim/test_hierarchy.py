"""Look-ups, loads and staging on a small node, against arithmetic by hand (its rates: hierarchy_kit)."""

import pytest
from hierarchy_kit import CHUNK, DMA, GB, Node, check, load, pool
from runs_kit import chain, members, runs

from models.software import SoftwarePath
from sim.prefix_tree import KEY_BITS
from sim.tiers.attached import Segment
from sim.transfers.flows import READ, Hop

# Look-up -------------------------------------------------------------------------------------------------------------


def test_a_look_up_follows_the_chain_as_far_as_it_is_unbroken() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 9, [1, 2, 5]), pool("drive", 2, 9, [2, 3, 4, 7])
    free = node.hierarchy(node.dram(dram), node.drive(drive))
    chunks = chain(1, 2, 3, 4, 5, 6, 7)
    assert free.lookup(chunks, 0) == [Segment(0, 0, 2), Segment(1, 2, 4), Segment(0, 4, 5)]
    assert free.lookup(chunks, 4) == [Segment(0, 4, 5)]
    assert free.lookup(chunks, 5) == []
    assert free.lookup(chunks, 6) == [Segment(1, 6, 7)]
    assert free.lookup(chunks, 7) == []
    grouped = node.hierarchy(node.dram(dram), node.drive(drive), grouped=True)
    assert grouped.lookup(chunks, 0) == [Segment(0, 0, 2), Segment(1, 2, 4)]


def test_replicas_with_an_offset_see_their_own_chunks_only() -> None:
    node = Node()
    offset = 3 << KEY_BITS
    shared = pool("drive", 1, 9, [1, 2 + offset])
    assert node.hierarchy(node.drive(shared), staging=None).lookup(chain(1, 2), 0) == [Segment(0, 0, 1)]
    assert node.hierarchy(node.drive(shared, key_offset=offset), staging=None).lookup(chain(2, 1), 0) == [
        Segment(0, 0, 1)
    ]


# The time of a load --------------------------------------------------------------------------------------------------


def one_drive_read(chunks: int = 4, **node_and_way: object) -> float:
    way = str(node_and_way.pop("way", "pipelined"))
    software = node_and_way.pop("software", DMA)
    assert isinstance(software, SoftwarePath)
    node = Node(**node_and_way)  # type: ignore[arg-type]  # numbers by name
    drive = pool("drive", 1, chunks, range(chunks))
    spent_s = load(node, node.hierarchy(node.drive(drive, way=way, software=software), staging=None), range(chunks))
    ended_s = node.run()["load"]
    assert spent_s == [0.0, pytest.approx(ended_s)]
    assert drive.read_bytes == chunks * CHUNK
    check(drive)
    return ended_s


def test_a_dram_read_goes_at_the_rate_of_the_host_link_after_the_latency() -> None:
    node = Node()
    dram = pool("dram", 1, 4, range(4))
    attached = node.dram(dram)
    attached.read_legs = (
        node.leg(Hop("dram", READ), Hop("host", READ), software=SoftwarePath(in_flight=99, software_s=0.003)),
    )
    load(node, node.hierarchy(attached), range(4))
    assert node.run()["load"] == pytest.approx(0.003 + 0.4 / 10)


def test_a_pipelined_read_takes_as_long_as_its_slowest_link() -> None:
    assert one_drive_read() == pytest.approx(0.4 / 2)


def test_store_and_forward_adds_the_copy_into_hbm() -> None:
    assert one_drive_read(way="store-and-forward") == pytest.approx(0.4 / 2 + 0.4 / 10)


def test_a_bounce_passes_the_dram_link_twice_and_gds_not_at_all() -> None:
    assert one_drive_read(dram_gb_per_s=3.0) == pytest.approx(0.4 / 1.5)
    assert one_drive_read(dram_gb_per_s=3.0, way="gds") == pytest.approx(0.4 / 2)


def test_replicated_kv_crosses_the_host_link_once_a_copy() -> None:
    assert one_drive_read(host_gb_per_s=3.0, replication=2.0) == pytest.approx(0.4 / 1.5)


def test_rounds_of_chunks_in_flight_set_a_ceiling() -> None:
    # Five chunks, two at once: three rounds of 10 ms and 100 MB at 1 GB/s.
    software = SoftwarePath(in_flight=2, software_s=0.01, stream_bytes_per_s=1 * GB)
    assert one_drive_read(5, software=software) == pytest.approx(3 * (0.01 + 0.1))


def test_a_reading_process_sets_a_ceiling() -> None:
    software = SoftwarePath(in_flight=99, software_s=0.0, process_bytes_per_s=0.5 * GB)
    assert one_drive_read(software=software) == pytest.approx(0.4 / 0.5)


def test_tiers_are_read_at_once_or_one_after_another() -> None:
    # At once, the drive's 2 GB/s leave 8 of the host link to the DRAM.
    for serial, dram_s, expected_s in ((False, 0.2 / 8, 0.2 / 2), (True, 0.2 / 10, 0.2 / 10 + 0.2 / 2)):
        node = Node()
        dram, drive = pool("dram", 1, 4, [0, 1]), pool("drive", 2, 4, [2, 3])
        spent_s = load(node, node.hierarchy(node.dram(dram), node.drive(drive), serial=serial), range(4))
        assert node.run()["load"] == pytest.approx(expected_s)
        assert spent_s == [0.0, pytest.approx(dram_s), pytest.approx(0.2 / 2)]


def test_a_write_slows_a_read_of_the_same_drive() -> None:
    node = Node()
    drive = pool("drive", 1, 9, range(4))
    hierarchy = node.hierarchy(node.drive(drive, fed_from_staging=False), staging=None)
    load(node, hierarchy, range(4))
    assert hierarchy.stores.store(2, runs(11, 12), node.note("stored"))
    ended = node.run()
    # One device for both: its time is the sum of the two.
    assert ended["load"] == pytest.approx(0.4 / 2 + 0.2 / 1)
    assert ended["load"] > 0.2


# Staging -------------------------------------------------------------------------------------------------------------


def test_what_passes_through_memory_stays_there_if_it_promotes() -> None:
    for promote in (True, False):
        node = Node()
        dram, drive = pool("dram", 1, 4), pool("drive", 2, 4, range(3))
        load(node, node.hierarchy(node.dram(dram, promote=promote), node.drive(drive)), range(3))
        node.run()
        assert dram.peak_units == 3
        assert members(dram.ready) == (set(range(3)) if promote else set())
        check(dram, drive)


def test_a_load_waits_for_staging_room_that_another_will_free() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 4), pool("drive", 2, 9, range(7))
    hierarchy = node.hierarchy(node.dram(dram, promote=False), node.drive(drive))
    load(node, hierarchy, [0, 1, 2], "first")
    load(node, hierarchy, [3, 4, 5, 6], "second", at_s=0.01)
    assert node.run() == {"first": pytest.approx(0.15), "second": pytest.approx(0.15 + 0.2)}
    assert hierarchy.loads.unstaged_chunks == 0
    check(dram, drive)


@pytest.mark.parametrize("promote", [False, True])
@pytest.mark.parametrize("way", ["pipelined", "store-and-forward"])
def test_many_loads_that_want_more_room_than_there_is_all_end(way: str, promote: bool) -> None:
    node = Node()
    dram, drive = pool("dram", 1, 5), pool("drive", 2, 60, range(60))
    hierarchy = node.hierarchy(node.dram(dram, promote=promote), node.drive(drive, way=way))
    for number in range(20):
        load(node, hierarchy, range(3 * number, 3 * number + 3), f"load {number}", at_s=number * 1e-3)
    ended = node.run()
    assert len(ended) == 20
    assert list(ended) == [f"load {number}" for number in range(20)]  # first come, first served
    assert max(ended.values()) > 60 * 0.05 * 0.999  # the drive was busy all the time or waited
    assert hierarchy.loads.unstaged_chunks == 0
    check(dram, drive)


def test_a_load_passes_unstaged_where_nothing_under_way_frees_room() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 4, [90, 91, 92]), pool("drive", 2, 9, range(3))
    dram.pin(runs(90, 91, 92))
    hierarchy = node.hierarchy(node.dram(dram), node.drive(drive))
    load(node, hierarchy, range(3))
    assert node.run()["load"] == pytest.approx(0.15)
    assert hierarchy.loads.unstaged_chunks == 2
    dram.unpin(runs(90, 91, 92))
    check(dram, drive)


def test_a_load_waits_for_a_read_from_memory_that_will_unpin() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 3, [90, 91, 92]), pool("drive", 2, 9, range(3))
    hierarchy = node.hierarchy(node.dram(dram), node.drive(drive))
    load(node, hierarchy, [90, 91, 92], "from memory")
    load(node, hierarchy, range(3), "from the drive", at_s=0.01)
    assert node.run() == {"from memory": pytest.approx(0.03), "from the drive": pytest.approx(0.03 + 0.15)}
    assert hierarchy.loads.unstaged_chunks == 0
    assert members(dram.ready) == {0, 1, 2}


def test_a_load_larger_than_the_staging_pool_ends() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 2), pool("drive", 2, 9, range(6))
    hierarchy = node.hierarchy(node.dram(dram), node.drive(drive))
    load(node, hierarchy, range(3), "first")
    load(node, hierarchy, range(3, 6), "second")
    assert len(node.run()) == 2
    assert hierarchy.loads.unstaged_chunks == 2
    check(dram, drive)


def test_a_tier_that_is_not_staged_is_promoted_by_a_write_of_its_own() -> None:
    node = Node()
    dram, slow = pool("dram", 1, 4), pool("drive", 2, 4, [1, 2])
    load(node, node.hierarchy(node.dram(dram), node.drive(slow, way="gds")), [1, 2])
    node.run()
    assert members(dram.ready) == {1, 2}
    assert dram.write_bytes == 2 * CHUNK
    check(dram, slow)
