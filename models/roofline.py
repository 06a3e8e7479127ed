"""How long one engine step takes: fixed and collective terms, and a roofline for each class of kernels.

Kernels run one after another. So each class takes the larger of its own compute and HBM time, and these add up: dense
products, the grouped products of routed experts, attention on full and on windowed layers. What passes activations
through HBM between products comes on top.

Passive: it turns a model, an accelerator and a layout into coefficients, once; a step is then a dozen multiply-adds.
"""

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final

from models.accelerator import Accelerator
from models.dtypes import COMPUTE_DTYPE, FOUR_BIT
from models.errors import CatalogueError
from models.llm import Llm, touched_fraction

# Activations travel between GPUs in 16 bits in every engine of today (vLLM, SGLang, TensorRT-LLM).
_ACTIVATION_BYTES = 2
_SIXTEEN_BITS: Final = "bf16"
_REDUCES_PER_LAYER = 2  # after attention and after the MLP (Megatron-LM, section 3)
_DISPATCH_AND_COMBINE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertShare:
    """How much of the routed experts' weights the busiest rank reads in a step.

    `experts` a layer with `experts_per_token` chosen; `spread_over` ranks hold whole experts (1: every rank holds a
    slice of each, so all ranks read alike). `skew` is the standard deviation of the logarithm of an expert's chance to
    be chosen; 0: all are as likely.
    """

    experts: int
    experts_per_token: int
    spread_over: int
    skew: float = 0.0

    def fraction(self, tokens: float) -> float:
        """Return the busiest rank's touched share of its expert weights for *tokens* tokens in a step.

        Sliced: 1 - (1 - k/E)^tokens. Spread: touched experts a rank are taken as binomial (E / ranks trials), and the
        step waits for the largest of the ranks' independent counts. Uniform, independent routing is assumed in both.

        With a skew, an expert's chance is k/E times a log-normal factor of mean 1, and the touched share is its mean
        over experts. A skew is a fitted figure, and what waiting for the busiest rank costs is in it already (measured
        steps with spread experts are not slower than sliced ones), so the ranks are not counted apart then.
        """
        if self.skew > 0.0:
            return _skewed_fraction(self.experts, self.experts_per_token, tokens, self.skew)
        touched = touched_fraction(self.experts, self.experts_per_token, tokens)
        if self.spread_over == 1 or touched in {0.0, 1.0}:
            return touched
        # A rank with a part of an expert too many is rounded up: the busiest rank holds that one.
        held = -(-self.experts // self.spread_over)
        expected, below = 0.0, 0.0
        for count in range(held):
            below += math.comb(held, count) * touched**count * (1.0 - touched) ** (held - count)
            expected += 1.0 - min(1.0, below) ** self.spread_over
        return min(1.0, expected / held)


# Medians of 24 intervals of equal chance of a standard normal variable.
_NORMAL: Final = tuple(NormalDist().inv_cdf((i + 0.5) / 24) for i in range(24))


def _skewed_fraction(experts: int, experts_per_token: int, tokens: float, skew: float) -> float:
    """Return the touched share of experts whose chances are log-normal with standard deviation *skew* of the log."""
    if not experts or tokens <= 0:
        return 0.0
    factors = [math.exp(skew * z) for z in _NORMAL]
    mean = sum(factors) / len(factors)
    chances = [min(experts_per_token / experts * factor / mean, 1.0) for factor in factors]
    return math.fsum(1.0 - math.pow(1.0 - chance, tokens) for chance in chances) / len(factors)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Coefficients of one step's time [s].

    `*_per_token` count scheduled tokens, `*_per_pair` (query, key) pairs, `*_context_token` and `*_window_token`
    tokens of KV read, summed over the sequences of the step. `dense_weights_s` and `expert_weights_s` are the HBM times
    of all such weights of a rank; `microbatches` share a step in a pipeline. A step that computes prompts takes
    `prompt_floor_s` at least.
    """

    fixed_s: float
    collective_latency_s: float
    collective_s_per_token: float
    dense_compute_s_per_token: float
    expert_compute_s_per_token: float
    compute_s_per_pair: float
    compute_s_per_window_pair: float
    memory_s_per_context_token: float
    memory_s_per_window_token: float
    dense_weights_s: float
    expert_weights_s: float
    expert_share: ExpertShare
    microbatches: int = 1
    overhead_s_per_sequence: float = 0.0
    activations_s_per_token: float = 0.0
    prompt_floor_s: float = 0.0
    _products_s: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def products_s(self, tokens: int) -> float:
        """Return the time of all products with weights in a step of *tokens* tokens [s]; never falls with *tokens*."""
        known = self._products_s.get(tokens)
        if known is None:
            touched = self.expert_share.fraction(tokens / self.microbatches)
            dense_s = max(self.dense_compute_s_per_token * tokens, self.dense_weights_s)
            experts_s = max(self.expert_compute_s_per_token * tokens, self.expert_weights_s * touched)
            known = self._products_s[tokens] = dense_s + experts_s
        return known

    def beside_attention_s(self, tokens: int, sequences: int) -> float:
        """Return what a step of *tokens* tokens of *sequences* sequences takes beside its attention [s]."""
        return (
            self.fixed_s
            + self.collective_latency_s
            + (self.collective_s_per_token + self.activations_s_per_token) * tokens
            + self.overhead_s_per_sequence * sequences
            + self.products_s(tokens)
        )

    @property
    def decode_s_per_context_token(self) -> float:
        """Attention of a decode step, which has one (query, key) pair for each token of context that it reads [s]."""
        return max(self.compute_s_per_pair, self.memory_s_per_context_token)

    @property
    def decode_s_per_window_token(self) -> float:
        """The same on windowed layers [s]."""
        return max(self.compute_s_per_window_pair, self.memory_s_per_window_token)

    def step_s(
        self,
        *,
        tokens: int,
        sequences: int = 0,
        prompts: int = 0,
        pairs: float,
        window_pairs: float,
        context_tokens: float,
        window_context_tokens: float,
    ) -> float:
        """Return the time of one step [s].

        *tokens* are scheduled this step, of *sequences* sequences, *prompts* of which compute a prompt; *pairs* and
        *window_pairs* are their (query, key) pairs on full and windowed layers, *context_tokens* and
        *window_context_tokens* the KV tokens read there.
        """
        step_s = (
            self.beside_attention_s(tokens, sequences)
            + max(self.compute_s_per_pair * pairs, self.memory_s_per_context_token * context_tokens)
            + max(self.compute_s_per_window_pair * window_pairs, self.memory_s_per_window_token * window_context_tokens)
        )
        return max(step_s, self.prompt_floor_s) if prompts else step_s


def step_cost(
    llm: Llm,
    accelerator: Accelerator,
    *,
    tensor_parallel: int,
    pipeline_parallel: int = 1,
    expert_parallel: bool = False,
    weight_dtype: str | None = None,
    kv_dtype: str = "bf16",
) -> StepCost:
    """Return the step-time coefficients of a model on a replica of *tensor_parallel* x *pipeline_parallel* GPUs.

    Compute and HBM rates are peak x efficiency. Tensor parallelism slices weights and heads; every rank reads its own
    copy of replicated KV. Expert parallelism gives each rank whole experts and replaces the reduce of
    mixture-of-experts layers by dispatch and combine. A pipeline of p stages is taken in its steady state with p
    microbatches: compute, KV and collective bytes divide by p, weights and fixed terms do not, and p - 1 hops are
    added. Raises CatalogueError for a layout that cannot be built.
    """
    _check_layout(llm, tensor_parallel, pipeline_parallel)
    ranks = tensor_parallel * pipeline_parallel
    hbm_bytes_per_s = accelerator.delivered_hbm_bytes_per_s
    dense_flops_per_s = accelerator.delivered_flops_per_s(COMPUTE_DTYPE[llm.block_dtype(weight_dtype)])
    expert_flops_per_s = (
        accelerator.delivered_flops_per_s(COMPUTE_DTYPE[llm.expert_dtype(weight_dtype)])
        * accelerator.expert_compute_factor
    )
    # Scores and weighted sums are computed in 16 bits whatever the KV is stored in (FlashAttention's default path).
    attention_flops_per_s = accelerator.attention_flops_per_s
    windowed_bytes = llm.windowed_kv_bytes_per_token(kv_dtype)
    full_bytes = llm.kv_bytes_per_token(kv_dtype) - windowed_bytes
    kv_s_per_byte = llm.kv_replication(tensor_parallel) / (ranks * hbm_bytes_per_s * accelerator.kv_hbm_factor)
    spread = expert_parallel and llm.experts > 0
    spread_over = tensor_parallel if spread else 1
    latency_s, s_per_token = _collectives(llm, accelerator, tensor_parallel, pipeline_parallel, spread=spread)
    return StepCost(
        fixed_s=accelerator.step_fixed_s
        + _layers_fixed_s(llm, accelerator, weight_dtype)
        + llm.moe_layers * accelerator.moe_layer_fixed_s,
        collective_latency_s=latency_s,
        collective_s_per_token=s_per_token,
        dense_compute_s_per_token=llm.dense_flops_per_token() / (ranks * dense_flops_per_s),
        expert_compute_s_per_token=llm.expert_flops_per_token() / (ranks * expert_flops_per_s),
        compute_s_per_pair=llm.attention_flops_per_pair() / (ranks * attention_flops_per_s),
        compute_s_per_window_pair=llm.window_attention_flops_per_pair() / (ranks * attention_flops_per_s),
        memory_s_per_context_token=full_bytes * kv_s_per_byte,
        memory_s_per_window_token=windowed_bytes * kv_s_per_byte,
        dense_weights_s=llm.dense_read_bytes(weight_dtype) / (tensor_parallel * hbm_bytes_per_s),
        expert_weights_s=llm.expert_weight_bytes(weight_dtype)
        / (tensor_parallel * _expert_bytes_per_s(llm, accelerator, weight_dtype)),
        expert_share=ExpertShare(
            experts=llm.experts,
            experts_per_token=llm.experts_per_token,
            spread_over=spread_over,
            skew=accelerator.routing_skew,
        ),
        microbatches=pipeline_parallel,
        overhead_s_per_sequence=accelerator.sequence_fixed_s,
        activations_s_per_token=_activation_bytes_per_token(llm, accelerator, spread_over)
        / (pipeline_parallel * hbm_bytes_per_s),
        prompt_floor_s=accelerator.step_fixed_s + llm.layers * accelerator.prompt_layer_fixed_s
        if accelerator.prompt_layer_fixed_s
        else 0.0,
    )


def _activation_bytes_per_token(llm: Llm, accelerator: Accelerator, expert_ranks: int) -> float:
    """Return what a rank passes through HBM for a token between products [B].

    Tensor parallelism does not slice hidden vectors. Those of routed experts, one for each chosen expert, are a rank's
    share where whole experts lie on *expert_ranks* ranks.
    """
    chosen = llm.moe_layers * llm.experts_per_token / expert_ranks
    passes = accelerator.activation_passes * llm.layers + accelerator.expert_activation_passes * chosen
    return passes * llm.hidden * _ACTIVATION_BYTES


def _expert_bytes_per_s(llm: Llm, accelerator: Accelerator, weight_dtype: str | None) -> float:
    """Return how fast one GPU reads the weights of routed experts [B/s]."""
    read_bytes_per_s = accelerator.delivered_hbm_bytes_per_s * accelerator.expert_hbm_factor
    stored = llm.expert_dtype(weight_dtype)
    widens = stored in FOUR_BIT and _multiplies_in_16_bits(accelerator, stored)
    limit = accelerator.unpacking_bytes_per_s if widens else None
    return read_bytes_per_s if limit is None else min(read_bytes_per_s, limit)


def _multiplies_in_16_bits(accelerator: Accelerator, stored: str) -> bool:
    return accelerator.arithmetic_dtype(COMPUTE_DTYPE[stored]) == _SIXTEEN_BITS


def _layers_fixed_s(llm: Llm, accelerator: Accelerator, weight_dtype: str | None) -> float:
    if accelerator.kernel_fixed_s is None:
        return llm.layers * accelerator.layer_fixed_s
    quantises = not _multiplies_in_16_bits(accelerator, llm.block_dtype(weight_dtype))
    return llm.kernels(quantises=quantises) * accelerator.kernel_fixed_s


def _collectives(
    llm: Llm, accelerator: Accelerator, tensor_parallel: int, pipeline_parallel: int, *, spread: bool
) -> tuple[float, float]:
    """Return (latency_s a step, s a token) of collectives between tensor-parallel ranks and hops between stages.

    An all-reduce of b bytes over n ranks takes 2 (n-1)/n x b / bus bandwidth (nccl-tests, PERFORMANCE.md); dispatch
    and combine each move (n-1)/n of k/n x b a rank.
    """
    n = tensor_parallel
    bus_bytes_per_s = accelerator.scale_up_bytes_per_s * accelerator.collective_efficiency
    activation_s = llm.hidden * _ACTIVATION_BYTES / bus_bytes_per_s
    latency_s, s_per_token = 0.0, 0.0
    if n > 1:
        exchanged_layers = llm.moe_layers if spread else 0
        reduces = _REDUCES_PER_LAYER * llm.layers - exchanged_layers
        exchanges = _DISPATCH_AND_COMBINE * exchanged_layers
        latency_s = (reduces + exchanges) * accelerator.collective_latency_s
        moved = reduces * 2.0 + exchanges * llm.experts_per_token / n
        s_per_token = moved * (n - 1) / n * activation_s / pipeline_parallel
    hops = pipeline_parallel - 1
    # A hop carries one microbatch of activations, sliced over the tensor-parallel ranks of a stage.
    hop_s_per_token = hops * llm.hidden * _ACTIVATION_BYTES / (accelerator.scale_up_bytes_per_s * n * pipeline_parallel)
    return latency_s + hops * accelerator.collective_latency_s, s_per_token + hop_s_per_token


def kv_capacity_bytes(
    llm: Llm,
    accelerator: Accelerator,
    *,
    tensor_parallel: int,
    pipeline_parallel: int,
    gpu_memory_utilization: float,
    weight_dtype: str | None = None,
) -> int:
    """Return the HBM left for KV over all ranks of a replica, copies of replicated KV included [B].

    A token takes kv_bytes_per_token x kv_replication of it.

    HBM x utilization - weights; activations and graphs of the engine live in what the utilization leaves (vLLM
    profiles them; their size has no public figure). Raises CatalogueError where the weights do not fit, with both
    numbers.
    """
    _check_layout(llm, tensor_parallel, pipeline_parallel)
    ranks = tensor_parallel * pipeline_parallel
    usable = int(ranks * accelerator.hbm_bytes * gpu_memory_utilization)
    weights = llm.weight_bytes(weight_dtype)
    if weights >= usable:
        raise CatalogueError(
            f"llm {llm.name} on {ranks} x {accelerator.name}",
            f"does not fit: {weights / 1e9:.1f} GB of weights in {usable / 1e9:.1f} GB of HBM "
            f"(utilization {gpu_memory_utilization:g})",
        )
    return usable - weights


def _check_layout(llm: Llm, tensor_parallel: int, pipeline_parallel: int) -> None:
    if tensor_parallel < 1 or pipeline_parallel < 1:
        raise CatalogueError("layout", "tensor_parallel and pipeline_parallel must be at least 1")
    if llm.heads % tensor_parallel:
        raise CatalogueError(
            f"llm {llm.name}", f"{llm.heads} attention heads cannot be split over tensor_parallel {tensor_parallel}"
        )
    if pipeline_parallel > llm.layers:
        raise CatalogueError(
            f"llm {llm.name}", f"{llm.layers} layers cannot be split over pipeline_parallel {pipeline_parallel}"
        )
