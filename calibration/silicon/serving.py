"""How the servers of the measurements were started: what the file does not say, and the benchmark's scripts do.

Sources: SemiAnalysisAI/InferenceX on GitHub, ``benchmarks/`` (one script for each model, precision, GPU and engine) and
``.github/configs/nvidia-master.yaml`` (which image measures what), as of November 2025 to April 2026. Rows of NVIDIA's
own client have the engine's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

DEFAULT_BUDGET: Final = 8192
"""``max_num_batched_tokens`` of vLLM's server and SGLang's ``chunked_prefill_size`` on GPUs of 80 GiB and more, and
TensorRT-LLM's ``max_num_tokens``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a server was started with: type of the KV cache, token budget of a step, and steps between two looks."""

    kv_dtype: str
    budget: int
    receive_interval: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the choice of a server's options rests on; names as in :class:`calibration.silicon.rows.Row`."""

    engine: str
    version: str
    llm: str
    accelerator: str
    precision: str
    tensor_parallel: int
    expert_parallel: bool
    prompt_tokens: int
    output_tokens: int
    concurrency: int
    is_inferencex: bool


def server_of(load: Load) -> Server:
    """Return how the server of a load was started."""
    quantised = load.precision in {"fp8", "fp4"}
    if not load.is_inferencex:
        return Server(kv_dtype="fp8" if quantised and load.engine == "trtllm" else "bf16", budget=DEFAULT_BUDGET)
    return {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}[load.engine](load)


def _vllm(load: Load) -> Server:
    """``70b_*.sh``, ``gptoss_fp4_h100.sh``, ``kimik2.5_int4_b200.sh``, ``minimaxm2.5_fp8_*.sh``."""
    if load.llm == "minimax-m2.5" and load.version.startswith(("0.19", "nightly")):
        return Server(kv_dtype="fp8", budget=2 * load.prompt_tokens)
    return Server(kv_dtype="fp8" if load.llm == "llama-3.1-70b" else "bf16", budget=DEFAULT_BUDGET)


def _sglang(load: Load) -> Server:
    """``dsr1_fp8_*.sh``, ``dsr1_fp4_b200.sh``, ``qwen3.5_*.sh``."""
    deepseek = load.llm == "deepseek-v3"
    if load.accelerator == "h200-sxm":
        return Server(kv_dtype="bf16" if deepseek else "fp8", budget=32_768 if deepseek else 16_384)
    kv_dtype = "bf16" if load.precision == "bf16" else "fp8"
    if load.accelerator == "b300-sxm":
        return Server(kv_dtype=kv_dtype, budget=16_384, receive_interval=10)
    small = deepseek and load.precision == "fp8" and load.tensor_parallel == 4
    budget = 16_384 if load.precision == "fp4" else DEFAULT_BUDGET if small else 32_768
    return Server(kv_dtype=kv_dtype, budget=budget, receive_interval=30 if load.concurrency >= 16 and not small else 10)


def _trtllm(load: Load) -> Server:
    """``70b_fp4_b200_trt_slurm.sh``, ``dsr1_fp*_trt.sh``: room for one prompt and a token for everybody else."""
    if load.llm == "llama-3.1-70b":
        longest = load.prompt_tokens + load.output_tokens
        return Server(kv_dtype="fp8", budget=longest + (20 if longest == 2 * load.prompt_tokens else 200))
    return Server(kv_dtype="fp8", budget=max(DEFAULT_BUDGET, (load.concurrency + load.prompt_tokens + 127) // 64 * 64))


# nvidia-master.yaml: `dsr1-fp4-b200-trt-mtp` alone has image 1.2.0rc6.post3; with 1.1.0rc2.post2 it has these sweeps
# (InferenceMAX/InferenceMAX at 525079ad): prompt, output, GPUs, experts spread -> least and most requests at once.
_MTP_IMAGE: Final = "1.2.0rc6.post3"
_SHARED_IMAGE: Final = "1.1.0rc2.post2"
_MTP_SWEEPS: Final[Mapping[tuple[int, int, int, bool], tuple[int, int]]] = MappingProxyType(
    {
        (1024, 1024, 4, False): (4, 8),
        (1024, 1024, 4, True): (16, 64),
        (1024, 1024, 8, False): (4, 8),
        (1024, 1024, 8, True): (16, 32),
        (1024, 8192, 4, False): (4, 16),
        (1024, 8192, 4, True): (32, 64),
        (1024, 8192, 8, False): (4, 4),
        (1024, 8192, 8, True): (8, 64),
        (8192, 1024, 4, False): (4, 16),
        (8192, 1024, 8, False): (4, 16),
    }
)


def why_left_out(load: Load) -> str | None:
    """Return why nobody knows how the server of a load ran, None where it is known; the load alone decides."""
    if _may_speculate(load):
        return "may use multi-token prediction"
    if _sent_at_once(load):
        return "sent at once to a server of unknown batch size"
    return None


def _may_speculate(load: Load) -> bool:
    """Return whether a load is in a sweep with multi-token prediction, which the file does not tell apart."""
    if (load.engine, load.llm, load.precision) != ("trtllm", "deepseek-v3", "fp4") or not load.is_inferencex:
        return False
    if load.version == _MTP_IMAGE:
        return True
    layout = (load.prompt_tokens, load.output_tokens, load.tensor_parallel, load.expert_parallel)
    least, most = _MTP_SWEEPS.get(layout, (1, 0))
    return load.version == _SHARED_IMAGE and least <= load.concurrency <= most


_MOST_OF_GPT_OSS: Final = 64


def _sent_at_once(load: Load) -> bool:
    """Return whether clients may have sent all their requests at once to a server of unknown ``max_num_seqs``.

    ``gptoss_fp4_h100.sh`` starts its server with as many sequences as it has clients, of ten requests each. Nine runs
    are filed under 512 clients: their first tokens wait for 4.2 to 4.8 answers, half of the other nine, and their TPOT
    is that of the other runs, which have 4 to 64. How many sequences the server took is not in the file.
    """
    return load.is_inferencex and load.llm == "gpt-oss-120b" and load.concurrency > _MOST_OF_GPT_OSS
