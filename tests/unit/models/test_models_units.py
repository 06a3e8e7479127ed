"""Quantities: bits are not bytes, GB is not GiB, and what is not understood is refused with what is allowed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import ScenarioError
from models.units import DIMENSIONS, format_bytes, format_rate, format_seconds, parse_quantity


@pytest.mark.parametrize(
    ("text", "dimension", "expected"),
    [
        ("100 Gbit/s", "bytes_per_s", 12.5e9),
        ("200Gbit/s", "bytes_per_s", 25e9),
        ("6.8 GB/s", "bytes_per_s", 6.8e9),
        ("5 MiB/s", "bytes_per_s", 5 * 2**20),
        ("4 GiB", "bytes", 4 * 2**30),
        ("0.5 TB", "bytes", 0.5e12),
        ("4 KB", "bytes", 4000),
        ("4 KiB", "bytes", 4096),
        ("8e10", "bytes", 8e10),
        ("1,000 GB", "bytes", 1e12),
        ("1e3 B", "bytes", 1000),
        ("5 EB", "bytes", 5e18),
        ("1e3 GB", "bytes", 1e12),
        (".5 GB", "bytes", 5e8),
        ("-3 s", "seconds", -3.0),
        ("80 us", "seconds", 80e-6),
        ("80 µs", "seconds", 80e-6),
        ("2 ns", "seconds", 2e-9),
        ("1.5 ms", "seconds", 1.5e-3),
        ("30 min", "seconds", 1800),
        ("2 h", "seconds", 7200),
        ("2 days", "seconds", 172800),
        ("16 MIOPS", "ops_per_s", 16e6),
        ("3 requests/s", "ops_per_s", 3.0),
        ("2.5 req/s", "ops_per_s", 2.5),
        ("540 kIOPS", "ops_per_s", 540e3),
        ("500 tok/s", "ops_per_s", 500),
        ("2.5 /s", "ops_per_s", 2.5),
        ("989 TFLOPS", "flops_per_s", 989e12),
        ("700 W", "watts", 700),
        ("85 %", "number", 0.85),
        (3, "seconds", 3.0),
        (0.5, "number", 0.5),
    ],
)
def test_reads(text: str | float, dimension: str, expected: float) -> None:
    assert parse_quantity(text, dimension) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("text", ["100 Gb", "100 Gb/s", "100 GbE", "100Gbps", "5 GBps", "16Gb", "5 b"])
def test_bits_or_bytes_must_be_said(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"links\.nic: .*may mean bits or bytes") as caught:
        parse_quantity(text, "bytes_per_s", "links.nic")
    assert "bit/s'" in str(caught.value)
    assert "B/s'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "dimension"),
    [
        ("", "bytes"),
        ("many GB", "bytes"),
        ("5 GB", "seconds"),
        ("5 m", "seconds"),
        ("5 M", "bytes"),
        ("1 Mmin", "seconds"),
        ("10 GB/min", "bytes_per_s"),
        ("10 GB", "bytes_per_s"),
        ("1.2.3 B", "bytes"),
        ("1,5 GB", "bytes"),
        ("5 mB", "bytes"),
        ("5 Ms", "seconds"),
        ("1/s", "seconds"),
        ("nan", "bytes"),
        ("inf", "bytes"),
        ("0x10", "bytes"),
        (math.inf, "bytes"),
        (math.nan, "seconds"),
        (True, "bytes"),
        (None, "bytes"),
        ([1], "bytes"),
    ],
)
def test_refuses(text: object, dimension: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_quantity(text, dimension, "tiers.dram.capacity")  # type: ignore[arg-type]  # what a YAML file may hold
    assert str(caught.value).startswith("tiers.dram.capacity: ")
    assert "\n" not in str(caught.value)


def test_unknown_dimension_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="unknown dimension"):
        parse_quantity("1", "furlongs")


UNITS = {
    "bytes": ["B", "kB", "GiB", "Tbit"],
    "bytes_per_s": ["GB/s", "Gbit/s", "MiB/s"],
    "seconds": ["s", "us", "min", "h"],
}


@given(st.sampled_from(sorted(UNITS)), st.data())
def test_doubling_the_number_doubles_the_quantity(dimension: str, data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from(UNITS[dimension]))
    number = data.draw(st.floats(min_value=1e-6, max_value=1e9))
    once = parse_quantity(f"{number!r} {unit}", dimension)
    assert parse_quantity(f"{2 * number!r} {unit}", dimension) == pytest.approx(2 * once, rel=1e-12)


@given(st.text(max_size=12), st.sampled_from(DIMENSIONS))
def test_any_text_gives_a_finite_number_or_one_clear_error(text: str, dimension: str) -> None:
    message, value = "", 0.0
    try:
        value = parse_quantity(text, dimension, "here")
    except ScenarioError as error:
        message = str(error)
    assert math.isfinite(value)
    assert not message or message.startswith("here: ")


@given(st.floats(min_value=1.0, max_value=1e17))
def test_formatted_bytes_read_back(n_bytes: float) -> None:
    assert parse_quantity(format_bytes(n_bytes), "bytes") == pytest.approx(n_bytes, rel=1e-3)
    assert parse_quantity(format_rate(n_bytes), "bytes_per_s") == pytest.approx(n_bytes, rel=1e-3)


@given(st.floats(min_value=1e-8, max_value=1e7))
def test_formatted_seconds_read_back(duration_s: float) -> None:
    assert parse_quantity(format_seconds(duration_s), "seconds") == pytest.approx(duration_s, rel=1e-3)


def test_formats() -> None:
    assert format_bytes(7.671e9) == "7.671 GB"
    assert format_bytes(999.96e6) == "1 GB"
    assert format_bytes(0) == "0 B"
    assert format_rate(10.66e9) == "10.66 GB/s"
    assert format_seconds(80e-6) == "80 us"
    assert format_seconds(1.25) == "1.25 s"
    assert format_seconds(750) == "12.5 min"
    assert format_seconds(10800) == "3 h"
    assert format_seconds(math.nan) == "nan s"
    assert format_seconds(119) == "119 s"
    assert format_seconds(100 * 3600) == "4.167 d"
