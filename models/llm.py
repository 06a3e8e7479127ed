"""What a language model weighs: parameters, weight bytes, KV bytes and FLOPs, all from its published dimensions.

Counts cover every matrix and leave out norms and biases (below 0.1 % of any model in the catalogue). Nothing here
knows a GPU.
"""

import math
from dataclasses import dataclass, fields
from pathlib import Path

from models.catalogue import Entry, load_entry
from models.dtypes import kv_element_bytes, state_element_bytes, weight_element_bytes
from models.errors import CatalogueError, InputError
from models.hf_config import read_hf_config

# Embedding, output head and router stay in 16 bits in every quantised checkpoint of the catalogue (their configs'
# modules_to_not_convert lists).
_UNQUANTISED = "bf16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Llm:
    """A decoder-only transformer by its dimensions; fields count things and are named as in Hugging Face configs.

    `layers` = full-attention + `windowed_layers` + `linear_layers`. `kv_lora_rank` > 0 means multi-head latent
    attention (MLA, DeepSeek-V2 report, section 2.1), where `head_dim` is unused. `experts` > 0 means mixture of
    experts.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    head_dim: int
    dense_intermediate: int
    vocab: int
    kv_heads: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0
    shared_experts: int = 0
    first_dense_layers: int = 0
    moe_every: int = 1
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    rope_dim: int = 0
    nope_dim: int = 0
    v_dim: int = 0
    windowed_layers: int = 0
    window_tokens: int | None = None
    linear_layers: int = 0
    linear_attention: str | None = None
    linear_key_heads: int = 0
    linear_value_heads: int = 0
    linear_key_dim: int = 0
    linear_value_dim: int = 0
    linear_conv_kernel: int = 0
    gated_attention: bool = False
    tied_embeddings: bool = False
    weight_dtype: str = "bf16"
    expert_weight_dtype: str = "bf16"
    status: str = "datasheet"
    caveats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problem = _inconsistency(self)
        if problem:
            raise CatalogueError(f"llm {self.name}", problem)

    @property
    def is_mla(self) -> bool:
        """Whether the KV cache holds one latent vector a token and layer."""
        return self.kv_lora_rank > 0

    @property
    def full_layers(self) -> int:
        """Layers whose attention reads the whole context."""
        return self.layers - self.windowed_layers - self.linear_layers

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts: every `moe_every`-th one after the first dense ones."""
        if not self.experts:
            return 0
        return sum(1 for layer in range(self.first_dense_layers, self.layers) if (layer + 1) % self.moe_every == 0)

    # Parameters ------------------------------------------------------------------------------------------------------

    def expert_params(self) -> int:
        """Return the parameters of all routed experts (three matrices each: gate, up, down)."""
        return self.moe_layers * self.experts * 3 * self.hidden * self.expert_intermediate

    def embedding_params(self) -> int:
        """Return the parameters of the input embedding and the output head, counted once where they are tied."""
        return (1 if self.tied_embeddings else 2) * self.vocab * self.hidden

    def router_params(self) -> int:
        """Return the parameters of the routers of all mixture-of-experts layers."""
        return self.moe_layers * self.experts * self.hidden

    def block_params(self) -> int:
        """Return the parameters that every token passes in the layers: attention, dense MLPs and shared experts."""
        attention = (self.full_layers + self.windowed_layers) * self._attention_params()
        mlp = (self.layers - self.moe_layers) * 3 * self.hidden * self.dense_intermediate
        shared = self.moe_layers * self.shared_experts * 3 * self.hidden * self.expert_intermediate
        return attention + self.linear_layers * self._linear_attention_params() + mlp + shared

    def total_params(self) -> int:
        """Return all parameters, embeddings included."""
        return self.block_params() + self.router_params() + self.embedding_params() + self.expert_params()

    def active_params(self) -> int:
        """Return the parameters one token uses, embeddings included (the usual 'A35B' figure)."""
        active_experts = self.expert_params() * self.experts_per_token // self.experts if self.experts else 0
        return self.block_params() + self.router_params() + self.embedding_params() + active_experts

    def _attention_params(self) -> int:
        if self.is_mla:
            query_dim = self.heads * (self.nope_dim + self.rope_dim)
            query = (
                self.hidden * self.q_lora_rank + self.q_lora_rank * query_dim
                if self.q_lora_rank
                else self.hidden * query_dim
            )
            latent = self.hidden * (self.kv_lora_rank + self.rope_dim)
            expand = self.kv_lora_rank * self.heads * (self.nope_dim + self.v_dim)
            return query + latent + expand + self.heads * self.v_dim * self.hidden
        inner = self.heads * self.head_dim
        query = inner * (2 if self.gated_attention else 1)
        return self.hidden * (query + 2 * self.kv_heads * self.head_dim + inner)

    def _linear_attention_params(self) -> int:
        key, value = self.linear_key_heads * self.linear_key_dim, self.linear_value_heads * self.linear_value_dim
        if self.linear_attention == "lightning":
            # query, key, value, output gate and output (MiniMax-01 report, section 2.2)
            return self.hidden * (2 * key + 3 * value)
        # query, key, value, gate, the two scalars a head, a short convolution, output (Qwen3-Next's gated delta net)
        projections = self.hidden * (2 * key + 3 * value + 2 * self.linear_value_heads)
        return projections + (2 * key + value) * self.linear_conv_kernel

    # Weight bytes ----------------------------------------------------------------------------------------------------

    def block_dtype(self, weight_dtype: str | None = None) -> str:
        """Return the dtype of attention and dense MLP weights: the checkpoint's, or *weight_dtype* where given."""
        return weight_dtype or self.weight_dtype

    def expert_dtype(self, weight_dtype: str | None = None) -> str:
        """Return the dtype of routed experts: the checkpoint's, or *weight_dtype* where given."""
        return weight_dtype or self.expert_weight_dtype

    def expert_weight_bytes(self, weight_dtype: str | None = None) -> int:
        """Return the bytes of all routed experts, block scales included [B]."""
        return round(self.expert_params() * weight_element_bytes(self.expert_dtype(weight_dtype)))

    def dense_weight_bytes(self, weight_dtype: str | None = None) -> int:
        """Return the bytes of all other weights [B]; embeddings, head and routers stay in 16 bits."""
        block = self.block_params() * weight_element_bytes(self.block_dtype(weight_dtype))
        return round(block + (self.router_params() + self.embedding_params()) * weight_element_bytes(_UNQUANTISED))

    def weight_bytes(self, weight_dtype: str | None = None) -> int:
        """Return the bytes of all weights over all ranks [B]; None means the checkpoint's own mix of dtypes."""
        return self.dense_weight_bytes(weight_dtype) + self.expert_weight_bytes(weight_dtype)

    def dense_read_bytes(self, weight_dtype: str | None = None) -> int:
        """Return the non-expert bytes every step reads [B]: all but an untied input table, of which it reads rows."""
        table = 0 if self.tied_embeddings else round(self.vocab * self.hidden * weight_element_bytes(_UNQUANTISED))
        return self.dense_weight_bytes(weight_dtype) - table

    # KV cache --------------------------------------------------------------------------------------------------------

    def kv_bytes_per_token(self, kv_dtype: str) -> int:
        """Return the KV bytes of one token over all layers and ranks, without replication [B].

        GQA: 2 x kv_heads x head_dim a layer (keys and values); MLA: kv_lora_rank + rope_dim (DeepSeek-V2 report, table
        1). The indexer cache of sparse attention (DeepSeek-V3.2, GLM-5.2; about 3 % more) is not counted.
        """
        return (self.full_layers + self.windowed_layers) * self._kv_elements_per_layer() * kv_element_bytes(kv_dtype)

    def windowed_kv_bytes_per_token(self, kv_dtype: str) -> int:
        """Return the part of `kv_bytes_per_token` that stops growing past `window_tokens` [B]."""
        return self.windowed_layers * self._kv_elements_per_layer() * kv_element_bytes(kv_dtype)

    def state_bytes(self, *, state_dtype: str = "fp32") -> int:
        """Return the fixed state of one sequence over all linear-attention layers [B].

        Heads x key_dim x value_dim a layer, kept in fp32 by default whatever the KV dtype, plus the inputs of the short
        convolution in bf16 (vLLM's gated delta net and lightning attention state shapes).
        """
        key, value = self.linear_key_heads * self.linear_key_dim, self.linear_value_heads * self.linear_value_dim
        matrix = (
            self.linear_value_heads * self.linear_key_dim * self.linear_value_dim * state_element_bytes(state_dtype)
        )
        convolution = (2 * key + value) * max(0, self.linear_conv_kernel - 1) * 2
        return self.linear_layers * (matrix + convolution)

    def kv_replication(self, tensor_parallel: int) -> float:
        """Return how many copies of each KV byte the ranks hold: TP / kv_heads above the head count (GQA), TP (MLA)."""
        return float(tensor_parallel) if self.is_mla else max(1.0, tensor_parallel / self.kv_heads)

    def _kv_elements_per_layer(self) -> int:
        return self.kv_lora_rank + self.rope_dim if self.is_mla else 2 * self.kv_heads * self.head_dim

    # Kernels ---------------------------------------------------------------------------------------------------------

    def kernels(self, *, quantises: bool) -> int:
        """Return how many kernels the layers launch in a step, without those of routing and of collectives.

        As vLLM's model code launches them where nothing is fused beyond its own fused operators (``llama.py``,
        ``deepseek_v2.py`` with ``mla.py``, ``qwen3_next.py``). Every layer: two norms with their residual sums. Dense
        MLP: two products and an activation function; shared experts: the same and the sum with what was routed. GQA:
        product, rotation, cache write, attention, product. MLA: product, two norms, product, rotation, cache write,
        absorption, attention, expansion, product. Linear attention: two products, convolution, gating, recurrence,
        gated norm, product. With *quantises*, one more before each product's input: activations are quantised to what
        the weights are multiplied in.
        """
        inputs = 1 if quantises else 0
        mlp = 3 + 2 * inputs
        attention = 10 + 3 * inputs if self.is_mla else 5 + 2 * inputs
        shared = self.moe_layers * (mlp + 1) if self.shared_experts else 0
        return (
            2 * self.layers
            + (self.layers - self.moe_layers) * mlp
            + shared
            + (self.full_layers + self.windowed_layers) * attention
            + self.linear_layers * (7 + 2 * inputs)
        )

    # FLOPs -----------------------------------------------------------------------------------------------------------

    def dense_flops_per_token(self) -> float:
        """Return FLOPs a token outside routed experts and scores: 2 a weight, plus the linear-attention recurrence.

        The output head is left out: engines evaluate it for sampled positions only. The recurrence is 6 (gated delta)
        or 4 (lightning) x heads x key_dim x value_dim a layer: decay aside, two or three products with the state.
        """
        products = 4 if self.linear_attention == "lightning" else 6
        state = self.linear_layers * products * self.linear_value_heads * self.linear_key_dim * self.linear_value_dim
        return 2.0 * (self.block_params() + self.router_params()) + state

    def expert_flops_per_token(self) -> float:
        """Return FLOPs a token in its routed experts: 2 a weight of the chosen ones."""
        return 2.0 * self.expert_params() * self.experts_per_token / self.experts if self.experts else 0.0

    def flops_per_token(self) -> float:
        """Return FLOPs a token without attention scores (2 x active matrix parameters, output head excluded)."""
        return self.dense_flops_per_token() + self.expert_flops_per_token()

    def attention_flops_per_pair(self) -> float:
        """Return FLOPs for one (query token, key token) pair over all full-attention layers.

        4 x heads x head_dim a layer (scores and weighted sum, 2 FLOPs each). MLA is counted in its expanded (prefill)
        form, 2 x heads x (nope + rope + v); the absorbed form of decode costs 3.4 times that at DeepSeek-V3's
        dimensions and is not used.
        """
        return float(self.full_layers * self._pair_flops_per_layer())

    def window_attention_flops_per_pair(self) -> float:
        """Return the same over all windowed layers, for pairs inside the window."""
        return float(self.windowed_layers * self._pair_flops_per_layer())

    def _pair_flops_per_layer(self) -> int:
        if self.is_mla:
            return 2 * self.heads * (self.nope_dim + self.rope_dim + self.v_dim)
        return 4 * self.heads * self.head_dim


def touched_fraction(experts: int, experts_per_token: int, tokens: float) -> float:
    """Return the expected fraction of a layer's experts that *tokens* tokens touch: 1 - (1 - k/E)^tokens.

    Assumes that each token picks its k of E experts uniformly and independently; real routers are skewed, so this is an
    upper bound on the weights read. 0 without experts.
    """
    if not experts or tokens <= 0:
        return 0.0
    if experts_per_token >= experts:
        return 1.0
    return -math.expm1(tokens * math.log1p(-experts_per_token / experts))


def _inconsistency(llm: Llm) -> str | None:
    """Return the first contradiction among a model's dimensions, or None."""
    moe, linear = llm.experts > 0, llm.linear_layers > 0
    rules = (
        (min(llm.layers, llm.hidden, llm.heads, llm.vocab) >= 1, "layers, hidden, heads and vocab must be at least 1"),
        (llm.full_layers >= 0, "has more windowed and linear layers than layers"),
        (llm.is_mla or min(llm.kv_heads, llm.head_dim) >= 1, "kv_heads and head_dim must be at least 1 without MLA"),
        (not llm.is_mla or min(llm.rope_dim, llm.nope_dim, llm.v_dim) >= 1, "MLA needs rope_dim, nope_dim and v_dim"),
        (not llm.windowed_layers or bool(llm.window_tokens), "windowed_layers needs window_tokens"),
        (not moe or 1 <= llm.experts_per_token <= llm.experts, f"experts_per_token must be 1 to {llm.experts}"),
        (not linear or llm.linear_attention is not None, "linear_layers needs linear_attention"),
        (not linear or llm.linear_value_heads >= 1, "linear_layers needs linear heads and dimensions"),
        (llm.moe_every >= 1, "moe_every must be at least 1"),
    )
    return next((problem for holds, problem in rules if not holds), None)


_COUNTED = tuple(spec.name for spec in fields(Llm) if spec.type is int and spec.name != "moe_every")


def llm_from_entry(entry: Entry) -> Llm:
    """Return the model an entry of kind llm describes; raises CatalogueError where figures contradict each other."""
    weight_dtype = entry.traits.get("weight_dtype", "bf16")
    counts = {name: entry.count(name) for name in _COUNTED}
    return Llm(
        name=entry.name,
        moe_every=entry.count("moe_every", 1),
        window_tokens=entry.count("window_tokens") or None,
        linear_attention=entry.traits.get("linear_attention"),
        gated_attention=entry.yes("gated_attention"),
        tied_embeddings=entry.yes("tied_embeddings"),
        weight_dtype=weight_dtype,
        expert_weight_dtype=entry.traits.get("expert_weight_dtype", weight_dtype),
        status=entry.status,
        caveats=entry.caveats,
        **counts,
    )


def load_llm(name_or_path: str) -> Llm:
    """Return a model by catalogue name, from a catalogue-style .yaml, or from a Hugging Face config.json or its folder.

    Raises UnknownNameError for a name that does not exist, CatalogueError for a bad entry, InputError for a bad config.
    """
    config = hf_config_path(name_or_path)
    if config is None:
        return llm_from_entry(load_entry("llm", name_or_path))
    try:
        return Llm(**read_hf_config(config))
    except CatalogueError as error:
        raise InputError(f"{config}: {error.problem}") from None


def hf_config_path(name_or_path: str) -> Path | None:
    """Return the Hugging Face config.json that a model is written as, itself or its folder; None for other names."""
    path = Path(name_or_path)
    # A folder is a path only when it is written as one: a download beside the scenario must not hide a catalogue name.
    if name_or_path.endswith(".json") or (path.is_dir() and len(path.parts) > 1):
        return path / "config.json" if path.is_dir() else path
    return None
