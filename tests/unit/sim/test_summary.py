from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sim.recording import COMPLETED, REJECTED, Columns, LinkMeter, RequestLog, TokenIntervals
from sim.results.bottleneck import ReplicaTime
from sim.results.link_use import link_use
from sim.results.percentiles import PercentileRule, percentile, rank_positions
from sim.results.summary import Recorded, distribution, measured_mask, measured_window, summarise
from sim.transfers.flows import READ, WRITE, Link

NAN = math.nan
IDLE = ReplicaTime(compute_fraction=0.2, load_stall_fraction=0.1)
COUNTERS = {"read_bytes": 1, "write_bytes": 2, "evicted_bytes": 3, "peak_used_bytes": 4, "capacity_bytes": 5}


def requests(n: int = 16, *, queue_s: float = 0.0, load_s: float = 2.0) -> Columns:
    """n requests that arrive a second apart, TTFT 3, 4, 5 ... s, and one that is rejected."""
    log = RequestLog(["hbm", "dram"])
    for i in range(n):
        ttft_s = 3.0 + i
        log.append(
            i, i, i % 2, 0, COMPLETED, 1, 1000, 11, 500, float(i), i + queue_s, i + ttft_s, i + ttft_s + 1.0,
            queue_s, load_s, 0.5, 0.2, [300, 100], [0.0, load_s],
        )  # fmt: skip
    log.append(n, 0, 0, -1, REJECTED, 0, 10**6, 1, 0, 0.5, NAN, NAN, 0.5, NAN, NAN, NAN, NAN, [0, 0], [0.0, 0.0])
    return log.columns()


def summary_of(
    columns: Columns,
    rule: PercentileRule = "linear",
    slo: Mapping[str, float | None] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    intervals = TokenIntervals()
    intervals.add(0.1, 0.1, 10, 16)
    recorded = Recorded(
        requests=columns,
        measured=measured_mask(columns),
        intervals=intervals,
        tiers={"hbm": COUNTERS, "dram": COUNTERS},
        links={},
        loading_links={},
        replica_time=IDLE,
        wall_s=2.0,
        events=99,
    )
    return summarise(replace(recorded, **changes), rule=rule, slo=slo)


def test_percentile_rules_on_sixteen_values() -> None:
    values = np.arange(1.0, 17.0)[::-1]
    assert percentile(values, 0.5, "floor-index") == 9.0  # R2: of 16, p50 is the 9th
    assert percentile(values, 0.5, "nearest-rank") == 8.0
    assert percentile(values, 0.5, "linear") == 8.5
    assert percentile(values, 0.9, "linear") == np.quantile(values, 0.9)
    assert [percentile(values, q, "floor-index") for q in (0.0, 1.0)] == [1.0, 16.0]
    assert [percentile(values, q, "nearest-rank") for q in (0.0, 1.0)] == [1.0, 16.0]
    assert percentile([NAN], 0.5) is None
    assert percentile([NAN, 4.0], 0.5) == 4.0


def test_percentiles_refuse_what_has_no_meaning() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        rank_positions(0, 0.5, "linear")
    with pytest.raises(ValueError, match=r"q is 1\.5"):
        percentile([1.0], 1.5)
    with pytest.raises(ValueError, match="unknown percentile rule 'median'"):
        percentile([1.0], 0.5, "median")  # type: ignore[arg-type]  # the error is the test


def test_an_empty_distribution_holds_none() -> None:
    assert distribution([]) == {"mean": None, "p50": None, "p90": None, "p99": None, "max": None}


def test_the_summary_has_the_contract_and_its_arithmetic_by_hand() -> None:
    columns = requests()
    summary = summary_of(columns, rule="floor-index", warnings=["assumed figures"])
    assert summary["requests"] == {"submitted": 17, "completed": 16, "rejected": 1, "failed": 0}
    # Last of 16: arrives at 15 s, TTFT 18 s, a second of decoding.
    assert summary["makespan_s"] == 34.0
    assert summary["throughput"] == {
        "output_tokens_per_s": 16 * 11 / 34.0,
        "input_tokens_per_s": 16000 / 34.0,
        "requests_per_s": 16 / 34.0,
    }
    assert summary["ttft_s"] == {"mean": 10.5, "p50": 11.0, "p90": 17.0, "p99": 18.0, "max": 18.0}
    assert summary["hit_ratio_tokens"] == 0.4
    assert summary["tiers"] == {"hbm": COUNTERS | {"hit_tokens": 4800}, "dram": COUNTERS | {"hit_tokens": 1600}}
    assert summary["preemptions"] == 16
    assert summary["engine"] == {"wall_s": 2.0, "requests_per_wall_s": 8.5, "events": 99}
    assert summary["percentile_rule"] == "floor-index"
    assert summary["warnings"] == ["assumed figures"]
    assert summary["load_by_tier_s"] == {"hbm": 0.0, "dram": 2.0}
    itl_s = summary["itl_s"]
    assert isinstance(itl_s, dict)
    assert list(itl_s) == ["mean", "p50", "p90", "p99", "max"]
    assert itl_s["mean"] == pytest.approx(0.1)
    json.dumps(summary, allow_nan=False)


def test_the_parts_add_up_to_the_mean_ttft() -> None:
    summary = summary_of(requests(queue_s=0.7, load_s=1.3))
    parts_s, ttft_s = summary["ttft_parts_s"], summary["ttft_s"]
    assert isinstance(parts_s, dict)
    assert isinstance(ttft_s, dict)
    assert list(parts_s) == ["queue", "load", "compute", "other"]
    assert sum(parts_s.values()) == pytest.approx(ttft_s["mean"], rel=1e-12)


def test_a_run_in_which_nothing_completes_is_all_none() -> None:
    columns = requests(0)
    summary = summary_of(columns, slo={"ttft_s": 1.0}, intervals=TokenIntervals())
    assert summary["requests"] == {"submitted": 1, "completed": 0, "rejected": 1, "failed": 0}
    assert summary["throughput"] == dict.fromkeys(("output_tokens_per_s", "input_tokens_per_s", "requests_per_s"))
    assert summary["ttft_parts_s"] == dict.fromkeys(("queue", "load", "compute", "other"))
    assert summary["hit_ratio_tokens"] is None
    assert summary["bottleneck"] == "none: no request completed"
    assert summary["slo"] == {"limits": {"ttft_s": 1.0}, "attainment": 0.0, "goodput_requests_per_s": None}
    json.dumps(summary, allow_nan=False)


def test_warm_up_and_phase_choose_the_requests() -> None:
    columns = requests()
    assert measured_mask(columns, warmup_s=10.0).sum() == 6
    odd = measured_mask(columns, phase=1)
    assert odd.sum() == 8
    assert measured_window(columns, odd) == (1.0, 34.0)
    assert summary_of(columns, measured=odd)["makespan_s"] == 33.0


def test_limits_count_rejected_requests_as_missed() -> None:
    summary = summary_of(requests(), slo={"ttft_s": 10.0, "tpot_s": None, "itl_s": 0.2})
    assert summary["slo"] == {
        "limits": {"ttft_s": 10.0, "itl_s": 0.2},
        "attainment": 8 / 17,
        "goodput_requests_per_s": 8 / 34.0,
    }
    assert summary_of(requests(), slo={"tpot_s": 0.09})["slo"]["attainment"] == 0.0
    with pytest.raises(ValueError, match="unknown limits"):
        summary_of(requests(), slo={"ttft": 1.0})


def test_a_tier_without_its_counters_is_refused() -> None:
    with pytest.raises(ValueError, match="'hbm' lacks capacity_bytes"):
        summary_of(requests(), tiers={"hbm": {k: v for k, v in COUNTERS.items() if k != "capacity_bytes"}})
    with pytest.raises(ValueError, match="'nvme' lacks its hit tokens"):
        summary_of(requests(), tiers={"nvme": COUNTERS})


def metered(read_bytes: float = 60e9, *, busy_s: float = 6.0, duplex: bool = True) -> dict[str, float | None]:
    """A 10 GB/s link that reads from 2 s to 8 s of ten and writes a little, 0.4 GB/s, all the time."""
    meter = LinkMeter(["fabric"])
    meter.add(meter.register([(0, READ, 1.0)]), 2.0, 8.0, read_bytes)
    meter.add(meter.register([(0, WRITE, 1.0)]), 0.0, 10.0, 4e9)
    return link_use(
        meter,
        0,
        Link("fabric", 10e9, 10e9, duplex=duplex),
        moved_bytes=(read_bytes, 4e9),
        busy_s=busy_s,
        from_s=0.0,
        to_s=10.0,
    )


def test_busy_mean_follows_the_iostat_rule() -> None:
    use = metered()
    assert use["read_bytes"] == pytest.approx(60e9)
    assert use["write_bytes"] == pytest.approx(4e9)
    assert use["busy_fraction"] == 0.6
    assert use["peak_bytes_per_s"] == pytest.approx(10.4e9)
    assert use["busy_mean_bytes_per_s"] == pytest.approx(10.4e9)  # seconds at 0.4 GB/s are idle
    assert use["read_busy_mean_bytes_per_s"] == pytest.approx(10e9)
    assert use["write_busy_mean_bytes_per_s"] is None
    assert use["busy_utilisation"] == pytest.approx(1.0)
    assert metered(30e9, duplex=False)["busy_utilisation"] == pytest.approx(0.5 + 4 / 60)
    assert metered(30e9)["busy_utilisation"] == pytest.approx(0.5)


def test_short_bursts_saturate_a_link_that_seconds_show_as_idle() -> None:
    assert metered(3e9, busy_s=0.3)["read_utilisation"] == pytest.approx(1.0)


def test_a_link_is_seen_through_the_measured_window() -> None:
    meter = LinkMeter(["slow"])
    meter.add(meter.register([(0, READ, 1.0)]), 0.0, 10.0, 1e9)
    slow = link_use(
        meter,
        0,
        Link("slow", 0.2e9, 10e9),
        moved_bytes=(0.25e9, 0.0),
        busy_s=2.5,
        from_s=4.0,
        to_s=6.5,
    )
    assert slow["utilisation"] == pytest.approx(0.5)
    assert slow["busy_fraction"] == 1.0
    assert slow["busy_mean_bytes_per_s"] == pytest.approx(0.1e9)  # by its own tenth: 0.5 GB/s is beyond it
    assert slow["busy_utilisation"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("queue_s", "load_s", "time", "read_bytes", "expected"),
    [
        (9.0, 0.5, (0.97, 0.01), 60e9, "queue: compute of the replicas (busy 97 %)"),
        (9.0, 0.5, (0.1, 0.2), 60e9, "queue: waiting for a step or for room in the batch (replicas busy 10 %)"),
        (
            9.0, 0.5, (0.1, 0.8), 60e9,
            "queue: replicas stalled by loads (80 %) from dram: fabric link (read, busy 60 %, 10.0 of 10.0 GB/s)",
        ),
        (0.0, 9.0, (0.1, 0.1), 60e9, "load from dram: fabric link (read, busy 60 %, 10.0 of 10.0 GB/s)"),
        (
            0.0, 9.0, (0.1, 0.1), 30e9,
            "load from dram: software path (its most used link, fabric, is 50 % full while busy)",
        ),
        (0.0, 0.0, (0.1, 0.1), 60e9, "other: look-ups and request handling"),
    ],
)  # fmt: skip
def test_the_bottleneck_follows_its_rule(
    queue_s: float, load_s: float, time: tuple[float, float], read_bytes: float, expected: str
) -> None:
    columns = requests(queue_s=queue_s, load_s=load_s)
    summary = summary_of(
        columns,
        links={"fabric": metered(read_bytes)},
        loading_links={"dram": ["fabric", "unknown"]},
        replica_time=ReplicaTime(compute_fraction=time[0], load_stall_fraction=time[1]),
    )
    assert summary["bottleneck"] == expected


def test_the_bottleneck_may_be_prefill_or_a_path_without_links() -> None:
    columns = requests()
    columns["compute_s"] = columns["compute_s"] + 10.0
    assert summary_of(columns)["bottleneck"] == "compute: prefill (replicas busy 20 %)"
    loads = summary_of(requests(load_s=9.0))["bottleneck"]
    assert loads == "load from dram: software path (it crosses no metered link)"


def test_a_link_that_is_full_for_a_moment_is_not_what_loads_wait_for() -> None:
    summary = summary_of(
        requests(load_s=9.0),
        links={"host-link": metered(3e9, busy_s=0.3), "fabric": metered(54e9)},
        loading_links={"dram": ["fabric", "host-link"]},
    )
    assert summary["bottleneck"] == "load from dram: fabric link (read, busy 60 %, 9.0 of 10.0 GB/s)"


@pytest.mark.parametrize(("read_bytes", "full"), [(88e9, ""), (92e9, "92"), (100e9, "100")])
def test_a_link_that_is_full_all_the_time_is_told_beside_a_bottleneck_that_is_not_that_link(
    read_bytes: float, full: str
) -> None:
    columns = requests()
    columns["compute_s"] = columns["compute_s"] + 10.0
    links = {"host-link": metered(), "fabric": metered(read_bytes, busy_s=10.0)}
    plain = "compute: prefill (replicas busy 20 %)"
    told = f"; also full: fabric link (read, {full} % of what it can carry in the whole time)" if full else ""
    assert summary_of(columns, links=links)["bottleneck"] == plain + told
    loads = summary_of(requests(load_s=9.0), links=links, loading_links={"dram": ["fabric"]})["bottleneck"]
    assert loads.startswith("load from dram: fabric link (read, busy 100 %")
    assert "also full" not in loads
    elsewhere = summary_of(requests(load_s=9.0), links=links, loading_links={"dram": ["host-link"]})["bottleneck"]
    assert elsewhere == f"load from dram: host-link link (read, busy 60 %, 10.0 of 10.0 GB/s){told}"


def test_a_queue_may_be_for_room_in_hbm() -> None:
    columns = requests(queue_s=9.0)
    waited_s = float(columns["queue_s"][columns["state"] == COMPLETED].sum())
    for room_wait_s, expected in (
        (0.6 * waited_s, "queue: room for KV in HBM (60 % of the waiting; replicas busy 90 %)"),
        (0.4 * waited_s, "queue: compute of the replicas (busy 90 %)"),
    ):
        time = ReplicaTime(compute_fraction=0.9, load_stall_fraction=0.0, room_wait_s=room_wait_s)
        assert summary_of(columns, replica_time=time)["bottleneck"] == expected
