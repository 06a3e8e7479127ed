"""Bytes an element takes in memory, scales of block formats included."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from models.errors import UnknownNameError

# Scales: fp8 has one fp32 for a block of 128 x 128 (DeepSeek-V3 report, section 3.3); mxfp4 one byte for 32 elements
# (OCP Microscaling Formats 1.0); nvfp4 one byte for 16 (NVIDIA NVFP4); int4 one bf16 for 32 (Kimi-K2 config,
# group_size 32).
WEIGHT_BYTES: Final[Mapping[str, float]] = MappingProxyType(
    {
        "fp32": 4.0,
        "bf16": 2.0,
        "fp16": 2.0,
        "fp8": 1.0 + 4.0 / (128 * 128),
        "mxfp4": 0.5 + 1.0 / 32,
        "nvfp4": 0.5 + 1.0 / 16,
        "int4": 0.5 + 2.0 / 32,
    }
)
FOUR_BIT: Final = frozenset({"mxfp4", "nvfp4", "int4"})
KV_BYTES: Final[Mapping[str, int]] = MappingProxyType({"bf16": 2, "fp16": 2, "fp8": 1})
# How a tier may hold KV. fp8: one byte an element, scales are one a tensor or head (vLLM, docs/features/quantization/
# quantized_kvcache.md: half of bf16). int4: four bits, and a 16-bit scale and zero point for each 32 elements (KIVI,
# arXiv 2402.02750, with the group size of its experiments).
HELD_KV_BYTES: Final[Mapping[str, float]] = MappingProxyType({"fp8": 1.0, "int4": 0.5 + 4.0 / 32})
STATE_BYTES: Final[Mapping[str, int]] = MappingProxyType({"fp32": 4, "bf16": 2, "fp16": 2})

# The arithmetic that a weight format is multiplied in where the GPU has units for it; where it has none,
# `Accelerator.arithmetic_dtype` falls back to bf16. int4 is expanded to bf16 on every GPU (Marlin).
COMPUTE_DTYPE: Final[Mapping[str, str]] = MappingProxyType(
    {"fp32": "bf16", "bf16": "bf16", "fp16": "bf16", "fp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4", "int4": "bf16"}
)


def weight_element_bytes(dtype: str) -> float:
    """Return the bytes of one weight [B]; raises UnknownNameError."""
    if dtype not in WEIGHT_BYTES:
        raise UnknownNameError("weight dtype", dtype, WEIGHT_BYTES)
    return WEIGHT_BYTES[dtype]


def kv_element_bytes(dtype: str) -> int:
    """Return the bytes of one element of the KV cache [B]; raises UnknownNameError."""
    if dtype not in KV_BYTES:
        raise UnknownNameError("kv dtype", dtype, KV_BYTES)
    return KV_BYTES[dtype]


def state_element_bytes(dtype: str) -> int:
    """Return the bytes of one element of a recurrent state [B]; raises UnknownNameError."""
    if dtype not in STATE_BYTES:
        raise UnknownNameError("state dtype", dtype, STATE_BYTES)
    return STATE_BYTES[dtype]
