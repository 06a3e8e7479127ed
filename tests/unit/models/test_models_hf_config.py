"""Hugging Face configs give the same model as the catalogue; wrong ones give one clear line."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import InputError
from models.llm import Llm, load_llm

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
}  # fmt: skip
FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": LLAMA,
    "qwen3-32b": LLAMA | {
        "model_type": "qwen3", "num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 64, "head_dim": 128,
        "intermediate_size": 25600, "vocab_size": 151936, "sliding_window": None, "use_sliding_window": False,
    },
    "qwen2.5-7b": LLAMA | {
        "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28,
        "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "sliding_window": 131072,
        "use_sliding_window": False, "max_window_layers": 28,
    },
    "mistral-7b-v0.1": LLAMA | {"model_type": "mistral", "vocab_size": 32000, "sliding_window": 4096},
    "gemma-3-27b": {"model_type": "gemma3", "text_config": LLAMA | {
        "model_type": "gemma3_text", "num_hidden_layers": 62, "hidden_size": 5376, "num_key_value_heads": 16,
        "head_dim": 128, "intermediate_size": 21504, "vocab_size": None, "sliding_window": 1024,
    }},
    "mixtral-8x7b": LLAMA | {
        "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
    },
    "qwen3-coder-480b-a35b-fp8": LLAMA | FP8 | {
        "model_type": "qwen3_moe", "num_hidden_layers": 62, "hidden_size": 6144, "num_attention_heads": 96,
        "head_dim": 128, "intermediate_size": 8192, "moe_intermediate_size": 2560, "num_experts": 160,
        "num_experts_per_tok": 8, "vocab_size": 151936, "decoder_sparse_step": 1, "mlp_only_layers": [],
    },
    "qwen3-next-80b-a3b": LLAMA | {
        "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120, "moe_intermediate_size": 512,
        "num_experts": 512, "num_experts_per_tok": 10, "shared_expert_intermediate_size": 512, "vocab_size": 151936,
        "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    },
    "deepseek-v3": LLAMA | FP8 | {
        "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
        "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
        "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3, "moe_layer_freq": 1,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
        "vocab_size": 129280,
    },
    "gpt-oss-120b": LLAMA | {
        "model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "num_local_experts": 128,
        "num_experts_per_tok": 4, "experts_per_token": 4, "sliding_window": 128, "vocab_size": 201088,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
    },
    "glm-4.5-air": LLAMA | {
        "model_type": "glm4_moe", "num_hidden_layers": 46, "num_attention_heads": 96, "head_dim": 128,
        "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 128, "num_experts_per_tok": 8,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "vocab_size": 151552,
    },
    "minimax-m2.5": LLAMA | FP8 | {
        "model_type": "minimax_m2", "num_hidden_layers": 62, "hidden_size": 3072, "num_attention_heads": 48,
        "head_dim": 128, "intermediate_size": 1536, "num_local_experts": 256, "num_experts_per_tok": 8,
        "vocab_size": 200064,
    },
    "minimax-m1": LLAMA | {
        "model_type": "minimax_m1", "num_hidden_layers": 80, "hidden_size": 6144, "num_attention_heads": 64,
        "head_dim": 128, "intermediate_size": 9216, "num_local_experts": 32, "num_experts_per_tok": 2,
        "vocab_size": 200064, "attn_type_list": ([0] * 7 + [1]) * 10,
    },
    "llama-4-maverick": {"model_type": "llama4", "text_config": {
        "model_type": "llama4_text", "num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "vocab_size": 202048,
        "attention_chunk_size": 8192, "torch_dtype": "bfloat16",
    }},
}  # fmt: skip


def read(tmp_path: Path, config: object) -> Llm:
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return load_llm(str(path))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_gives_what_the_catalogue_has(name: str, tmp_path: Path) -> None:
    ours, theirs = load_llm(name), read(tmp_path, CONFIGS[name])
    assert theirs.total_params() == ours.total_params()
    assert theirs.active_params() == ours.active_params()
    assert theirs.weight_bytes() == ours.weight_bytes()
    assert theirs.kv_bytes_per_token("bf16") == ours.kv_bytes_per_token("bf16")
    assert theirs.windowed_kv_bytes_per_token("fp8") == ours.windowed_kv_bytes_per_token("fp8")
    assert theirs.state_bytes() == ours.state_bytes()
    assert theirs.flops_per_token() == ours.flops_per_token()
    assert theirs.attention_flops_per_pair() == ours.attention_flops_per_pair()


def test_a_folder_is_read_and_names_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "My-8B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert load_llm(str(folder)).name == "My-8B"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("{", "is not JSON"),
        ("[]", "must be a JSON object"),
        (LLAMA | {"model_type": "falcon"}, "unknown model_type 'falcon'.*allowed: deepseek_v3"),
        ({key: value for key, value in LLAMA.items() if key != "hidden_size"}, "'hidden_size' is missing"),
        (LLAMA | {"num_hidden_layers": "32"}, "'num_hidden_layers' is '32'; must be a whole number"),
        (LLAMA | {"num_attention_heads": 0}, "must be at least 1"),
        (LLAMA | {"vocab_size": 0}, "vocab must be at least 1"),
        (LLAMA | {"torch_dtype": "int9"}, "torch_dtype is 'int9'"),
        (LLAMA | {"tie_word_embeddings": "no"}, "must be true or false"),
        (LLAMA | {"quantization_config": {"quant_method": "magic"}}, "quantisation 'magic'"),
    ],
)
def test_bad_configs(config: object, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        read(tmp_path, config)
    assert "\n" not in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_llm(str(tmp_path / "config.json"))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**12) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(CONFIGS)), st.data())
def test_any_value_of_any_key_gives_a_model_or_one_line(name: str, data: st.DataObject) -> None:
    config = dict(CONFIGS[name].get("text_config", CONFIGS[name]))
    key = data.draw(st.sampled_from([*sorted(config), "quantization_config", "sliding_window", "layer_types"]))
    with TemporaryDirectory() as folder:
        try:
            read(Path(folder), config | {key: data.draw(JUNK)})
        except InputError as error:
            message = str(error)
        else:
            message = ""
    assert "\n" not in message


def grouped(kind: str, bits: int) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"type": kind, "num_bits": bits}}}}


@pytest.mark.parametrize(
    ("quantised", "dtype"),
    [
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_algo": "NVFP4", "quant_method": "modelopt"}, "nvfp4"),
        (grouped("int", 4), "int4"),
        (grouped("float", 8), "fp8"),
    ],
)
def test_quantised_checkpoints(quantised: dict[str, Any], dtype: str, tmp_path: Path) -> None:
    assert read(tmp_path, LLAMA | {"quantization_config": quantised}).weight_dtype == dtype
