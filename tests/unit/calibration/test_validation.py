"""Measured against simulated: how good it is, what was fitted, and that README.md shows what comes out."""

import json
import re
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibration import commands
from calibration.measurements import read_table
from calibration.validation import Validation, markdown, parity_plot, validate
from scenarios.build import simulate
from scenarios.cli import main
from scenarios.commands import discovery
from scenarios.loader import load_scenario
from scenarios.parameters import read_parameters
from sim.results.result import SimulationResult

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def found() -> Validation:
    return validate([read_table("mingxin-r1-r3")], jobs=1)


@pytest.fixture
def kvtier(monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = {
        "calibrate": SimpleNamespace(load=lambda: commands.calibrate_app, value="calibration.commands:calibrate_app"),
        "validate": SimpleNamespace(load=lambda: commands.validate_app, value="calibration.commands:validate_app"),
    }
    monkeypatch.setattr(discovery, "_installed", lambda: verbs)


def run(name: str, seed: int = 0) -> SimulationResult:
    return simulate(load_scenario(name, seed=seed))


def errors(found: Validation, pattern: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    chosen = [row.error for row in found.rows if re.fullmatch(pattern, row.measurement.id)]
    assert chosen, pattern
    return np.abs(chosen)


def test_fitted_storage_rows(found: Validation) -> None:
    twelve = errors(found, r"r2-(fx100|nvme)-c\d+-(p50|tput)")
    assert twelve.size == 12
    assert twelve.mean() <= 0.03
    assert twelve.max() <= 0.06
    assert errors(found, r"r2-(fx100|nvme)-c\d+-peak").max() <= 0.10


def test_recomputation_is_fitted_and_its_middle_predicted(found: Validation) -> None:
    assert errors(found, r"r2-recompute-c16-.*|r2-populate").max() <= 0.06
    assert errors(found, r"r3-recompute-c\d+-(p50|mean)|r3-recompute-c32-p90").max() <= 0.12


def test_busy_means_of_waves_that_read_for_eight_seconds_or_more(found: Validation) -> None:
    assert errors(found, r"r2-nvme-c\d+-busy|r[23]-fx100-c(16|32)-busy").max() <= 0.10


def test_as_many_sessions_are_read_as_iostat_counted() -> None:
    # 9.29 GB/s for 25 s and 9.59 GB/s for 25 s, in iostat's GB of 1.024e9 B.
    for name, iostat_gb_per_s in (("r2-fx100-c32", 9.29), ("r3-fx100-c32", 9.59)):
        read = [run(name, seed).summary()["links"]["fx100"]["read_bytes"] for seed in range(7)]
        assert median(read) == pytest.approx(iostat_gb_per_s * 1.024e9 * 25.0, rel=0.04)


def test_serial_and_parallel_reads_differ_in_reads_in_flight_only(found: Validation) -> None:
    assert errors(found, r"r1-.*").max() <= 0.05
    serial, parallel = (load_scenario(name).transfer.model_dump() for name in ("r1-serial", "r1-parallel"))
    assert {key for key in serial if serial[key] != parallel[key]} == {"reads_in_flight"}


def test_another_split_of_the_node_is_predicted(found: Validation) -> None:
    twelve = errors(found, r"r3-(fx100|nvme)-c\d+-(p50|mean|tput)")
    assert twelve.size == 12
    assert twelve.mean() <= 0.05
    assert twelve.max() <= 0.12
    assert errors(found, r"r3-(fx100|nvme)-c\d+-tpot").max() <= 0.20


def test_nothing_of_r3_was_fitted(found: Validation) -> None:
    fitted = {row.measurement.id for row in found.rows if row.used_in_fit}
    assert fitted == set(read_parameters("fitted/r1-r2").value["rows"].plain())
    assert not [name for name in fitted if name.startswith("r3")]


def test_about_two_of_sixteen_sessions_come_from_the_dram_pool() -> None:
    sessions = [run("r2-fx100-c16", seed).summary()["tiers"]["dram"]["hit_tokens"] / 30_208 for seed in range(5)]
    assert 1.0 <= median(sessions) <= 3.0


def test_the_first_wave_finds_nothing_in_dram() -> None:
    assert run("r2-fx100-c8").summary()["tiers"]["dram"]["hit_tokens"] == 0


def test_a_few_requests_make_the_first_step_and_the_rest_finish_together() -> None:
    result = run("r3-fx100-c16")
    summary = result.summary()
    assert len(set(result.columns["requests"]["replica"].tolist())) == 2
    assert summary["ttft_s"]["mean"] < summary["ttft_s"]["p50"]
    assert summary["ttft_s"]["p90"] == pytest.approx(summary["ttft_s"]["p50"], rel=0.05)


def test_readme_shows_what_comes_out(found: Validation) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("<!-- kvtier validate mingxin-r1-r3 --markdown -->\n")[2].partition("<!-- end -->")[0]
    assert shown.strip() == markdown(found).strip()


def test_the_plot_shows_every_row(found: Validation) -> None:
    figure = parity_plot(found)
    points = sum(len(collection.get_offsets()) for axis in figure.axes for collection in axis.collections[:-1])
    assert points == len(found.rows)


@pytest.mark.usefixtures("kvtier")
def test_validate_prints_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("id,scenario,metric,value,unit\na,r2-fx100-c8,ttft_p50,7.53,s\n", encoding="utf-8")
    picture = tmp_path / "parity.png"
    arguments = ["validate", str(table), "--seeds", "1", "--jobs", "1", "--plot", str(picture)]
    assert main([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    (row,) = printed["rows"]
    assert {"id", "measured", "simulated", "error", "used_in_fit"} <= set(row)
    assert row["simulated"] / row["measured"] - 1.0 == pytest.approx(row["error"])
    assert not row["used_in_fit"]
    assert printed["groups"][0]["worst_abs_error"] == abs(row["error"])
    assert picture.stat().st_size > 5_000
    assert main(arguments) == 0
    assert "held out" in capsys.readouterr().out


@pytest.mark.usefixtures("kvtier")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["validate", "nothing"], "unknown table of measurements 'nothing'"),
        (["validate", "--plot", "x.txt"], "must end in"),
        (["validate", "--parameters", "fitted/none"], "unknown fitted parameters"),
        (["calibrate"], "name a fit: r1-r2"),
        (["calibrate", "r1"], "unknown fit 'r1'"),
        (["calibrate", "nothing.yaml"], "cannot be read"),
        (["calibrate", "r1-r2", "-o", "no/such/folder.yaml"], "there is no folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.usefixtures("kvtier")
@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("measured.csv", "ttft_p50,7.5,s", "ttft_p50,fast,s", "value is 'fast'; must be a number"),
        ("measured.csv", "ttft_p50,7.5,s,,,", "ttft_p50,7.5,s", "values; must have 10"),
        ("measured.csv", "array,r2-fx100-c8,,ttft", "array,r2-fx100-c9,,ttft", "unknown scenario 'r2-fx100-c9'"),
        ("fit.yaml", "prior: 0.85", "prior: 1.85", "prior 1.85 is outside its bounds, 0.5 to 1"),
        ("fit.yaml", "data: measured.csv", "data: none.csv", "cannot be read"),
    ],
)
def test_files_that_are_wrong_are_one_line_and_exit_code_2(
    file: str,
    old: str,
    new: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", "--template"]) == 0
    text = Path(file).read_text(encoding="utf-8")
    assert old in text
    Path(file).write_text(text.replace(old, new, 1), encoding="utf-8")
    capsys.readouterr()
    assert main(["calibrate", "fit.yaml"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    if file == "measured.csv":
        assert main(["validate", "measured.csv"]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.usefixtures("kvtier")
def test_the_template_can_be_fitted_as_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", "--template"]) == 0
    fit = tmp_path / "fit.yaml"
    fit.write_text(fit.read_text(encoding="utf-8").replace("seeds: 5", "seeds: 1"), encoding="utf-8")
    capsys.readouterr()
    assert main(["calibrate", "fit.yaml", "--jobs", "1", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert set(first["parameters"]) == set(first["covariance"]["order"])
    assert load_scenario("quickstart", overrides=["parameters=mine-fitted.yaml"]).engine.request_latency > 0
    assert main(["calibrate", "--template"]) == 2
    assert "not overwritten" in capsys.readouterr().err


def test_rows_of_a_table_keep_their_lines() -> None:
    rows = read_table("mingxin-r1-r3").rows
    assert rows[0].where.startswith("mingxin-r1-r3.csv:")
