"""Known parameters are found again in simulated data, and what the data do not know is said."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from calibration.commands import print_fit
from calibration.fit_plan import load_plan
from calibration.fitted_file import fitted_document, yaml_text
from calibration.fitting import Fitted, Floats, fit, least_squares_again
from calibration.measurements import read_table
from calibration.simulating import medians
from models.errors import InputError
from scenarios.loader import load_scenario
from scenarios.uncertainty.fit import read_fit

TRUTH = {
    "engine.request_latency": "1 s",
    "figures.fx100.port_delivered_fraction": 0.7,
    "figures.mi308x.fp8_efficiency": 0.3,
}
FIT = """\
name: mine
data: measured.csv
noise: 0.05
seeds: 1
parameters:
  engine.request_latency: {unit: s, prior: 0.5, sd: 0.7, bounds: [0.05, 5], why: test}
  figures.fx100.port_delivered_fraction: {prior: 0.85, sd: 0.2, bounds: [0.3, 1], why: test}
  figures.mi308x.fp8_efficiency: {prior: 0.6, sd: 1.0, bounds: [0.02, 1], why: test}
  transfer.eviction_software: {unit: us, prior: 100, sd: 0.5, bounds: [1, 1000], transform: linear, why: test}
"""
ROWS = [
    f"{group}-{metric},{group},{scenario},parameters=null,{metric},1,{unit}"
    for group, scenario in (
        ("a", "r2-fx100-c8"),
        ("b", "r2-fx100-c16"),
        ("c", "r2-recompute-c16"),
        ("d", "r3-recompute-c16"),
    )
    for metric, unit in (("ttft_p50", "s"), ("ttft_max", "s"), ("throughput", "tok/s"))
]
HEADER = "id,group,scenario,settings,metric,value,unit\n"


def write(folder: Path, plan: str = FIT, values: list[float] | None = None) -> str:
    rows = ROWS
    if values is not None:
        rows = [row.replace(",1,", f",{value!r},") for row, value in zip(ROWS, values, strict=True)]
    (folder / "measured.csv").write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
    path = folder / "fit.yaml"
    path.write_text(plan, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    path = write(tmp_path_factory.mktemp("truth"))
    return medians(read_table(str(Path(path).with_name("measured.csv"))).rows, TRUTH, seeds=1, jobs=1)


@pytest.fixture(scope="module")
def fitted(truth: list[float], tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    noise = np.random.default_rng(7).normal(0.0, 0.05, len(truth))
    values = [value * float(np.exp(error)) for value, error in zip(truth, noise, strict=True)]
    return fit(load_plan(write(tmp_path_factory.mktemp("fit"), values=values)), jobs=1)


def test_known_parameters_are_found_again_within_their_intervals(fitted: Fitted) -> None:
    for index, true in enumerate((1.0, 0.7, 0.3)):
        off = abs(np.log(fitted.values[index] / true))
        assert off < 2.6 * fitted.spread(index), list(fitted.plan.parameters)[index]
        assert fitted.spread(index) < (0.65, 0.08, 0.1)[index]


def test_without_noise_they_are_found_exactly(truth: list[float], tmp_path: Path) -> None:
    plan = FIT.replace("noise: 0.05", "noise: 0.002")
    found = fit(load_plan(write(tmp_path, plan, truth)), jobs=1)
    assert found.values[:3] == pytest.approx([1.0, 0.7, 0.3], rel=0.02)
    assert np.abs(found.errors).max() < 0.005


def jumping(x: Floats) -> Floats:
    """Return a residual that falls to 0 at 4, but for a jump between 1 and 2 that its derivative does not tell."""
    return np.where((x >= 1.0) & (x < 2.0), x - 7.0, x - 4.0)


def test_a_jump_in_the_way_does_not_end_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = jumping, lambda x: np.ones((1, 1)), np.zeros(1), np.array([-10.0]), np.array([10.0])
    assert least_squares_again(*problem) == pytest.approx(4.0)
    monkeypatch.setattr("calibration.fitting._MOST_STARTS", 1)
    assert least_squares_again(*problem) < 1.0


def test_what_holds_a_parameter_is_said(fitted: Fitted) -> None:
    assert [fitted.held_by(index) for index in (1, 2)] == ["data", "data"]
    assert fitted.held_by(3).startswith("prior")
    assert fitted.values[3] == pytest.approx(100.0, rel=1e-3)
    assert fitted.spread(3) == pytest.approx(0.5, rel=1e-3)
    assert fitted.singular_values[0] > 1.0 > fitted.singular_values[-1]


def test_a_row_left_out_is_predicted_no_better_than_it_is_fitted(fitted: Fitted) -> None:
    assert (np.abs(fitted.left_out_errors) >= np.abs(fitted.errors) - 1e-9).all()


def test_what_is_written_is_what_a_scenario_reads(fitted: Fitted, tmp_path: Path) -> None:
    document = fitted_document(fitted, command="kvtier calibrate fit.yaml", date="2026-01-01")
    path = tmp_path / "mine.yaml"
    path.write_text(yaml_text(document), encoding="utf-8")
    assert yaml.safe_load(path.read_text(encoding="utf-8")) == document
    scenario = load_scenario("r2-fx100-c8", overrides=[f"parameters={path}"])
    assert scenario.engine.request_latency == pytest.approx(fitted.values[0], rel=1e-4)
    share = scenario.figures["fx100"]["port_delivered_fraction"]
    assert float(share.value) == pytest.approx(fitted.values[1], rel=1e-4)
    assert share.status == "fitted"
    matrix = np.array(document["covariance"]["matrix"])
    assert np.sqrt(matrix[1, 1]) == pytest.approx(fitted.spread(1), rel=1e-3)


def test_what_was_fitted_is_printed(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    document = fitted_document(fitted, command="kvtier calibrate fit.yaml", date="2026-01-01")
    print_fit(fitted, document)
    printed = capsys.readouterr().out
    assert all(row.id in printed for row in fitted.plan.rows)
    assert str(document["parameters"]["figures.fx100.port_delivered_fraction"]["value"]) in printed
    assert "each left out of the fit" in printed
    assert f"The data hold {(fitted.singular_values > 1.0).sum()} of 4 combinations" in printed


def test_what_a_prediction_needs_of_a_fit_is_written(fitted: Fitted, tmp_path: Path) -> None:
    document = fitted_document(fitted, command="kvtier calibrate fit.yaml", date="2026-01-01")
    path = tmp_path / "mine.yaml"
    path.write_text(yaml_text(document), encoding="utf-8")
    read = read_fit(str(path))
    # The rows were measured with 5 %: what is left of 12 rows beside three parameters is about that.
    assert 0.03 < document["fit"]["scatter"] < 0.08
    strength = fitted.singular_values**2
    assert document["fit"]["degrees_of_freedom"] == pytest.approx(12 - (strength / (1 + strength)).sum(), rel=1e-4)
    assert read.model_error.sd == max(0.05, document["fit"]["scatter"])
    said = read.calibrated_range
    assert said is not None
    assert (said["accelerator"], said["device"], said["concurrency"]) == (["mi308x"], ["fx100"], [8, 16])
    assert said["prompt_tokens"] == [30235, 30235]
    assert said["tier_bytes_per_s"][1] == pytest.approx(12.5e9 * fitted.values[1], rel=1e-3)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("prior: 0.5,", "prior: 6,", "parameters.engine.request_latency: prior 6 is outside its bounds, 0.05 to 5"),
        ("bounds: [0.05, 5]", "bounds: [5, 0.05]", "the first must be the smaller"),
        ("bounds: [0.05, 5]", "bounds: [0, 5]", "the lower bound is 0; must be above 0"),
        ("engine.request_latency", "engine.request_latncy", "request_latncy"),
        ("figures.fx100.port_delivered_fraction", "figures.fx100.port_fraction", "port_fraction"),
        ("engine.request_latency", "workload.limit", "must be engine.KEY"),
        ("data: measured.csv", "data: measurd.csv", "cannot be read"),
        ("data: measured.csv", "data: mingxin", "unknown table of measurements"),
        ("noise: 0.05", "noise: 5", "noise"),
        ("noise: 0.05", "noise: 0.05\nrows: {ids: [e-ttft_p50]}", "unknown row 'e-ttft_p50'"),
        ("noise: 0.05", "noise: 0.05\nrows: {groups: [e]}", "unknown group 'e'"),
        ("noise: 0.05", "nois: 0.05", "nois"),
        (", why: test", "", "why"),
    ],
)
def test_a_wrong_plan_is_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("'", ".").replace("[", r"\[")) as caught:
        load_plan(write(tmp_path, FIT.replace(old, new, 1)))
    assert "\n" not in str(caught.value)
