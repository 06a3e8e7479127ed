"""``python -m calibration.step_times``: the roofline's step times beside those of AIConfigurator's measured operators.

Two steps on an empty replica, as Markdown; with ``--csv FILE``, the errors of both in measured closed loops of vLLM
(the file of ``calibration.silicon``). Nothing is fitted here, but choices behind both were made with such loops in
view: fixed times of the catalogue, and that none is added to AIConfigurator's. Needs kvtier[aiconfigurator].
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import isnan
from statistics import median
from typing import Final, NamedTuple

from calibration.silicon.loop import loop_times, scenario_of
from calibration.silicon.rows import Row, read_rows
from models.accelerator import load_accelerator
from models.errors import InputError, ScenarioError
from models.llm import load_llm
from models.operator_tables import ENGINES, load_operator_tables
from models.prefill import prefill_step_s
from models.roofline import StepCost, step_cost
from models.step_times import StepTimes

_PROMPT: Final = 4096
_DECODES: Final = 32
_CONTEXT: Final = 4096
_MOST_CLIENTS: Final = 64
_PLAIN: Final = {"mixed_step_factor": 1.0, "request_latency": 0.0}  # of the engine; GPUs are those of the catalogue


class Replica(NamedTuple):
    """A model and the GPUs that it runs on; *weights* None: as its checkpoint has them."""

    llm: str
    accelerator: str
    gpus: int
    weights: str | None = None


REPLICAS: Final = (
    Replica("llama-3.1-8b", "a100-sxm-80gb", 1),
    Replica("llama-3.1-8b", "h100-sxm", 1),
    Replica("llama-3.1-70b", "h100-sxm", 4, "fp8"),
    Replica("llama-3.1-70b", "b200-sxm", 2, "fp8"),
    Replica("gpt-oss-120b", "h200-sxm", 1),
    Replica("qwen3-235b-a22b", "h200-sxm", 8),
    Replica("deepseek-v3", "h200-sxm", 8),
    Replica("deepseek-v3", "b200-sxm", 8),
)


def table() -> Iterator[str]:
    """Return the lines of the table, - where there is no figure; raises ScenarioError without the package."""
    _operators(next(iter(ENGINES)), REPLICAS[0])
    columns = ("roofline", *ENGINES.values())
    yield f"| model | GPUs | prefill ms: {' / '.join(columns)} | decode ms: {' / '.join(columns)} |"
    yield "|---|---|---|---|"
    for replica in REPLICAS:
        sources = [_roofline(replica), *(_found(engine, replica) for engine in ENGINES)]
        weights = "" if replica.weights is None else f", {replica.weights}"
        parts = (f"{replica.llm}{weights}", f"{replica.gpus} x {replica.accelerator}")
        yield f"| {' | '.join((*parts, _times(sources, replica, prefill_s), _times(sources, replica, decode_s)))} |"


def prefill_s(times: StepTimes, window_tokens: int | None) -> float:
    """Return the time of a step of one new prompt of 4,096 tokens [s]."""
    return prefill_step_s(times, 0, _PROMPT, window_tokens=window_tokens)


def decode_s(times: StepTimes, window_tokens: int | None) -> float:
    """Return the time of a step of 32 decodes, each with a context of 4,096 tokens [s]."""
    context_tokens = _DECODES * _CONTEXT
    windowed_tokens = 0 if window_tokens is None else _DECODES * min(_CONTEXT, window_tokens)
    if not isinstance(times, StepCost):
        return times.decode_line(_DECODES, context_tokens)[0]
    return times.step_s(
        tokens=_DECODES,
        pairs=context_tokens,
        window_pairs=windowed_tokens,
        context_tokens=context_tokens,
        window_context_tokens=windowed_tokens,
    )


def _times(sources: list[StepTimes | None], replica: Replica, step_s: Callable[[StepTimes, int | None], float]) -> str:
    window_tokens = load_llm(replica.llm).window_tokens
    return " / ".join("-" if times is None else f"{step_s(times, window_tokens) * 1e3:.3g}" for times in sources)


def _roofline(replica: Replica) -> StepCost:
    llm, accelerator = load_llm(replica.llm), load_accelerator(replica.accelerator)
    return step_cost(llm, accelerator, tensor_parallel=replica.gpus, weight_dtype=replica.weights)


def _found(engine: str, replica: Replica) -> StepTimes | None:
    try:
        return _operators(engine, replica)
    except ScenarioError:
        return None


def _operators(engine: str, replica: Replica) -> StepTimes:
    return load_operator_tables(
        engine,
        load_llm(replica.llm),
        load_accelerator(replica.accelerator),
        config=None,
        tensor_parallel=replica.gpus,
        pipeline_parallel=1,
        expert_parallel=False,
        weight_dtype=replica.weights,
        kv_dtype="bf16",
    )


def errors(path: str) -> Iterator[str]:
    """Return the lines of a table of errors in TTFT and TPOT, over loops that have step times from both.

    Loops of more than 64 clients are left out, for time. Raises InputError.
    """
    engine = next(iter(ENGINES))
    _operators(engine, REPLICAS[0])
    found: list[list[tuple[float, float]]] = [[], []]
    for row in read_rows(path).rows:
        if row.engine != ENGINES[engine] or row.concurrency > _MOST_CLIENTS:
            continue
        pair = [_row_errors(row, step_times) for step_times in (None, engine)]
        if not any(map(isnan, chain(*pair))):
            for errors_of, both in zip(found, pair, strict=True):
                errors_of.append(both)
    yield f"| {len(found[0])} loops | TTFT: median, of absolute | TPOT: median, of absolute |"
    yield "|---|---|---|"
    for name, pairs in zip(("roofline", "AIConfigurator"), found, strict=True):
        yield f"| {name} | {' | '.join(_medians(part) for part in zip(*pairs, strict=True))} |"


def _row_errors(row: Row, step_times: str | None) -> tuple[float, float]:
    scenario = scenario_of(row, row.accelerator, _PLAIN)
    engine = scenario.engine.model_copy(update={"step_times": step_times})
    ttft_s, tpot_s = loop_times(scenario.model_copy(update={"engine": engine}))
    return ttft_s / row.ttft_s - 1.0, tpot_s / row.tpot_s - 1.0


def _medians(values: Sequence[float]) -> str:
    return f"{median(values):+.1%}, {median(map(abs, values)):.1%}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m calibration.step_times")
    parser.add_argument("--csv", help="measurements (silicon.csv): print errors in them")
    given = parser.parse_args(arguments)
    lines = table() if given.csv is None else errors(given.csv)
    try:
        for line in lines:
            sys.stdout.write(line + "\n")
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
