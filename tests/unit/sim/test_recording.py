from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.recording import (
    COMPLETED,
    REJECTED,
    LinkMeter,
    OccupancyLog,
    RequestLog,
    TokenIntervals,
    TransferLog,
)
from sim.results.percentiles import PERCENTILE_RULES
from sim.transfers.flows import READ, WRITE

NAN = math.nan


def completed(log: RequestLog, request_id: int = 0, *, output_tokens: int = 3) -> None:
    log.append(
        request_id, 7, 0, 1, COMPLETED, 2, 1000, output_tokens, 600,
        10.0, 11.0, 13.0, 14.0, 1.0, 0.75, 0.125, 0.5, [300, 100], [0.0, 0.75],
    )  # fmt: skip


def test_a_request_comes_back_as_it_was_with_its_derived_times() -> None:
    log = RequestLog(["hbm", "dram"])
    completed(log)
    columns = log.columns()
    assert len(log) == 1
    assert {name: column[0] for name, column in columns.items()} == {
        "request_id": 0, "session_id": 7, "phase": 0, "replica": 1, "state": COMPLETED, "preemptions": 2,
        "prompt_tokens": 1000, "output_tokens": 3, "computed_prompt_tokens": 600,
        "arrived_at_s": 10.0, "admitted_at_s": 11.0, "first_token_at_s": 13.0, "finished_at_s": 14.0,
        "queue_s": 1.0, "load_s": 0.75, "compute_s": 0.125, "itl_max_s": 0.5,
        "hit_tokens_hbm": 300, "hit_tokens_dram": 100, "load_hbm_s": 0.0, "load_dram_s": 0.75,
        "ttft_s": 3.0, "other_s": 1.125, "tpot_s": 0.5, "e2e_s": 4.0,
    }  # fmt: skip


@pytest.mark.parametrize("output_tokens", [0, 1])
def test_a_request_of_one_token_has_no_time_per_output_token(output_tokens: int) -> None:
    log = RequestLog(["hbm", "dram"])
    completed(log, output_tokens=output_tokens)
    assert np.isnan(log.columns()["tpot_s"][0])


def test_a_rejected_request_keeps_nan_and_the_log_grows_on_after_columns() -> None:
    log = RequestLog([])
    log.append(1, 2, 0, -1, REJECTED, 0, 10**12, 9, 0, 1.0, NAN, NAN, 1.0, NAN, NAN, NAN, NAN, [], [])
    first = log.columns()
    assert np.isnan(first["ttft_s"][0])
    log.append(2, 2, 0, -1, REJECTED, 0, 9, 9, 0, 1.0, NAN, NAN, 1.0, NAN, NAN, NAN, NAN, [], [])
    assert first["request_id"].tolist() == [1]
    assert log.columns()["request_id"].tolist() == [1, 2]


def test_a_row_with_the_wrong_number_of_tiers_is_refused() -> None:
    log = RequestLog(["hbm"])
    with pytest.raises(struct.error):
        completed(log)
    assert len(log) == 0


def test_transfers_are_thinned_evenly_and_say_so() -> None:
    log = TransferLog(["hbm", "dram"], max_rows=8)
    for i in range(100):
        log.append(WRITE if i % 2 else READ, 1, 0, i, 100 * i, float(i), i + 0.5)
    columns = log.columns()
    assert len(log) <= 8
    assert columns["request_id"].tolist() == list(range(0, 100, log.every))
    assert columns["n_bytes"].tolist() == [100 * i for i in columns["request_id"].tolist()]
    assert log.note() == f"the transfers table keeps one in {log.every} of 100 transfers"
    assert log.labels() == {"kind": ("read", "write", "handover"), "tier": ("hbm", "dram")}


def test_few_transfers_are_all_kept() -> None:
    log = TransferLog(["hbm"])
    log.append(READ, 0, -1, 1, 5, 1.0, 2.0)
    assert (len(log), log.note()) == (1, None)


jumps = st.tuples(
    st.floats(1e-4, 10.0),
    st.one_of(st.just(1.0), st.floats(0.9, 1.1), st.floats(0.01, 100.0)),
    st.integers(0, 60),
    st.integers(0, 5),
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(jumps, max_size=15), rule=st.sampled_from(PERCENTILE_RULES))
def test_token_intervals_equal_the_expanded_samples(rows: list[tuple[float, float, int, int]], rule: str) -> None:
    intervals = TokenIntervals()
    parts = [np.zeros(0)]
    for first_s, growth, steps, tokens in rows:
        intervals.add(first_s, first_s * growth, steps, tokens)
        step_s = np.linspace(first_s, first_s * growth, steps) if steps != 1 else np.array([first_s])
        parts.append(np.repeat(step_s, tokens))
    values = np.sort(np.concatenate(parts))
    qs = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
    found = intervals.percentiles(qs, rule)  # type: ignore[arg-type]  # a sampled rule is a str to mypy
    assert intervals.count == values.size
    if values.size == 0:
        assert (found, intervals.mean_s, intervals.max_s) == ([None] * 6, None, None)
        return
    assert intervals.mean_s == pytest.approx(values.mean(), rel=1e-12)
    assert intervals.max_s == pytest.approx(values[-1], rel=1e-12)
    exact = {
        "linear": np.quantile(values, qs).tolist(),
        "nearest-rank": [values[max(math.ceil(values.size * q) - 1, 0)] for q in qs],
        "floor-index": [values[min(int(values.size * q), values.size - 1)] for q in qs],
    }[rule]
    assert found == pytest.approx(exact, rel=1.001e-3)


def test_token_intervals_outside_the_bins_are_counted_at_the_ends() -> None:
    intervals = TokenIntervals()
    intervals.add(0.0, 1e6, 2, 1)
    assert (intervals.count, intervals.mean_s, intervals.max_s) == (2, 5e5, 1e6)
    assert intervals.percentiles([0.0, 1.0]) == [0.0, 1e6]


def test_token_intervals_fold_by_themselves_when_the_buffer_is_full() -> None:
    intervals = TokenIntervals()
    for _ in range(20_000):
        intervals.add(0.02, 0.03, 10, 2)
    assert intervals.count == 400_000
    assert intervals.mean_s == pytest.approx(0.025)


pieces = st.lists(
    st.tuples(st.integers(0, 1), st.floats(0.0, 30.0), st.floats(0.0, 12.0), st.floats(0.0, 1e12)), max_size=20
)


@settings(max_examples=60, deadline=None)
@given(rows=pieces)
@example([(0, 0.0, 2.2250738585e-313, 0.00390625)])
def test_a_meter_spreads_bytes_exactly_over_bins(rows: list[tuple[int, float, float, float]]) -> None:
    meter = LinkMeter(["a", "b"])
    classes = [meter.register([(0, READ, 1.0), (1, READ, 1.0)]), meter.register([(1, WRITE, 1.0)])]
    expected = np.zeros((2, 60))
    for which, t0_s, long_s, n_bytes in rows:
        t1_s = t0_s + long_s
        meter.add(classes[which], t0_s, t1_s, n_bytes)
        for second in range(60):
            overlap_s = min(t1_s, second + 1.0) - max(t0_s, float(second))
            if t1_s == t0_s:
                last = max(math.ceil(t1_s) - 1, int(t0_s))
                expected[which, second] += n_bytes if second == min(int(t0_s), last) else 0.0
            elif overlap_s > 0.0:
                expected[which, second] += n_bytes * (
                    overlap_s / (t1_s - t0_s)
                )  # a product may be too small for its digits
    time_s, read, write = meter.timeline(1)
    n = time_s.size
    tolerance = 1e-12 * (1.0 + expected.sum())
    assert np.allclose(read, expected[0, :n], rtol=1e-9, atol=tolerance)
    assert np.allclose(write, expected[1, :n], rtol=1e-9, atol=tolerance)
    assert meter.total_bytes(1, READ) == pytest.approx(sum(row[3] for row in rows if row[0] == 0))
    assert np.array_equal(meter.timeline(0)[1], read)


def test_a_path_registers_once_and_bad_links_are_refused() -> None:
    meter = LinkMeter(["a", "b"])
    assert meter.register([(0, READ, 1.0)]) == meter.register(((0, READ, 1.0),))
    assert meter.register([(1, READ, 1.0)]) != meter.register([(1, WRITE, 1.0)])
    with pytest.raises(ValueError, match="no link 2"):
        meter.register([(2, READ, 1.0)])
    with pytest.raises(ValueError, match="direction 2"):
        meter.register([(0, 2, 1.0)])


def test_bins_double_in_long_runs_and_keep_the_total() -> None:
    meter = LinkMeter(["a"], max_bins=16)
    read = meter.register([(0, READ, 1.0)])
    for second in range(1000):
        meter.add(read, float(second), second + 1.0, 5.0)
        if second % 100 == 0:
            meter.timeline(0)
    time_s, rate, _ = meter.timeline(0)
    assert meter.bin_s == 64.0
    assert time_s.size <= 16
    assert rate.sum() * meter.bin_s == pytest.approx(5000.0)
    assert rate[:15] == pytest.approx(5.0)


def test_the_links_table_is_tidy_and_averages_long_runs() -> None:
    meter = LinkMeter(["a", "idle"])
    meter.add(meter.register([(0, WRITE, 1.0)]), 0.0, 10.0, 100.0)
    columns = meter.columns(max_points=4)
    assert columns["link"].tolist() == [0] * 4 + [1] * 4
    assert columns["time_s"].tolist() == [0.0, 3.0, 6.0, 9.0] * 2
    assert columns["write_bytes_per_s"] == pytest.approx(np.array([10.0] * 4 + [0.0] * 4))
    assert LinkMeter(["a"]).columns()["time_s"].size == 0


def test_occupancy_is_bounded_and_keeps_peak_and_last() -> None:
    rng = np.random.default_rng(0)
    log = OccupancyLog(["hbm", "dram"], max_points=64)
    times_s = np.sort(rng.uniform(0.0, 500.0, 5000))
    used = rng.uniform(0.0, 1e12, 5000)
    for time_s, used_bytes in zip(times_s.tolist(), used.tolist(), strict=True):
        log.sample(1, time_s, used_bytes)
    columns = log.columns()
    assert 16 <= columns["time_s"].size <= 65
    assert set(columns["tier"].tolist()) == {1}
    assert columns["used_bytes"].max() == used.max()
    assert (columns["time_s"][-1], columns["used_bytes"][-1]) == (times_s[-1], used[-1])
    assert (np.diff(columns["time_s"]) >= 0.0).all()
    samples = dict(zip(times_s.tolist(), used.tolist(), strict=True))
    assert all(samples[t] == u for t, u in zip(columns["time_s"].tolist(), columns["used_bytes"].tolist(), strict=True))


def test_occupancy_of_a_short_run_is_exact_even_within_one_instant() -> None:
    log = OccupancyLog(["hbm"], max_points=8)
    for used_bytes in range(20):
        log.sample(0, 0.0, float(used_bytes))
    log.sample(0, 1.0, 3.0)
    columns = log.columns()
    assert columns["used_bytes"].max() == 19.0
    assert columns["used_bytes"][-1] == 3.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TransferLog([], max_rows=1), "max_rows"),
        (lambda: LinkMeter([], bin_s=0.0), "bin_s"),
        (lambda: LinkMeter([], max_bins=1), "max_bins"),
        (lambda: OccupancyLog([], max_points=3), "max_points"),
    ],
)
def test_bounds_that_cannot_work_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()
