"""`kvtier run --uncertainty`: JSON, tables, progress, files and bad options; and the figure of R3 that it must hold."""

import json

import pytest
from uncertainty_kit import write_storm

from scenarios import cli
from scenarios.loader import load_scenario
from scenarios.uncertainty import predict
from sim.results.result import SimulationResult

PORT = "figures.fx100.port_delivered_fraction"
TTFT = "ttft_s.p50"


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = cli.main(["run", *arguments])
    return code, *capsys.readouterr()


def test_json_has_the_uncertainty_and_is_else_as_without(tmp_path, capsys) -> None:
    path, folder = write_storm(tmp_path), tmp_path / "result"
    plain = json.loads(run(capsys, path, "--json")[1])
    code, out, _ = run(capsys, path, "--uncertainty", "8", "--jobs", "1", "--json", "--out", str(folder))
    assert code == 0
    whole = json.loads(out)
    said = whole.pop("uncertainty")
    assert {**whole, "engine": None} == {**plain, "engine": None}
    assert said["n"] == 8
    assert set(said["figures"]["ttft_s.p50"]) == {"mean", "p5", "p25", "p50", "p75", "p95"}
    assert said["drivers"]["ttft_s.p50"]["method"] == "tornado"
    assert {number["key"] for number in said["parameters"]} >= {PORT, "figures.mi308x.step_fixed"}
    assert said["failed"] == []
    assert SimulationResult.load(folder).summary()["uncertainty"] == said
    # The folder is a result like any other: it can be written again.
    assert run(capsys, path, "--out", str(folder))[0] == 0


def test_tables_show_intervals_drivers_and_flags(tmp_path, capsys) -> None:
    code, out, err = run(capsys, write_storm(tmp_path), "--uncertainty", "64", "--jobs", "1")
    assert code == 0
    lines = out.splitlines()
    row = next(line for line in lines if line.startswith("TTFT p50"))
    assert row.count(" to ") == 2
    assert "±" in row
    assert any(line.startswith("TTFT p50 rests on") and PORT in line and "model error" in line for line in lines)
    assert any(
        line.startswith("outside calibration") and "does not say what it was fitted to" in line for line in lines
    )
    assert any("64 draws of 4 fitted parameters" in line and "16 seeds; model error 5.0%" in line for line in lines)
    assert "Traceback" not in err


def test_progress_goes_to_stderr(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("scenarios.commands.progress._QUIET_S", 0.0)
    code, out, err = run(capsys, write_storm(tmp_path), "--uncertainty", "8", "--jobs", "1", "--json")
    assert code == 0
    json.loads(out)
    assert "storm, uncertainty: 5 runs" in err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--uncertainty", "0"], "--uncertainty is 0; must be a power of two from 8 to 65536, such as 8"),
        (["--uncertainty", "-8"], "--uncertainty is -8; must be a power of two"),
        (["--uncertainty", "100"], "--uncertainty is 100; must be a power of two from 8 to 65536, such as 64 or 128"),
        (["--uncertainty", "many"], "Invalid value for '--uncertainty'"),
        (["--jobs", "2"], "--jobs is for --uncertainty: a single run takes one process"),
    ],
)
def test_options_that_are_wrong_are_refused_before_the_run(capsys, arguments: list[str], line: str) -> None:
    code, out, err = run(capsys, "r3-fx100-c32", *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert line in err


def test_r3_is_predicted_within_its_interval() -> None:
    """R3's FX100 at 32 sessions was never fitted: 25.62 s (Mingxin R3, CC-BY-4.0)."""
    found = predict(load_scenario("r3-fx100-c32"), 64)
    interval = found.interval(TTFT)
    assert interval["p5"] <= 25.62 <= interval["p95"]
    assert (interval["p95"] - interval["p5"]) / 2.0 <= 0.15 * interval["p50"]
    assert found.outside == []
