"""Finds groups of rows that no accelerator can have computed in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from models.accelerator import load_accelerator
from models.dtypes import COMPUTE_DTYPE
from models.llm import load_llm

if TYPE_CHECKING:
    from calibration.silicon.rows import Row

CEILING: Final = 0.8
"""Share of peak that whole engines do not exceed: the best measured large FP8 and 16-bit matrix products reach 0.57 to
0.65 (catalogue, H100 to GB200), and an engine does more than those."""


def impossible_groups(rows: Sequence[Row]) -> set[tuple[str, str]]:
    """Return (engine, group) of which some row's prompts alone would need more than :data:`CEILING` of peak.

    Their engines kept prompts of earlier loads: prefix caching is on unless it is turned off, and the client's seed is
    the same for all loads.
    """
    return {(row.engine, row.group) for row in rows if _share_of_peak(row) > CEILING}


def _share_of_peak(row: Row) -> float:
    """Return the arithmetic of all prompts at peak / the time that a request of the closed loop takes."""
    llm, gpu = load_llm(row.llm), load_accelerator(row.accelerator)
    dense, expert = (
        gpu.peak_flops_per_s[gpu.arithmetic_dtype(COMPUTE_DTYPE[dtype])]
        for dtype in (llm.block_dtype(row.weight_dtype), llm.expert_dtype(row.weight_dtype))
    )
    tokens = row.prompt_tokens * row.mean_share
    attention_s = llm.attention_flops_per_pair() * tokens**2 / 2 / gpu.peak_flops_per_s["bf16"]
    prompt_s = tokens * (llm.dense_flops_per_token() / dense + llm.expert_flops_per_token() / expert) + attention_s
    request_s = row.ttft_s + row.tpot_s * (row.output_tokens - 1)
    return row.concurrency * prompt_s / row.tensor_parallel / request_s
