"""Links deliver less than they promise, and small copies less than that."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import CatalogueError, UnknownNameError
from models.link import load_link


def test_delivered_rates_as_measured() -> None:
    assert load_link("pcie-gen5-x16").delivered_bytes_per_s == pytest.approx(51e9, rel=1e-3)
    assert load_link("pcie-gen4-x16").delivered_bytes_per_s == pytest.approx(26.28e9, rel=1e-3)
    assert load_link("nvlink-c2c").delivered_bytes_per_s == pytest.approx(377e9, rel=1e-3)
    assert load_link("nvlink-c2c-gb200").delivered_bytes_per_s == pytest.approx(201e9, rel=1e-3)
    assert load_link("roce-100g").delivered_bytes_per_s == pytest.approx(12.1e9, rel=1e-3)
    assert load_link("nvmeof-rdma").delivered_bytes_per_s == pytest.approx(10.66e9, rel=1e-3)
    assert load_link("nvmeof-tcp").latency_s > load_link("nvmeof-rdma").latency_s


def test_copy_curve_passes_through_the_table(fact_rows: Callable[[str], list[dict[str, str]]]) -> None:
    link, checked = load_link("pcie-gen5-x16"), 0
    for row in fact_rows("storage.csv"):
        if row["category"] == "hostlink" and "cudaMemcpyAsync block" in row["item"]:
            piece_bytes = 1024 * int(row["item"].split()[-1].removesuffix("KB"))
            rate = link.copy_bandwidth_bytes_per_s(piece_bytes, row["metric"])
            assert rate == pytest.approx(float(row["value"]) * 1e9), row["item"]
            checked += 1
    assert checked == 26


@given(st.floats(min_value=64, max_value=1e9), st.sampled_from(["h2d", "d2h"]))
def test_larger_pieces_are_never_slower(piece_bytes: float, direction: str) -> None:
    link = load_link("pcie-gen5-x16")
    assert link.copy_bandwidth_bytes_per_s(piece_bytes, direction) > 0
    smaller, larger = (link.copy_bandwidth_bytes_per_s(size, direction) for size in (piece_bytes, 1.3 * piece_bytes))
    assert smaller <= larger * (1 + 1e-12)


def test_below_the_table_the_time_a_piece_is_constant() -> None:
    link = load_link("pcie-gen5-x16")
    assert link.copy_bandwidth_bytes_per_s(1024) == pytest.approx(1.1e9 / 4)
    assert link.copy_bandwidth_bytes_per_s(1e12) == 51.2e9


def test_without_a_curve_a_copy_gets_the_delivered_rate() -> None:
    link = load_link("pcie-gen4-x16")
    assert link.copy_bandwidth_bytes_per_s(4096) == link.delivered_bytes_per_s
    with pytest.raises(UnknownNameError, match="copy direction"):
        link.copy_bandwidth_bytes_per_s(4096, "sideways")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("figures: {bandwidth: 0 GB/s}", "must be above 0"),
        ("figures: {delivered_fraction: 0}", "must be above 0"),
        ("curves: {h2d: {x_bytes: [2.0, 1.0], y_bytes_per_s: [1.0, 1.0]}}", "x rising"),
        ("curves: {h2d: {x_bytes: [1.0, 2.0], y_bytes_per_s: [1.0]}}", "as many y as x"),
        ("curves: {up: {x_bytes: [1.0, 2.0], y_bytes_per_s: [1.0, 1.0]}}", "unknown key"),
    ],
)
def test_bad_links(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"base: connectx-7\nstatus: assumed\nsource: an example for this test\n{text}\n", encoding="utf-8")
    with pytest.raises(CatalogueError, match=problem):
        load_link(str(path))
