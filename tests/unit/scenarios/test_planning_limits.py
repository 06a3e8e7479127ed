"""What a plan may be asked: limits on figures, free quantities, prices; and what is refused before anything runs."""

import math
from typing import Any

import pytest

from models.errors import InputError
from scenarios import cli
from scenarios.build import assemble, simulate
from scenarios.loader import load_scenario
from scenarios.planning.free import free_quantity
from scenarios.planning.limits import RESTORES, Limit, figure_at, figure_names, parse_limits
from scenarios.planning.money import Money
from scenarios.planning.prices import parse_prices

NAMES = ("ttft_s.p50", "ttft_s.p90", "throughput.output_tokens_per_s", "makespan_s", "links.nic.0.read_bytes")


def leaves(summary: Any, path: str = "") -> set[str]:
    if isinstance(summary, dict):
        return {leaf for key, value in summary.items() for leaf in leaves(value, f"{path}.{key}" if path else key)}
    return {path} if isinstance(summary, int | float) or summary is None else set()


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("quickstart", ["workload.synthetic.requests=40"]),
        ("r2-fx100-c8", []),
        ("mooncake-disaggregated", ["workload.synthetic.duration=20 s"]),
    ],
)
def test_every_number_of_a_summary_can_be_limited(name: str, overrides: list[str]) -> None:
    scenario = load_scenario(name, overrides=overrides)
    names = figure_names(scenario, assemble(scenario))
    summary = simulate(scenario).summary()
    # How fast it was simulated, and the limits of the scenario itself, are no figures of a cluster.
    found = {leaf for leaf in leaves(summary) if not leaf.startswith(("engine.", "slo.limits."))}
    assert found == set(names) - {RESTORES}
    for figure in found:
        assert figure_at(summary, figure) is None or math.isfinite(figure_at(summary, figure) or 0.0)


def test_a_limit_carries_units_of_its_figure() -> None:
    texts = ["ttft_s.p90<=500 ms", "throughput.output_tokens_per_s >= 2000", "makespan_s<2 min"]
    limits = parse_limits([*texts, "links.nic.0.read_bytes<=1 TB"], NAMES)
    assert [(limit.figure, limit.operator, limit.bound) for limit in limits] == [
        ("ttft_s.p90", "<=", 0.5),
        ("throughput.output_tokens_per_s", ">=", 2000.0),
        ("makespan_s", "<", 120.0),
        ("links.nic.0.read_bytes", "<=", 1e12),
        ("requests.rejected", "<=", 0.0),  # implied: who is not served is in no percentile
        ("requests.failed", "<=", 0.0),
    ]
    assert [limit.implied for limit in limits] == [False] * 4 + [True] * 2
    allowed = parse_limits(["requests.rejected<=5"], ["requests.rejected"])
    assert [(limit.bound, limit.implied) for limit in allowed] == [(5.0, False), (0.0, True)]


def test_limits_by_hand() -> None:
    at_most = Limit(figure="ttft_s.p90", operator="<=", bound=2.0)
    below = Limit(figure="ttft_s.p90", operator="<", bound=2.0)
    at_least = Limit(figure="makespan_s", operator=">=", bound=2.0)
    above = Limit(figure="makespan_s", operator=">", bound=2.0)
    assert [limit.is_met(2.0) for limit in (at_most, below, at_least, above)] == [True, False, True, False]
    assert [limit.is_met(None) for limit in (at_most, at_least)] == [False, False]
    assert at_most.shortfall(4.0) == pytest.approx(math.log(2.0))
    assert at_least.shortfall(1.0) == pytest.approx(math.log(2.0))
    assert at_least.shortfall(4.0) == pytest.approx(-math.log(2.0))
    assert at_most.shortfall(None) == at_least.shortfall(0.0) == math.inf
    nothing = Limit(figure="requests.rejected", operator="<=", bound=0.0)
    assert (nothing.shortfall(0.0), nothing.shortfall(3.0)) == (-math.inf, math.inf)
    assert figure_at({"links": {"nic.0": {"read_bytes": 7}}}, "links.nic.0.read_bytes") == 7.0
    assert figure_at({"itl_s": {"p99": None}}, "itl_s.p99") is None


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--solve", "tiers.dram.capacity"], "needs a limit to plan for"),
        (["--slo", "ttft_s.p90<=2"], "needs a quantity to solve for"),
        (["--slo", "ttft_s.p95<=2", "--solve", "cluster.replicas"], "unknown figure 'ttft_s.p95'; did you mean"),
        (["--slo", "tfft_s.p90<=2", "--solve", "cluster.replicas"], "did you mean 'ttft_s.p90'?"),
        (["--slo", "ttft_s.p90=2", "--solve", "cluster.replicas"], "must be FIGURE<=VALUE"),
        (["--slo", "ttft_s.p90<=2 GB", "--solve", "cluster.replicas"], "--slo ttft_s.p90<=2 GB: "),
        (["--slo", "ttft_s.p90<=-1", "--solve", "cluster.replicas"], "must not be below 0"),
        (
            ["--set", "slo=null", "--slo", "slo.attainment>=0.9", "--solve", "cluster.replicas"],
            "the scenario has no slo of its own",
        ),
        (["--slo", "ttft_s.p90<=2", "--solve", "tiers.dram.capacty"], "did you mean 'capacity'?"),
        (["--slo", "ttft_s.p90<=2", "--solve", "tiers.dam.capacity"], "did you mean 'dram'?"),
        (["--slo", "ttft_s.p90<=2", "--solve", "links.nvm.bandwidth"], "did you mean 'nvme'?"),
        (["--slo", "ttft_s.p90<=2", "--solve", "cluster.router"], "cluster.router is not a number"),
        (["--slo", "ttft_s.p90<=2", "--solve", "tiers.dram.gds"], "tiers.dram.gds is not a number"),
        (["--slo", "ttft_s.p90<=2", "--solve", "figures.ddr5.read_bandwidth"], "is a figure of the catalogue"),
        (
            ["--slo", "ttft_s.p90<=2", "--solve", "neighbours.night.bandwidth"],
            "'neighbours.night' (the scenario has none)",
        ),
        (["--slo", "ttft_s.p90<=2", "--solve", "run.seed"], "must be a quantity"),
        (["--slo", "ttft_s.p90<=2", "--solve", "transfer.read_software"], "is 0 in this scenario; give bounds"),
        (["--slo", "ttft_s.p90<=2", "--solve", "engine.max_model_len"], "has no value in this scenario; give bounds"),
        (["--slo", "ttft_s.p90<=2", "--solve", "cluster.replicas=4:2"], "values ascending"),
        (["--slo", "ttft_s.p90<=2", "--solve", "cluster.replicas=1.5:2"], "must be a whole number"),
        (["--slo", "ttft_s.p90<=2", "--solve", "cluster.replicas=0:2"], "must be above 0"),
        (["--slo", "ttft_s.p90<=2", "--solve", "tiers.dram.capacity=1 GB:2 Gb"], "may mean bits or bytes"),
        (["--slo", "ttft_s.p90<=2", "--solve", "cluster.replicas_per_node=1:4"], "must be at most cluster.replicas"),
        (["--slo", "ttft_s.p90<=2", *(["--solve", "cluster.replicas"] * 2)], "is free twice"),
        (["--slo", "ttft_s.p90<=2", "--solve", "cluster.replicas", "--precision", "0.9"], "--precision is 0.9"),
        (
            ["--slo", "ttft_s.p90<=2", "--solve", "cluster.replicas", "--consider", "tiers.x.y"],
            "--consider tiers.x.y: unknown",
        ),
        (["--slo", "ttft_s.p90<=2", "--solve", "cluster.replicas", "--price", "cluster.replicas=2"], "AMOUNT CURRENCY"),
        (
            ["--slo", "ttft_s.p90<=2", "--solve", "cluster.replicas", "--price", "tiers.dram.capacity=2 EUR"],
            "needs a unit",
        ),
    ],
)
def test_bad_input_is_told_before_anything_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str], line: str
) -> None:
    monkeypatch.setattr("scenarios.planning.trials.run_tasks", None)
    assert cli.main(["plan", "quickstart", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert line in err


def quantity(text: str, name: str = "mooncake-conversation") -> Any:
    scenario = load_scenario(name)
    return free_quantity(
        text,
        scenario,
        assemble(scenario),
        lambda values: load_scenario(name, overrides=[f"{key}={value!r}" for key, value in values.items()]),
        precision=0.05,
    )


@pytest.mark.parametrize(
    ("text", "dimension", "whole", "now", "low", "high"),
    [
        # 4 ports of 100 Gbit/s; the scenario says nothing of the link.
        ("links.fabric.bandwidth", "bytes_per_s", False, 50e9, 50e9 / 64, 50e9 * 64),
        ("links.fabric.drives.bandwidth", "bytes_per_s", False, 48e9, 48e9 / 64, 48e9 * 64),
        ("links.nic.0.latency", "seconds", False, 5e-6, 5e-6 / 64, 5e-6 * 64),
        ("tiers.fabric.ports", None, True, 4, 1, 6),  # of an FX100
        ("tiers.fabric.drives", None, True, 16, 1, 24),
        ("tiers.nvme.count", None, True, 1, 1, 64),
        ("tiers.dram.capacity", "bytes", False, 500 * 10**9, 5e11 / 64, 32 * 10**12),
        ("cluster.replicas", None, True, 4, 1, 256),
        ("cluster.replicas=2:9", None, True, 4, 2, 9),
        ("engine.gpu_memory_utilization", None, False, 0.9, 0.9 / 64, 1.0),
        ("engine.max_num_seqs", None, True, 1024, 16, 65536),
        ("workload.rate_scale", None, False, 1.0, 1 / 64, 64.0),
        ("transfer.read_software=1 us:1 ms", "seconds", False, 0.0, 1e-6, 1e-3),
        ("cluster.router.prefix-aware.temperature=0.1:2", None, False, None, 0.1, 2.0),
    ],
)
def test_a_quantity_has_the_kind_of_its_key_and_starts_from_what_the_scenario_has(
    text: str, dimension: str | None, whole: bool, now: float | None, low: float, high: float
) -> None:
    found = quantity(text)
    assert (found.dimension, found.whole) == (dimension, whole)
    assert found.now == now
    assert (found.values[0], found.values[-1]) == pytest.approx((low, high), rel=1e-3)
    if now:
        assert found.values[found.start] == now
    assert all(isinstance(value, int) for value in found.values) == (whole or dimension == "bytes")


def test_phases_and_lists_of_values() -> None:
    by_name, by_place = (
        quantity(f"workload.phases.{which}.wave.requests", "restore-storm") for which in ("storm", "1")
    )
    assert by_name.now == by_place.now == 400
    listed = quantity("engine.chunk_tokens=512,1024,4096")
    assert listed.values == (512, 1024, 4096)
    assert listed.start == 1
    with pytest.raises(InputError, match=r"--solve tiers\.fabric\.ports=1,2,9: .* must be 1 to 6"):
        quantity("tiers.fabric.ports=1,2,9")


def test_prices_by_hand() -> None:
    scenario = load_scenario("mooncake-conversation")
    texts = [
        "tiers.fabric.ports=1_500 EUR",
        "tiers.dram.capacity=4.5 EUR per GB",
        "links.fabric.bandwidth=9 EUR per 8 Gbit/s",
    ]
    prices = parse_prices(texts, scenario)
    assert prices["tiers.fabric.ports"].of(3) == 4500.0
    assert prices["tiers.dram.capacity"].of(2 * 10**12) == pytest.approx(9000.0)
    assert prices["links.fabric.bandwidth"].of(5e9) == pytest.approx(45.0)
    for wrong in ("cluster.replicas=1 USD", "tiers.fabric.ports=2 EUR"):
        with pytest.raises(InputError, match=r"one currency|two prices"):
            parse_prices([*texts, wrong], scenario)


def test_what_the_catalogue_has_a_price_for_and_what_not() -> None:
    def load(values: Any) -> Any:
        return load_scenario("mooncake-conversation", overrides=[f"{key}={value}" for key, value in values.items()])

    money = Money(load, {})
    cost = money.parts({"tiers.fabric.count": 2})
    assert cost.amounts["CNY"] == 2 * 371_200.0  # models/catalogue/storage/fx100.yaml, a full box
    # 16 GPUs and their servers; on four nodes 0.5 TB of memory, a drive of 2 TB and a card.
    nodes = 4 * (500 * 18.8 + 2 * 325 + 1700)
    assert cost.amounts["USD"] == pytest.approx(16 * (35_000 + 10_000) + nodes, rel=1e-3)
    assert cost.missing == ()
    assert money.step("tiers.fabric.count", 1, 3, {}) == (742_400.0, "CNY")
    assert money.step("tiers.fabric.ports", 1, 3, {}) is None  # of a full box, whatever its ports
    more = money.step("tiers.dram.capacity", 10**12, 2 * 10**12, {})
    assert more is not None
    assert more == (pytest.approx(4 * 1000 * 18.8, rel=1e-3), "USD")


def test_prices_of_the_catalogue_and_of_the_user_add_up() -> None:
    def load(values: Any) -> Any:
        return load_scenario("mooncake-conversation", overrides=[f"{key}={value}" for key, value in values.items()])

    scenario = load({})
    quantities = [quantity("tiers.fabric.count"), quantity("tiers.fabric.ports")]
    design = {"tiers.fabric.count": 2, "tiers.fabric.ports": 5}
    alike = Money(load, parse_prices(["tiers.fabric.ports=9000 CNY"], scenario)).measure(quantities)
    assert alike.currency == "CNY"
    assert alike.cost(design) == alike.weigh(design) == 2 * 371_200.0 + 5 * 9000.0
    assert alike.costs(design) == (787_400.0,)
    mixed = Money(load, parse_prices(["tiers.fabric.ports=9000 EUR"], scenario)).measure(quantities)
    assert (mixed.currency, mixed.unpriced) == (None, ())
    unpriced = Money(load, {}).measure(quantities)
    assert (unpriced.currency, unpriced.unpriced) == (None, ("tiers.fabric.ports",))
    assert unpriced.costs(design) == (2, 5)
    assert unpriced.weigh(design) == pytest.approx(math.log(2 / 1) + math.log(5 / 4))
