"""Laws of money, energy and wear, each against figures worked out by hand."""

import pytest

from models.accelerator import load_accelerator
from models.catalogue import entries, load_entry
from models.economics import (
    SECONDS_PER_YEAR,
    busy_share,
    capital_per_s,
    energy_cost,
    power_w,
    rated_bytes,
    wear_out_s,
)
from models.figures import KINDS
from models.storage import load_device
from models.units import parse_quantity


def test_a_part_is_paid_by_the_time_in_which_it_works() -> None:
    # 31,557,600 s a year: a part of as many dollars costs one a second for a year, half for two, twice at half use.
    assert SECONDS_PER_YEAR == 31_557_600
    assert capital_per_s(31_557_600, years=1, utilisation=1) == 1.0
    assert capital_per_s(31_557_600, years=2, utilisation=1) == 0.5
    assert capital_per_s(31_557_600, years=1, utilisation=0.5) == 2.0


def test_energy_is_paid_at_the_meter_of_the_building() -> None:
    # 1 kWh at the plug, half as much again for cooling, at 20 cents.
    assert energy_cost(3.6e6, pue=1.5, price_per_kwh=0.2) == pytest.approx(0.3)


@pytest.mark.parametrize(("busy", "watts"), [(0.0, 100.0), (0.25, 200.0), (1.0, 500.0), (1.5, 500.0), (-1.0, 100.0)])
def test_power_is_straight_between_idle_and_busy(busy: float, watts: float) -> None:
    assert power_w(100.0, 500.0, busy) == watts


def test_a_device_is_busy_for_as_long_as_its_bytes_take() -> None:
    # 20 B at 10 B/s and 5 B at 5 B/s take 3 of 6 s.
    rates = {"read_bytes_per_s": 10.0, "write_bytes_per_s": 5.0}
    assert busy_share(read_bytes=20.0, write_bytes=5.0, time_s=6.0, **rates) == 0.5
    assert busy_share(read_bytes=200.0, write_bytes=5.0, time_s=6.0, **rates) == 1.0
    assert busy_share(read_bytes=0.0, write_bytes=0.0, time_s=0.0, **rates) == 0.0


def test_a_rating_is_its_capacity_day_by_day() -> None:
    # Micron rates the 9650 PRO of 30.72 TB at 56,064 TB: once a day for five years of 365 days.
    assert rated_bytes(30.72e12, dwpd=1.0, life_s=5 * 365 * 86400.0) == pytest.approx(56_064e12)


def test_flash_wears_by_what_is_written_to_its_cells() -> None:
    # 1,000 B of a load that is written thrice are 3,000 B of cells; 10 B/s written 1.5 times are 15 B/s: 200 s.
    worn = {"endurance_bytes": 1000.0, "rated_write_amplification": 3.0}
    assert wear_out_s(10.0, write_amplification=1.5, **worn) == 200.0
    assert wear_out_s(10.0, write_amplification=3.0, **worn) == 100.0
    assert wear_out_s(0.0, write_amplification=1.5, **worn) is None


def test_prices_by_size_have_units_of_their_own() -> None:
    assert parse_quantity("18.8 USD/GB", "usd_per_byte") == pytest.approx(18.8e-9)
    assert parse_quantity("325 USD/TB", "usd_per_byte") == pytest.approx(325e-12)
    assert parse_quantity("0.1 W/GB", "watts_per_byte") == pytest.approx(1e-10)


@pytest.mark.parametrize(
    "name", [name for name in entries("storage") if name.startswith(("nvme-", "micron-", "samsung-"))]
)
def test_every_drive_has_price_power_and_wear(name: str) -> None:
    device = load_device(name).configure(count=2)
    one = load_device(name).configure()
    assert device.price_usd_per_byte
    assert device.rated_dwpd
    assert device.rated_life_s
    assert device.write_amplification
    assert device.rated_write_amplification
    # Drives of a stripe draw as many times the power, at rest too; at work more.
    assert device.power_w == 2 * (one.power_w or 0.0) > 2 * (one.idle_power_w or 0.0) == device.idle_power_w


@pytest.mark.parametrize("name", entries("accelerator"))
def test_every_accelerator_has_price_power_and_a_server(name: str) -> None:
    gpu = load_accelerator(name)
    assert gpu.price_usd
    assert gpu.tdp_w
    assert gpu.host_power_w
    assert gpu.host_price_usd


def test_what_is_unsure_of_prices_is_told_apart_from_what_time_rests_on() -> None:
    entry = load_entry("storage", "nvme-gen4")
    assert any(line.startswith("rated_dwpd ") for line in entry.economic_caveats)
    assert not any(line.split(" ")[0] in KINDS["storage"].economic for line in entry.caveats)
    assert any(line.startswith("read_latency ") for line in entry.caveats)
