"""Step times against hand arithmetic and measured points, and the laws that any step time must obey."""

import math
import pickle
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.accelerator import load_accelerator
from models.errors import CatalogueError
from models.llm import load_llm
from models.roofline import ExpertShare, StepCost, kv_capacity_bytes, step_cost

H100 = load_accelerator("h100-sxm")
MI308X = load_accelerator("mi308x")
HBM_BYTES_PER_S = 3350e9 * 0.887
BF16_FLOPS_PER_S = 989e12 * 0.61


def cost(llm: str, gpu: str = "h100-sxm", tensor_parallel: int = 1, **layout: object) -> StepCost:
    return step_cost(load_llm(llm), load_accelerator(gpu), tensor_parallel=tensor_parallel, **layout)  # type: ignore[arg-type]  # keywords pass through


def step(c: StepCost, tokens: int, context: int = 0) -> float:
    return c.step_s(
        tokens=tokens, pairs=tokens * context, window_pairs=0.0, context_tokens=context, window_context_tokens=0.0
    )


def weights_s(c: StepCost, tokens: int) -> float:
    """The HBM time of the weights that a step of so many tokens reads."""
    return c.dense_weights_s + c.expert_weights_s * c.expert_share.fraction(tokens / c.microbatches)


def test_one_decode_step_of_llama_8b_by_hand() -> None:
    c = cost("llama-3.1-8b")
    weights = 2 * (32 * (4096 * 10240 + 3 * 4096 * 14336) + 128256 * 4096)
    assert weights_s(c, 1) == c.products_s(1) == pytest.approx(weights / HBM_BYTES_PER_S)
    assert c.fixed_s == pytest.approx(2e-3 + 32 * 20e-6)
    assert (c.collective_latency_s, c.collective_s_per_token) == (0.0, 0.0)
    expected = c.fixed_s + weights / HBM_BYTES_PER_S + 1000 * 131072 / HBM_BYTES_PER_S
    assert step(c, 1, 1000) == pytest.approx(expected)


def test_one_prefill_step_of_llama_8b_by_hand() -> None:
    c = cost("llama-3.1-8b")
    flops = 8192 * 2 * 32 * (4096 * 10240 + 3 * 4096 * 14336) + 32 * 4 * 4096 * 8192**2 / 2
    got = c.step_s(tokens=8192, pairs=8192**2 / 2, window_pairs=0, context_tokens=8192, window_context_tokens=0)
    assert got == pytest.approx(c.fixed_s + flops / BF16_FLOPS_PER_S)


def test_classes_of_kernels_run_one_after_another_each_with_its_own_roofline() -> None:
    c = replace(
        cost("gpt-oss-120b"),
        fixed_s=0.0,
        dense_compute_s_per_token=1.0,
        dense_weights_s=10.0,
        expert_compute_s_per_token=3.0,
        expert_weights_s=10.0,
        expert_share=ExpertShare(experts=4, experts_per_token=4, spread_over=1),
        activations_s_per_token=0.5,
        compute_s_per_pair=2.0,
        memory_s_per_context_token=7.0,
        compute_s_per_window_pair=5.0,
        memory_s_per_window_token=3.0,
    )
    # 5 tokens: dense weights (10) before their compute (5), experts' compute (15) before their weights (10)
    assert c.products_s(5) == 10.0 + 15.0
    assert c.beside_attention_s(5, 5) == 25.0 + 5 * 0.5
    # full layers: 3 pairs cost 6, reading 2 tokens 14; windowed ones: 20 and 3
    got = c.step_s(tokens=5, sequences=5, pairs=3, context_tokens=2, window_pairs=4, window_context_tokens=1)
    assert got == 27.5 + 14.0 + 20.0
    assert (c.decode_s_per_context_token, c.decode_s_per_window_token) == (7.0, 5.0)


@pytest.mark.parametrize(("tokens", "ttft_s"), [(20_000, 0.635), (50_000, 2.292), (100_000, 6.851)])
def test_measured_prefill_of_llama_8b_on_h100(tokens: int, ttft_s: float) -> None:
    # vLLM blog 2026-01-08 figure 1, digitised to 15 ms
    c, total, done = cost("llama-3.1-8b"), 0.0, 0
    while done < tokens:
        chunk = min(8192, tokens - done)
        total += c.step_s(
            tokens=chunk,
            pairs=chunk * done + chunk * (chunk + 1) / 2,
            window_pairs=0,
            context_tokens=done + chunk,
            window_context_tokens=0,
        )
        done += chunk
    assert total == pytest.approx(ttft_s, rel=0.05)


@pytest.mark.parametrize("sequences", [8, 16, 32])
def test_r2_decode_on_mi308x(sequences: int) -> None:
    # R2: 16.8 + 0.5 n ms at TP8 with expert parallel and 30,235 tokens of context
    c = cost("qwen3-coder-480b-a35b-fp8", "mi308x", 8, expert_parallel=True)
    got = c.step_s(
        tokens=sequences,
        pairs=sequences * 30_235,
        window_pairs=0,
        context_tokens=sequences * 30_235,
        window_context_tokens=0,
    )
    assert got == pytest.approx(16.8e-3 + 0.5e-3 * sequences, rel=0.05)


def test_kv_capacity_of_r2() -> None:
    llm = load_llm("qwen3-coder-480b-a35b-fp8")
    capacity = kv_capacity_bytes(
        llm, MI308X, tensor_parallel=8, pipeline_parallel=1, gpu_memory_utilization=0.9, weight_dtype=None
    )
    assert capacity == int(8 * 192e9 * 0.9) - llm.weight_bytes()
    assert capacity / llm.kv_bytes_per_token("bf16") == pytest.approx(3.6e6, rel=0.05)


def test_weights_that_do_not_fit_are_refused_with_both_numbers() -> None:
    with pytest.raises(CatalogueError, match=r"141\.1 GB of weights in 77\.3 GB of HBM \(utilization 0\.9\)"):
        kv_capacity_bytes(
            load_llm("llama-3.1-70b"), H100, tensor_parallel=1, pipeline_parallel=1, gpu_memory_utilization=0.9
        )


@pytest.mark.parametrize(
    ("layout", "problem"),
    [
        ({"tensor_parallel": 0}, "at least 1"),
        ({"tensor_parallel": 3}, "64 attention heads cannot be split over tensor_parallel 3"),
        ({"tensor_parallel": 1, "pipeline_parallel": 81}, "80 layers cannot be split"),
    ],
)
def test_impossible_layouts(layout: dict[str, int], problem: str) -> None:
    with pytest.raises(CatalogueError, match=problem):
        cost("llama-3.1-70b", **layout)


def test_tensor_parallel_slices_and_replicates() -> None:
    one, eight, sixteen = (cost("llama-3.1-70b", "h200-sxm", n) for n in (1, 8, 16))
    assert weights_s(eight, 1) == pytest.approx(weights_s(one, 1) / 8)
    assert eight.dense_compute_s_per_token == pytest.approx(one.dense_compute_s_per_token / 8)
    assert eight.memory_s_per_context_token == pytest.approx(one.memory_s_per_context_token / 8)
    # Eight KV heads on sixteen ranks: every rank reads one head, as it does on eight.
    assert sixteen.memory_s_per_context_token == pytest.approx(eight.memory_s_per_context_token)
    latent = [cost("deepseek-v3", "h200-sxm", n).memory_s_per_context_token for n in (1, 8)]
    assert latent[0] == pytest.approx(latent[1])


def test_all_reduce_by_hand() -> None:
    c = cost("llama-3.1-70b", "h100-sxm", 8)
    assert c.collective_latency_s == pytest.approx(2 * 80 * 20e-6)
    assert c.collective_s_per_token == pytest.approx(2 * 80 * 2 * (7 / 8) * 8192 * 2 / (450e9 * 1.064))


def test_expert_parallel_waits_for_the_busiest_rank() -> None:
    sliced, spread = (cost("qwen3-235b-a22b", "h200-sxm", 8, expert_parallel=ep) for ep in (False, True))
    assert weights_s(spread, 4) > weights_s(sliced, 4)
    assert spread.products_s(4) > sliced.products_s(4)
    assert weights_s(spread, 100_000) == pytest.approx(weights_s(sliced, 100_000))
    assert spread.collective_latency_s == pytest.approx(sliced.collective_latency_s * 3 / 2)
    dense = [cost("llama-3.1-70b", "h200-sxm", 8, expert_parallel=ep) for ep in (False, True)]
    assert dense[0] == dense[1]


def test_busiest_rank_against_drawing_experts_at_random() -> None:
    share = ExpertShare(experts=160, experts_per_token=8, spread_over=8)
    draw, tokens, rounds = random.Random(1), 12, 2000
    total = 0
    for _ in range(rounds):
        touched = {expert for _ in range(tokens) for expert in draw.sample(range(160), 8)}
        total += max(sum(1 for expert in touched if expert // 20 == rank) for rank in range(8))
    # The ranks' counts are taken as independent; drawing k distinct experts makes them slightly less spread than that.
    assert share.fraction(tokens) == pytest.approx(total / rounds / 20, rel=0.04)


def test_steady_pipeline() -> None:
    flat, piped = cost("llama-3.1-70b", "h200-sxm", 4), cost("llama-3.1-70b", "h200-sxm", 4, pipeline_parallel=2)
    assert weights_s(piped, 64) == pytest.approx(weights_s(flat, 64))
    assert piped.fixed_s == flat.fixed_s
    assert piped.dense_compute_s_per_token == pytest.approx(flat.dense_compute_s_per_token / 2)
    assert piped.memory_s_per_context_token == pytest.approx(flat.memory_s_per_context_token / 2)
    assert piped.collective_latency_s == pytest.approx(flat.collective_latency_s + 20e-6)
    hop = 8192 * 2 / (450e9 * 4 * 2)
    assert piped.collective_s_per_token == pytest.approx(flat.collective_s_per_token / 2 + hop)


def test_dtypes_matter() -> None:
    bf16, fp8 = cost("llama-3.1-70b", "h200-sxm", 8), cost("llama-3.1-70b", "h200-sxm", 8, weight_dtype="fp8")
    assert weights_s(fp8, 1) == pytest.approx(weights_s(bf16, 1) / 2, rel=0.02)
    slower_16_bit = 989 * 0.61 / (1978 * 0.658)
    assert fp8.dense_compute_s_per_token == pytest.approx(bf16.dense_compute_s_per_token * slower_16_bit)
    halved = cost("llama-3.1-70b", "h200-sxm", 8, kv_dtype="fp8")
    assert halved.memory_s_per_context_token == pytest.approx(bf16.memory_s_per_context_token / 2)
    # No FP8 units on an A100: the weights are half as many bytes, the arithmetic stays at 16 bits.
    a100 = [cost("llama-3.1-8b", "a100-sxm-80gb", weight_dtype=dtype) for dtype in (None, "fp8")]
    assert a100[0].dense_compute_s_per_token == a100[1].dense_compute_s_per_token


def test_windows_have_their_own_coefficients() -> None:
    c = cost("gpt-oss-20b")
    assert c.compute_s_per_window_pair == pytest.approx(c.compute_s_per_pair)  # 12 layers of each kind
    assert c.memory_s_per_window_token == pytest.approx(c.memory_s_per_context_token)
    assert cost("mistral-7b-v0.1").memory_s_per_context_token == 0.0


MODELS = st.sampled_from(["llama-3.1-70b", "qwen3-coder-480b-a35b-fp8", "deepseek-v3", "gpt-oss-120b"])
COUNTS = st.integers(0, 200_000)


@given(MODELS, st.booleans(), st.integers(1, 20_000), COUNTS, COUNTS, COUNTS, COUNTS)
def test_a_step_is_the_sum_of_its_classes_to_the_bit(
    name: str, spread: bool, tokens: int, pairs: int, window_pairs: int, context: int, window: int
) -> None:
    c = cost(name, "h200-sxm", 8, expert_parallel=spread)
    by_hand = (
        c.beside_attention_s(tokens, 0)
        + max(c.compute_s_per_pair * pairs, c.memory_s_per_context_token * context)
        + max(c.compute_s_per_window_pair * window_pairs, c.memory_s_per_window_token * window)
    )
    assert by_hand == c.step_s(
        tokens=tokens, pairs=pairs, window_pairs=window_pairs, context_tokens=context, window_context_tokens=window
    )
    # A decode step, with a pair for each token that is read, is a straight line.
    line = (
        c.beside_attention_s(tokens, tokens)
        + c.decode_s_per_context_token * context
        + c.decode_s_per_window_token * window
    )
    assert line == c.step_s(
        tokens=tokens,
        sequences=tokens,
        pairs=context,
        window_pairs=window,
        context_tokens=context,
        window_context_tokens=window,
    )


@given(MODELS, st.booleans(), st.integers(1, 20_000), st.integers(0, 2_000_000))
def test_more_work_never_takes_less_time(name: str, spread: bool, tokens: int, context: int) -> None:
    c = cost(name, "h200-sxm", 8, expert_parallel=spread)
    base = step(c, tokens, context)
    assert math.isfinite(base)
    assert base > 0
    assert base <= step(c, tokens + 1, context) * (1 + 1e-12)
    assert base <= step(c, tokens, context + 1)
    assert c.products_s(tokens) <= c.products_s(tokens + 1) * (1 + 1e-12)
    assert weights_s(c, tokens) <= weights_s(c, tokens + 1) * (1 + 1e-12)


@given(MODELS, st.integers(1, 4096), st.sampled_from([1, 2, 4]))
def test_more_ranks_never_read_or_multiply_slower(name: str, tokens: int, ranks: int) -> None:
    more, fewer = (cost(name, "h200-sxm", count) for count in (2 * ranks, ranks))
    assert weights_s(more, tokens) < weights_s(fewer, tokens)
    assert more.products_s(tokens) < fewer.products_s(tokens)


def test_memory_of_products_is_reused_and_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    c = cost("deepseek-v3", "h200-sxm", 8)
    first = c.products_s(7)
    monkeypatch.setattr(ExpertShare, "fraction", lambda *_: pytest.fail("computed twice"))
    assert c.products_s(7) == first
    assert pickle.loads(pickle.dumps(c)) == c


def test_fp4_runs_in_16_bits_without_fp4_units() -> None:
    assert H100.arithmetic_dtype("fp4") == "bf16"
    assert load_accelerator("b200-sxm").arithmetic_dtype("fp4") == "fp4"
    with pytest.raises(CatalogueError, match="no arithmetic 'int3'"):
        H100.delivered_flops_per_s("int3")


def test_an_accelerator_travels_between_processes() -> None:
    assert pickle.loads(pickle.dumps(H100)) == H100
    assert H100.delivered_host_link_bytes_per_s == pytest.approx(51e9, rel=1e-3)
