"""What copies and parity add to what a plan asks of drives, and to how they wear: by hand."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from storms import ALL_BYTES, STORM

from scenarios.build import simulate
from scenarios.loader import load_scenario
from scenarios.planning import plan
from scenarios.planning.needs import TierNeed

BANDWIDTH = "links.fabric.bandwidth"
DRIVE_WRITE_BYTES_PER_S = 1.6e9  # models/catalogue/storage/fx100.yaml


@pytest.fixture
def storm(write: Callable[..., str]) -> str:
    return write(text=STORM, name="storm.yaml")


def need_of(storm: str, layout: str, *more: str) -> TierNeed:
    """Return what the array has to do at 10 GB/s, each of its drives as the catalogue has it."""
    overrides = ["links.fabric.drives=null", f"tiers.fabric.layout={layout}", *more]
    solve = [f"{BANDWIDTH}=10 GB/s,20 GB/s"]
    found = plan(storm, slo=["makespan_s<=1000"], solve=solve, overrides=overrides, consider=[], jobs=1)
    return found.needs["fabric"]


@pytest.mark.parametrize(("layout", "overhead"), [("null", 1.0), ("{parity: 1}", 2.0), ("{data: 8, parity: 2}", 1.25)])
def test_parity_takes_room_on_drives(storm: str, layout: str, overhead: float) -> None:
    # So small drives that room, not rate, says how many.
    need = need_of(storm, layout, "figures.fx100.capacity=1 GB")
    assert need.capacity_bytes == ALL_BYTES
    assert need.raw_bytes == ALL_BYTES * overhead
    assert (need.drives, need.drives_for) == (math.ceil(ALL_BYTES * overhead / 1e9), "capacity")


@pytest.mark.parametrize(("layout", "overhead"), [("null", 1.0), ("{parity: 1}", 2.0)])
@pytest.mark.parametrize("prompt_tokens", ["20480", "204800"])
def test_parity_is_written_too(storm: str, layout: str, overhead: float, prompt_tokens: str) -> None:
    # A fill that one slow link holds up all the while; the longer one lasts long enough for links to be metered.
    fill = [f"workload.phases.fill.closed_loop.prompt_tokens={prompt_tokens}", "tiers.hbm.capacity=null"]
    slow = [f"{BANDWIDTH}=1 GB/s", "run.measure=fill"]
    found = plan(
        storm,
        slo=["makespan_s<=1000"],
        solve=["tiers.fabric.capacity=1 TB,2 TB"],
        overrides=[*slow, *fill, "links.fabric.drives=null", f"tiers.fabric.layout={layout}"],
        consider=[],
        jobs=1,
    )
    need = found.needs["fabric"]
    assert need.write_bytes_per_s == pytest.approx(overhead * 1e9, rel=1e-3)
    assert (need.drives, need.drives_for) == (math.ceil(overhead * 1e9 / DRIVE_WRITE_BYTES_PER_S), "rate")


def test_each_piece_takes_a_drive_of_its_own(storm: str) -> None:
    need = need_of(storm, "{data: 8, parity: 2}")
    assert need.read_bytes_per_s == pytest.approx(1e10, rel=1e-6)  # four drives of 3 GB/s
    assert (need.drives, need.drives_for) == (10, "layout")
    assert need_of(storm, "null").drives == 4
    assert (need_of(storm, "{parity: 1}").drives, need_of(storm, "{parity: 1}").drives_for) == (4, "rate")


def test_the_layout_wears_drives(storm: str) -> None:
    def worn(layout: str) -> dict[str, Any]:
        overrides = [f"tiers.fabric.layout={layout}", "run.measure=fill"]
        result = simulate(load_scenario(storm, overrides=overrides).with_economics())
        found: dict[str, Any] = result.summary()["economics"]["tiers"]["fabric"]
        assert found["write_bytes_per_day"] > 0.0
        return found

    plain, parity = worn("null"), worn("{data: 8, parity: 2}")
    assert plain["drive_bytes_per_day"] == plain["write_bytes_per_day"] == parity["write_bytes_per_day"]
    for key in ("drive_bytes_per_day", "flash_bytes_per_day", "dwpd"):
        assert parity[key] == pytest.approx(1.25 * plain[key])
    assert parity["wear_out_years"] == pytest.approx(plain["wear_out_years"] / 1.25)
