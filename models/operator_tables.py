"""Step times from operators measured on real GPUs, in place of the roofline: AIConfigurator's tables.

The package `aiconfigurator-core` (NVIDIA, Apache-2.0, extra `aiconfigurator`) ships the tables, and adds operators
up to forward passes of a known model: of equal prompts, or of equal decodes. The steps of an engine are put together
from these here. It interpolates in its tables, extrapolates beyond them, and takes small operators (norms, activations)
from bandwidth, so its times are estimates too. They are those of the GPU: what the engine does between steps is left
out, because vLLM's TPOT is met better so (118 closed loops of the package's silicon sample: median error +4 %, with
the catalogue's `step_fixed` of 2 ms added +29 %). It is loaded on use.
"""

import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

from models.accelerator import Accelerator
from models.errors import ScenarioError
from models.llm import Llm

ENGINES: Final[Mapping[str, str]] = MappingProxyType(
    {"aiconfigurator": "vllm", "aiconfigurator-sglang": "sglang", "aiconfigurator-trtllm": "trtllm"}
)
"""Whose kernels were measured, by what a scenario says in `engine.step_times`."""

LLMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "deepseek-v3": "deepseek-ai/DeepSeek-V3",
        "deepseek-v3.2": "deepseek-ai/DeepSeek-V3.2",
        "glm-5.2-fp8": "zai-org/GLM-5.2-FP8",
        "gpt-oss-120b": "openai/gpt-oss-120b",
        "gpt-oss-20b": "openai/gpt-oss-20b",
        "kimi-k2.5": "moonshotai/Kimi-K2.5",
        "llama-3.1-405b": "meta-llama/Meta-Llama-3.1-405B",
        "llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B",
        "llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
        "minimax-m2.5": "MiniMaxAI/MiniMax-M2.5",
        "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
        "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
        "qwen3-32b": "Qwen/Qwen3-32B",
        "qwen3-8b": "Qwen/Qwen3-8B",
        "qwen3-coder-480b-a35b": "Qwen/Qwen3-Coder-480B-A35B-Instruct",
        "qwen3.5-397b-a17b": "Qwen/Qwen3.5-397B-A17B",
    }
)
"""The package's name of each model of the catalogue whose config it ships.

Llama-4-Maverick is left out: with experts spread over 8 B300, version 0.12.0 has 44 s for a step of 4,096 tokens.
"""

ACCELERATORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a100-sxm-80gb": "a100_sxm",
        "b200-sxm": "b200_sxm",
        "b300-sxm": "b300_sxm",
        "gb200": "gb200",
        "gb300": "gb300",
        "h100-sxm": "h100_sxm",
        "h200-sxm": "h200_sxm",
    }
)
"""The package's name of each accelerator of the catalogue for which it has tables of these engines."""

# What the package calls the catalogue's dtypes. FP8 checkpoints of dense models have one scale a tensor (NVIDIA's
# Llama-3.1-70B-Instruct-FP8), those of mixtures of experts one a block (Qwen3-235B-A22B-FP8, DeepSeek-V3).
_WEIGHT_MODES: Final[Mapping[str, str]] = MappingProxyType(
    {"bf16": "bfloat16", "fp8": "fp8", "int4": "int4_wo", "nvfp4": "nvfp4"}
)
_EXPERT_MODES: Final[Mapping[str, str]] = MappingProxyType({**_WEIGHT_MODES, "fp8": "fp8_block"})
_KV_MODES: Final[Mapping[str, str]] = MappingProxyType({"bf16": "bfloat16", "fp8": "fp8"})

_SHORTEST: Final = 1
_EVEN_UNTIL: Final = 128  # up to here, the line between is within 4 % of the tables; beyond, within 1 %


class ForwardPasses(Protocol):
    """What is asked of `aiconfigurator_core.sdk.engine.EngineHandle`; all times in milliseconds."""

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int) -> float:
        """Return the time of *bs* prompts of *isl* tokens, the first *prefix* of them in the KV cache."""
        ...

    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        """Return the time of one token for *gen_tokens* sequences, the *osl*-th after *isl*."""
        ...

    def mixed_step_breakdown(self, ctx_tokens: int, gen_tokens: int, isl: int, osl: int) -> tuple[float, ...]:
        """Return the time of a mixed step, then its parts, of which the first is all but attention."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTables:
    """Step times of one model, accelerator and layout; takes the place of a `StepCost`.

    *where* says whose they are, for errors.
    """

    where: str
    passes: ForwardPasses
    _tokens_s: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _decodes_s: dict[int, list[float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def step_s(self, prompts: Sequence[tuple[int, int]], *, decodes: int = 0, decode_context_tokens: int = 0) -> float:
        """Return the time of a step [s] of parts of *prompts*, beside *decodes* that read so much context in all.

        A part is the tokens in HBM already and those to compute. All tokens pass the layers together; each part adds
        what a prompt of it alone takes beyond that, and the decodes what their context takes beyond a short one (one
        kernel serves the attention of both). One prompt alone is the package's own figure. Raises ScenarioError where
        the package has none.
        """
        if not prompts:
            return self.decode_line(decodes, decode_context_tokens)[0]
        step_s = self._layers_s(decodes + sum(new for _, new in prompts))
        for done, new in prompts:
            alone_s = self._asked_s(self.passes.predict_prefill_latency, 1, done + new, done)
            step_s += max(alone_s - self._layers_s(new), 0.0)
        if decodes:
            step_s += self.decode_line(decodes, decode_context_tokens)[0] - self._lines_s(decodes, 0)[0]
        return step_s

    def decode_line(self, tokens: int, context_tokens: float) -> tuple[float, float, int]:
        """Return how steps of *tokens* decodes go from *context_tokens* on, as `StepTable.decode_line` does.

        Between contexts of 128, 192, 256, 384, ... tokens a sequence, the time is linear. More context is never
        faster, as it is here and there in the tables.
        """
        line = _line_below(context_tokens / tokens)
        times_s = self._lines_s(tokens, line + 1)
        begin, end = tokens * _context_of(line), tokens * _context_of(line + 1)
        slope_s = (times_s[line + 1] - times_s[line]) / (end - begin)
        return times_s[line] + slope_s * (context_tokens - begin), slope_s, end

    def _lines_s(self, decodes: int, line: int) -> list[float]:
        """Return the times of so many decodes at the first context lines, up to *line* at least [s]."""
        times_s = self._decodes_s.setdefault(decodes, [])
        while len(times_s) <= line:
            context = _context_of(len(times_s))
            time_s = self._asked_s(self.passes.decode_step_latency, decodes, context, 1)
            times_s.append(max(time_s, times_s[-1]) if times_s else time_s)
        return times_s

    def _layers_s(self, tokens: int) -> float:
        """Return the time of all but attention for so many tokens [s]."""
        known = self._tokens_s.get(tokens)
        if known is None:
            known = self._tokens_s[tokens] = self._asked_s(self._all_but_attention_ms, tokens)
        return known

    def _all_but_attention_ms(self, tokens: int) -> float:
        return self.passes.mixed_step_breakdown(tokens, 0, tokens, 1)[1]

    def _asked_s(self, ask: Callable[..., float], *arguments: int) -> float:
        try:
            time_ms = ask(*arguments)
        except Exception as error:  # the package's errors have no class in common
            raise ScenarioError(self.where, f"has no time for a step of this run: {_first_line(error)}") from None
        if not 0.0 < time_ms < math.inf:
            raise ScenarioError(self.where, f"has {time_ms} ms for a step of this run; must be above 0 and finite")
        return time_ms / 1e3


def _context_of(line: int) -> int:
    """Return the context of a grid line: 1, then 128, 192, 256, 384, 512, ... tokens a sequence."""
    if not line:
        return _SHORTEST
    octave, half = divmod(line - 1, 2)
    return (_EVEN_UNTIL + half * _EVEN_UNTIL // 2) << octave


def _line_below(context_tokens: float) -> int:
    """Return the last grid line that is at most a context, the first one for less."""
    if context_tokens < _EVEN_UNTIL:
        return 0
    octave = int(context_tokens // _EVEN_UNTIL).bit_length() - 1
    line = 1 + 2 * octave
    return line + (context_tokens >= _context_of(line + 1))


def load_operator_tables(
    name: str,
    llm: Llm,
    accelerator: Accelerator,
    *,
    config: Path | None,
    tensor_parallel: int,
    pipeline_parallel: int,
    expert_parallel: bool,
    weight_dtype: str | None,
    kv_dtype: str,
) -> OperatorTables:
    """Return step times of a model on a replica, of the engine that *name* stands for in `ENGINES`.

    *config* is the model's Hugging Face config.json, where it came from one. Raises ScenarioError where the package is
    not installed or has no tables for this.
    """
    where = f"engine.step_times: {name}"
    if pipeline_parallel > 1:
        raise ScenarioError(where, f"has no pipelines: cluster.pipeline_parallel is {pipeline_parallel}; must be 1")
    if weight_dtype == llm.weight_dtype == llm.expert_weight_dtype:
        weight_dtype = None  # the package takes it from the checkpoint's config
    modes = _EXPERT_MODES if llm.experts else _WEIGHT_MODES
    quantised = None if weight_dtype is None else _named(modes, "engine.weight_dtype", weight_dtype, where)
    layout: dict[str, Any] = {
        "tp_size": tensor_parallel,
        "gemm_quant_mode": quantised,
        "kvcache_quant_mode": _named(_KV_MODES, "engine.kv_dtype", kv_dtype, where),
    }
    if llm.experts:
        layout["moe_quant_mode"] = quantised
        layout["moe_tp_size"], layout["moe_ep_size"] = (1, tensor_parallel) if expert_parallel else (tensor_parallel, 1)
    system = _named(ACCELERATORS, "cluster.accelerator", accelerator.name, where)
    model = _named(LLMS, "llm", llm.name, where) if config is None else _folder(config, where)
    passes = _compiled(where, model, system, ENGINES[name], tuple(layout.items()))
    tables = OperatorTables(where=f"{where}, {model} on {tensor_parallel} x {system}", passes=passes)
    tables.step_s([(0, 1)], decodes=1, decode_context_tokens=1)  # what is missing is missed before the run
    return tables


def _named(names: Mapping[str, str], key: str, value: str, where: str) -> str:
    if value not in names:
        raise ScenarioError(where, f"has no tables for {key} {value}; it has {', '.join(names)}")
    return names[value]


def _folder(config: Path, where: str) -> str:
    if config.name != "config.json":
        raise ScenarioError(where, f"reads a model's config.json only under that name; llm is {config}")
    return str(config.parent)


@functools.lru_cache(maxsize=32)
def _compiled(where: str, model: str, system: str, engine: str, layout: tuple[tuple[str, Any], ...]) -> ForwardPasses:
    # It warns of tables of other engines that it reads along; errors are raised.
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    try:
        from aiconfigurator_core.sdk.engine import EngineHandle
    except ImportError:
        raise ScenarioError(where, "needs aiconfigurator-core: pip install 'kvtier[aiconfigurator]'") from None
    try:
        passes: ForwardPasses = EngineHandle.compile(model, system, engine, **dict(layout))
    except Exception as error:  # as above
        raise ScenarioError(where, f"has no tables for {model} on {system}: {_first_line(error)}") from None
    return passes


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
