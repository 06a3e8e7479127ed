"""The roofline beside measured operators: the table, its gaps, errors in measured loops, and what is refused."""

import csv
import sys

import pytest

from calibration.step_times import REPLICAS, decode_s, main, prefill_s
from models.accelerator import load_accelerator
from models.llm import load_llm
from models.operator_tables import _compiled
from models.roofline import step_cost

NAMES = (
    *("id", "silicon_data_source", "backend", "backend_version", "model_path", "system", "precision", "mode"),
    *("isl", "osl", "batch_size"),
    *("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size", "silicon_ttft_ms", "silicon_tpot_ms"),
)
LOOP = (
    "a",
    "db",
    "vllm",
    "0.19.0",
    "meta-llama/Llama-3.1-70B",
    "h200_sxm",
    "fp8",
    "agg",
    "1024",
    "64",
    "2",
    "2",
    *"1111",
)


@pytest.fixture
def loops(tmp_path):
    """Write loops of 2, 2 and 128 clients, the second of another engine, and return the file."""
    path = tmp_path / "silicon.csv"
    other = [*LOOP[:2], "sglang", *LOOP[3:], "90", "11"]
    many = [*LOOP[:10], "128", *LOOP[11:], "9000", "110"]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([NAMES, [*LOOP, "100", "20"], other, many])
    return str(path)


def test_the_roofline_counts_what_a_window_leaves_to_read():
    cost = step_cost(load_llm("gpt-oss-120b"), load_accelerator("h200-sxm"), tensor_parallel=1)
    assert decode_s(cost, 128) > decode_s(cost, None)
    assert prefill_s(cost, 128) > prefill_s(cost, None)


def test_without_the_package_the_exit_code_is_2(monkeypatch, capsys, loops):
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk.engine", None)
    _compiled.cache_clear()  # another test may have it
    for arguments in ([], ["--csv", loops]):
        assert main(arguments) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "needs aiconfigurator-core: pip install 'kvtier[aiconfigurator]'" in printed.err


def test_every_replica_has_a_row_and_gaps_are_marked(capsys):
    pytest.importorskip("aiconfigurator_core", reason="comes with kvtier[aiconfigurator]")
    assert main([]) == 0
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[1] for row in rows] == [f"{replica.gpus} x {replica.accelerator}" for replica in REPLICAS]
    cells = {row[0]: row[2].split(" / ") for row in rows}
    assert cells["deepseek-v3"][2:] == ["-", "-"]  # SGLang's tables lack FP8 attention over 16-bit KV
    assert all(float(cell) > 10 for cell in cells["llama-3.1-8b"])


def test_errors_are_those_of_the_loops_of_vllm_with_few_clients(capsys, loops):
    pytest.importorskip("aiconfigurator_core", reason="comes with kvtier[aiconfigurator]")
    assert main(["--csv", loops]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| 1 loops |")
    found = {line.split(" | ")[0].strip("| "): line.split(" | ")[2].strip(" |") for line in lines[2:]}
    # One row: the median is its error, and the two sources do not agree.
    for cell in found.values():
        signed, absolute = cell.split(", ")
        assert signed.lstrip("+-") == absolute
    assert found["roofline"] != found["AIConfigurator"]


def test_a_file_that_is_not_there_is_bad_input(capsys):
    pytest.importorskip("aiconfigurator_core", reason="comes with kvtier[aiconfigurator]")
    assert main(["--csv", "nowhere.csv"]) == 2
    assert capsys.readouterr().err == "nowhere.csv: cannot be read: No such file or directory\n"
