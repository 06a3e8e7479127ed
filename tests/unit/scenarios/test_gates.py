"""Gates: thresholds, evidence from tables, saved results and runs, verdicts with margins, exit codes."""

import json
from math import log
from pathlib import Path
from statistics import NormalDist

import pytest

from models.errors import UnknownNameError
from scenarios import load_scenario, simulate
from scenarios.cli import main
from scenarios.gates.criteria import Check, GateError, Gates, load_gates
from scenarios.gates.evidence import DRIFT, Evidence, gather
from scenarios.gates.judging import judge
from scenarios.gates.measured import MeasuredTable

TABLE = """id,metric,value,unit
old-c8-p50,ttft_p50,10,s
old-c8-tput,throughput,50,tok/s
new-c8-p50,ttft_p50,{ttft},{unit}
new-c8-tput,throughput,{tput},tok/s
"""
GATES = """name: own
baseline: old-{point}
candidate: new-{point}
points: [c8]
noise: 5 %
model_error: 6 %
gates:
  G3:
    title: gains
    checks:
      - {figure: ttft_s.p50, csv: ttft_p50, measure: reduction, at_least: 25 %}
      - {figure: throughput.output_tokens_per_s, csv: throughput, measure: increase, at_least: 29 %, at_most: 40 %}
  G4:
    title: lasts
    points: [72h]
    checks:
      - {figure: makespan_s, csv: makespan, measure: candidate, at_least: 72 h}
"""


@pytest.fixture
def gates(tmp_path: Path) -> str:
    """Return the path of a file of two gates."""
    path = tmp_path / "gates.yaml"
    path.write_text(GATES, encoding="utf-8")
    return str(path)


def table(folder: Path, *, ttft: float = 7.0, unit: str = "s", tput: float = 66.0) -> str:
    path = folder / "measured.csv"
    path.write_text(TABLE.format(ttft=ttft, unit=unit, tput=tput), encoding="utf-8")
    return str(path)


def check(**bounds: object) -> Check:
    return Check.model_validate({"figure": "ttft_s.p50", "csv": "ttft_p50", "measure": "reduction", **bounds})


def test_measured_figures_pass_with_their_margins(
    gates: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["gate", gates, "--measured", table(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert found["passed"] is True
    ttft, throughput = found["gates"]["G3"]["checks"]
    assert ttft["value"] == pytest.approx(0.3)
    assert ttft["margin"] == pytest.approx(0.05)
    assert throughput["value"] == pytest.approx(0.32)
    assert throughput["margin"] == pytest.approx(0.03)
    assert found["gates"]["G4"]["verdict"] == "NO EVIDENCE"


@pytest.mark.parametrize(
    ("ttft", "tput", "code"),
    [(7.5, 66.0, 0), (7.6, 66.0, 1), (7.0, 64.4, 1), (7.0, 70.0, 0), (7.0, 70.5, 1), (10.0, 50.0, 1)],
)
def test_either_side_of_every_bound(gates: str, tmp_path: Path, ttft: float, tput: float, code: int) -> None:
    assert main(["gate", gates, "--measured", table(tmp_path, ttft=ttft, tput=tput)]) == code


def test_units_of_a_table_are_read(tmp_path: Path) -> None:
    figures = MeasuredTable(table(tmp_path, ttft=7000, unit="ms")).figures("new-c8")
    assert figures["ttft_p50"] == [pytest.approx(7.0)]


def test_a_gate_that_is_asked_for_needs_evidence(gates: str, tmp_path: Path) -> None:
    measured = table(tmp_path)
    assert main(["gate", gates, "--measured", measured, "--gate", "G3"]) == 0
    assert main(["gate", gates, "--measured", measured, "--gate", "G3", "--gate", "G4"]) == 1
    assert main(["gate", gates, "--measured", measured, "--candidate", "other-{point}"]) == 1


def test_precision_is_half_a_step_each_way() -> None:
    banded = check(at_least="29 %", at_most="40 %", precision="1 %")
    assert banded.holds(0.2851)
    assert not banded.holds(0.2849)
    assert banded.holds(0.4049)
    assert not banded.holds(0.4051)
    assert not check(at_least="29 %").holds(0.2899)


def test_above_excludes_its_bound() -> None:
    assert not check(above="0 s").holds(0.0)
    assert check(at_least="0 s").holds(0.0)


def test_the_chance_is_that_of_a_normal_logarithm(gates: str) -> None:
    found = load_gates(gates)
    evidence = {
        "old-c8": Evidence(kind="measured", figures={"ttft_s.p50": [10.0]}),
        "new-c8": Evidence(kind="measured", figures={"ttft_s.p50": [7.0]}),
    }
    judged = judge(found, ["G3"], evidence, required=False).judged["G3"][0]
    # Both scatter by 5 %: the ratio of 0.7 passes below 0.75.
    assert judged.chance == pytest.approx(NormalDist(log(0.7), 0.05 * 2**0.5).cdf(log(0.75)))


def test_repeats_make_a_verdict_surer(gates: str) -> None:
    def chance(values: list[float], kind: str = "measured") -> float:
        evidence = {
            name: Evidence(kind=kind, figures={"ttft_s.p50": figures})  # type: ignore[arg-type]
            for name, figures in (("old-c8", [10.0]), ("new-c8", values))
        }
        found = judge(load_gates(gates), ["G3"], evidence, required=False).judged["G3"][0].chance
        assert found is not None
        return found

    assert chance([7.0]) < chance([7.0, 7.0]) < chance([6.99, 7.0, 7.01])
    assert chance([6.99, 7.0, 7.01], "simulated") < chance([6.99, 7.0, 7.01])


def test_runs_and_saved_results_are_evidence(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    slow = simulate(load_scenario("quickstart", overrides=["workload.rate_scale=4"]))
    slow.save(saved)
    own = Gates.model_validate(
        {
            "name": "own",
            "baseline": str(saved),
            "candidate": "quickstart",
            "noise": 0.05,
            "model_error": 0.06,
            "gates": {
                "G": {
                    "title": "calmer",
                    "checks": [
                        {"figure": "ttft_s.p50", "csv": "ttft_p50", "measure": "reduction", "at_least": "0 %"},
                        {"figure": DRIFT, "csv": "drift", "measure": "candidate", "at_most": "200 %"},
                        {"figure": "ttft_s.p50", "csv": "ttft_p50", "measure": "candidate-spread", "at_most": 0.9},
                    ],
                }
            },
        }
    )
    evidence = gather(own, ["G"], measured=None, seeds=2, jobs=1)
    assert evidence[str(saved)].figures["ttft_s.p50"] == [slow.summary_values["ttft_s"]["p50"]]
    assert len(evidence["quickstart"].figures["ttft_s.p50"]) == 2
    reduction, drift, spread = judge(own, ["G"], evidence, required=True).judged["G"]
    assert reduction.value is not None
    assert reduction.value > 0.0
    assert reduction.kinds == ("saved", "simulated")
    assert drift.value is not None
    assert spread.value is not None
    assert spread.value > 0.0
    # One value does not scatter: that is no evidence of little scatter.
    alone = gather(own, ["G"], measured=None, seeds=1, jobs=1)
    of_one = judge(own, ["G"], alone, required=True).judged["G"][2]
    assert (of_one.value, of_one.verdict) == (None, "NO EVIDENCE")


def test_the_report_says_all(gates: str, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    main(["gate", gates, "--measured", table(tmp_path), "--out", str(report)])
    text = report.read_text(encoding="utf-8")
    for words in ("# own: PASS, but for what has no evidence: G4", "30.0%", "+5.0%", "| old-c8 | measured |"):
        assert words in text


@pytest.mark.parametrize("name", ["acceptance"])
def test_shipped_gates_come_back_as_a_template(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", name, "--template"]) == 0
    path = tmp_path / "own.yaml"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert load_gates(str(path)) == load_gates(name)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GATES.replace("at_least: 72 h", "at_least: 72 parsecs"), "gates.G4.checks.0.at_least: '72 parsecs' is no"),
        (GATES.replace(", at_least: 72 h", ""), "gates.G4.checks.0: needs a bound"),
        (GATES.replace("at_most: 40 %", "at_most: 4 %"), "no value is at least 0.29 and at most 0.04"),
        (GATES.replace("noise:", "nois:"), "noise: Field required"),
        ("- 1\n", "must be a mapping"),
    ],
)
def test_a_wrong_file_of_gates_is_one_line(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text, encoding="utf-8")
    assert main(["gate", str(path)]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,metric,value\nx-p50,ttft_p50,1\n", "measured.csv:1: lacks unit"),
        ("id,metric,value,unit\nx-p50,ttft_p50,fast,s\n", "measured.csv:2: value is 'fast'"),
        ("id,metric,value,unit\nx-p50,ttft_p50,1,parsec\n", "measured.csv:2: unit is 'parsec'"),
        ("id,metric,value,unit\nx-p50,ttft_p50,1\n", "measured.csv:2: has 3 values; must have 4"),
        ("", "holds no measurement"),
    ],
)
def test_a_wrong_table_is_one_line(
    gates: str, text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "measured.csv"
    path.write_text(text, encoding="utf-8")
    assert main(["gate", gates, "--measured", str(path)]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'acceptance'"):
        load_gates("acceptence")
    with pytest.raises(GateError, match="cannot be read"):
        load_gates("nowhere.yaml")
    assert main(["gate", "--gate", "G9", "--measured", "x.csv"]) == 2
