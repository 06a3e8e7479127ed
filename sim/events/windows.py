"""How a run fared before, during and after an event, from its table of requests. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sim.events.timeline import Event
from sim.recording import COMPLETED, FAILED, Columns
from sim.results.percentiles import PercentileRule
from sim.results.summary import distribution

WARM_REQUESTS: Final = 32
"""Requests whose hits are looked at together to tell whether caches are warm."""
WARM_SHARE: Final = 0.9
"""Of the hit ratio before an event: caches are warm again once they are back at so much of it."""

_Mask = NDArray[np.bool_]


def event_figures(
    events: Sequence[Event], requests: Columns, measured: _Mask, rule: PercentileRule
) -> list[dict[str, Any]]:
    """Return what is to be shown of each event that has happened: what it did, warm-up and windows, ready for JSON."""
    return [
        {
            "at_s": event.at_s,
            "kind": event.kind,
            "target": event.target,
            "over_s": event.over_s,
            **event.figures(requests),
            "warmup_s": warmup_s(event, requests),
            "windows": _windows(event, requests, measured, rule),
        }
        for event in events
    ]


def _windows(event: Event, requests: Columns, measured: _Mask, rule: PercentileRule) -> Mapping[str, Any]:
    """Return figures of the requests that arrived before it, until it was over, and from then on."""
    arrived_s = requests["arrived_at_s"]
    before = arrived_s < event.at_s
    during = ~before if event.over_s is None else ~before & (arrived_s < event.over_s)
    parts = {"before": before, "during": during, "after": ~(before | during)}
    return {name: _window(requests, measured & part, rule) for name, part in parts.items()}


def _window(requests: Columns, chosen: _Mask, rule: PercentileRule) -> Mapping[str, Any]:
    state = requests["state"][chosen]
    completed = chosen & (requests["state"] == COMPLETED)
    prompt_tokens = int(requests["prompt_tokens"][completed].sum())
    return {
        "requests": int(chosen.sum()),
        "failed": int((state == FAILED).sum()),
        "ttft_s": distribution(requests["ttft_s"][completed], rule),
        "hit_ratio_tokens": int(_hit_tokens(requests)[completed].sum()) / prompt_tokens if prompt_tokens else None,
    }


def _hit_tokens(requests: Columns) -> NDArray[np.int64]:
    hits = [values for name, values in requests.items() if name.startswith("hit_tokens_")]
    total: NDArray[np.int64] = np.sum(hits, axis=0, dtype=np.int64)
    return total


def warmup_s(event: Event, requests: Columns) -> float | None:
    """Return how long after an event caches were warm again [s]; None if never, or if nothing came before it.

    Warm is when ``WARM_REQUESTS`` completed requests in a row, in order of arrival after the event, have together a hit
    ratio (of prompt tokens, all tiers) of ``WARM_SHARE`` of that of as many before it; the arrival of the last of them
    counts. Requests are those of the event's replicas; what an added replica is compared with, all before it.
    """
    completed = requests["state"] == COMPLETED
    theirs = completed if event.replicas is None else completed & np.isin(requests["replica"], event.replicas)
    order = np.argsort(requests["arrived_at_s"], kind="stable")
    arrived_s, hits = requests["arrived_at_s"][order], _hit_tokens(requests)[order]
    prompts, theirs, completed = requests["prompt_tokens"][order], theirs[order], completed[order]
    earlier = arrived_s < event.at_s
    before = np.flatnonzero(earlier & theirs)[-WARM_REQUESTS:]
    if not before.size:
        before = np.flatnonzero(earlier & completed)[-WARM_REQUESTS:]
    after = np.flatnonzero(~earlier & theirs)
    if not before.size or after.size < WARM_REQUESTS:
        return None
    warm = WARM_SHARE * hits[before].sum() / prompts[before].sum()
    n = WARM_REQUESTS
    ratios = np.convolve(hits[after], np.ones(n), "valid") / np.convolve(prompts[after], np.ones(n), "valid")
    found = np.flatnonzero(ratios >= warm)
    return float(arrived_s[after[found[0] + n - 1]] - event.at_s) if found.size else None
