"""Money, energy and wear of a run: hand arithmetic on round prices, knobs that move them, and comparisons."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from models.economics import SECONDS_PER_YEAR
from scenarios import cli
from scenarios.build import assemble, simulate
from scenarios.comparison import Comparison, compare, load_variants
from scenarios.comparison.economics_texts import least_pairs
from scenarios.comparison.least_wear import least_wear
from scenarios.economics.bill import bill_of
from scenarios.loader import load_scenario
from scenarios.planning.prices import CataloguePrices
from scenarios.uncertainty.sources import sources_of
from sim.results.result import SimulationResult

# Every price and power is round: a GPU costs 1 USD/s over a year of use, and 1 J costs 1e-6 USD at the plug.
ROUND = """\
name: round
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm}
engine: {step_times: STEPS}
tiers:
  hbm: {capacity: 2 GB}
  dram: {device: ddr5, capacity: 2 GB}
  nvme: {device: nvme-gen4, capacity: 1 TB}
workload:
  closed_loop: {concurrency: 2, requests: 60, sessions: 12, shuffle: true, prompt_tokens: 4096, output_tokens: 16}
economics:
  {years: 1, utilisation: 1, electricity_usd_per_kwh: 3.6, pue: 1, gpu_idle_fraction: 0.1, gpu_busy_fraction: 0.9}
figures:
  h100-sxm: {price: 31557600 USD, host_price: 0 USD, tdp: 1000 W, host_power: 50 W}
  ddr5: {price_per_capacity: 0 USD/GB, power_per_capacity: 2 W/GB}
  nvme-gen4:
    price_per_capacity: 0 USD/TB
    power: 30 W
    idle_power: 10 W
    read_bandwidth: 4 GB/s
    write_bandwidth: 2 GB/s
    rated_dwpd: 2
    rated_life: 1000 d
    rated_write_amplification: 3
    write_amplification: 1.5
"""
# A step takes 1 ms and 10 us a token: 4,096 tokens in steps of 8,192 take 41.96 ms.
STEPS = "tokens,context_tokens,step_s\n1,0,0.00101\n1,100000,0.00101\n10001,0,0.10101\n10001,100000,0.10101\n"


@pytest.fixture
def at(write: Callable[..., str], tmp_path: Any) -> Callable[..., SimulationResult]:
    (tmp_path / "steps.csv").write_text(STEPS, encoding="utf-8")
    path = write(text=ROUND.replace("STEPS", str(tmp_path / "steps.csv")), name="round.yaml")
    return lambda *overrides: simulate(load_scenario(path, overrides=list(overrides)))


def economics(result: SimulationResult) -> dict[str, Any]:
    found: dict[str, Any] = result.summary()["economics"]
    return found


def test_money_and_energy_by_hand(at: Callable[..., SimulationResult]) -> None:
    result = at()
    found, summary = economics(result), result.summary()
    window_s, busy = result.measured["window_s"], result.measured["replicas"][0]["compute_fraction"]
    nvme = summary["tiers"]["nvme"]
    assert nvme["read_bytes"] > 0
    assert nvme["write_bytes"] > 0
    assert 0.0 < busy < 1.0
    drive_busy = (nvme["read_bytes"] / 4e9 + nvme["write_bytes"] / 2e9) / window_s
    watts = {
        "accelerators": 1000 * (0.1 + 0.8 * busy),
        "servers": 50.0,
        "dram": 2.0 * summary["tiers"]["dram"]["capacity_bytes"] / 1e9,
        "nvme": 10.0 + 20.0 * drive_busy,
    }
    assert found["power_w"] == pytest.approx(watts)
    joules, tokens = sum(watts.values()) * window_s, 60 * 16
    assert found["joules_per_output_token"] == pytest.approx(joules / tokens)
    assert found["usd_per_hour"] == pytest.approx({"capital": 3600.0, "energy": sum(watts.values()) * 3600e-6})
    assert found["usd_per_million_output_tokens"] == pytest.approx((window_s + joules * 1e-6) / tokens * 1e6)
    assert found["capital_usd"] == SECONDS_PER_YEAR
    assert found["gpu_hours"] == pytest.approx(window_s / 3600.0)
    assert found["output_tokens_per_day"] == pytest.approx(tokens / window_s * 86400)


@pytest.mark.parametrize("replicas", [1, 2])
def test_wear_by_hand(at: Callable[..., SimulationResult], replicas: int) -> None:
    # The second replica is on a node of its own, with a drive of its own.
    result = at(f"cluster.replicas={replicas}")
    worn, window_s = economics(result)["tiers"]["nvme"], result.measured["window_s"]
    written = result.summary()["tiers"]["nvme"]["write_bytes"]
    capacity = result.summary()["tiers"]["nvme"]["capacity_bytes"]
    by_day = written / window_s * 86400
    assert worn["write_bytes_per_day"] == pytest.approx(by_day)
    assert worn["flash_bytes_per_day"] == pytest.approx(1.5 * by_day)
    assert worn["dwpd"] == pytest.approx(by_day / capacity)
    assert worn["rated_dwpd"] == 2.0
    # 2 writes a day for 1,000 days of cells that are written 3 times, against 1.5 times what is written.
    years = 2 * 1000 * capacity * 3 / (1.5 * by_day) / 365.25
    assert worn["wear_out_years"] == pytest.approx(years)


def test_what_hits_spare_by_hand(at: Callable[..., SimulationResult]) -> None:
    result = at()
    saved = economics(result)["tiers"]
    requests = result.table("requests")
    total_s, start = dict.fromkeys(saved, 0.0), [0] * 60
    for tier in saved:
        for row, hit in enumerate(requests[f"hit_tokens_{tier}"].tolist()):
            if hit:
                # In one step of less than the budget; the fixed 1 ms belongs to whoever spares the first token.
                total_s[tier] += hit * 1e-5 + (0.001 if start[row] == 0 else 0.0)
            start[row] += hit
    assert total_s["hbm"] > 0.0
    assert total_s["dram"] > 0.0
    assert total_s["nvme"] > 0.0
    for tier, seconds in total_s.items():
        assert saved[tier]["gpu_hours_saved"] == pytest.approx(seconds / 3600.0, rel=1e-9), tier
    # As long on two GPUs, by this table, is twice the GPU-hours.
    pair = at("cluster.tensor_parallel=2")
    assert pair.summary()["tiers"]["hbm"]["hit_tokens"] == result.summary()["tiers"]["hbm"]["hit_tokens"]
    assert economics(pair)["tiers"]["hbm"]["gpu_hours_saved"] == pytest.approx(2 * saved["hbm"]["gpu_hours_saved"])


@pytest.mark.parametrize(
    ("override", "path", "factor"),
    [
        ("economics.years=2", "usd_per_hour.capital", 0.5),
        ("economics.utilisation=0.5", "usd_per_hour.capital", 2.0),
        ("economics.utilisation=0.5", "tiers.nvme.write_bytes_per_day", 0.5),
        ("economics.utilisation=0.5", "tiers.nvme.wear_out_years", 2.0),
        ("economics.utilisation=0.5", "output_tokens_per_day", 0.5),
        ("economics.utilisation=0.5", "joules_per_output_token", 1.0),
        ("economics.pue=1.5", "usd_per_hour.energy", 1.5),
        ("economics.pue=1.5", "joules_per_output_token", 1.0),
        ("economics.electricity_usd_per_kwh=7.2", "usd_per_hour.energy", 2.0),
        ("figures.h100-sxm.tdp=2 kW", "power_w.accelerators", 2.0),
        ("figures.ddr5.power_per_capacity=1 W/GB", "power_w.dram", 0.5),
        ("figures.h100-sxm.host_price=31557600 USD", "capital_usd", 2.0),
        ("figures.nvme-gen4.price_per_capacity=31557600 USD/TB", "capital_usd", 2.0),
        ("figures.nvme-gen4.rated_dwpd=4", "tiers.nvme.wear_out_years", 2.0),
        ("figures.nvme-gen4.rated_life=500 d", "tiers.nvme.wear_out_years", 0.5),
        ("figures.nvme-gen4.write_amplification=3", "tiers.nvme.wear_out_years", 0.5),
        ("figures.nvme-gen4.write_amplification=3", "tiers.nvme.flash_bytes_per_day", 2.0),
        ("figures.nvme-gen4.rated_write_amplification=6", "tiers.nvme.wear_out_years", 2.0),
        ("figures.nvme-gen4.endurance=2000 TB", "tiers.nvme.wear_out_years", 1.0),
        ("figures.nvme-gen4.endurance=4000 TB", "tiers.nvme.wear_out_years", 2.0),
    ],
)
def test_a_knob_moves_what_it_should(
    at: Callable[..., SimulationResult], override: str, path: str, factor: float
) -> None:
    def figure(found: dict[str, Any]) -> float:
        value: Any = found
        for key in path.split("."):
            value = value[key]
        return float(value)

    # A tier holds whole chunks, so that a terabyte of it is a little less; the drive's rated bytes are exact.
    assert figure(economics(at(override))) == pytest.approx(factor * figure(economics(at())), rel=1e-4)


def test_idle_power_is_paid_by_the_time_in_use(at: Callable[..., SimulationResult]) -> None:
    full, half = economics(at()), economics(at("economics.utilisation=0.5"))
    idle_w = 1000 * 0.1 + 50.0 + full["power_w"]["dram"] + 10.0
    assert half["usd_per_hour"]["energy"] - full["usd_per_hour"]["energy"] == pytest.approx(idle_w * 3600e-6)
    # And the busy GPU draws what its fraction says: without a difference, power does not depend on load.
    flat = economics(at("economics.gpu_busy_fraction=0.1"))
    assert flat["power_w"]["accelerators"] == pytest.approx(100.0)


def test_only_a_scenario_that_asks_is_told(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> dict[str, Any]:
        assert cli.main(["run", small, "--json", *arguments]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    plain, asked, terms = run(), run("--economics"), run("--set", "economics.pue=1.1")
    assert "economics" not in plain
    assert asked["economics"]["terms"]["pue"] == 1.54
    assert terms["economics"]["terms"]["pue"] == 1.1
    for found in (plain, asked, terms):
        del found["engine"]
    del asked["economics"]
    assert asked == plain


def test_tables_name_what_is_assumed_and_missing(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", small, "--economics", "--set", "tiers.fabric.device=storage-scale-llmd"]) == 0
    out, err = capsys.readouterr()
    assert "USD a million output tokens" in out
    assert "GPU-hours saved" in out
    assert "no price known, counted as nothing: storage-scale-llmd" in err
    assert "no power known, counted as nothing: fabric" in err
    assert "h200-sxm: price (assumed, " in err


def test_a_bill_counts_what_there_is_of_each_part(write: Callable[..., str]) -> None:
    text = """\
name: bill
llm: llama-3.1-8b
cluster:
  {accelerator: h100-sxm, replicas: 4, tensor_parallel: 2, replicas_per_node: 2, switch: ethernet-switch,
   decode: {replicas: 3, accelerator: h200-sxm}}
tiers:
  hbm:
  dram: {device: ddr5, capacity: 100 GB}
  nvme: {device: nvme-gen4, capacity: 2 TB, scope: replica}
  fabric: {device: fx100, capacity: 10 TB}
workload: {synthetic: {requests: 5}}
"""
    scenario = load_scenario(write(text=text, name="bill.yaml"))
    assembly = assemble(scenario)
    counts = {item.what: item.count for item in bill_of(scenario, assembly)}
    # Two nodes that prefill and three that decode, each with a card and a port; decoding GPUs are in pairs too.
    assert counts == {
        "h100-sxm": 8, "h200-sxm": 6, "share of a server with h100-sxm": 8, "share of a server with h200-sxm": 6,
        "ddr5": 2, "nvme-gen4": 4, "fx100": 1, "connectx-7": 5, "ethernet-switch": 5,
    }  # fmt: skip
    cost = CataloguePrices().cost(scenario, assembly)
    assert cost.amounts["CNY"] == 371_200
    assert cost.missing == ()
    # 14 GPUs and shares of servers, 0.2 TB of memory, 8 TB of flash, cards and ports.
    expected = 8 * 30_000 + 6 * 35_000 + 14 * 10_000 + 200 * 18.8 + 8 * 325 + 5 * 1700 + 5 * 1000
    assert cost.amounts["USD"] == pytest.approx(expected, rel=1e-3)


def test_figures_of_the_scenario_win_in_plans_too(small: str) -> None:
    def usd(*overrides: str) -> float:
        scenario = load_scenario(small, overrides=list(overrides))
        return CataloguePrices().cost(scenario, assemble(scenario)).amounts["USD"]

    # Two GPUs.
    assert usd("figures.h200-sxm.price=36000 USD") - usd() == pytest.approx(2000)


def test_parts_priced_in_yuan_are_paid_in_dollars(small: str) -> None:
    def capital(*overrides: str) -> float:
        found: float = simulate(load_scenario(small, overrides=["economics.pue=1", *overrides])).summary()["economics"][
            "capital_usd"
        ]
        return found

    assert capital("economics.usd_per_cny=0.24") - capital() == pytest.approx(37_120)


def test_an_uncertain_price_makes_an_uncertain_cost(small: str) -> None:
    scenario = load_scenario(small, overrides=["economics.pue=1"])
    sources = sources_of(scenario, None)
    keys = [number.key for number in sources.uncertain]
    z = np.zeros(len(keys))
    z[keys.index("figures.h200-sxm.price")] = 1.0
    dear = simulate(sources.apply(scenario, z)).summary()
    plain = simulate(scenario).summary()
    # One standard deviation of 30 % up, for two GPUs of 35,000 USD; nothing else moves.
    more = 2 * 35_000 * (np.exp(0.3) - 1.0)
    assert dear["economics"]["capital_usd"] - plain["economics"]["capital_usd"] == pytest.approx(more)
    assert dear["ttft_s"] == plain["ttft_s"]


# Prompts of which some come again: 40 contexts, twice each, in an order of their own, more than HBM keeps.
REUSED = """\
name: reused
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm}
tiers:
  hbm: {capacity: 3 GB}
  nvme: {device: nvme-gen4, count: 4, capacity: 2 TB}
workload:
  closed_loop: {concurrency: 2, requests: 120, sessions: SESSIONS, shuffle: true, prompt_tokens: 8192, output_tokens: 8}
economics: {}
"""


@pytest.mark.parametrize(("sessions", "least"), [(120, "write-through-selective"), (40, "write-through")])
def test_the_placement_that_wears_least_at_equal_ttft(write: Callable[..., str], sessions: int, least: str) -> None:
    path = write(text=REUSED.replace("SESSIONS", str(sessions)), name="reused.yaml")
    variants = load_variants(path, vary=["tiers.nvme.placement=write-through,write-through-selective,none"])
    comparison = compare(variants, jobs=1)
    found = least_wear(comparison)
    assert found is not None
    # Nothing comes again: what write-through writes is for nothing, and the others write nothing, at the same TTFT.
    # Contexts come thrice: to write less costs TTFT, so that only the first is left, though it wears most.
    assert found.variant == least
    by_name = {one.variant.name: one.metrics for one in comparison.variants}
    assert by_name["write-through"]["economics.tiers.nvme.flash_bytes_per_day"]
    assert by_name["none"]["economics.tiers.nvme.flash_bytes_per_day"] == 0.0
    assert by_name["none"]["economics.tiers.nvme.wear_out_years"] is None
    assert (found.years is None) is (sessions == 120)
    assert ("none" in found.candidates) is (sessions == 120)
    assert comparison.to_dict()["least_wear"]["variant"] == least


def test_to_be_slow_is_not_to_wear_less(write: Callable[..., str]) -> None:
    """In a closed loop a faster GPU writes more a day, for more tokens a day: no wear that the slower one spares."""
    path = write(text=REUSED.replace("SESSIONS", "120"), name="reused.yaml")

    def compared(fast: str) -> Comparison:
        variants = ["slow: cluster.accelerator=a100-sxm-80gb", f"fast: cluster.accelerator=h100-sxm,{fast}"]
        return compare(load_variants(path, variants=variants), jobs=1)

    gpus = compared("run.warmup=0 s")
    slow, fast = (one.metrics for one in gpus.variants)
    assert (slow["ttft_s.mean"] or 0.0) > 1.5 * (fast["ttft_s.mean"] or 0.0)
    assert (slow["economics.tiers.nvme.wear_out_years"] or 0.0) > 1.5 * (
        fast["economics.tiers.nvme.wear_out_years"] or 0.0
    )
    found = least_wear(gpus)
    assert found is not None
    assert {found.variant, *found.equals} == {"slow", "fast"}
    # All 120 prompts are written, for 8 tokens each.
    written = slow["tiers.nvme.write_bytes"] or 0.0
    assert found.flash_bytes_per_output_token == pytest.approx(1.3 * written / (120 * 8), rel=1e-6)
    # Half as many bytes for each token are half the wear, though by the day they are still more.
    chatty = compared("workload.closed_loop.output_tokens=16")
    by_day = [one.metrics["economics.tiers.nvme.flash_bytes_per_day"] or 0.0 for one in chatty.variants]
    assert by_day[1] > by_day[0]
    less = least_wear(chatty)
    assert less is not None
    assert (less.variant, less.equals, less.candidates) == ("fast", (), ("slow", "fast"))
    assert list(gpus.to_dict()["least_wear"]["equals"]) == list(found.equals)
    said = dict(least_pairs(gpus))["wears least for its work at no higher mean TTFT"]
    assert said.startswith("slow (fast within 1%): flash ")
    assert f"at its own {slow['economics.output_tokens_per_day']:,.0f} tokens/day" in said


def test_compare_prints_it(write: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    path = write(text=REUSED.replace("SESSIONS", "40").replace("economics: {}\n", ""), name="reused.yaml")
    placements = "tiers.nvme.placement=write-through,none"
    assert cli.main(["compare", path, "--vary", placements, "--jobs", "1"]) == 0
    assert "wears least" not in capsys.readouterr().out
    assert cli.main(["compare", path, "--vary", placements, "--jobs", "1", "--economics"]) == 0
    out = capsys.readouterr().out
    assert "USD/M tokens" in out
    assert "nvme flash/day" in out
    assert "wears least for its work at no higher mean TTFT  write-through: flash " in out


def test_what_was_measured_is_saved_with_the_result(at: Callable[..., SimulationResult], tmp_path: Any) -> None:
    result = at()
    assert result.measured["window_s"] > 0.0
    assert SimulationResult.load(result.save(tmp_path / "saved")).measured == result.measured
