"""Loads, stores and write-backs on a small node, against arithmetic by hand.

Chunks are 100 MB. A drive reads 2 GB/s and writes 1 GB/s, DRAM moves 20 GB/s both ways together, the host link 10 GB/s
each way.
"""

from collections.abc import Callable, Sequence

import pytest

from models.software import SoftwarePath
from sim.clock import ARRIVAL, Clock
from sim.policies.eviction import Lru
from sim.recording import LinkMeter, TransferLog
from sim.tiers.attached import KEY_BITS, AttachedTier, Segment
from sim.tiers.hierarchy import KvHierarchy
from sim.tiers.tier import Tier
from sim.transfers.flows import READ, WRITE, FlowNetwork, Hop, Link
from sim.transfers.legs import Leg, WriteCache

GB = 1e9
CHUNK = 10**8
DMA = SoftwarePath(in_flight=1000, software_s=0.0)


def pool(name: str, index: int, chunks: int, held: Sequence[int] = ()) -> Tier:
    tier = Tier(
        name=name,
        index=index,
        capacity_units=chunks,
        units_per_chunk=1,
        unit_bytes=float(CHUNK),
        policy=Lru(),
        tail_first=False,
    )
    if held:
        assert tier.reserve(held)
        tier.arrive(held)
    return tier


class Node:
    """Links and a clock; tiers are attached with :meth:`dram` and :meth:`drive`."""

    def __init__(self, *, dram_gb_per_s: float = 20.0, host_gb_per_s: float = 10.0, replication: float = 1.0) -> None:
        self.clock = Clock()
        links = [
            Link("host", host_gb_per_s * GB, host_gb_per_s * GB),
            Link("dram", dram_gb_per_s * GB, dram_gb_per_s * GB, False),
            Link("drive", 2 * GB, 1 * GB, False),
        ]
        self.network = FlowNetwork(self.clock, links, LinkMeter([link.name for link in links]))
        self.replication = replication
        self.log = TransferLog(["hbm", "dram", "drive"])
        self.ended_s: dict[str, float] = {}

    def leg(self, *hops: Hop, software: SoftwarePath = DMA) -> Leg:
        return Leg(self.network.path(hops), CHUNK, software, 1)

    def host(self, direction: int) -> Hop:
        return Hop("host", direction, self.replication)

    def attach(self, tier: Tier, read: tuple[Leg, ...], write: Leg, **changes: object) -> AttachedTier:
        attached = AttachedTier(
            tier=tier,
            key_offset=0,
            read_legs=read,
            write_leg=write,
            fed_from_staging=False,
            stages=False,
            write_through=True,
            write_back=False,
            promote=False,
            waits_when_full=False,
        )
        for name, value in changes.items():
            setattr(attached, name, value)
        return attached

    def dram(self, tier: Tier, **changes: object) -> AttachedTier:
        read = self.leg(Hop("dram", READ), self.host(READ))
        return self.attach(tier, (read,), self.leg(self.host(WRITE), Hop("dram", WRITE)), **{"promote": True} | changes)

    def drive(
        self, tier: Tier, *, way: str = "pipelined", software: SoftwarePath = DMA, **changes: object
    ) -> AttachedTier:
        bounce = [Hop("dram", WRITE), Hop("dram", READ)]
        device = Hop("drive", READ)
        reads = {
            "pipelined": [[device, *bounce, self.host(READ)]],
            "store-and-forward": [[device, bounce[0]], [bounce[1], self.host(READ)]],
            "gds": [[device, self.host(READ)]],
        }[way]
        first, *rest = reads
        legs = (self.leg(*first, software=software), *(self.leg(*hops) for hops in rest))
        write = self.leg(Hop("dram", READ), Hop("drive", WRITE))
        defaults = {"stages": way != "gds", "fed_from_staging": way != "gds"}
        return self.attach(tier, legs, write, **defaults | changes)

    def hierarchy(
        self, *tiers: AttachedTier, staging: int | None = 0, grouped: bool = False, serial: bool = False
    ) -> KvHierarchy:
        return KvHierarchy(
            clock=self.clock,
            network=self.network,
            tiers=tiers,
            staging=staging,
            grouped_lookup=grouped,
            serial_loads=serial,
            replica=0,
            log=self.log,
        )

    def note(self, name: str) -> Callable[[], None]:
        def ended() -> None:
            assert name not in self.ended_s
            self.ended_s[name] = self.clock.now_s

        return ended

    def run(self) -> dict[str, float]:
        self.clock.run()
        return self.ended_s


def load(
    node: Node, hierarchy: KvHierarchy, chunks: Sequence[int], name: str = "load", at_s: float = 0.0
) -> list[float]:
    spent_s = [0.0] * (len(hierarchy.tiers) + 1)

    def begin(_: object = None) -> None:
        segments = hierarchy.lookup(chunks, 0)
        assert segments[-1].end == len(chunks)
        hierarchy.pin(chunks, segments)
        hierarchy.load(1, chunks, segments, spent_s, node.note(name))

    node.clock.at(at_s, ARRIVAL, begin)
    return spent_s


def check(*tiers: Tier) -> None:
    for tier in tiers:
        tier.check()


# Look-up -------------------------------------------------------------------------------------------------------------


def test_a_look_up_follows_the_chain_as_far_as_it_is_unbroken() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 9, [1, 2, 5]), pool("drive", 2, 9, [2, 3, 4, 7])
    free = node.hierarchy(node.dram(dram), node.drive(drive))
    chunks = [1, 2, 3, 4, 5, 6, 7]
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
    assert node.hierarchy(node.drive(shared), staging=None).lookup([1, 2], 0) == [Segment(0, 0, 1)]
    assert node.hierarchy(node.drive(shared, key_offset=offset), staging=None).lookup([2, 1], 0) == [Segment(0, 0, 1)]


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
    assert hierarchy.store(2, [11, 12], node.note("stored"))
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
        assert set(dram.ready) == (set(range(3)) if promote else set())
        check(dram, drive)


def test_a_load_waits_for_staging_room_that_another_will_free() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 4), pool("drive", 2, 9, range(7))
    hierarchy = node.hierarchy(node.dram(dram, promote=False), node.drive(drive))
    load(node, hierarchy, [0, 1, 2], "first")
    load(node, hierarchy, [3, 4, 5, 6], "second", at_s=0.01)
    assert node.run() == {"first": pytest.approx(0.15), "second": pytest.approx(0.15 + 0.2)}
    assert hierarchy.unstaged_chunks == 0
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
    assert hierarchy.unstaged_chunks == 0
    check(dram, drive)


def test_a_load_passes_unstaged_where_nothing_under_way_frees_room() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 4, [90, 91, 92]), pool("drive", 2, 9, range(3))
    dram.pin([90, 91, 92])
    hierarchy = node.hierarchy(node.dram(dram), node.drive(drive))
    load(node, hierarchy, range(3))
    assert node.run()["load"] == pytest.approx(0.15)
    assert hierarchy.unstaged_chunks == 2
    dram.unpin([90, 91, 92])
    check(dram, drive)


def test_a_load_waits_for_a_read_from_memory_that_will_unpin() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 3, [90, 91, 92]), pool("drive", 2, 9, range(3))
    hierarchy = node.hierarchy(node.dram(dram), node.drive(drive))
    load(node, hierarchy, [90, 91, 92], "from memory")
    load(node, hierarchy, range(3), "from the drive", at_s=0.01)
    assert node.run() == {"from memory": pytest.approx(0.03), "from the drive": pytest.approx(0.03 + 0.15)}
    assert hierarchy.unstaged_chunks == 0
    assert set(dram.ready) == {0, 1, 2}


def test_a_load_larger_than_the_staging_pool_ends() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 2), pool("drive", 2, 9, range(6))
    hierarchy = node.hierarchy(node.dram(dram), node.drive(drive))
    load(node, hierarchy, range(3), "first")
    load(node, hierarchy, range(3, 6), "second")
    assert len(node.run()) == 2
    assert hierarchy.unstaged_chunks == 2
    check(dram, drive)


def test_a_tier_that_is_not_staged_is_promoted_by_a_write_of_its_own() -> None:
    node = Node()
    dram, slow = pool("dram", 1, 4), pool("drive", 2, 4, [1, 2])
    load(node, node.hierarchy(node.dram(dram), node.drive(slow, way="gds")), [1, 2])
    node.run()
    assert set(dram.ready) == {1, 2}
    assert dram.write_bytes == 2 * CHUNK
    check(dram, slow)


# Stores --------------------------------------------------------------------------------------------------------------


def test_a_store_leaves_hbm_when_memory_has_it_and_goes_on_to_the_drive() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 9), pool("drive", 2, 9)
    hierarchy = node.hierarchy(node.dram(dram), node.drive(drive))
    node.network.on_idle = node.note("all written")
    assert hierarchy.store(1, [1, 2, 3], node.note("left"))
    assert node.run() == {"left": pytest.approx(0.03), "all written": pytest.approx(0.03 + 0.3)}
    assert set(dram.ready) == set(drive.ready) == {1, 2, 3}
    assert (dram.write_bytes, drive.write_bytes) == (3 * CHUNK, 3 * CHUNK)
    check(dram, drive)
    assert not hierarchy.store(1, [1, 2, 3], node.note("nothing to do"))


def test_the_drive_gets_what_memory_already_had() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 9, [1, 2]), pool("drive", 2, 9)
    assert not node.hierarchy(node.dram(dram), node.drive(drive)).store(1, [1, 2], node.note("left"))
    node.run()
    assert set(drive.ready) == {1, 2}
    check(dram, drive)


def test_memory_keeps_what_the_drive_is_reading_from_it() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 3), pool("drive", 2, 9)
    hierarchy = node.hierarchy(node.dram(dram), node.drive(drive))
    hierarchy.store(1, [1, 2, 3], node.note("first"))
    node.clock.at(0.05, ARRIVAL, lambda _: hierarchy.store(2, [4, 5, 6], node.note("second")) and None)
    node.run()
    assert dram.refused_chunks == 3  # all of it is pinned by the write to the drive
    assert "second" not in node.ended_s
    check(dram, drive)


def test_a_store_that_waits_gets_in_when_pins_go() -> None:
    node = Node()
    dram, drive = pool("dram", 1, 3), pool("drive", 2, 9)
    hierarchy = node.hierarchy(node.dram(dram, waits_when_full=True), node.drive(drive))
    hierarchy.store(1, [1, 2, 3], node.note("first"))
    assert hierarchy.store(2, [4, 5, 6], node.note("second"))
    node.run()
    # The drive has the first three at 0.03 + 0.3; then memory has room.
    assert node.ended_s["second"] == pytest.approx(0.33 + 0.03)
    assert set(drive.ready) == {1, 2, 3, 4, 5, 6}
    assert dram.refused_chunks == 0
    check(dram, drive)


def test_a_store_waits_for_chunks_on_their_way_without_being_forgotten() -> None:
    node = Node()
    dram = pool("dram", 1, 3)
    hierarchy = node.hierarchy(node.dram(dram, waits_when_full=True))
    for number in range(4):
        assert hierarchy.store(number, range(3 * number, 3 * number + 3), node.note(f"store {number}"))
    assert list(node.run().values()) == [pytest.approx(0.03 * n) for n in (1, 2, 3, 4)]
    check(dram)


def test_two_requests_with_one_prefix_write_it_once() -> None:
    node = Node()
    dram = pool("dram", 1, 9)
    hierarchy = node.hierarchy(node.dram(dram))
    assert hierarchy.store(1, [1, 2], node.note("one"))
    assert not hierarchy.store(2, [1, 2], node.note("other"))
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
    hierarchy.store(1, [1, 2, 3, 4], node.note("over"))
    assert node.run()["over"] == pytest.approx(0.25 / 1 + 0.15 / 0.25)
    # 0.85 s later the buffer has drained (0.25 GB take 1 s to drain, so 37.5 MB are left): one chunk fits again.
    hierarchy.store(2, [5], node.note("quick"))
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


def test_victims_are_saved_below_before_they_go() -> None:
    node = Node()
    hbm, drive = pool("hbm", 0, 3, [1, 2, 3]), pool("drive", 2, 9, [2])
    written_back(node, hbm, node.drive(drive))
    assert not hbm.take(2)  # 2 is below already and goes at once; 1 has to be saved
    assert set(hbm.ready) == {1, 3}
    hbm.wait_for_room(node.note("room"))
    assert node.run()["room"] == pytest.approx(0.1)
    assert set(hbm.ready) == {3}
    assert set(drive.ready) == {1, 2}
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
    assert (set(hbm.ready), set(dram.ready), set(drive.ready)) == (set(), {1, 2}, {3, 4})
    check(hbm, dram, drive)


def test_victims_without_room_below_are_lost_not_stuck() -> None:
    node = Node()
    hbm, drive = pool("hbm", 0, 3, [1, 2, 3]), pool("drive", 2, 2, [8, 9])
    written_back(node, hbm, node.drive(drive))
    drive.pin([8])
    assert not hbm.take(3)  # one of the three can be saved
    node.run()
    assert hbm.take(3)
    assert drive.refused_chunks == 2
    assert set(drive.ready) == {8, 1}
    drive.pin([1])
    hbm.give(3)
    hbm.reserve([5])
    hbm.arrive([5])
    assert hbm.take(3)  # none can be saved: at once
    drive.unpin([8, 1])
    check(drive)


def test_victims_wait_for_room_below_that_is_on_its_way() -> None:
    node = Node()
    hbm, drive = pool("hbm", 0, 2, [1, 2]), pool("drive", 2, 2)
    lower = node.drive(drive, fed_from_staging=False)
    written_back(node, hbm, lower)
    assert node.hierarchy(lower, staging=None).store(1, [8, 9], node.note("stored"))
    assert not hbm.take(2)
    hbm.wait_for_room(node.note("room"))
    assert node.run() == {"stored": pytest.approx(0.2), "room": pytest.approx(0.4)}
    assert set(drive.ready) == {1, 2}
    check(hbm, drive)


@pytest.mark.parametrize(("keeps_views", "lower_key"), [(True, 1 + (5 << KEY_BITS)), (False, 1 + (2 << KEY_BITS))])
def test_a_written_back_chunk_stays_with_the_replica_that_sees_it(keeps_views: bool, lower_key: int) -> None:
    node = Node()
    dram, drive = pool("dram", 1, 1, [1 + (5 << KEY_BITS)]), pool("drive", 2, 9)
    written_back(node, dram, node.drive(drive, key_offset=2 << KEY_BITS), keeps_views=keeps_views)
    dram.take(1)
    node.run()
    assert set(drive.ready) == {lower_key}


# The page cache ------------------------------------------------------------------------------------------------------


def test_the_page_cache_has_what_was_read_and_written() -> None:
    node = Node()
    cache, drive = pool("cache", 1, 9), pool("drive", 2, 9, [1, 2])
    hierarchy = node.hierarchy(node.drive(drive, page_cache=cache, fed_from_staging=False), staging=None)
    load(node, hierarchy, [1])
    node.run()
    assert set(cache.ready) == {1}
    hierarchy.store(2, [3], node.note("stored"))
    node.run()
    assert set(cache.ready) == {1, 3}
    check(cache, drive)


def test_the_page_cache_has_what_was_written_back() -> None:
    node = Node()
    hbm, cache, drive = pool("hbm", 0, 1, [1]), pool("cache", 1, 9), pool("drive", 2, 9)
    written_back(node, hbm, node.drive(drive, page_cache=cache))
    hbm.take(1)
    node.run()
    assert set(cache.ready) == {1}
