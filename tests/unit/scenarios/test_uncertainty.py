"""What is drawn, that the draws reach the run, and what a prediction says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from uncertainty_kit import FITTED, SCENARIO, write_storm

from models.errors import InputError, ScenarioError, SimulationError
from models.figures import KINDS
from scenarios.build import build, simulate
from scenarios.layers import shipped
from scenarios.loader import load_scenario
from scenarios.runner import run_tasks
from scenarios.schema import Scenario
from scenarios.uncertainty import Prediction, predict, predicting
from scenarios.uncertainty.fit import read_fit
from scenarios.uncertainty.sources import SPREAD_BY_STATUS, entries_used, sources_of

PORT = "figures.fx100.port_delivered_fraction"
TTFT = "ttft_s.p50"


@pytest.fixture
def storm(tmp_path: Path) -> Callable[..., Scenario]:
    """Return the scenario of the kit with overrides, its fitted file changed by pairs of texts."""

    def load(*overrides: str, changes: tuple[tuple[str, str], ...] = ()) -> Scenario:
        fitted = FITTED
        for old, new in changes:
            assert old in fitted
            fitted = fitted.replace(old, new)
        return load_scenario(write_storm(tmp_path, fitted), overrides=overrides)

    return load


def known(scenario: Scenario) -> dict[str, Any]:
    fit = None if scenario.parameters is None else read_fit(scenario.parameters)
    return {number.key: number for number in sources_of(scenario, fit).uncertain}


def width(found: Prediction, figure: str = TTFT) -> float:
    interval = found.interval(figure)
    return (interval["p95"] - interval["p5"]) / interval["p50"]


def shares(found: Prediction, figure: str = TTFT) -> dict[str, float]:
    drivers = found.drivers(figure)
    assert drivers is not None
    return {cause.name: cause.total for cause in drivers.causes}


# What is drawn -------------------------------------------------------------------------------------------------------


def test_the_best_guess_is_the_run_itself(storm) -> None:
    scenario = storm()
    sources = sources_of(scenario, read_fit(scenario.parameters))
    again = simulate(sources.apply(scenario, np.zeros(len(sources.uncertain)))).summary_values
    mine = simulate(scenario).summary_values
    assert {**again, "engine": None} == {**mine, "engine": None}


def test_a_draw_puts_each_number_where_its_distance_says(storm) -> None:
    scenario = storm()
    sources = sources_of(scenario, read_fit(scenario.parameters))
    keys = [number.key for number in sources.uncertain]
    z = np.zeros(len(keys))
    z[keys.index("engine.request_latency")] = 1.0
    z[keys.index(PORT)] = -2.0
    z[keys.index("figures.mi308x.step_fixed")] = 1.0
    drawn = sources.apply(scenario, z)
    assert drawn.engine.request_latency == pytest.approx(0.5 * np.exp(0.2))
    assert drawn.figures["fx100"]["port_delivered_fraction"].value == repr(float(0.3 * np.exp(-0.2)))
    step = next(entry for entry in entries_used(drawn) if entry.name == "mi308x")
    assert step.si("step_fixed") == pytest.approx(2e-3 * np.exp(0.5))
    assert drawn.figures["mi308x"]["host_link_delivered_fraction"].value == "0.5"


def test_bounds_and_shares_hold_draws_back(storm) -> None:
    numbers = known(storm())
    assert numbers["engine.request_latency"].at(100.0) == 60.0
    assert numbers["figures.mi308x.hbm_efficiency"].at(100.0) == 1.0
    assert numbers["figures.mi308x.collective_efficiency"].at(10.0) > 1.0  # the switch may add up


def test_a_linear_parameter_moves_by_its_unit(storm) -> None:
    file = (
        ("{value: 0.02 s, spread: 0.05}", "{value: 20 ms, spread: 4, transform: linear}"),
        ("0, 0, 0, 0.0025", "0, 0, 0, 16"),
    )
    number = known(storm(changes=file))["transfer.request_software"]
    assert number.at(1.0) == pytest.approx(0.024)
    assert number.at(-100.0) == 0.0


def test_what_the_scenario_sets_itself_is_not_drawn(storm) -> None:
    assert {"engine.request_latency", PORT} <= set(known(storm()))
    assert "engine.request_latency" not in known(storm("engine.request_latency=1 s"))
    assert PORT not in known(storm(f"{PORT}=0.5"))
    stated = known(storm(f"{PORT}={{value: 0.5, spread: 0.02}}"))[PORT]
    assert (stated.spread, stated.origin) == (0.02, "scenario")


def test_peaks_whose_share_was_fitted_are_not_drawn_beside_it(storm) -> None:
    numbers = known(storm())
    assert "figures.mi308x.host_link_bandwidth" not in numbers
    assert "figures.fx100.port_bandwidth" not in numbers
    without = known(storm("parameters=null"))
    assert without["figures.mi308x.host_link_bandwidth"].spread == SPREAD_BY_STATUS["assumed"]
    assert not any(number.origin == "fit" for number in without.values())


def test_spreads_are_those_stated_else_by_status(storm) -> None:
    numbers = known(storm())
    assert (numbers["figures.mi308x.step_fixed"].spread, numbers["figures.mi308x.step_fixed"].origin) == (
        0.5,
        "catalogue",
    )
    by_rule = numbers["figures.fx100.read_iops"]
    assert (by_rule.status, by_rule.origin, by_rule.spread) == ("derived", "rule", SPREAD_BY_STATUS["derived"])
    assert not [
        key for key in numbers if key.endswith((".ports", ".drives", ".capacity", ".hbm_capacity", ".price_cny"))
    ]


def test_the_rule_lies_within_what_the_catalogue_states() -> None:
    from models.catalogue import entries, load_entry

    stated: dict[str, list[float]] = {}
    for kind in KINDS:
        for figure in (f for name in entries(kind) for f in load_entry(kind, name).figures.values()):
            if figure.spread is not None:
                stated.setdefault(figure.status, []).append(figure.spread)
    for status, spread in SPREAD_BY_STATUS.items():
        if status != "datasheet":  # the few that state one are second-hand, as the rule says
            assert min(stated[status]) <= spread <= max(stated[status]), status


@pytest.mark.parametrize("name", shipped("library"))
def test_the_entries_used_are_those_that_a_run_rests_on(name: str) -> None:
    scenario = load_scenario(name)
    if scenario.workload.trace is not None:
        pytest.skip("needs a trace")
    said = {warning.partition(" rests on ")[0] for warning in build(scenario).warnings.known if " rests on " in warning}
    used = {entry.name for entry in entries_used(scenario) if entry.caveats}
    hidden = {"ddr5"}  # memory of bounce buffers, which a run does not name
    assert said - {load_scenario(name).llm} <= used <= said | hidden


# What comes out ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Prediction:
    return predict(load_scenario(write_storm(tmp_path_factory.mktemp("storm"))), 64, jobs=1)


def test_every_number_of_the_summary_has_an_interval(found, storm) -> None:
    summary = simulate(storm()).summary_values
    names = set(found.names())
    assert {f"ttft_s.{key}" for key in summary["ttft_s"]} <= names
    assert {
        f"links.{link}.{key}" for link, use in summary["links"].items() for key, v in use.items() if v is not None
    } <= names
    assert not [name for name in names if name.startswith(("engine", "slo.limits"))]
    for name in names:
        interval = found.interval(name)
        ends = [interval[key] for key in ("p5", "p25", "p50", "p75", "p95")]
        assert ends == sorted(ends)
        assert ends[0] * (1 - 1e-9) <= interval["mean"] <= ends[-1] * (1 + 1e-9)
    assert found.interval("requests.completed") == dict.fromkeys(("mean", "p5", "p25", "p50", "p75", "p95"), 8.0)
    assert set(found.to_pandas().index) == names


def test_what_matters_dominates_and_what_does_not_is_nothing(found) -> None:
    drivers = found.drivers(TTFT)
    assert drivers is not None
    assert drivers.method == "sobol"
    assert drivers.explained > 0.95
    assert drivers.causes[0].name == PORT
    by_name = shares(found)
    assert by_name[PORT] > 0.4
    assert by_name["figures.fx100.write_bandwidth"] == pytest.approx(0.0, abs=0.003)
    assert by_name["figures.mi308x.bf16_peak"] == pytest.approx(0.0, abs=0.003)
    first = drivers.causes[0]
    assert first.first_interval[0] <= first.first <= first.first_interval[1]
    assert first.first_interval[1] - first.first_interval[0] < 0.35


def test_samples_are_those_of_the_interval(found) -> None:
    interval = found.interval(TTFT)
    assert found.probability(TTFT, interval["p95"]) == pytest.approx(0.95, abs=0.002)
    assert found.probability(TTFT, 0.0) == 0.0
    assert np.quantile(found.samples(TTFT), 0.05) == interval["p5"]
    with pytest.raises(InputError, match=r"unknown figure 'ttft_s\.p51'; did you mean"):
        found.interval("ttft_s.p51")


def test_the_same_question_has_the_same_answer_whatever_the_processes(found, storm) -> None:
    scenario = storm()
    one, two = predict(scenario, 8, jobs=1), predict(scenario, 8, jobs=2)
    assert one.to_dict() == two.to_dict()
    other = predict(scenario.model_copy(update={"run": scenario.run.model_copy(update={"seed": 1})}), 8, jobs=1)
    assert other.to_dict()["figures"] != one.to_dict()["figures"]


def test_the_order_in_which_runs_end_changes_nothing(storm, monkeypatch) -> None:
    in_order = predict(storm(), 8, jobs=1).to_dict()

    def backwards(work: Any, tasks: Any, **options: Any) -> Any:
        yield from reversed(list(run_tasks(work, tasks, **options)))

    monkeypatch.setattr(predicting, "run_tasks", backwards)
    assert predict(storm(), 8, jobs=1).to_dict() == in_order


def test_a_wider_spread_widens_the_interval(found, storm) -> None:
    wider = (("[0, 0, 0.01, 0]", "[0, 0, 0.09, 0]"),)
    assert width(predict(storm(changes=wider), 64, jobs=1)) > 1.8 * width(found)
    stated = f"{PORT}={{value: 0.3, spread: 0.001}}"
    narrow = predict(storm(stated), 64, jobs=1)
    assert width(narrow) < 0.8 * width(found)
    assert shares(narrow)[PORT] < 0.01


def test_the_noise_of_a_measurement_widens_times_and_rates_but_no_counts(found, storm) -> None:
    noisy = predict(storm(changes=(("noise: 0.05", "noise: 0.2"),)), 64, jobs=1)
    assert noisy.model_error.sd == 0.2
    for figure in (TTFT, "throughput.output_tokens_per_s"):
        assert width(noisy, figure) > 1.7 * width(found, figure)
    assert noisy.interval("hit_ratio_tokens") == found.interval("hit_ratio_tokens")
    assert noisy.interval("links.fx100.read_bytes") == found.interval("links.fx100.read_bytes")
    assert shares(noisy)["model error"] > 0.8


def test_the_left_out_errors_of_a_fit_count_where_they_are_more_than_the_noise(storm) -> None:
    def error(fit: str) -> tuple[float, float]:
        found = read_fit(str(storm(changes=(("noise: 0.05", f"noise: 0.05\nfit: {fit}"),)).parameters)).model_error
        return found.sd, found.degrees_of_freedom

    assert error("{scatter: 0.08, degrees_of_freedom: 12}") == (0.08, 12.0)
    assert error("{scatter: 0.02, degrees_of_freedom: 12}") == (0.05, 12.0)


def test_seeds_widen_where_chance_decides(storm) -> None:
    wave = "workload.phases.storm.wave.arrival_jitter="
    calm, restless = (predict(storm(wave + jitter), 64, jobs=1) for jitter in ("0 s", "5 s"))
    assert shares(calm)["seeds"] == 0.0
    assert shares(restless)["seeds"] > 0.1


def test_few_draws_make_a_tornado(storm) -> None:
    drivers = predict(storm(), 8, jobs=1).drivers(TTFT)
    assert drivers is not None
    assert (drivers.method, drivers.explained) == ("tornado", None)
    swings = {swing.name: swing for swing in drivers.causes}
    widths = [swing.width for swing in drivers.causes]
    assert widths == sorted(widths, reverse=True)
    assert swings[PORT].low > swings[PORT].high  # more of the port is less time
    assert swings["figures.fx100.write_bandwidth"].width == pytest.approx(0.0, abs=1e-3)


def failing_where(fails: Callable[[float], bool]) -> Callable[[Scenario, Any], predicting.Ran]:
    """Return the work of a run that fails by the latency that was drawn."""

    def work(scenario: Scenario, report: Any) -> predicting.Ran:
        if fails(scenario.engine.request_latency):
            raise SimulationError("the ledger\ndoes not balance")
        return predicting.simulate_figures(scenario, report)

    return work


def test_a_run_that_fails_is_told_and_left_out(storm) -> None:
    found = predict(storm(), 16, jobs=1, work=failing_where(lambda latency_s: latency_s > 0.6))
    draws = [failure for failure in found.failed if failure["run"].startswith("draw")]
    assert 0 < len(draws) < 8
    assert {failure["error"] for failure in found.failed} == {"the ledger does not balance"}
    assert len(found.draws) == len(found.x) == 16 - len(draws)


def test_where_most_draws_fail_there_is_no_prediction(storm) -> None:
    most = failing_where(lambda latency_s: latency_s > 0.5 or 0.4 < latency_s < 0.5)
    with pytest.raises(SimulationError, match="of 16 draws failed, the first: the ledger does not balance"):
        predict(storm(), 16, jobs=1, work=most)
    with pytest.raises(SimulationError, match=r"^the ledger\ndoes not balance$"):
        predict(storm(), 16, jobs=1, work=failing_where(lambda latency_s: True))


# Within what was measured --------------------------------------------------------------------------------------------


def flags(*overrides: str, name: str = "r2-fx100-c8") -> dict[str, str]:
    scenario = load_scenario(name, overrides=overrides)
    fit = None if scenario.parameters is None else read_fit(scenario.parameters)
    said = predicting.outside(predicting.reach_of(scenario, simulate(scenario)), fit)
    return {flag["quantity"]: flag["message"] for flag in said}


@pytest.mark.parametrize("name", ["r2-fx100-c32", "r2-nvme-c8", "r3-fx100-c32", "r3-nvme-c16"])
def test_what_was_fitted_and_its_like_are_within(name: str) -> None:
    assert flags(name=name) == {}


WAVE = "workload.phases.c8.wave."


@pytest.mark.parametrize(
    ("overrides", "quantity", "message"),
    [
        (("tiers.fx100.ports=2", "tiers.fx100.drives=8"), "tier_bytes_per_s",
         "bandwidth of storage 21.41 GB/s: fitted to 7.031 GB/s to 10.7 GB/s"),
        (("links.fx100.bandwidth=110 Gbit/s",), "tier_bytes_per_s", "bandwidth of storage 11.77 GB/s"),
        ((f"{WAVE}requests=34",), "concurrency", "requests at once 34: fitted to 1 to 32"),
        ((f"{WAVE}prompt_tokens=31000",), "prompt_tokens", "context length 31,000: fitted to 8,460 to 30,235"),
        ((f"{WAVE}prompt_tokens=4000",), "prompt_tokens", "context length 4,000"),
        (("tiers.fx100={device: nvme-gen4, capacity: 1 TB}",), "device", "device nvme-gen4: fitted to fx100, solidigm"),
        (("tiers.fx100={device: object-store, capacity: 1 TB}",), "device_class",
         "class of device object: fitted to array, drive, memory"),
        (("cluster.accelerator=mi300x",), "accelerator", "accelerator mi300x: fitted to mi308x"),
        (("llm=qwen3-32b",), "llm", "model qwen3-32b: fitted to qwen2.5-32b, qwen3-coder-480b-a35b-fp8"),
        (("parameters=null",), "parameters", "nothing here has been held against a measurement"),
    ],
)  # fmt: skip
def test_what_lies_outside_is_flagged(overrides: tuple[str, ...], quantity: str, message: str) -> None:
    assert message in flags(*overrides)[quantity]


def test_a_file_that_does_not_say_its_range_is_flagged(found) -> None:
    assert [flag["quantity"] for flag in found.outside] == ["calibrated_range"]


# Bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, -4, 1, 4, 7, 100, 131072])
def test_a_number_of_draws_that_is_none(storm, n: int) -> None:
    with pytest.raises(InputError, match=f"draws is {n}; must be a power of two from 8 to 65536, such as "):
        predict(storm(), n)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("spread: 0.2", "spread: wide", "parameters.engine.request_latency.spread: is 'wide'"),
        ("1 to 60000 ms", "1 s to 60 s", "bounds: is '1 s to 60 s'; must be like '0.02 to 3 ms'"),
        ("1 to 60000 ms", "above 0", "bounds: is 'above 0'; must be"),
        ("noise: 0.05", "noise: some", "noise: is 'some'"),
        ("  - [0, 0, 0.01, 0]\n", "", "covariance.matrix: must be 4 rows of 4 numbers"),
        ("transfer.request_software]", "transfer.read_software]", "covariance.order: must name every parameter once"),
        ("matrix:", "matrices:", "covariance: must hold order and matrix"),
    ],
)
def test_a_fitted_file_that_is_wrong(storm, old: str, new: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        predict(storm(changes=((old, new),)), 8, jobs=1)
    assert message in str(caught.value)


def test_parameters_without_covariance_are_drawn_by_their_spreads(storm, tmp_path) -> None:
    scenario = storm()
    (tmp_path / "fitted.yaml").write_text(FITTED.partition("covariance:")[0], encoding="utf-8")
    sources = sources_of(scenario, read_fit(scenario.parameters))
    assert [number.spread for number in sources.uncertain[:4]] == pytest.approx([0.2, 0.1, 0.1, 0.05])
    assert np.array_equal(sources.correlation, np.eye(len(sources.uncertain)))


def test_a_file_beside_the_scenario_is_found_from_anywhere(tmp_path, monkeypatch) -> None:
    path = write_storm(tmp_path, scenario=SCENARIO)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert len(predict(load_scenario(path), 8, jobs=1).draws) == 8
