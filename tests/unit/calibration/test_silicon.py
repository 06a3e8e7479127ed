import math
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from calibration.silicon import command
from calibration.silicon.efficiencies import NAMES, PARAMETERS, priors, write_entry
from calibration.silicon.fitting import fit, predict, thinned
from calibration.silicon.loop import loop_times, scenario_of
from calibration.silicon.rows import Row, read_rows
from calibration.silicon.serving import Load, Server, server_of
from calibration.silicon.splits import errors_of
from models.accelerator import load_accelerator
from models.errors import InputError
from scenarios.build import simulate
from scenarios.cli import main
from scenarios.commands import discovery

HEADER = (
    "id,silicon_data_source,backend,backend_version,model_path,system,precision,mode,isl,osl,batch_size,tp_size,pp_size,"
    "attention_dp_size,moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms"
)
PLAIN = "a,db,vllm,0.19.0,MiniMaxAI/MiniMax-M2.5,h200_sxm,fp8,agg,1024,1024,16,4,1,1,4,1,100.0,10.0"


@pytest.fixture
def kvtier(monkeypatch: pytest.MonkeyPatch) -> None:
    verb = SimpleNamespace(load=lambda: command.app, value="calibration.silicon.command:app")
    monkeypatch.setattr(discovery, "_installed", lambda: {"calibrate-steps": verb})


def rows_of(folder: Path, *lines: str):
    path = folder / "silicon.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    return read_rows(path)


def row(**changes: object) -> Row:
    plain = Row(
        id="a",
        engine="vllm",
        model_path="meta-llama/Llama-3.1-8B-Instruct",
        precision="bf16",
        llm="llama-3.1-8b",
        accelerator="h100-sxm",
        weight_dtype="bf16",
        tensor_parallel=1,
        expert_parallel=False,
        prompt_tokens=1024,
        output_tokens=128,
        concurrency=4,
        client="inferencex",
        server=Server(kv_dtype="bf16", budget=8192),
        ttft_s=0.1,
        tpot_s=0.01,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_a_line_becomes_a_row(tmp_path: Path) -> None:
    (found,) = rows_of(tmp_path, PLAIN).rows
    assert (found.llm, found.accelerator, found.weight_dtype) == ("minimax-m2.5", "h200-sxm", "fp8")
    assert (found.tensor_parallel, found.expert_parallel, found.concurrency) == (4, False, 16)
    assert (found.ttft_s, found.tpot_s) == (0.1, 0.01)
    assert found.is_hopper
    digest = sha256(b"MiniMaxAI/MiniMax-M2.5|h200_sxm|fp8").digest()
    assert found.in_fit_half == bool(digest[0] % 2)


def test_a_layout_written_as_the_product_of_tp_and_ep_is_the_same_measurement_as_the_plain_one(tmp_path: Path) -> None:
    product = PLAIN.replace(",16,4,1,1,4,1,", ",16,16,1,1,4,4,")
    plain = PLAIN.replace(",16,4,1,1,4,1,", ",16,4,1,1,1,4,")
    found = rows_of(tmp_path, product, plain)
    assert len(found.rows) == 1
    assert (found.rows[0].tensor_parallel, found.rows[0].expert_parallel) == (4, True)
    assert found.left_out == {"same measurement again": 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (PLAIN.replace(",agg,", ",disagg,"), "disaggregated"),
        (PLAIN.replace("MiniMaxAI/MiniMax-M2.5", "zhipuai/GLM-5"), "no catalogue entry for zhipuai/GLM-5"),
        (PLAIN.replace(",16,4,1,1,4,1,", ",16,4,1,4,1,16,"), "attention data-parallel"),
        (PLAIN.replace(",16,4,1,1,4,1,", ",16,1,1,,2,1,"), "attention data-parallel"),
    ],
)
def test_what_cannot_be_simulated_is_counted_by_reason(tmp_path: Path, line: str, reason: str) -> None:
    found = rows_of(tmp_path, line)
    assert not found.rows
    assert found.left_out == {reason: 1}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (PLAIN.replace("h200_sxm", "h900"), "silicon.csv:2: system is 'h900'"),
        (PLAIN.replace(",100.0,", ",-1,"), "silicon.csv:2: silicon_ttft_ms is '-1'"),
        (PLAIN.replace(",1024,1024,", ",x,1024,"), "silicon.csv:2: isl is 'x'"),
    ],
)
def test_a_bad_cell_is_refused_with_its_line_in_one_line(
    tmp_path: Path, line: str, said: str, kvtier: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=said):
        rows_of(tmp_path, line)
    assert main(["calibrate-steps", "--data", str(tmp_path / "silicon.csv")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_text("id,backend\na,vllm\n", encoding="utf-8")
    with pytest.raises(InputError, match="lacks the columns"):
        read_rows(path)


def test_a_fitted_entry_differs_from_the_shipped_one_in_what_was_fitted_only(tmp_path: Path) -> None:
    path = tmp_path / "fitted.yaml"
    write_entry(path, "b200-sxm", {**priors(), "hbm_efficiency": 0.71, "kernel_fixed": 0.95, "routing_skew": 1.25})
    fitted, shipped = load_accelerator(str(path)), load_accelerator("b200-sxm")
    # A share of what copies reach: 0.865 of peak on a B200.
    assert fitted.hbm_efficiency == pytest.approx(0.71 * shipped.hbm_efficiency)
    assert fitted.kernel_fixed_s == pytest.approx(0.95e-6)
    assert fitted.routing_skew == 1.25
    assert fitted.peak_flops_per_s == shipped.peak_flops_per_s
    assert fitted.hbm_bytes_per_s == shipped.hbm_bytes_per_s


def test_lengths_keep_their_mean_where_only_they_are_spread() -> None:
    spread = scenario_of(row(client="nvidia"), "h100-sxm", priors()).workload.closed_loop
    alike = scenario_of(row(client="in step", engine="sglang"), "h100-sxm", priors()).workload.closed_loop
    assert spread is not None
    assert alike is not None
    assert 0.5 * (1 + spread.shortest) * spread.prompt_tokens == pytest.approx(1024, rel=1e-3)
    assert (alike.shortest, alike.prompt_tokens) == (1.0, 1024)


@pytest.mark.parametrize("client", ["inferencex", "nvidia"])
def test_the_whole_run_is_simulated_and_counted_from_its_burst_on(client: str) -> None:
    one = row(client=client, concurrency=8, output_tokens=16)
    scenario = scenario_of(one, "h100-sxm", priors())
    assert scenario.workload.closed_loop is not None
    assert scenario.workload.closed_loop.requests == 80
    requests = simulate(scenario).table("requests")
    later = np.argsort(requests["arrived_at_s"], kind="stable")[8:]
    ttft_s, tpot_s = loop_times(scenario)
    assert ttft_s == pytest.approx(requests["ttft_s"].mean())
    assert ttft_s > requests["ttft_s"][later].mean()
    assert tpot_s == pytest.approx(requests["tpot_s"].mean())


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_moves_some_row(name: str) -> None:
    rows = [
        row(llm="qwen3-30b-a3b", weight_dtype=dtype, tensor_parallel=2, accelerator="b200-sxm", concurrency=16)
        for dtype in ("bf16", "fp8", "nvfp4")
    ]
    low, high = predict(rows, [priors(), {**priors(), name: 1.2 * priors()[name]}], jobs=1)
    assert np.any(np.abs(np.log(high / low)) > 1e-6)


def test_thinning_keeps_every_group_and_spans_its_loads() -> None:
    many = [row(concurrency=count, id=str(count)) for count in range(1, 101)]
    chosen = thinned([*many, row(llm="qwen3-8b", model_path="other")], 5)
    assert len(chosen) == 5
    assert [one.model_path for one in chosen].count("other") == 1
    assert {1, 100} <= {one.concurrency for one in chosen}


def test_known_efficiencies_are_recovered_from_noisy_rows_within_what_the_fit_states() -> None:
    rows = [
        row(tensor_parallel=ranks, concurrency=count, prompt_tokens=prompt, output_tokens=64)
        for ranks in (1, 4)
        for count in (1, 4, 16)
        for prompt in (512, 4096)
    ]
    truth = {**priors(), "bf16_efficiency": 0.5, "hbm_efficiency": 0.75, "request_latency": 25.0}
    noise = np.random.default_rng(1).lognormal(0.0, 0.05, (len(rows), 2))
    seen = predict(rows, [truth], jobs=1)[0] * noise
    measured = [replace(one, ttft_s=pair[0], tpot_s=pair[1]) for one, pair in zip(rows, seen.tolist(), strict=True)]
    slower = [
        replace(one, model_path="slower", ttft_s=1.2 * one.ttft_s, tpot_s=1.3 * one.tpot_s) for one in measured[::2]
    ]
    found = fit([*measured, *slower], jobs=1)
    for parameter in PARAMETERS:
        away = math.log(found.values[parameter.name] / truth[parameter.name])
        assert abs(away) < 2.5 * found.deviations[parameter.name]
    assert found.from_data["bf16_efficiency"] > 0.5
    plain, other = (found.group_factors[one.group] for one in (measured[0], slower[0]))
    assert np.divide(other, plain) == pytest.approx([1.2, 1.3], rel=0.08)
    assert found.from_data["fp4_efficiency"] == pytest.approx(0.0, abs=1e-9)


def test_a_row_that_cannot_run_is_no_success() -> None:
    errors = errors_of(np.array([1.0, np.nan, np.nan]), np.ones(3))
    assert (errors.rows, errors.not_run) == (3, 2)
    assert errors.median_absolute == math.inf


TENSORRT = PLAIN.replace(
    "vllm,0.19.0,MiniMaxAI/MiniMax-M2.5,h200_sxm,fp8", "trtllm,{},deepseek-ai/DeepSeek-R1,b200_sxm,fp4"
)


GPT_OSS = PLAIN.replace("0.19.0,MiniMaxAI/MiniMax-M2.5,h200_sxm,fp8", "0.11.2,openai/gpt-oss-120b,h100_sxm,fp4")
SPECULATES = "may use multi-token prediction"
AT_ONCE = "sent at once to a server of unknown batch size"


@pytest.mark.parametrize(
    ("line", "concurrency", "reason"),
    [
        (TENSORRT.format("1.2.0rc6.post2"), 4, None),
        (TENSORRT.format("1.2.0rc6.post3"), 4, SPECULATES),
        (TENSORRT.format("1.1.0rc2.post2"), 8, SPECULATES),
        (TENSORRT.format("1.1.0rc2.post2"), 32, None),
        (GPT_OSS, 64, None),
        (GPT_OSS, 512, AT_ONCE),
        (PLAIN, 512, None),
    ],
)
def test_a_load_whose_server_may_have_run_otherwise_is_left_out(
    tmp_path: Path, line: str, concurrency: int, reason: str | None
) -> None:
    found = rows_of(tmp_path, line.replace(",16,4,1,", f",{concurrency},4,1,"))
    assert len(found.rows) == (reason is None)
    assert found.left_out == ({} if reason is None else {reason: 1})


def test_a_rounded_copy_is_the_same_measurement(tmp_path: Path) -> None:
    found = rows_of(tmp_path, PLAIN.replace(",100.0,10.0", ",100.04,10.003"), PLAIN, PLAIN.replace(",10.0", ",10.3"))
    assert [one.tpot_s for one in found.rows] == [0.010003, 0.0103]


def test_a_group_whose_prompts_come_faster_than_they_can_be_computed_is_left_out(tmp_path: Path) -> None:
    # 64 x 8000 tokens x 16 GFLOP in 2 s on one GPU of 1978 TFLOPS: more than twice its peak.
    line = (
        "a,source_file=/x,vllm,0.12.0,nvidia/Llama-3.1-8B-Instruct-FP8,h200_sxm,fp8,agg,8000,101,64,1,1,1,1,1,1000,10.0"
    )
    slow = line.replace(",1000,10.0", ",9000,90.0")
    assert len(rows_of(tmp_path, slow).rows) == 1
    assert not rows_of(tmp_path, line, slow).rows


@pytest.mark.parametrize(
    ("changes", "server"),
    [
        (
            {"engine": "sglang", "accelerator": "b200-sxm", "concurrency": 16},
            Server(kv_dtype="fp8", budget=32_768, receive_interval=30),
        ),
        (
            {"engine": "sglang", "accelerator": "b200-sxm", "concurrency": 8},
            Server(kv_dtype="fp8", budget=32_768, receive_interval=10),
        ),
        ({"engine": "sglang", "accelerator": "h200-sxm", "concurrency": 8}, Server(kv_dtype="bf16", budget=32_768)),
        ({"engine": "trtllm", "prompt_tokens": 8192, "concurrency": 256}, Server(kv_dtype="fp8", budget=8512)),
        ({"engine": "vllm", "is_inferencex": False}, Server(kv_dtype="bf16", budget=8192)),
    ],
)
def test_servers_were_started_as_the_scripts_say(changes: dict[str, object], server: Server) -> None:
    plain = Load(
        engine="vllm",
        version="",
        llm="deepseek-v3",
        accelerator="b200-sxm",
        precision="fp8",
        tensor_parallel=8,
        expert_parallel=False,
        prompt_tokens=1024,
        output_tokens=1024,
        concurrency=4,
        is_inferencex=True,
    )
    assert server_of(replace(plain, **changes)) == server  # type: ignore[arg-type]
