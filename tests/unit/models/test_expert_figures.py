from dataclasses import replace

import pytest

from models.accelerator import load_accelerator
from models.llm import load_llm
from models.roofline import ExpertShare, step_cost


def share(skew: float, spread_over: int = 1) -> ExpertShare:
    return ExpertShare(experts=128, experts_per_token=4, spread_over=spread_over, skew=skew)


def test_a_skewed_router_touches_fewer_experts_and_nearly_the_even_share_at_a_small_skew() -> None:
    for tokens in (2, 16, 64):
        shares = [share(skew).fraction(tokens) for skew in (0.0, 0.5, 1.0, 1.5)]
        assert shares == sorted(shares, reverse=True)
        assert share(1e-6).fraction(tokens) == pytest.approx(shares[0], rel=1e-6)


def test_one_token_touches_its_experts_whatever_the_skew() -> None:
    assert share(1.0).fraction(1) == pytest.approx(4 / 128)
    assert share(1.0).fraction(0) == 0.0


def test_a_skewed_share_never_falls_with_tokens_and_ends_at_all() -> None:
    shares = [share(1.2).fraction(tokens) for tokens in range(1, 2000, 50)]
    assert shares == sorted(shares)
    assert share(1.2).fraction(100_000) == pytest.approx(1.0)


def test_expert_factors_slow_experts_only_and_tokens_cost_their_fixed_time() -> None:
    plain = load_accelerator("h200-sxm")
    slower = replace(plain, expert_compute_factor=0.5, expert_hbm_factor=0.25, token_fixed_s=2e-6)
    moe, dense = load_llm("qwen3-30b-a3b"), load_llm("qwen3-8b")
    before, after = (step_cost(moe, gpu, tensor_parallel=1) for gpu in (plain, slower))
    assert after.expert_weights_s == pytest.approx(4 * before.expert_weights_s)
    assert after.dense_weights_s == before.dense_weights_s
    flops_s = moe.expert_flops_per_token() / plain.delivered_flops_per_s("bf16")
    assert after.compute_s_per_token - before.compute_s_per_token == pytest.approx(flops_s)
    assert after.affine(100)[0] - before.affine(100)[0] == pytest.approx(2e-4)
    assert step_cost(dense, slower, tensor_parallel=1).compute_s_per_token == pytest.approx(
        step_cost(dense, plain, tensor_parallel=1).compute_s_per_token
    )


def test_attention_has_an_efficiency_of_its_own_where_one_is_known() -> None:
    plain, llm = load_accelerator("h100-sxm"), load_llm("llama-3.1-8b")
    slower = replace(plain, attention_efficiency=plain.compute_efficiency["bf16"] / 2)
    before, after = (step_cost(llm, gpu, tensor_parallel=1) for gpu in (plain, slower))
    assert after.compute_s_per_pair == pytest.approx(2 * before.compute_s_per_pair)
    assert after.compute_s_per_token == before.compute_s_per_token
    # FlashAttention 2 on an A100: 179.5 TFLOPS; 32 layers x 4 x 32 heads x 128
    on_a100 = step_cost(llm, load_accelerator("a100-sxm-80gb"), tensor_parallel=1)
    assert on_a100.compute_s_per_pair == pytest.approx(32 * 4 * 32 * 128 / 179.5e12, rel=1e-3)
