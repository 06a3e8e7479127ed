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
    slower = replace(plain, expert_compute_factor=0.5, expert_hbm_factor=0.25, sequence_fixed_s=2e-6)
    moe, dense = load_llm("qwen3-30b-a3b"), load_llm("qwen3-8b")
    before, after = (step_cost(moe, gpu, tensor_parallel=1) for gpu in (plain, slower))
    assert after.expert_weights_s == pytest.approx(4 * before.expert_weights_s)
    assert after.dense_weights_s == before.dense_weights_s
    flops_s = moe.expert_flops_per_token() / plain.delivered_flops_per_s("bf16")
    assert after.expert_compute_s_per_token == pytest.approx(2 * before.expert_compute_s_per_token)
    assert before.expert_compute_s_per_token == pytest.approx(flops_s)
    assert after.dense_compute_s_per_token == before.dense_compute_s_per_token
    beside_products = [cost.beside_attention_s(100, 100) - cost.products_s(100) for cost in (before, after)]
    assert beside_products[1] - beside_products[0] == pytest.approx(2e-4)
    of_dense = [step_cost(dense, gpu, tensor_parallel=1) for gpu in (plain, replace(slower, sequence_fixed_s=0.0))]
    assert of_dense[0] == of_dense[1]


def test_attention_has_an_efficiency_of_its_own_where_one_is_known() -> None:
    plain, llm = load_accelerator("h100-sxm"), load_llm("llama-3.1-8b")
    slower = replace(plain, attention_efficiency=plain.compute_efficiency["bf16"] / 2)
    before, after = (step_cost(llm, gpu, tensor_parallel=1) for gpu in (plain, slower))
    assert after.compute_s_per_pair == pytest.approx(2 * before.compute_s_per_pair)
    assert after.dense_compute_s_per_token == before.dense_compute_s_per_token
    # FlashAttention 2 on an A100: 179.5 TFLOPS; 32 layers x 4 x 32 heads x 128
    on_a100 = step_cost(llm, load_accelerator("a100-sxm-80gb"), tensor_parallel=1)
    assert on_a100.compute_s_per_pair == pytest.approx(32 * 4 * 32 * 128 / 179.5e12, rel=1e-3)


@pytest.mark.parametrize("expert_parallel", [False, True])
def test_costs_of_sequences_layers_and_activations_by_hand(expert_parallel: bool) -> None:
    llm, plain = load_llm("qwen3-30b-a3b"), load_accelerator("h100-sxm")
    fuller = replace(
        plain,
        sequence_fixed_s=3e-5,
        moe_layer_fixed_s=1e-5,
        activation_passes=10.0,
        expert_activation_passes=4.0,
        kv_hbm_factor=0.5,
        prompt_layer_fixed_s=1e-3,
    )
    before, after = (step_cost(llm, gpu, tensor_parallel=2, expert_parallel=expert_parallel) for gpu in (plain, fuller))
    assert after.fixed_s - before.fixed_s == pytest.approx(llm.moe_layers * 1e-5)
    # 48 layers, all of them with experts, 8 of which a token chooses; two ranks share them where they are spread
    vectors = 48 * 10 + 48 * 8 * 4 / (2 if expert_parallel else 1)
    activations_s = 7 * vectors * llm.hidden * 2 / plain.delivered_hbm_bytes_per_s
    added_s = after.beside_attention_s(7, 5) - before.beside_attention_s(7, 5)
    assert added_s == pytest.approx(llm.moe_layers * 1e-5 + 5 * 3e-5 + activations_s)
    assert after.memory_s_per_context_token == pytest.approx(2 * before.memory_s_per_context_token)


def test_a_step_with_a_prompt_takes_as_long_as_its_launches() -> None:
    llm, plain = load_llm("qwen3-30b-a3b"), load_accelerator("h100-sxm")
    cost = step_cost(llm, replace(plain, prompt_layer_fixed_s=1e-3), tensor_parallel=2)
    small = {"pairs": 1.0, "window_pairs": 0.0, "context_tokens": 1.0, "window_context_tokens": 0.0}
    floor_s = plain.step_fixed_s + llm.layers * 1e-3
    assert cost.step_s(tokens=1, sequences=1, prompts=1, **small) == floor_s
    assert cost.step_s(tokens=1, sequences=1, prompts=0, **small) < floor_s
    large_s = cost.step_s(tokens=100_000, sequences=1, prompts=1, **small)
    assert large_s == cost.step_s(tokens=100_000, sequences=1, prompts=0, **small) > floor_s


@pytest.mark.parametrize(
    ("name", "plain", "quantising"),
    [
        # 2 norms, 3 of the MLP, 5 of attention; 4 inputs of products quantised
        ("llama-3.1-8b", 32 * 10, 32 * 14),
        # the norms and attention only: routed experts are counted by themselves
        ("gpt-oss-120b", 36 * 7, 36 * 9),
        # 10 of latent attention, 3 inputs; an MLP in all layers, of shared experts in 58, whose sum is one more
        ("deepseek-v3", 61 * 15 + 58, 61 * 20 + 58),
        # 15 layers of full attention, 45 of a gated delta net; shared experts in all
        ("qwen3.5-397b-a17b", 15 * 11 + 45 * 13, 15 * 15 + 45 * 17),
    ],
)
def test_kernels_are_counted_by_hand(name: str, plain: int, quantising: int) -> None:
    llm = load_llm(name)
    assert llm.kernels(quantises=False) == plain
    assert llm.kernels(quantises=True) == quantising


def test_a_kernels_fixed_time_stands_in_for_a_layers_where_it_is_known() -> None:
    llm, plain = load_llm("llama-3.1-8b"), load_accelerator("h100-sxm")
    known = replace(plain, kernel_fixed_s=2e-6)
    dtypes = ("bf16", "fp8", "int4")
    by_layer, by_kernel = (
        [step_cost(llm, gpu, tensor_parallel=1, weight_dtype=dtype).fixed_s for dtype in dtypes]
        for gpu in (plain, known)
    )
    assert by_layer == pytest.approx([plain.step_fixed_s + 32 * plain.layer_fixed_s] * 3)
    # What is stored in int4 is multiplied in 16 bits: nothing is quantised in the step.
    assert by_kernel == pytest.approx([plain.step_fixed_s + kernels * 2e-6 for kernels in (320, 448, 320)])


@pytest.mark.parametrize(
    ("name", "gpu", "widened"),
    [
        ("kimi-k2.5", "b200-sxm", True),  # int4, which no GPU multiplies
        ("gpt-oss-120b", "h100-sxm", True),  # mxfp4 on a part without FP4
        ("gpt-oss-120b", "b200-sxm", False),
        ("deepseek-v3", "h200-sxm", False),  # fp8
    ],
)
def test_four_bit_experts_are_read_no_faster_than_they_are_widened(name: str, gpu: str, widened: bool) -> None:
    llm, part = load_llm(name), replace(load_accelerator(gpu), expert_hbm_factor=1.0)
    costs = [step_cost(llm, replace(part, unpacking_bytes_per_s=rate), tensor_parallel=8) for rate in (None, 1e12)]
    free_s, limited_s = (cost.expert_weights_s for cost in costs)
    assert free_s == pytest.approx(llm.expert_weight_bytes() / (8 * part.delivered_hbm_bytes_per_s))
    assert limited_s == pytest.approx(llm.expert_weight_bytes() / 8e12 if widened else free_s)
    assert costs[0].dense_weights_s == costs[1].dense_weights_s
    # What HBM gives is no more for being widened quickly.
    assert step_cost(llm, replace(part, unpacking_bytes_per_s=1e15), tensor_parallel=8).expert_weights_s == free_s
