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
