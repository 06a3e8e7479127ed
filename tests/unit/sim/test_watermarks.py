"""Watermarks: above the high one, a tier is emptied down to the low one."""

import pytest
from engine_kit import CHUNK, Row, Rows, made_up_cost, scenario, serve
from runs_kit import runs

from sim.policies.eviction import Lru
from sim.tiers.watermarks import WatermarkedTier


def pool(**changes) -> WatermarkedTier:
    marks = {"high": 0.8, "low": 0.5} | changes
    return WatermarkedTier(
        name="dram", index=1, capacity_units=10, units_per_chunk=1, unit_bytes=1.0, policy=Lru(), **marks
    )


def fill(tier, *keys):
    assert tier.reserve(runs(*keys))
    tier.arrive(runs(*keys))


def test_nothing_goes_up_to_the_high_mark_and_all_above_the_low_one_beyond_it() -> None:
    tier = pool()
    fill(tier, *range(8))
    assert (tier.used_units, tier.evicted_chunks) == (8, 0)
    tier.touch(runs(0))
    fill(tier, 8)
    assert (tier.used_units, tier.evicted_chunks) == (5, 4)
    assert 0 in tier.ready
    assert 8 in tier.ready
    tier.check()


def test_pins_stay_above_the_low_mark() -> None:
    tier = pool()
    fill(tier, *range(8))
    tier.pin(runs(*range(7)))
    fill(tier, 8)
    assert (tier.used_units, tier.evicted_chunks) == (7, 2)
    tier.unpin(runs(*range(7)))
    fill(tier, 9, 10)
    assert tier.used_units == 5
    tier.check()


def test_room_that_comes_free_is_told_to_those_who_wait_for_it() -> None:
    tier, told = pool(), []
    fill(tier, *range(8))
    tier.wait_for_room(lambda: told.append(tier.free_units))
    fill(tier, 8)
    assert told == [5]


def test_victims_are_written_back_first() -> None:
    """What memory gives up at its marks is in the drive afterwards, and is hit there."""
    chunk_bytes = CHUNK * 131_072
    tiers = {
        "dram": {"device": "ddr5", "capacity": 10.5 * chunk_bytes, "watermarks": {"high": 0.8, "low": 0.5}},
        "nvme": {"device": "nvme-gen4", "capacity": 4e9, "placement": "write-back"},
    }
    rows = [Row(1.0 * i, 96, 1, range(10 * i, 10 * i + 3)) for i in range(3)]
    summary = serve(scenario(tiers=tiers), Rows(rows), made_up_cost(fixed_s=0.1)).summary()
    # 3 and 6 chunks lie below the mark; 9 do not, and four of them go.
    assert summary["tiers"]["dram"]["evicted_bytes"] == 4 * chunk_bytes
    assert summary["tiers"]["nvme"]["write_bytes"] == 4 * chunk_bytes


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"watermarks": {"high": 0.5, "low": 0.8}}, r"is 0.8; must be at most high \(0.5\)"),
        ({"watermarks": {"high": 0.9, "low": 0.8}, "evicts": False}, "is for a tier that evicts"),
        ({"watermarks": {"high": 0.9, "low": 0.8}, "page_cache_of": "nvme"}, "is not for a page cache"),
    ],
)
def test_what_has_no_marks_is_refused(changes, problem) -> None:
    tiers = {"dram": {"device": "ddr5", "capacity": 1e9} | changes, "nvme": {"device": "nvme-gen4", "capacity": 4e9}}
    with pytest.raises(ValueError, match=problem):
        scenario(tiers=tiers)
