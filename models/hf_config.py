"""Reads the dimensions out of a Hugging Face config.json, for the architectures named in `ARCHITECTURES`."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from models.dtypes import WEIGHT_BYTES
from models.errors import InputError, UnknownNameError


class _Config:
    """The text part of a config.json; look-ups name the key that is missing or of the wrong type."""

    def __init__(self, where: str, keys: Mapping[str, Any], outer: Mapping[str, Any]) -> None:
        self.where = where
        self._keys = keys
        self._outer = outer

    def count(self, *names: str, default: int | None = None) -> int:
        """Return the first of *names* that is there, as a whole number."""
        value = self.raw(*names)
        if value is None and default is not None:
            return default
        if value is None:
            raise InputError(
                f"{self.where}: key '{' or '.join(names)}' is missing; '{self._keys.get('model_type')}' needs it"
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(f"{self.where}: key '{names[0]}' is {value!r}; must be a whole number, at least 0")
        return value

    def raw(self, *names: str) -> Any:
        """Return the first of *names* that is there and not null, or None."""
        return next((self._keys[name] for name in names if self._keys.get(name) is not None), None)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a true/false key of the text part or of the whole config."""
        value = self._keys.get(name, self._outer.get(name, default))
        if not isinstance(value, bool):
            raise InputError(f"{self.where}: key '{name}' is {value!r}; must be true or false")
        return value

    def weight_dtypes(self) -> tuple[str, str]:
        """Return the dtypes of attention and dense MLP weights, and of routed experts."""
        stored = str(
            self.raw("torch_dtype", "dtype") or self._outer.get("torch_dtype") or self._outer.get("dtype") or "bfloat16"
        )
        names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
        if stored not in names:
            raise InputError(f"{self.where}: torch_dtype is '{stored}'; allowed: {', '.join(names)}")
        quantised = self._keys.get("quantization_config") or self._outer.get("quantization_config")
        if not isinstance(quantised, dict):
            return names[stored], names[stored]
        dtype = _quantised_dtype(quantised, self.where)
        # gpt-oss (mxfp4) and Kimi-K2.5 (int4) quantise the experts and leave attention in 16 bits.
        left_out = [*_listed(quantised, "modules_to_not_convert"), *_listed(quantised, "ignore")]
        return (names[stored] if any("attn" in module for module in left_out) else dtype), dtype


def _listed(keys: Mapping[str, Any], name: str) -> list[str]:
    value = keys.get(name)
    return [str(item) for item in value] if isinstance(value, list) else []


def _quantised_dtype(quantised: Mapping[str, Any], where: str) -> str:
    """Read the weight format as transformers, compressed-tensors, AutoAWQ, GPTQModel and ModelOpt write it."""
    method = str(quantised.get("quant_algo") or quantised.get("quant_method") or "").lower()
    bits = quantised.get("bits")
    groups = quantised.get("config_groups")
    group = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = group.get("weights") if isinstance(group, dict) else None
    if isinstance(weights, dict):
        bits = weights.get("num_bits", bits)
        method = f"{weights.get('type', '')}{bits}"
    if method in WEIGHT_BYTES:
        return method
    prefixes = {"fp8": "fp8", "fbgemm_fp8": "fp8", "float8": "fp8", "float4": "nvfp4", "int4": "int4"}
    for prefix, dtype in prefixes.items():
        if method.startswith(prefix):
            return dtype
    if method in {"awq", "gptq"} and bits == 4:
        return "int4"
    raise InputError(
        f"{where}: quantisation '{method}' ({bits} bits) is not known; "
        f"allowed: {', '.join(WEIGHT_BYTES)}, awq, gptq (4 bits)"
    )


def _common(config: _Config, vocab: int | None = None) -> dict[str, Any]:
    """Read what all architectures have; *vocab* is the architecture's default where its configs leave the key out."""
    heads = config.count("num_attention_heads")
    hidden = config.count("hidden_size")
    if heads < 1:
        raise InputError(f"{config.where}: key 'num_attention_heads' is 0; must be at least 1")
    weight_dtype, expert_weight_dtype = config.weight_dtypes()
    return {
        "layers": config.count("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.count("num_key_value_heads", default=heads),
        "head_dim": config.count("head_dim", default=hidden // heads),
        "dense_intermediate": config.count("intermediate_size", default=0),
        "vocab": config.count("vocab_size", default=vocab),
        "tied_embeddings": config.flag("tie_word_embeddings", default=False),
        "weight_dtype": weight_dtype,
        "expert_weight_dtype": expert_weight_dtype,
    }


def _dense(config: _Config, vocab: int | None = None) -> dict[str, Any]:
    if not config.count("intermediate_size"):
        raise InputError(f"{config.where}: key 'intermediate_size' is 0; must be at least 1")
    return _common(config, vocab)


def _sliding(config: _Config) -> dict[str, Any]:
    """Mistral: every layer has the window where one is given (v0.1)."""
    fields = _dense(config)
    window = config.count("sliding_window", default=0)
    return fields | ({"windowed_layers": fields["layers"], "window_tokens": window} if window else {})


def _qwen2(config: _Config) -> dict[str, Any]:
    """Qwen2 and Qwen3 ship a sliding_window key that use_sliding_window switches off."""
    fields = _dense(config)
    if not config.flag("use_sliding_window", default=False) or not config.raw("sliding_window"):
        return fields
    windowed = fields["layers"] - config.count("max_window_layers", default=0)
    return fields | {"windowed_layers": max(0, windowed), "window_tokens": config.count("sliding_window")}


def _layer_types(config: _Config, fields: dict[str, Any], name: str, default: int) -> int:
    """Count the layers of one type: from `layer_types` where the config lists them, else *default*."""
    listed = config.raw("layer_types")
    if isinstance(listed, list):
        if len(listed) != fields["layers"]:
            raise InputError(
                f"{config.where}: layer_types lists {len(listed)} layers; num_hidden_layers is {fields['layers']}"
            )
        return listed.count(name)
    return default


def _gemma3(config: _Config) -> dict[str, Any]:
    # transformers' Gemma3TextConfig: tied, 262,208 tokens; published configs leave both out.
    fields = _dense(config, vocab=262_208) | {"tied_embeddings": config.flag("tie_word_embeddings", default=True)}
    pattern = config.count("sliding_window_pattern", default=6)
    windowed = _layer_types(config, fields, "sliding_attention", fields["layers"] - fields["layers"] // max(1, pattern))
    return fields | {"windowed_layers": windowed, "window_tokens": config.count("sliding_window")}


def _moe(config: _Config, experts: tuple[str, ...], intermediate: tuple[str, ...]) -> dict[str, Any]:
    return _common(config) | {
        "experts": config.count(*experts),
        "experts_per_token": config.count("num_experts_per_tok", "experts_per_token"),
        "expert_intermediate": config.count(*intermediate),
    }


def _mixtral(config: _Config) -> dict[str, Any]:
    return _moe(config, ("num_local_experts",), ("intermediate_size",))


def _qwen3_moe(config: _Config) -> dict[str, Any]:
    if config.raw("mlp_only_layers"):
        raise InputError(
            f"{config.where}: mlp_only_layers is {config.raw('mlp_only_layers')!r}; only an empty list is supported"
        )
    fields = _moe(config, ("num_experts",), ("moe_intermediate_size",))
    return fields | {"moe_every": config.count("decoder_sparse_step", default=1)}


def _qwen3_next(config: _Config) -> dict[str, Any]:
    fields = _qwen3_moe(config)
    interval = config.count("full_attention_interval", default=4)
    linear = fields["layers"] - fields["layers"] // max(1, interval)
    shared = config.count("shared_expert_intermediate_size", default=0)
    return fields | {
        "linear_layers": _layer_types(config, fields, "linear_attention", linear),
        "linear_attention": "gated-delta",
        "linear_key_heads": config.count("linear_num_key_heads"),
        "linear_value_heads": config.count("linear_num_value_heads"),
        "linear_key_dim": config.count("linear_key_head_dim"),
        "linear_value_dim": config.count("linear_value_head_dim"),
        "linear_conv_kernel": config.count("linear_conv_kernel_dim"),
        "gated_attention": True,
        "shared_experts": -(-shared // max(1, fields["expert_intermediate"])),
    }


def _deepseek(config: _Config) -> dict[str, Any]:
    fields = _moe(config, ("n_routed_experts",), ("moe_intermediate_size",))
    return fields | {
        "shared_experts": config.count("n_shared_experts", default=0),
        "first_dense_layers": config.count("first_k_dense_replace", default=0),
        "moe_every": config.count("moe_layer_freq", default=1),
        "q_lora_rank": config.count("q_lora_rank", default=0),
        "kv_lora_rank": config.count("kv_lora_rank"),
        "rope_dim": config.count("qk_rope_head_dim"),
        "nope_dim": config.count("qk_nope_head_dim"),
        "v_dim": config.count("v_head_dim"),
    }


def _glm4_moe(config: _Config) -> dict[str, Any]:
    return _moe(config, ("n_routed_experts",), ("moe_intermediate_size",)) | {
        "shared_experts": config.count("n_shared_experts", default=0),
        "first_dense_layers": config.count("first_k_dense_replace", default=0),
    }


def _gpt_oss(config: _Config) -> dict[str, Any]:
    fields = _moe(config, ("num_local_experts", "num_experts"), ("intermediate_size",))
    windowed = _layer_types(config, fields, "sliding_attention", fields["layers"] // 2)
    # Its mxfp4 covers the experts only; attention, embedding and head stay in bf16 (modules_to_not_convert).
    dense = "bf16" if fields["expert_weight_dtype"] == "mxfp4" else fields["weight_dtype"]
    return fields | {
        "windowed_layers": windowed,
        "window_tokens": config.count("sliding_window"),
        "weight_dtype": dense,
    }


def _minimax(config: _Config) -> dict[str, Any]:
    """MiniMax-M2: plain grouped-query attention; M1 and Text-01 list lightning layers as 0 in attn_type_list."""
    fields = _moe(config, ("num_local_experts",), ("moe_intermediate_size", "intermediate_size"))
    kinds = config.raw("attn_type_list")
    linear = kinds.count(0) if isinstance(kinds, list) else 0
    if not linear:
        return fields
    heads, head_dim = fields["heads"], fields["head_dim"]
    return fields | {
        "linear_layers": linear,
        "linear_attention": "lightning",
        "linear_key_heads": heads,
        "linear_value_heads": heads,
        "linear_key_dim": head_dim,
        "linear_value_dim": head_dim,
    }


def _llama4(config: _Config) -> dict[str, Any]:
    fields = _moe(config, ("num_local_experts",), ("intermediate_size",))
    layers = fields["layers"]
    # Three layers of four attend within a chunk (no_rope_layer_interval 4 in transformers).
    chunked = _layer_types(config, fields, "chunked_attention", layers - layers // 4)
    return fields | {
        "dense_intermediate": config.count("intermediate_size_mlp", default=0),
        "moe_every": config.count("interleave_moe_layer_step", default=1),
        "shared_experts": 1,
        "windowed_layers": chunked,
        "window_tokens": config.count("attention_chunk_size"),
    }


ARCHITECTURES: Final[Mapping[str, Callable[[_Config], dict[str, Any]]]] = {
    "deepseek_v3": _deepseek,
    "deepseek_v32": _deepseek,
    "gemma3": _gemma3,
    "gemma3_text": _gemma3,
    "glm4_moe": _glm4_moe,
    "gpt_oss": _gpt_oss,
    "kimi_k2": _deepseek,
    "llama": _dense,
    "llama4": _llama4,
    "llama4_text": _llama4,
    "minimax": _minimax,
    "minimax_m1": _minimax,
    "minimax_m2": _minimax,
    "minimax_text_01": _minimax,
    "mistral": _sliding,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen2,
    "qwen3_moe": _qwen3_moe,
    "qwen3_next": _qwen3_next,
}


def read_hf_config(path: Path) -> dict[str, Any]:
    """Return the fields of an `Llm` from a Hugging Face config.json; the name is `_name_or_path` or the file's folder.

    Raises InputError for a file that cannot be read, an unknown architecture (listing the known), or a key that is
    missing or wrong.
    """
    where = str(path)
    try:
        outer = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{where}: cannot be read: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: is not JSON: {error}") from None
    if not isinstance(outer, dict):
        raise InputError(f"{where}: must be a JSON object")
    text = outer.get("text_config")
    keys = text if isinstance(text, dict) else outer
    kind = str(keys.get("model_type") or outer.get("model_type") or "")
    if kind not in ARCHITECTURES:
        raise UnknownNameError("model_type", kind, ARCHITECTURES)
    config = _Config(where, {**keys, "model_type": kind}, outer)
    name = str(outer.get("_name_or_path") or "").rsplit("/", 1)[-1] or path.resolve().parent.name or path.stem
    return {"name": name, **ARCHITECTURES[kind](config)}
