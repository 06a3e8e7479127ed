"""Devices: stripes add up, limits and Little's law bind, reads and writes share, and arrays come out as measured."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.catalogue import entries
from models.errors import CatalogueError
from models.storage import DeviceCost, load_device

DRIVES = ["nvme-gen3", "nvme-gen4", "nvme-gen5", "nvme-gen6", "samsung-pm1743", "ddr5", "cxl-2.0-x8"]
SIZES = st.floats(min_value=512, max_value=1e9)
DEPTHS = st.floats(min_value=1, max_value=4096)
SHARES = st.floats(min_value=0, max_value=1)


def test_fx100_as_measured() -> None:
    fx100 = load_device("fx100").configure()
    assert fx100.network_bytes_per_s is not None
    assert fx100.network_delivered_fraction is not None
    delivered = fx100.network_bytes_per_s * fx100.network_delivered_fraction
    assert delivered == pytest.approx(10.41 * 1.024e9, rel=0.002)  # R2: iostat counts 1024 B a kB
    assert fx100.read_limit_bytes_per_s(8.1e6) > delivered  # the port is the limit, not the four drives
    assert fx100.write_bytes_per_s == pytest.approx(6.4e9)  # R1 checkpoint
    full = load_device("fx100").configure(ports=6, drives=24)
    assert full.read_bytes_per_s == pytest.approx(72e9)
    assert full.read_iops == pytest.approx(16e6, rel=0.001)
    assert full.capacity_bytes == pytest.approx(184e12, rel=0.01)


def test_local_drive_as_measured() -> None:
    drive = load_device("solidigm-gen4-mi308x").configure()
    assert drive.read_bytes_per_s == pytest.approx(6.78 * 1.024e9, rel=1e-3)
    assert drive.network_bytes_per_s is None


def test_a_stripe_adds_up_and_keeps_its_latency() -> None:
    one, four = load_device("samsung-pm1733").configure(), load_device("samsung-pm1733").configure(count=4)
    assert four.read_bytes_per_s == 4 * one.read_bytes_per_s
    assert four.read_iops == 4 * (one.read_iops or 0)
    assert four.capacity_bytes == 4 * 3_840_000_000_000
    assert four.read_latency_s == one.read_latency_s


def test_azure_stripe_as_measured() -> None:
    assert load_device("azure-nd-h100-nvme").configure(count=8).read_bytes_per_s == pytest.approx(55.3e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "settings", "problem"),
    [
        ("fx100", {"ports": 7}, "ports is 7; must be 1 to 6"),
        ("fx100", {"drives": 25}, "drives is 25; must be 1 to 24"),
        ("fx100", {"ports": 0}, "ports is 0"),
        ("nvme-gen4", {"count": 0}, "count is 0; must be at least 1"),
        ("nvme-gen4", {"ports": 1}, "has no ports to choose"),
        ("ddr5", {"drives": 2}, "has no drives to choose"),
    ],
)
def test_counts_out_of_range(name: str, settings: dict[str, int], problem: str) -> None:
    with pytest.raises(CatalogueError, match=problem):
        load_device(name).configure(**settings)


def test_small_ios_are_bound_by_iops_large_ones_by_bandwidth() -> None:
    drive = load_device("samsung-pm1743").configure()
    assert drive.read_limit_bytes_per_s(4096) == pytest.approx(2.5e6 * 4096)
    assert drive.read_limit_bytes_per_s(2**20) == pytest.approx(13e9)
    assert drive.write_limit_bytes_per_s(4096) == pytest.approx(250e3 * 4096)


def test_one_io_at_a_time_is_bound_by_latency() -> None:
    drive = load_device("samsung-pm1743").configure()
    assert drive.bandwidth_bytes_per_s(4096, 1) == pytest.approx(4096 / 70e-6)
    assert drive.bandwidth_bytes_per_s(4096, 10_000) == pytest.approx(2.5e6 * 4096)


def test_mixing_on_a_shared_medium_is_harmonic_and_on_a_duplex_one_is_not() -> None:
    drive, cxl = load_device("nvme-gen6").configure(), load_device("cxl-2.0-x8").configure()
    assert drive.bandwidth_bytes_per_s(2**24, 1024, 0.5) == pytest.approx(1 / (0.5 / 28e9 + 0.5 / 14e9))
    assert cxl.bandwidth_bytes_per_s(2**24, 1024, 0.5) == pytest.approx(2 * 28e9)


@given(st.sampled_from(DRIVES), SIZES, DEPTHS, SHARES)
def test_bandwidth_is_monotone_in_depth_and_within_limits(name: str, size: float, depth: float, share: float) -> None:
    device = load_device(name).configure()
    rate = device.bandwidth_bytes_per_s(size, depth, share)
    assert 0 < rate <= device.bandwidth_bytes_per_s(size, depth * 2, share) * (1 + 1e-12)
    assert (1 - share) * rate <= device.read_limit_bytes_per_s(size) * (1 + 1e-9)
    assert share * rate <= device.write_limit_bytes_per_s(size) * (1 + 1e-9)


@given(st.sampled_from(DRIVES), SIZES, DEPTHS)
def test_larger_ios_are_never_slower(name: str, size: float, depth: float) -> None:
    device = load_device(name).configure()
    assert device.bandwidth_bytes_per_s(size, depth) <= device.bandwidth_bytes_per_s(size * 1.5, depth) * (1 + 1e-12)


def test_bad_arguments() -> None:
    drive = load_device("nvme-gen4").configure()
    for size, depth, share in ((0, 1, 0), (1, 0, 0), (1, 1, 1.5), (1, 1, -0.1)):
        with pytest.raises(ValueError, match="must be above 0"):
            drive.bandwidth_bytes_per_s(size, depth, share)


def test_the_write_cliff_and_one_stream_come_from_figures(tmp_path: Path) -> None:
    path = tmp_path / "cached.yaml"
    path.write_text(
        "base: nvme-gen5\nstatus: assumed\nsource: an example for this test\nfigures:\n  write_cache: 100 GB\n"
        "  sustained_write_bandwidth: 2 GB/s\n  stream_bandwidth: 1 GB/s\n"
        "  endurance: 14 PB\n  power: 25 W\n  price: 900 USD\n",
        encoding="utf-8",
    )
    drive = load_device(str(path)).configure(count=2)
    assert drive.write_limit_bytes_per_s(2**20) == pytest.approx(13.2e9)
    assert drive.write_limit_bytes_per_s(2**20, sustained=True) == pytest.approx(4e9)
    assert (drive.write_cache_bytes, drive.endurance_bytes) == (200_000_000_000, 28_000_000_000_000_000)
    assert (drive.power_w, drive.price_usd) == (50.0, 1800.0)
    assert drive.bandwidth_bytes_per_s(1e9, 1) == pytest.approx(1e9, rel=1e-3)


def test_announced_arrays_say_so() -> None:
    assert load_device("fx400").configure().status == "announced"
    assert load_device("fx400").configure().caveats


@pytest.mark.parametrize("name", entries("storage"))
def test_every_device_moves_bytes_both_ways(name: str) -> None:
    device = load_device(name).configure()
    assert isinstance(device, DeviceCost)
    assert device.bandwidth_bytes_per_s(2**20, 32, 0.3) > 0
    assert load_device(name).device_class in {"memory", "drive", "array", "object"}
