"""The figures of a simulated run that measurements are held against."""

import numpy as np
import pytest

from calibration.metrics import NAMES, simulated, unit_factor
from scenarios.build import simulate
from scenarios.loader import load_scenario
from sim.results.result import SimulationResult


@pytest.fixture(scope="module")
def result() -> SimulationResult:
    return simulate(load_scenario("r3-fx100-c16", overrides=["parameters=null"]))


def test_figures_are_those_of_the_summary_in_the_unit_asked_for(result: SimulationResult) -> None:
    summary = result.summary()
    assert simulated(result, "ttft_p50", "s", 0.0) == summary["ttft_s"]["p50"]
    assert simulated(result, "tpot_p50", "ms", 0.0) == pytest.approx(1e3 * summary["tpot_s"]["p50"])
    peak = summary["links"]["fx100"]["peak_bytes_per_s"]
    assert simulated(result, "disk_peak", "iostat GB/s", 0.0) == pytest.approx(peak / 1.024e9)
    assert simulated(result, "makespan", "s", 0.0) == summary["makespan_s"]


def test_the_client_counts_in_throughput_only(result: SimulationResult) -> None:
    tokens, makespan_s = 16 * 64, result.summary()["makespan_s"]
    assert simulated(result, "throughput", "tok/s", 0.0) == pytest.approx(tokens / makespan_s)
    assert simulated(result, "throughput", "tok/s", 2.0) == pytest.approx(tokens / (makespan_s + 2.0))
    assert simulated(result, "ttft_p50", "s", 2.0) == simulated(result, "ttft_p50", "s", 0.0)


def test_prompts_count_as_input_and_both_in_total(result: SimulationResult) -> None:
    makespan_s = result.summary()["makespan_s"]
    prompts = int(result.table("requests")["prompt_tokens"][result.table("requests")["phase"] == 1].sum())
    assert prompts > 16 * 30_000
    assert simulated(result, "input_throughput", "tok/s", 0.0) == pytest.approx(prompts / makespan_s)
    assert simulated(result, "total_throughput", "tok/s", 1.0) == pytest.approx(
        (prompts + 16 * 64) / (makespan_s + 1.0)
    )


def test_one_replica_alone(result: SimulationResult) -> None:
    requests = result.table("requests")
    for replica in (0, 1):
        own = requests["ttft_s"][(requests["replica"] == replica) & (requests["phase"] == 1)]
        assert own.size == 8
        assert simulated(result, f"ttft_mean@{replica}", "s", 0.0) == pytest.approx(own.mean())
        assert simulated(result, f"ttft_p50@{replica}", "s", 0.0) == np.sort(own)[3]  # nearest rank, 4th of 8
    assert simulated(result, "ttft_p50@7", "s", 0.0) is None


def test_reading_leaves_out_the_time_in_which_nothing_is_read(result: SimulationResult) -> None:
    rate = simulated(result, "disk_read_bw", "GB/s", 0.0)
    busy = simulated(result, "disk_busy_mean", "GB/s", 0.0)
    assert rate is not None
    assert busy is not None
    capacity = result.summary()["links"]["fx100"]["read_capacity_bytes_per_s"] / 1e9
    assert busy <= rate <= capacity * 1.0001


def sampled(rates_gb_per_s: list[float], bin_s: float) -> SimulationResult:
    """Return a run of one request, with the reads of its only drive bin by bin."""
    n = len(rates_gb_per_s)
    requests = {"arrived_at_s": np.array([0.0]), "finished_at_s": np.array([n * bin_s]), "state": np.array([0])}
    links = {
        "link": np.array([1] * n + [0] * n),
        "time_s": np.tile(np.arange(n) * bin_s, 2),
        "read_bytes_per_s": np.array([*(1e9 * np.array(rates_gb_per_s)), *([7e9] * n)]),
    }
    return SimulationResult(
        scenario={"name": "a", "tiers": {"nvme": {}}, "run": {"measure": None, "warmup": 0.0}},
        seed=0,
        provenance={},
        columns={"requests": requests, "links": links},
        labels={"links": {"link": ("other", "nvme")}},
        summary_values={"links": {"nvme": {}}},
    )


def test_seconds_of_a_sampler_may_begin_anywhere() -> None:
    # Reads of 8 GB/s for 1.5 s: seconds that begin with them show 8 and 4, half a second earlier 4 and 8.
    run = sampled([8.0, 8.0, 8.0, 0.0], 0.5)
    assert simulated(run, "disk_busy_mean", "GB/s", 0.0) == pytest.approx(6.0)
    assert simulated(run, "disk_peak", "GB/s", 0.0) == pytest.approx(8.0)
    # For 1 s: either one second of 8, or two of 4.
    run = sampled([8.0, 8.0, 0.0, 0.0], 0.5)
    assert simulated(run, "disk_busy_mean", "GB/s", 0.0) == pytest.approx((8.0 + 4.0) / 2)
    assert simulated(run, "disk_peak", "GB/s", 0.0) == pytest.approx((8.0 + 4.0) / 2)
    # A second with 0.45 GB in it is not busy.
    run = sampled([8.0, 8.0, 0.9, 0.0], 0.5)
    assert simulated(run, "disk_busy_mean", "GB/s", 0.0) == pytest.approx((8.0 + (4.0 + 4.45) / 2) / 2)
    assert simulated(sampled([0.0, 0.0], 0.5), "disk_peak", "GB/s", 0.0) is None


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_has_a_unit(name: str) -> None:
    unit = "tok/s" if name.endswith("throughput") else "GB/s" if name.startswith("disk") else "s"
    unit = "1" if name == "hit_ratio" else unit
    assert unit_factor(name, unit) > 0
