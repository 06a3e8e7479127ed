"""Step times from measured operators: how steps are put together, and what the installed package says."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from engine_kit import Formula
from hypothesis import given
from hypothesis import strategies as st

from models.accelerator import load_accelerator
from models.errors import ScenarioError
from models.llm import load_llm
from models.operator_tables import ACCELERATORS, ENGINES, LLMS, OperatorTables, load_operator_tables
from models.prefill import prefill_step_s

# Steps put together --------------------------------------------------------------------------------------------------


class Uneven(Formula):
    """Decodes that are now and then faster with more context, as measured tables are."""

    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        return super().decode_step_latency(gen_tokens, isl, osl) + (0.3 if isl % 3 else 0.0)


def tables(passes: Formula) -> OperatorTables:
    return OperatorTables(where="t", passes=passes)


def test_a_prompt_alone_takes_what_the_package_says():
    assert tables(Formula()).step_s([(1000, 500)]) == pytest.approx(5.0e-3 + 5e-3 + 1e-9 * 500 * 1250)
    assert prefill_step_s(tables(Formula()), 1000, 500) == tables(Formula()).step_s([(1000, 500)])


def test_prompts_share_the_layers_and_each_pays_its_attention():
    found = tables(Formula()).step_s([(1000, 500), (0, 100)])
    assert found == pytest.approx(5e-3 + 1e-5 * 600 + 1e-9 * (500 * 1250 + 100 * 50))


def test_decodes_beside_a_prompt_add_their_tokens_and_their_context():
    found = tables(Formula()).step_s([(0, 100)], decodes=8, decode_context_tokens=8 * 3000)
    assert found == pytest.approx(5e-3 + 1e-5 * 108 + 1e-9 * 100 * 50 + 2e-8 * 8 * (3000 - 1), rel=1e-9)


def test_decodes_alone_take_what_the_package_says():
    found = tables(Formula()).step_s([], decodes=8, decode_context_tokens=8 * 3000)
    assert found == pytest.approx(4.5e-3 + 8e-5 + 2e-8 * 8 * 3000, rel=1e-9)


@given(decodes=st.integers(1, 300), context=st.integers(1, 300_000), more=st.integers(0, 300_000))
def test_lines_hold_up_to_where_they_say_and_never_fall(decodes, context, more):
    times = tables(Uneven())
    held = decodes * context
    first_s, slope_s, end = times.decode_line(decodes, held)
    assert end > held
    assert slope_s >= 0.0
    at = min(held + more, end)
    assert times.decode_line(decodes, at)[0] == pytest.approx(first_s + slope_s * (at - held), rel=1e-12)
    assert times.decode_line(decodes, held + more)[0] >= first_s * (1 - 1e-12)


def test_lines_of_context_are_at_128_and_two_an_octave():
    ends = [1]
    while ends[-1] < 1024:
        ends.append(tables(Formula()).decode_line(1, ends[-1])[2])
    assert ends == [1, 128, 192, 256, 384, 512, 768, 1024]


class Refusing(Formula):
    def predict_prefill_latency(self, bs: int, isl: int, prefix: int) -> float:
        raise LookupError("no such shape\nand much more")


class Empty(Formula):
    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        return float("nan")


def test_what_the_package_cannot_say_is_one_line():
    with pytest.raises(ScenarioError, match=r"^t: has no time for a step of this run: no such shape$"):
        tables(Refusing()).step_s([(0, 10)])
    with pytest.raises(ScenarioError, match=r"^t: has nan ms for a step of this run; must be above 0 and finite$"):
        tables(Empty()).decode_line(1, 10)


# What is refused before the package is asked -------------------------------------------------------------------------


def load(llm: str = "llama-3.1-8b", accelerator: str = "h100-sxm", **changes: object) -> OperatorTables:
    keys: dict[str, object] = {
        "config": None,
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "expert_parallel": False,
        "weight_dtype": None,
        "kv_dtype": "bf16",
    }
    found = load_llm(llm)
    return load_operator_tables("aiconfigurator", found, load_accelerator(accelerator), **keys | changes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"llm": "qwen2.5-7b"}, "has no tables for llm qwen2.5-7b; it has deepseek-v3, "),
        ({"accelerator": "mi300x"}, "has no tables for cluster.accelerator mi300x; it has a100-sxm-80gb, "),
        ({"pipeline_parallel": 2}, "has no pipelines: cluster.pipeline_parallel is 2; must be 1"),
        ({"weight_dtype": "mxfp4"}, "has no tables for engine.weight_dtype mxfp4; it has bf16, fp8, int4, nvfp4"),
        ({"kv_dtype": "fp16"}, "has no tables for engine.kv_dtype fp16; it has bf16, fp8"),
        ({"config": Path("a/model.json")}, "reads a model's config.json only under that name; llm is a/model.json"),
    ],
)
def test_what_has_no_tables_is_named(changes, problem):
    with pytest.raises(ScenarioError) as error:
        load(**changes)
    assert str(error.value).startswith(f"engine.step_times: aiconfigurator: {problem}")


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk.engine", None)
    with pytest.raises(ScenarioError) as error:
        load(weight_dtype="nvfp4")
    assert str(error.value) == (
        "engine.step_times: aiconfigurator: needs aiconfigurator-core: pip install 'kvtier[aiconfigurator]'"
    )


# The installed package -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def package() -> Path:
    """Return the folder of the package; tests that need it are skipped without."""
    module = pytest.importorskip("aiconfigurator_core", reason="comes with kvtier[aiconfigurator]")
    return Path(module.__file__).parent


@pytest.mark.parametrize("name", LLMS)
def test_models_are_those_of_the_catalogue(package, name):
    path = package / "model_configs" / f"{LLMS[name].replace('/', '--')}_config.json"
    config, ours = json.loads(path.read_text(encoding="utf-8")), load_llm(name)
    text = config.get("text_config", config)
    experts = [text[key] for key in ("n_routed_experts", "num_local_experts", "num_experts") if key in text]
    assert (text["num_hidden_layers"], text["hidden_size"]) == (ours.layers, ours.hidden)
    assert text["num_attention_heads"] == ours.heads
    assert experts == ([ours.experts] if ours.experts else [])
    quantised = "quantization_config" in text or "quantization_config" in config
    assert quantised == (ours.expert_weight_dtype != "bf16")


@pytest.mark.parametrize("name", ACCELERATORS)
def test_accelerators_are_those_of_the_catalogue(package, name):
    gpu = yaml.safe_load((package / "systems" / f"{ACCELERATORS[name]}.yaml").read_text(encoding="utf-8"))["gpu"]
    ours = load_accelerator(name)
    assert gpu["mem_bw"] == pytest.approx(ours.hbm_bytes_per_s, rel=0.05)
    assert gpu["bfloat16_tc_flops"] == pytest.approx(ours.peak_flops_per_s["bf16"], rel=0.05)


@pytest.mark.parametrize("engine", ENGINES)
def test_steps_are_what_the_package_says(package, engine):
    from aiconfigurator_core.sdk.engine import EngineHandle

    theirs = EngineHandle.compile("meta-llama/Meta-Llama-3.1-8B", "h100_sxm", ENGINES[engine], tp_size=2)
    ours = load_operator_tables(
        engine,
        load_llm("llama-3.1-8b"),
        load_accelerator("h100-sxm"),
        config=None,
        tensor_parallel=2,
        pipeline_parallel=1,
        expert_parallel=False,
        weight_dtype=None,
        kv_dtype="bf16",
    )
    assert ours.step_s([(6000, 2000)]) == pytest.approx(theirs.predict_prefill_latency(1, 8000, 6000) / 1e3)
    for decodes, context in ((1, 128), (32, 4096), (100, 5000)):
        own_s = theirs.decode_step_latency(decodes, context, 1) / 1e3
        assert ours.decode_line(decodes, decodes * context)[0] == pytest.approx(own_s, rel=0.01)
    # The package's own mixed step takes prompts from the start only.
    mixed_s = ours.step_s([(0, 2048)], decodes=32, decode_context_tokens=32 * 2048)
    assert mixed_s == pytest.approx(theirs.mixed_step_latency(2048, 32, 2048, 1) / 1e3, rel=0.05)


def test_layout_and_dtypes_change_the_times(package):
    def decode_s(**changes: object) -> float:
        return load(**changes).decode_line(32, 32 * 8192)[0]

    assert decode_s(tensor_parallel=2) < decode_s()
    assert decode_s(weight_dtype="fp8") < decode_s()
    assert decode_s(kv_dtype="fp8") < decode_s()
    assert decode_s(accelerator="h200-sxm") < decode_s()
    mixture = {"llm": "qwen3-235b-a22b", "accelerator": "h200-sxm", "tensor_parallel": 8}
    assert decode_s(**mixture, expert_parallel=True) != decode_s(**mixture)
    assert decode_s(**mixture, weight_dtype="bf16") == decode_s(**mixture)


def test_a_model_may_come_from_its_config(package, tmp_path):
    config = tmp_path / "config.json"
    config.write_bytes((package / "model_configs" / "Qwen--Qwen3-8B_config.json").read_bytes())
    found = load(str(tmp_path), config=config)
    assert found.step_s([(0, 1000)]) == load("qwen3-8b").step_s([(0, 1000)])


def test_what_the_package_lacks_is_one_line(package):
    with pytest.raises(ScenarioError) as error:
        load("minimax-m2.5", tensor_parallel=8)  # its experts cannot be cut in 8
    assert "MiniMaxAI/MiniMax-M2.5 on h100_sxm: Invalid quantized MoE configuration" in str(error.value)
    assert "\n" not in str(error.value)


def test_more_of_a_prompt_takes_longer(package):
    found = load()
    for before, after in pairwise([(0, 512), (0, 2048), (30_000, 2048), (100_000, 2048)]):
        assert found.step_s([before]) < found.step_s([after])
