"""Serving measurements without tiers (``silicon.csv``) as rows that the simulator can repeat.

The file is AIConfigurator's silicon sample: one closed loop a row, TTFT and TPOT in milliseconds. Two things in it need
care. Where a layout is written as TPn with EPn, both over the same n GPUs, some rows hold the product n x n as TP; and
the same measurement may stand there two or three times, from several exports of one database, rounded or not.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final

from calibration.silicon.plausible import impossible_groups
from calibration.silicon.serving import Load, Server, server_of, why_left_out
from models.errors import InputError

MODELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "MiniMaxAI/MiniMax-M2.5": "minimax-m2.5",
        "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
        "Qwen/Qwen3-32B": "qwen3-32b",
        "Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
        "deepseek-ai/DeepSeek-R1": "deepseek-v3",
        "deepseek-ai/DeepSeek-V3": "deepseek-v3",
        "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
        "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
        "moonshotai/Kimi-K2.5": "kimi-k2.5",
        "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-v3",
        "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
        "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
        "openai/gpt-oss-120b": "gpt-oss-120b",
    }
)
"""Catalogue name of each model path; GLM-5 (10 rows) has no catalogue entry."""

ACCELERATORS: Final[Mapping[str, str]] = MappingProxyType(
    {"h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm", "b200_sxm": "b200-sxm", "b300_sxm": "b300-sxm"}
)
HOPPER: Final = frozenset({"h100-sxm", "h200-sxm"})
ENGINES: Final = ("vllm", "trtllm", "sglang")

# What every weight is stored in; None: the checkpoint's own mix (mxfp4 or int4 experts beside 16-bit attention).
_WEIGHTS: Final[Mapping[str, str | None]] = MappingProxyType(
    {"": "bf16", "bf16": "bf16", "fp8": "fp8", "fp4": "nvfp4", "int4": None}
)
_IN_STEP: Final = ("0.5.1", "0.5.8")
_OWN_MIX: Final = frozenset({"gpt-oss-120b", "kimi-k2.5"})
SHORTEST: Final = 0.8
"""Share of the nominal length that InferenceX's shortest prompts and answers have."""
_COLUMNS: Final = (
    *("id", "silicon_data_source", "backend", "backend_version", "model_path", "system", "precision", "mode"),
    *("isl", "osl", "batch_size"),
    *("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size", "silicon_ttft_ms", "silicon_tpot_ms"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement: a closed loop on one replica.

    Parameters
    ----------
    id, engine, model_path, precision : str
        As in the file.
    llm, accelerator : str
        Catalogue names.
    weight_dtype : str or None
        None: the checkpoint's own.
    tensor_parallel : int
        GPUs of the replica.
    expert_parallel : bool
        Whether experts are spread over the ranks.
    prompt_tokens, output_tokens, concurrency : int
        The load.
    client : str
        ``inferencex`` (lengths drawn evenly from 80 to 100 %), ``nvidia`` (equal lengths) or ``in step`` (the same,
        and requests stay in step).
    server : Server
        How the engine was started.
    ttft_s, tpot_s : float
        What was measured [s].
    """

    id: str
    engine: str
    model_path: str
    precision: str
    llm: str
    accelerator: str
    weight_dtype: str | None
    tensor_parallel: int
    expert_parallel: bool
    prompt_tokens: int
    output_tokens: int
    concurrency: int
    client: str
    server: Server
    ttft_s: float
    tpot_s: float

    @property
    def mean_share(self) -> float:
        """Mean length of prompts and answers over the nominal one."""
        return 0.5 * (1.0 + SHORTEST) if self.client == "inferencex" else 1.0

    @property
    def group(self) -> str:
        """Model, GPU and precision: what is fitted or held out as one."""
        return f"{self.model_path}|{self.accelerator.replace('-', '_')}|{self.precision}"

    @property
    def in_fit_half(self) -> bool:
        """Whether the first byte of the SHA-256 of the group is odd."""
        return bool(sha256(self.group.encode()).digest()[0] % 2)

    @property
    def is_hopper(self) -> bool:
        """Whether it was measured on an H100 or H200."""
        return self.accelerator in HOPPER


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows that can be simulated, and how many others there are by reason."""

    rows: tuple[Row, ...]
    left_out: Mapping[str, int]


def read_rows(path: str | Path) -> Rows:
    """Read the file; raises InputError with file, line and what is allowed."""
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                message = f"{path}:1: lacks the columns {', '.join(missing)}"
                raise InputError(message)
            return _rows((f"{path}:{number}", cells) for number, cells in enumerate(reader, start=2))
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror or error}"
        raise InputError(message) from None
    except UnicodeDecodeError:
        message = f"{path}: is not UTF-8 text"
        raise InputError(message) from None


def _rows(lines: Iterable[tuple[str, Mapping[str, str]]]) -> Rows:
    found: dict[tuple[object, ...], Row] = {}
    left_out: Counter[str] = Counter()
    for where, cells in lines:
        row = _row(where, cells)
        if isinstance(row, str):
            left_out[row] += 1
            continue
        # Both figures equal to three digits under one load and layout: one measurement, exported again.
        same = (row.engine, row.group, row.tensor_parallel, row.expert_parallel, row.prompt_tokens, row.output_tokens)
        key = (*same, row.concurrency, f"{row.ttft_s:.3g}", f"{row.tpot_s:.3g}")
        if key in found:
            left_out["same measurement again"] += 1
        else:
            found[key] = row
    rows = tuple(found.values())
    impossible = impossible_groups(rows)
    kept = tuple(row for row in rows if (row.engine, row.group) not in impossible)
    if len(kept) < len(rows):
        left_out["prompts faster than matrix products can be: from a cache"] = len(rows) - len(kept)
    return Rows(rows=kept, left_out=MappingProxyType(dict(left_out)))


def _row(where: str, cells: Mapping[str, str]) -> Row | str:
    """Return the row of a line, or why it cannot be simulated."""
    if cells["mode"] != "agg":
        return "disaggregated"
    if cells["model_path"] not in MODELS:
        return f"no catalogue entry for {cells['model_path']}"
    for column, allowed in (("system", ACCELERATORS), ("precision", _WEIGHTS), ("backend", ENGINES)):
        if cells[column] not in allowed:
            message = f"{where}: {column} is '{cells[column]}'; allowed: {', '.join(map(repr, allowed))}"
            raise InputError(message)
    if _count(where, cells, "pp_size", default=1) != 1:
        return "pipeline parallel"
    layout = _layout(where, cells)
    if layout is None:
        return "attention data-parallel"
    load = _load(where, cells, layout)
    if (reason := why_left_out(load)) is not None:
        return reason
    # Requests of SGLang's first campaign march in step (their TTFT is that of bursts); all others drift apart.
    in_step = load.engine == "sglang" and load.version.startswith(_IN_STEP)
    return Row(
        id=cells["id"],
        engine=load.engine,
        model_path=cells["model_path"],
        precision=load.precision,
        llm=load.llm,
        accelerator=load.accelerator,
        weight_dtype=None if load.llm in _OWN_MIX else _WEIGHTS[load.precision],
        tensor_parallel=load.tensor_parallel,
        expert_parallel=load.expert_parallel,
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        concurrency=load.concurrency,
        client="inferencex" if load.is_inferencex else "in step" if in_step else "nvidia",
        server=server_of(load),
        ttft_s=_seconds(where, cells, "silicon_ttft_ms"),
        tpot_s=_seconds(where, cells, "silicon_tpot_ms"),
    )


def _load(where: str, cells: Mapping[str, str], layout: tuple[int, bool]) -> Load:
    return Load(
        engine=cells["backend"],
        version=cells["backend_version"],
        llm=MODELS[cells["model_path"]],
        accelerator=ACCELERATORS[cells["system"]],
        precision=cells["precision"],
        tensor_parallel=layout[0],
        expert_parallel=layout[1],
        prompt_tokens=_count(where, cells, "isl"),
        output_tokens=_count(where, cells, "osl"),
        concurrency=_count(where, cells, "batch_size"),
        is_inferencex="source_file=/" not in cells["silicon_data_source"],
    )


def _layout(where: str, cells: Mapping[str, str]) -> tuple[int, bool] | None:
    """Return GPUs and whether experts are spread over them; None for attention data-parallelism."""
    ranks = _count(where, cells, "tp_size")
    moe_ranks = _count(where, cells, "moe_tp_size", default=1)
    experts = _count(where, cells, "moe_ep_size", default=1)
    if _count(where, cells, "attention_dp_size", default=1) > 1:
        return None
    if experts > 1 and moe_ranks == experts and ranks == moe_ranks * experts:
        return experts, True
    if moe_ranks * experts > ranks:
        return None
    return ranks, experts > 1


def _count(where: str, cells: Mapping[str, str], column: str, default: int | None = None) -> int:
    text = cells[column]
    if text in {"", "0"} and default is not None:
        return default
    if not text.isdigit() or int(text) < 1:
        message = f"{where}: {column} is '{text}'; must be a whole number of at least 1"
        raise InputError(message)
    return int(text)


def _seconds(where: str, cells: Mapping[str, str], column: str) -> float:
    try:
        value_ms = float(cells[column])
    except ValueError:
        value_ms = math.nan
    if not 0.0 < value_ms < math.inf:
        message = f"{where}: {column} is '{cells[column]}'; must be a number of milliseconds above 0"
        raise InputError(message)
    return value_ms / 1e3
