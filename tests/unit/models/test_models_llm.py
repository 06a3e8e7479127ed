"""Model arithmetic against the table of facts, published sizes and hand counts."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.catalogue import entries, load_entry
from models.errors import CatalogueError, UnknownNameError
from models.llm import Llm, load_llm, touched_fraction

FactRows = Callable[[str], list[dict[str, str]]]

NAMES = {
    "DeepSeek-V3 / R1": "deepseek-v3",
    "DeepSeek-V3.2 (DSA)": "deepseek-v3.2",
    "GLM-5.2-FP8 (DSA)": "glm-5.2-fp8",
    "Kimi-K2-Instruct": "kimi-k2",
    "Llama-4-Maverick-17B-128E": "llama-4-maverick",
    "MiniMax-M2 / M2.5": "minimax-m2.5",
    "Qwen3-Coder-480B-A35B-Instruct": "qwen3-coder-480b-a35b",
}
# The table approximates the projections of linear attention; these are held to the published totals instead.
LINEAR = {"qwen3-next-80b-a3b", "minimax-m1", "qwen3.5-397b-a17b"}


def slug(model: str) -> str:
    return NAMES.get(model, model.lower())


def test_every_model_of_the_table_is_there(fact_rows: FactRows) -> None:
    rows = fact_rows("models_wide.csv")
    assert len(rows) == 29
    assert {slug(row["model"]) for row in rows} <= set(entries("llms"))


def test_kv_bytes_equal_the_table(fact_rows: FactRows) -> None:
    for row in fact_rows("models_wide.csv"):
        llm = load_llm(slug(row["model"]))
        assert llm.kv_bytes_per_token("bf16") == int(row["kv_bytes_per_token_bf16"]), llm.name
        assert llm.kv_bytes_per_token("fp8") == int(row["kv_bytes_per_token_fp8"]), llm.name
        growing = llm.kv_bytes_per_token("bf16") - llm.windowed_kv_bytes_per_token("bf16")
        assert growing == int(row["kv_growth_bytes_per_token_bf16_longctx"]), llm.name


def test_parameters_equal_the_table_within_2_percent(fact_rows: FactRows) -> None:
    for row in fact_rows("models_wide.csv"):
        llm = load_llm(slug(row["model"]))
        if llm.name in LINEAR:
            assert llm.total_params() == pytest.approx(1e9 * float(row["params_total_stated"]), rel=0.02), llm.name
            continue
        assert llm.total_params() == pytest.approx(1e9 * float(row["params_total_computed"]), rel=0.02), llm.name
        active = 1e9 * float(row["params_active_computed_incl_embeddings"])
        assert llm.active_params() == pytest.approx(active, rel=0.02), llm.name


def test_totals_agree_with_what_the_makers_state() -> None:
    for name in entries("llms"):
        entry, llm = load_entry("llm", name), load_llm(name)
        assert llm.total_params() == pytest.approx(entry.si("stated_params"), rel=0.03), name


def test_llama_8b_by_hand() -> None:
    llm = load_llm("llama-3.1-8b")
    attention = 4096 * (4096 + 2 * 1024 + 4096)
    mlp = 3 * 4096 * 14336
    assert llm.block_params() == 32 * (attention + mlp)
    assert llm.total_params() == 32 * (attention + mlp) + 2 * 128256 * 4096
    assert llm.weight_bytes() == 2 * llm.total_params()
    assert llm.flops_per_token() == 2 * llm.block_params()
    assert llm.attention_flops_per_pair() == 32 * 4 * 32 * 128
    assert llm.kv_bytes_per_token("bf16") == 2 * 32 * 8 * 128 * 2
    assert llm.dense_read_bytes() == llm.weight_bytes() - 2 * 128256 * 4096


def test_published_sizes() -> None:
    # llm-d: 305 GiB for a million tokens of Llama-3.1-70B; Mooncake FAST'25: 40 GiB for 128 Ki tokens
    assert 1_000_000 * load_llm("llama-3.1-70b").kv_bytes_per_token("bf16") / 2**30 == pytest.approx(305.2, abs=0.1)
    assert 131072 * load_llm("llama-3-70b").kv_bytes_per_token("bf16") == 40 * 2**30
    # Mooncake: 12.62e9 B moved for 32,768 tokens of Qwen3-235B at TP8, four KV heads on eight ranks
    llm = load_llm("qwen3-235b-a22b")
    assert 32768 * llm.kv_bytes_per_token("bf16") * llm.kv_replication(8) == pytest.approx(12.62e9, rel=1e-3)
    # Mingxin R2: 7.145 GiB a session of 30,208 tokens; 450 "GB" (GiB) of FP8 weights
    coder = load_llm("qwen3-coder-480b-a35b-fp8")
    assert 30208 * coder.kv_bytes_per_token("bf16") / 2**30 == pytest.approx(7.145, abs=1e-3)
    assert coder.weight_bytes() / 2**30 == pytest.approx(450, rel=0.01)


def test_recurrent_state() -> None:
    assert load_llm("minimax-m1").state_bytes() == pytest.approx(294e6, rel=0.01)
    next_state = load_llm("qwen3-next-80b-a3b")
    assert next_state.state_bytes() == pytest.approx(75.5e6, rel=0.03)  # the published figure has no convolution part
    assert next_state.state_bytes(state_dtype="bf16") < next_state.state_bytes()
    assert load_llm("llama-3.1-8b").state_bytes() == 0


def test_native_dtypes_are_mixed() -> None:
    oss = load_llm("gpt-oss-120b")
    assert oss.expert_weight_bytes() == pytest.approx(oss.expert_params() * 0.53125)
    assert oss.dense_weight_bytes() == 2 * (oss.total_params() - oss.expert_params())
    assert oss.weight_bytes() == pytest.approx(65e9, rel=0.02)  # the published checkpoint
    fp8 = load_llm("deepseek-v3")
    assert fp8.weight_bytes("bf16") == 2 * fp8.total_params()
    assert fp8.weight_bytes("fp8") == fp8.weight_bytes()


def test_kv_replication() -> None:
    llama, deepseek = load_llm("llama-3.1-70b"), load_llm("deepseek-r1")
    assert [llama.kv_replication(tp) for tp in (1, 8, 16)] == [1.0, 1.0, 2.0]
    assert [deepseek.kv_replication(tp) for tp in (1, 8)] == [1.0, 8.0]


def test_windowed_layers_have_their_own_pairs() -> None:
    gemma = load_llm("gemma-3-27b")
    assert (gemma.full_layers, gemma.windowed_layers, gemma.window_tokens) == (10, 52, 1024)
    assert gemma.window_attention_flops_per_pair() == pytest.approx(5.2 * gemma.attention_flops_per_pair())


@given(st.sampled_from(["qwen3-coder-480b-a35b", "gpt-oss-20b", "mixtral-8x7b"]), st.integers(1, 20000))
def test_experts_touched(name: str, tokens: int) -> None:
    llm = load_llm(name)
    fraction = touched_fraction(llm.experts, llm.experts_per_token, tokens)
    assert llm.experts_per_token / llm.experts * (1 - 1e-12) <= fraction <= 1.0
    assert fraction <= touched_fraction(llm.experts, llm.experts_per_token, tokens + 1)


def test_one_token_touches_its_own_experts() -> None:
    assert touched_fraction(8, 2, 1) == pytest.approx(2 / 8)
    assert touched_fraction(8, 2, 2) == pytest.approx(1 - (6 / 8) ** 2)
    assert touched_fraction(8, 2, 0) == 0.0
    assert touched_fraction(0, 0, 5) == 0.0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"windowed_layers": 3}, "more windowed"),
        ({"windowed_layers": 1}, "window_tokens"),
        ({"kv_heads": 0}, "kv_heads"),
        ({"experts": 4, "experts_per_token": 5}, "experts_per_token"),
        ({"kv_lora_rank": 512}, "MLA"),
        ({"linear_layers": 1}, "linear_attention"),
    ],
)
def test_contradictions_are_refused(change: dict[str, int], problem: str) -> None:
    sizes = {"layers": 2, "hidden": 8, "heads": 2, "head_dim": 4, "dense_intermediate": 16, "vocab": 10, "kv_heads": 1}
    with pytest.raises(CatalogueError, match=problem):
        Llm(name="tiny", **(sizes | change))


def test_unknown_names_and_dtypes() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'llama-3\.1-8b'"):
        load_llm("lama-3.1-8b")
    with pytest.raises(UnknownNameError, match="kv dtype 'int3'"):
        load_llm("llama-3.1-8b").kv_bytes_per_token("int3")
    with pytest.raises(UnknownNameError, match="weight dtype"):
        load_llm("llama-3.1-8b").weight_bytes("fp7")


def test_unverified_models_say_so() -> None:
    assert load_llm("glm-4.5").caveats
    assert load_llm("llama-3.1-8b").caveats == ()
