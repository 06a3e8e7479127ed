"""How a report puts figures and bottlenecks into words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sim.results.bottleneck import ALSO_FULL

_MEANINGS: Final = {
    "queue: room for KV in HBM": "Requests wait because the KV cache in HBM is full: what helps is more room there "
    "(more or larger GPUs, a smaller KV type, a shorter context), not faster storage.",
    "queue: waiting for a step": "Requests wait for the next step or for room in the batch, though the replicas have "
    "time to spare: what helps is a larger batch or shorter steps.",
    "queue: replicas stalled": "Requests wait because batches stand still for synchronous loads: what helps is what "
    "makes those loads shorter, or loading asynchronously.",
    "queue": "Requests wait because the GPUs are busy: what helps is more GPUs or less to compute, so more hits.",
    "load": "Requests wait for KV to arrive from a lower tier: what helps is a faster path from there, or more hits in "
    "the tiers above it.",
    "handover": "Requests wait for their KV to reach the replica that decodes: what helps is a faster path "
    "between them.",
    "compute": "Requests spend most of the time in their own prefill: what helps is faster GPUs, more tensor "
    "parallelism, or more hits.",
    "other": "Requests spend most of the time in look-ups and request handling.",
    "none": "No request completed, so nothing can be said.",
}
_FULL: Final = (
    "A link is full besides: requests that load over it are the slowest, and what is written over it comes late or too "
    "late to be a hit, so that more is computed. What helps there is more bandwidth or fewer writes."
)


def meaning_of(bottleneck: str) -> str:
    """Return what a bottleneck, as a run names it, means and what would help; longest match first."""
    starts = [start for start in _MEANINGS if bottleneck.startswith(start)]
    meanings = [_MEANINGS[max(starts, key=len)]] if starts else []
    return " ".join([*meanings, _FULL] if ALSO_FULL in bottleneck else meanings)


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: 'a, b and c'."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def counted(amount: int, noun: str) -> str:
    """Return how many there are: '1 point', '2 points'."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def cluster_of(scenario: Mapping[str, Any]) -> str:
    """Return what a resolved scenario runs on, on one line."""
    cluster = scenario["cluster"]
    parallel = cluster["tensor_parallel"] * cluster["pipeline_parallel"]
    each = "one GPU" if parallel == 1 else f"{parallel} GPUs"
    replicas = counted(cluster["replicas"], "replica")
    tiers = ", ".join(scenario["tiers"])
    return f"{scenario['llm']} on {replicas} of {each} ({cluster['accelerator']}); tiers: {tiers}"
