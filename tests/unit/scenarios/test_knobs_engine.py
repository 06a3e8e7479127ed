"""Every engine and cluster knob moves the result that it should, in the right direction."""

from pathlib import Path
from typing import Any

import pytest
from engine_kit import serve

from models.errors import InputError, ScenarioError
from scenarios.loader import load_scenario
from scenarios.schema import Cluster, Engine
from sim.engine.vllm_defaults import engine_defaults

BUSY = """\
name: knobs
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm}
engine: {max_num_batched_tokens: 2048, max_num_seqs: 64}
tiers:
  hbm: {}
  dram: {device: ddr5, capacity: 8 GB}
workload:
  closed_loop: {concurrency: 32, requests: 96, sessions: 40, prompt_tokens: 3000, output_tokens: 40}
"""
MIXTURE = BUSY.replace("llama-3.1-8b", "qwen3-30b-a3b").replace(
    "{accelerator: h100-sxm}", "{accelerator: h100-sxm, tensor_parallel: 4}"
)
IDLE = BUSY.replace("concurrency: 32", "concurrency: 1").replace(
    "requests: 96, sessions: 40", "requests: 2, sessions: 1"
)
WHOLE_CHUNKS = IDLE.replace("prompt_tokens: 3000", "prompt_tokens: 3072")


def figures(text: str, tmp_path: Path, *overrides: str) -> dict[str, Any]:
    path = tmp_path / "knobs.yaml"
    path.write_text(text, encoding="utf-8")
    return serve(load_scenario(str(path), overrides=list(overrides))).summary()


def mean(name: str):
    return lambda found: found[name]["mean"]


def part(name: str):
    return lambda found: found["ttft_parts_s"][name]


def hbm(name: str):
    return lambda found: found["tiers"]["hbm"][name]


def dram(name: str):
    return lambda found: found["tiers"]["dram"][name]


# knob, base scenario, value, value for which the figure is higher
KNOBS = [
    ("engine.block_tokens", WHOLE_CHUNKS, "16", "256", part("compute")),  # a whole hit computes its last block again
    ("engine.max_num_seqs", BUSY, "64", "4", part("queue")),
    ("engine.max_num_batched_tokens", IDLE, "2048", "256", mean("ttft_s")),  # more steps a prompt
    ("engine.gpu_memory_utilization", BUSY, "0.5", "0.9", hbm("capacity_bytes")),
    ("engine.kv_dtype", BUSY, "fp8", "bf16", dram("write_bytes")),
    ("engine.kv_dtype", IDLE, "fp8", "bf16", mean("tpot_s")),
    ("engine.weight_dtype", BUSY, "bf16", "fp8", hbm("capacity_bytes")),
    ("engine.weight_dtype", IDLE, "fp8", "bf16", mean("tpot_s")),
    ("engine.prefix_caching", IDLE, "false", "true", hbm("hit_tokens")),
    ("engine.mixed_step_factor", BUSY, "1", "1.5", mean("e2e_s")),
    ("engine.request_latency", IDLE, "0 s", "0.1 s", part("other")),
    ("engine.tokenize_tokens_per_s", IDLE, "1000000", "10000", part("other")),
    ("engine.chunk_tokens", IDLE, "1024", "256", hbm("hit_tokens")),  # a coarser chunk leaves more of a prompt private
    ("engine.decode_jumps", IDLE, "true", "false", lambda found: found["engine"]["events"]),
    ("engine.version", BUSY, "0.20.0", "0.33.0", hbm("capacity_bytes")),
    ("cluster.replicas", BUSY, "4", "1", part("queue")),
    ("cluster.tensor_parallel", IDLE, "8", "1", part("compute")),
    ("cluster.tensor_parallel", BUSY, "1", "2", hbm("capacity_bytes")),
    ("cluster.pipeline_parallel", BUSY, "1", "2", hbm("capacity_bytes")),
    ("cluster.expert_parallel", MIXTURE, "false", "true", mean("tpot_s")),  # the busiest rank holds the hot experts
]
# What every knob of the two sections is tested by, so that a new one is not forgotten.
ELSEWHERE = {
    "engine.max_model_len": "below",
    "engine.step_times": "below",
    "engine.tokenize_batch_wait": "below",
    "engine.mixed_steps": "tests/unit/sim/test_engine_habits.py",
    "engine.receive_interval": "tests/unit/sim/test_engine_habits.py",
    "cluster.accelerator": "below",
    "engine.kv_load_failure_policy": "tests/unit/sim/test_load_failures.py",
    "engine.scheduling": "tests/unit/sim/test_schedulers_in_an_engine.py",
    "cluster.router": "tests/unit/sim/test_routers_on_a_cluster.py",
    "cluster.decode": "tests/unit/sim/test_knobs_decode.py",
    "cluster.replicas_per_node": "tests/unit/sim/test_knobs_tiers.py",
    "cluster.host_link": "tests/unit/sim/test_knobs_tiers.py",
    "cluster.nic": "tests/unit/sim/test_knobs_tiers.py",
    "cluster.switch": "tests/unit/sim/test_knobs_tiers.py",
}


@pytest.mark.parametrize(
    ("key", "text", "lower", "higher", "figure"), KNOBS, ids=[f"{knob[0]}-{n}" for n, knob in enumerate(KNOBS)]
)
def test_knob(key, text, lower, higher, figure, tmp_path):
    low, high = (figure(figures(text, tmp_path, f"{key}={value}")) for value in (lower, higher))
    assert low < high


def test_no_knob_is_forgotten():
    known = {knob[0] for knob in KNOBS} | set(ELSEWHERE)
    assert known == {f"engine.{k}" for k in Engine.model_fields} | {f"cluster.{k}" for k in Cluster.model_fields}


def test_accelerators_differ(tmp_path):
    slow, fast = (
        figures(IDLE, tmp_path, f"cluster.accelerator={name}")["ttft_s"]["mean"]
        for name in ("a100-sxm-80gb", "h100-sxm")
    )
    assert fast < slow


def test_the_tokeniser_waits_for_a_batch(tmp_path):
    rate = "engine.tokenize_tokens_per_s=1e6"
    first, second = (
        figures(IDLE, tmp_path, rate, f"engine.tokenize_batch_wait={wait}")["ttft_parts_s"]["other"]
        for wait in ("0 s", "0.25 s")
    )
    assert second - first == pytest.approx(0.25)


def test_request_latency_adds_to_each_ttft(tmp_path):
    first, second = (figures(IDLE, tmp_path, f"engine.request_latency={s} s")["ttft_s"]["mean"] for s in (0, 0.125))
    assert second - first == pytest.approx(0.125)


# Too long ------------------------------------------------------------------------------------------------------------


def test_what_is_longer_than_max_model_len_is_rejected(tmp_path):
    short = "    - {name: short, closed_loop: {concurrency: 1, requests: 3, prompt_tokens: 100, output_tokens: 1}}"
    text = BUSY.replace("  closed_loop:", f"  phases:\n{short}\n    - name: long\n      closed_loop:")
    found = figures(text, tmp_path, "engine.max_model_len=3000")
    assert found["requests"] == {"submitted": 99, "completed": 3, "rejected": 96, "failed": 0}
    assert any("96 of 99 requests rejected" in warning for warning in found["warnings"])


def test_a_run_that_can_serve_nobody_is_bad_input(tmp_path):
    for override in ("engine.max_model_len=3000", "tiers.hbm.capacity=0.2 GB"):
        with pytest.raises(InputError, match="none of the 96 requests can be served"):
            figures(BUSY, tmp_path, override)


@pytest.mark.parametrize("decode", [(), ("cluster.decode={accelerator: h200-sxm}",)])
def test_a_kv_cache_beyond_what_the_weights_leave_is_warned_of(decode, tmp_path):
    said = "but the weights of llama-3.1-8b leave 69.84 GB of a replica's HBM on 1 x h100-sxm"
    for capacity, beyond in (("69 GB", 0), ("70 GB", 1)):
        warnings = figures(BUSY, tmp_path, f"tiers.hbm.capacity={capacity}", *decode)["warnings"]
        assert [line.startswith("tiers.hbm") for line in warnings].count(True) == beyond
        assert warnings.count(f"tiers.hbm.capacity is {capacity}, {said}") == beyond


# Step times from a file ----------------------------------------------------------------------------------------------


def test_step_times_take_the_place_of_the_roofline(tmp_path):
    steps = tmp_path / "steps.csv"
    rows = [f"{tokens},{context},0.5" for tokens in (1, 4096) for context in (0, 10_000)]
    steps.write_text("\n".join(["tokens,context_tokens,step_s", *rows]), encoding="utf-8")
    found = figures(IDLE, tmp_path, f"engine.step_times={steps}")
    assert found["tpot_s"]["mean"] == pytest.approx(0.5)
    assert found["ttft_s"]["max"] == pytest.approx(1.0)  # 3,000 tokens in steps of 2,048


def test_a_run_that_leaves_the_table_is_bad_input(tmp_path):
    steps = tmp_path / "steps.csv"
    rows = [f"{tokens},{context},0.5" for tokens in (1, 4096) for context in (0, 3_010)]
    steps.write_text("\n".join(["tokens,context_tokens,step_s", *rows]), encoding="utf-8")
    with pytest.raises(
        ScenarioError, match=r"steps.csv: has steps of 0 to 3010 context tokens; this run has one of 3011"
    ):
        figures(IDLE, tmp_path, f"engine.step_times={steps}")


@pytest.mark.parametrize("name", ["aiconfigurator", "aiconfigurator-sglang"])
def test_step_times_come_from_measured_operators(name, tmp_path):
    pytest.importorskip("aiconfigurator_core", reason="comes with kvtier[aiconfigurator]")
    roofline = figures(IDLE, tmp_path)
    found = figures(IDLE, tmp_path, f"engine.step_times={name}")
    for time in ("ttft_s", "tpot_s"):
        assert found[time]["mean"] != roofline[time]["mean"]
        assert found[time]["mean"] == pytest.approx(roofline[time]["mean"], rel=0.5)
    stepped = figures(IDLE, tmp_path, f"engine.step_times={name}", "engine.decode_jumps=false")
    assert stepped["tpot_s"] == found["tpot_s"]


# vLLM's defaults -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "gib", "accelerator", "utilization", "tokens", "seqs"),
    [
        ("0.33.0", 180, "b200", 0.92, 16_384, 1_024),
        ("0.33.0", 141, "h200-sxm", 0.92, 8_192, 1_024),
        ("0.33.1", 80, "a100-sxm-80gb", 0.92, 2_048, 256),
        ("0.33.0", 48, "l40s", 0.92, 2_048, 256),
        ("0.20.0", 180, "b200", 0.9, 8_192, 1_024),
        ("0.20.2", 48, "l40s", 0.9, 2_048, 256),
    ],
)
def test_defaults_follow_version_and_gpu(version, gib, accelerator, utilization, tokens, seqs):
    found = engine_defaults(version, gib << 30, accelerator, "engine.version")
    assert (found.gpu_memory_utilization, found.max_num_batched_tokens, found.max_num_seqs) == (
        utilization,
        tokens,
        seqs,
    )


def test_an_unknown_version_is_refused():
    with pytest.raises(ScenarioError, match=r"^small.yaml: is '0.1'; the defaults of 0.20 and 0.33 are known"):
        engine_defaults("0.1", 80 << 30, "h100-sxm", "small.yaml")
