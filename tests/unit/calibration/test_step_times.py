"""What `kvtier calibrate-steps` writes: parameters that scenarios use by name, and tables of errors that hold."""

import csv
import json
import math
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import calibration.silicon
from calibration.silicon import command
from calibration.silicon.efficiencies import PARAMETERS, priors
from calibration.silicon.fitting import predict
from calibration.silicon.rows import Row, read_rows
from calibration.silicon.splits import errors_of
from models.accelerator import load_accelerator
from models.catalogue import load_entry
from scenarios.build import simulate
from scenarios.cli import main
from scenarios.commands import discovery
from scenarios.loader import load_scenario
from scenarios.parameters import read_parameters

DATA = Path(os.environ.get("KVTIER_SHARED", "../shared")) / "measured" / "silicon.csv"
ERRORS = Path(calibration.silicon.__file__).with_name("step-times.csv")
FITS = [(engine, split) for engine in ("vllm", "trtllm", "sglang") for split in ("hopper", "half")]
HEADER = (
    "id,silicon_data_source,backend,backend_version,model_path,system,precision,mode,isl,osl,batch_size,tp_size,pp_size,"
    "attention_dp_size,moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms"
)


@pytest.fixture
def kvtier(monkeypatch: pytest.MonkeyPatch) -> None:
    verb = SimpleNamespace(load=lambda: command.app, value="calibration.silicon.command:app")
    monkeypatch.setattr(discovery, "_installed", lambda: {"calibrate-steps": verb})


def measured(folder: Path, systems: tuple[str, ...]) -> Path:
    path = folder / "measured.csv"
    lines = [
        f"{system}-{concurrency},db,vllm,0.11,meta-llama/Llama-3.1-8B-Instruct,{system},bf16,agg,256,64,{concurrency},"
        f"1,1,1,1,1,{30 + 2 * concurrency},{7 + 0.1 * concurrency}"
        for system in systems
        for concurrency in (1, 8)
    ]
    path.write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    return path


def test_the_command_writes_parameters_and_errors_that_agree_with_its_json(
    tmp_path: Path, kvtier: None, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = measured(tmp_path, ("h100_sxm", "b200_sxm")), tmp_path / "out"
    arguments = ["calibrate-steps", "--data", str(data), "--split", "hopper", "--jobs", "1", "-o", str(out), "--json"]
    assert main(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {row["used_in_fit"] for row in printed["rows"]} == {True, False}
    with (out / "step-times.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["group"], row["used_in_fit"], row["rows"]) for row in rows[:2]] == [
        ("all", "yes", "2"),
        ("all", "no", "2"),
    ]
    unseen = [row for row in printed["rows"] if not row["used_in_fit"]]
    by_hand = np.median([abs(row["simulated"]["tpot_s"] / row["measured"]["tpot_s"] - 1) for row in unseen])
    assert float(rows[1]["tpot_median_error"]) == pytest.approx(by_hand, abs=1e-4)
    parameters = yaml.safe_load((out / "vllm-hopper.yaml").read_text(encoding="utf-8"))["parameters"]
    fitted = printed["fits"][0]
    # A share of what copies alone reach on each part, as the catalogue has it; a GPU without FP4 units gets none.
    for name, reached in (("hbm_efficiency", (0.887, 0.865)), ("fp8_efficiency", (0.652, 0.57))):
        for gpu, share in zip(("h100-sxm", "b200-sxm"), reached, strict=True):
            value = parameters[f"figures.{gpu}.{name}"]["value"]
            assert value == pytest.approx(fitted["values"][name] * share, rel=1e-3)
    assert "figures.b200-sxm.fp4_efficiency" in parameters
    assert "figures.h100-sxm.fp4_efficiency" not in parameters
    # What was not fitted carries what the fit was off by on what it had not seen.
    spreads = [parameters[f"figures.{gpu}.hbm_efficiency"]["spread"] for gpu in ("h100-sxm", "b200-sxm", "rubin")]
    assert spreads[0] == pytest.approx(fitted["deviations"]["hbm_efficiency"], rel=1e-3)
    assert spreads[1] == spreads[2] == pytest.approx(math.hypot(spreads[0], by_hand / 0.6745), rel=1e-3)
    assert "not fitted" in (out / "step-times.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--split", "quarter"], "--split is 'quarter'; must be one of half, hopper, all"),
        (["--engine", "llama.cpp"], "--engine is 'llama.cpp'; must be one of vllm, trtllm, sglang"),
        (["-o", "nowhere/at/all"], "there is no folder nowhere/at"),
        (["-o", "pyproject.toml"], "--out pyproject.toml: is a file; must be a folder"),
        (["--split", "hopper"], "no row of vllm is on the fitted side of the split 'hopper'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    arguments: list[str], said: str, tmp_path: Path, kvtier: None, capsys: pytest.CaptureFixture[str]
) -> None:
    data = measured(tmp_path, ("b200_sxm",))
    assert main(["calibrate-steps", "--data", str(data), *arguments]) == 2
    error = capsys.readouterr().err.splitlines()
    assert said in error[-1]
    assert not [line for line in error if "Traceback" in line]


@pytest.mark.parametrize(("engine", "split"), FITS)
def test_a_scenario_takes_shipped_step_times_by_name(engine: str, split: str) -> None:
    name = f"fitted/{engine}-{split}"
    overrides = ["cluster.accelerator=b200-sxm", "workload.synthetic.requests=20"]
    plain, fitted = (
        np.nanmean(simulate(load_scenario("quickstart", overrides=chosen)).table("requests")["tpot_s"])
        for chosen in (overrides, [*overrides, f"parameters={name}"])
    )
    assert 0.3 < fitted / plain < 3.0
    assert fitted != plain


@pytest.mark.parametrize(("engine", "split"), FITS)
def test_shipped_figures_are_within_their_bounds(engine: str, split: str) -> None:
    values = shipped(engine, split)
    for parameter in PARAMETERS:
        assert parameter.low <= values[parameter.name] <= parameter.high


def shipped(engine: str, split: str) -> dict[str, float]:
    document = read_parameters(f"fitted/{engine}-{split}").value["parameters"].plain()
    found = {}
    for parameter in PARAMETERS:
        key = f"engine.{parameter.name}" if parameter.of_engine else f"figures.b200-sxm.{parameter.name}"
        scale = 1.0 if parameter.of_engine else parameter.scale("b200-sxm")
        assert scale is not None
        found[parameter.name] = float(str(document[key]["value"]).split()[0]) / scale
    return found


def committed() -> list[dict[str, str]]:
    with ERRORS.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_announced_accelerators_carry_the_error_of_a_generation_that_was_not_fitted() -> None:
    errors = [
        float(row["tpot_median_error"])
        for row in committed()
        if (row["split"], row["group"], row["used_in_fit"]) == ("hopper", "all", "no")
    ]
    assert len(errors) == 3
    for name in ("rubin", "mi455x"):
        assert load_accelerator(name).status == "announced"
        figure = load_entry("accelerator", name).figures["hbm_efficiency"]
        assert figure.spread == pytest.approx(max(errors) / 0.6745, abs=0.01)


@pytest.mark.skipif(not DATA.is_file(), reason="no measured data")
@pytest.mark.parametrize(("engine", "split"), FITS)
def test_shipped_figures_give_the_committed_errors(engine: str, split: str) -> None:
    groups = [row for row in committed() if (row["engine"], row["split"]) == (engine, split) and row["group"] != "all"]
    smallest = min(groups, key=lambda row: (int(row["rows"]), row["group"]))
    rows: list[Row] = [row for row in read_rows(DATA).rows if (row.engine, row.group) == (engine, smallest["group"])]
    assert len(rows) == int(smallest["rows"])
    simulated, unfitted = predict(rows, [shipped(engine, split), priors()], jobs=1)
    for place, figure in ((0, "ttft"), (1, "tpot")):
        measured_s = np.array([row.ttft_s if place == 0 else row.tpot_s for row in rows])
        again = errors_of(simulated[:, place], measured_s)
        assert again.median_absolute == pytest.approx(float(smallest[f"{figure}_median_error"]), abs=0.01)
        # The smallest group may be one row, whose TPOT a fit moves by 3e-4 only.
        assert simulated[:, place] != pytest.approx(unfitted[:, place], rel=1e-4)
