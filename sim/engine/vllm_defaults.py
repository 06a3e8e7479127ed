"""vLLM's defaults by version and GPU memory, for what a scenario leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from models.errors import ScenarioError

_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDefaults:
    """What the OpenAI-compatible server of one vLLM version uses on one GPU.

    Parameters
    ----------
    gpu_memory_utilization : float
        Share of HBM for weights and KV cache.
    max_num_batched_tokens : int
        Token budget of a step.
    max_num_seqs : int
        Most requests that run at once.
    """

    gpu_memory_utilization: float
    max_num_batched_tokens: int
    max_num_seqs: int


def engine_defaults(version: str, hbm_bytes: int, accelerator: str, where: str) -> EngineDefaults:
    """Return the defaults of a vLLM version on a GPU.

    0.33: ``engine/arg_utils.py::get_batch_defaults`` (16,384 tokens from 160 GiB of HBM; 8,192 and 1,024 requests from
    70 GiB unless it is an A100; else 2,048 and 256) and ``config/cache.py`` (0.92), read at 0.33.0. 0.20: the same rule
    without the 160 GiB row and 0.9; that version's source was not read, the figures are those that runs with it report.

    Raises
    ------
    ScenarioError
        If the version is not a known one.
    """
    release = ".".join(version.split(".")[:2])
    large = hbm_bytes >= 70 * _GIB and not accelerator.startswith("a100")
    if release == "0.33":
        tokens = 16_384 if hbm_bytes >= 160 * _GIB else 8_192 if large else 2_048
        return EngineDefaults(
            gpu_memory_utilization=0.92, max_num_batched_tokens=tokens, max_num_seqs=1_024 if large else 256
        )
    if release == "0.20":
        return EngineDefaults(
            gpu_memory_utilization=0.9,
            max_num_batched_tokens=8_192 if large else 2_048,
            max_num_seqs=1_024 if large else 256,
        )
    raise ScenarioError(where, f"is '{version}'; the defaults of 0.20 and 0.33 are known")
