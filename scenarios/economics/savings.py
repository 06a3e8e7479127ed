"""The computing that hits spare: GPU-hours by tier, as the same roofline that a run computes prompts with has them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from models.errors import ScenarioError
from scenarios.build import Assembly
from sim.recording import COMPLETED, Columns
from sim.results.result import SimulationResult


def gpu_hours_saved(result: SimulationResult, assembly: Assembly, tiers: Sequence[str]) -> dict[str, float | None]:
    """Return by tier the GPU-hours that its hits spared in the measured requests that were completed.

    *tiers* are all of the scenario, fastest first. Of the tokens of a prompt that were found, those of faster tiers lie
    in front, and each tier spares what the roofline takes for its own stretch: time to compute as far as its hits
    reach, less time to where they begin, nobody beside. A comparison with a run without the tier shows what queues and
    other tiers would make of it. None where measured step times do not cover a prompt.
    """
    done = _completed(result)
    gpus = assembly.engines.sizes.workers
    prefill_s = lru_cache(maxsize=None)(assembly.prefill_s)
    reached = np.zeros(done["prompt_tokens"].size, dtype=np.int64)
    saved: dict[str, float | None] = {}
    for tier in tiers:
        before = reached
        reached = before + done[f"hit_tokens_{tier}"]
        hit = reached > before
        try:
            seconds = sum(
                prefill_s(end) - prefill_s(start)
                for start, end in zip(before[hit].tolist(), reached[hit].tolist(), strict=True)
            )
        except ScenarioError:
            saved[tier] = None
            continue
        saved[tier] = seconds * gpus / 3600.0
    return saved


def _completed(result: SimulationResult) -> Columns:
    requests = result.table("requests")
    chosen = result.measured_requests() & (requests["state"] == COMPLETED)
    return {name: column[chosen] for name, column in requests.items()}
