"""TTFT and TPOT of a measurement's closed loop, from the simulator itself.

The load is InferenceMAX's client: ten requests a client, the first of all clients at once, prompts and answers drawn
evenly from 80 to 100 % of their nominal length. Source: InferenceMAX README, "Benchmark Client Configuration". All of
it is simulated: the burst's requests come back together for rounds, and where only two are simulated, steps at 128
clients are up to a third shorter, and first tokens later, than in ten.

Runs of NVIDIA's clients have one length for all. Real answers drift apart all the same, while simulated ones would
march in step, so lengths are spread there too, about the same mean. Where requests of SGLang, which computes prompts
before everything else, are known to stay in step, they are left alike. The clients are taken to be those that
AIConfigurator runs: ten requests each as well, and the first burst counts, for genai-perf's warm-up is a load of its
own, which ends before the measured one begins, and SGLang's bench_serving is given none. Sources:
ai-dynamo/aiconfigurator at 5e161875, ``eval/benchmarks/``, both runners; perf_analyzer, ``WaitForWarmupAndCleanup``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from calibration.silicon.efficiencies import Efficiencies, engine_settings, write_entry
from calibration.silicon.rows import SHORTEST, Row
from models.errors import KvTierError
from scenarios.build import simulate
from scenarios.runner import Report
from scenarios.schema import Scenario

REQUESTS_A_CLIENT: Final = 10
_LEAST_AFTER_BURST: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Rows to simulate with one set of efficiencies; small enough for many of them to fill all processes."""

    rows: tuple[Row, ...]
    values: Efficiencies
    requests_a_client: int = REQUESTS_A_CLIENT


def simulate_rows(task: Task, report: Report) -> list[tuple[float, float]]:
    """Return (TTFT, TPOT) of each row [s], NaN where a row cannot run (its weights do not fit)."""
    with TemporaryDirectory() as folder:
        paths: dict[str, str] = {}
        for name in {row.accelerator for row in task.rows}:
            path = Path(folder) / f"{name}-fitted.yaml"
            write_entry(path, name, task.values)
            paths[name] = str(path)
        found = []
        for count, row in enumerate(task.rows, start=1):
            scenario = scenario_of(row, paths[row.accelerator], task.values, task.requests_a_client)
            found.append(loop_times(scenario))
            report(count / len(task.rows), count)
        return found


def scenario_of(
    row: Row, accelerator: str, values: Efficiencies, requests_a_client: int = REQUESTS_A_CLIENT
) -> Scenario:
    """Return the scenario that repeats a row, or the beginning of it, on an accelerator by name or file."""
    prompt, output = row.prompt_tokens, row.output_tokens
    shortest = 1.0 if row.client == "in step" else SHORTEST
    if row.client == "nvidia":
        mean = 0.5 * (1.0 + SHORTEST)
        prompt, output = round(prompt / mean), round(output / mean)
    return Scenario.model_validate(
        {
            "name": "silicon",
            "llm": row.llm,
            "cluster": {
                "accelerator": accelerator,
                "tensor_parallel": row.tensor_parallel,
                "expert_parallel": row.expert_parallel,
            },
            "engine": {
                "weight_dtype": row.weight_dtype,
                "kv_dtype": row.server.kv_dtype,
                "prefix_caching": False,
                "max_num_batched_tokens": max(row.server.budget, 1024),
                "max_num_seqs": 1024,
                "mixed_steps": row.engine != "sglang",
                "receive_interval": row.server.receive_interval,
                **engine_settings(values),
            },
            "tiers": {"hbm": {}},
            "workload": {
                "closed_loop": {
                    "concurrency": row.concurrency,
                    "requests": max(requests_a_client * row.concurrency, row.concurrency + _LEAST_AFTER_BURST),
                    "prompt_tokens": prompt,
                    "output_tokens": output,
                    "shortest": shortest,
                }
            },
        }
    )


def loop_times(scenario: Scenario) -> tuple[float, float]:
    """Return the mean TTFT and TPOT of a row's scenario [s], NaN where it cannot run."""
    try:
        requests = simulate(scenario).table("requests")
    except KvTierError:
        return nan, nan
    return float(np.mean(requests["ttft_s"])), float(np.mean(requests["tpot_s"]))
