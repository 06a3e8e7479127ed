"""From recorded columns to the summary of a run: the JSON contract of ``kvtier run --json``. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sim.recording import COMPLETED, FAILED, REJECTED, Columns, TokenIntervals
from sim.results.bottleneck import ReplicaTime, name_bottleneck
from sim.results.percentiles import PercentileRule, percentile

_PARTS: Final = ("queue", "load", "compute", "handover", "other")
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_TIER_COUNTERS: Final = ("read_bytes", "write_bytes", "evicted_bytes", "peak_used_bytes", "capacity_bytes")


def distribution(values: ArrayLike, rule: PercentileRule = "linear") -> dict[str, float | None]:
    """Return mean, p50, p90, p99 and max of *values* in their own unit, NaN left out; None where nothing is left."""
    kept = np.asarray(values, dtype=np.float64)
    kept = kept[~np.isnan(kept)]
    if kept.size == 0:
        return dict.fromkeys(("mean", *_QUANTILES, "max"))
    found: dict[str, float | None] = {"mean": float(kept.mean())}
    found |= {name: percentile(kept, q, rule) for name, q in _QUANTILES.items()}
    found["max"] = float(kept.max())
    return found


def measured_mask(requests: Columns, *, warmup_s: float = 0.0, phase: int | None = None) -> NDArray[np.bool_]:
    """Return which requests count: those that arrived at *warmup_s* [s] or later, of *phase* where one is named."""
    chosen: NDArray[np.bool_] = requests["arrived_at_s"] >= warmup_s
    if phase is not None:
        chosen &= requests["phase"] == phase
    return chosen


def measured_window(requests: Columns, measured: NDArray[np.bool_]) -> tuple[float, float]:
    """Return ``(from_s, to_s)``: first arrival to last finish of the measured requests; (0, 0) where none completed."""
    completed = measured & (requests["state"] == COMPLETED)
    if not completed.any():
        return 0.0, 0.0
    return float(requests["arrived_at_s"][measured].min()), float(requests["finished_at_s"][completed].max())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a run wrote down, as far as its summary shows it.

    Parameters
    ----------
    requests : Columns
        The whole table of requests (:meth:`sim.recording.RequestLog.columns`).
    measured : array of bool
        The rows that count (:func:`measured_mask`); throughput is theirs over the time from their first arrival to
        their last finish.
    intervals : TokenIntervals
        Inter-token latencies of the measured requests.
    tiers : mapping
        By tier, fastest first: read_bytes, write_bytes, evicted_bytes, peak_used_bytes and capacity_bytes, and whatever
        else is to be shown. Hit tokens come from the requests.
    links : mapping
        By link: :func:`sim.results.link_use.link_use`.
    loading_links : mapping
        By tier: names of the links that its loads cross.
    replica_time : ReplicaTime
        What the replicas' time went to.
    decode_time : ReplicaTime or None
        The same of those that only decode, where there are any.
    handover_links : sequence of str
        Names of the links that prompts cross from one replica to another.
    wall_s, events : float, int
        Wall time of the simulation [s] and events of its clock; requests per wall second count all requests.
    warnings : sequence of str
        Shown as they are.
    neighbours : mapping
        By neighbour, what it asked for and moved; empty: there are none.
    """

    requests: Columns
    measured: NDArray[np.bool_]
    intervals: TokenIntervals
    tiers: Mapping[str, Mapping[str, float]]
    links: Mapping[str, Mapping[str, Any]]
    loading_links: Mapping[str, Sequence[str]]
    replica_time: ReplicaTime
    wall_s: float
    events: int
    decode_time: ReplicaTime | None = None
    handover_links: Sequence[str] = ()
    warnings: Sequence[str] = ()
    neighbours: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def summarise(
    run: Recorded, *, rule: PercentileRule = "linear", slo: Mapping[str, float | None] | None = None
) -> dict[str, Any]:
    """Return the summary of a run: plain numbers, strings and None, ready for JSON.

    *rule* says how percentiles are read off. *slo* has limits ``ttft_s``, ``tpot_s`` and ``itl_s`` [s], None for no
    limit; ``itl_s`` holds for a request's longest gap.

    Raises
    ------
    ValueError
        If a tier lacks a counter or the requests table has no hit tokens for it.
    """
    requests, measured = run.requests, run.measured
    completed = measured & (requests["state"] == COMPLETED)
    done: Columns = {name: column[completed] for name, column in requests.items()}
    from_s, to_s = measured_window(requests, measured)
    makespan_s = to_s - from_s
    parts_s = {part: _mean(done[f"{part}_s"]) for part in _PARTS if f"{part}_s" in done}
    load_by_tier_s = {tier: _mean(done[f"load_{tier}_s"]) for tier in run.tiers if f"load_{tier}_s" in done}
    tiers = {tier: _tier(tier, counters, done) for tier, counters in run.tiers.items()}
    prompt_tokens = int(done["prompt_tokens"].sum())
    hit_tokens = sum(row["hit_tokens"] for row in tiers.values())
    replica_time, queue_total_s = _longer_queue(run, done)
    bottleneck = name_bottleneck(
        parts_s=parts_s,
        load_by_tier_s=load_by_tier_s,
        links=run.links,
        loading_links=run.loading_links,
        replica_time=replica_time,
        queue_total_s=queue_total_s,
        handover_links=run.handover_links,
    )
    summary: dict[str, Any] = {
        "requests": {
            "submitted": int(measured.sum()),
            "completed": int(completed.sum()),
            "rejected": int((measured & (requests["state"] == REJECTED)).sum()),
            "failed": int((measured & (requests["state"] == FAILED)).sum()),
        },
        "makespan_s": makespan_s,
        "throughput": {
            "output_tokens_per_s": _rate(int(done["output_tokens"].sum()), makespan_s),
            "input_tokens_per_s": _rate(prompt_tokens, makespan_s),
            "requests_per_s": _rate(int(completed.sum()), makespan_s),
        },
        "ttft_s": distribution(done["ttft_s"], rule),
        "tpot_s": distribution(done["tpot_s"], rule),
        "itl_s": _interval_distribution(run.intervals, rule),
        "e2e_s": distribution(done["e2e_s"], rule),
        "ttft_parts_s": parts_s,
        "load_by_tier_s": load_by_tier_s,
        "hit_ratio_tokens": hit_tokens / prompt_tokens if prompt_tokens else None,
        "tiers": tiers,
        "links": {name: dict(use) for name, use in run.links.items()},
        "preemptions": int(requests["preemptions"][measured].sum()),
        "bottleneck": bottleneck,
        "warnings": list(run.warnings),
        "engine": _engine(run),
        "percentile_rule": rule,
    }
    if run.neighbours:
        summary["neighbours"] = {name: dict(figures) for name, figures in run.neighbours.items()}
    if "handover_s" in done:
        summary["handover"] = _handover(done, rule)
    if slo is not None:
        summary["slo"] = _slo(slo, done, int(measured.sum()), makespan_s)
    return summary


def _longer_queue(run: Recorded, done: Columns) -> tuple[ReplicaTime, float]:
    """Return the replicas before which requests waited longest in all, and for how long [s]."""
    total_s = float(done["queue_s"].sum())
    if run.decode_time is None:
        return run.replica_time, total_s
    decode_s = float(done["decode_queue_s"].sum())
    return (run.decode_time, decode_s) if decode_s > 0.5 * total_s else (run.replica_time, total_s - decode_s)


def _handover(done: Columns, rule: PercentileRule) -> dict[str, Any]:
    """Return what went from one replica to another, and how long each prompt took [s]."""
    moved = done["decode_replica"] >= 0
    return {
        "requests": int(moved.sum()),
        "tokens": int(done["handover_tokens"].sum()),
        "bytes": int(done["handover_bytes"].sum()),
        "s": distribution(done["handover_s"][moved], rule),
        "decode_queue_s": distribution(done["decode_queue_s"][moved], rule),
    }


def _engine(run: Recorded) -> dict[str, Any]:
    rate = _rate(int(run.measured.size), run.wall_s)
    return {"wall_s": run.wall_s, "requests_per_wall_s": rate, "events": run.events}


def _tier(tier: str, counters: Mapping[str, float], done: Columns) -> dict[str, Any]:
    missing = [name for name in _TIER_COUNTERS if name not in counters]
    if missing or f"hit_tokens_{tier}" not in done:
        raise ValueError(f"tier {tier!r} lacks {', '.join(missing) or 'its hit tokens in the requests table'}")
    return {**counters, "hit_tokens": int(done[f"hit_tokens_{tier}"].sum())}


def _interval_distribution(intervals: TokenIntervals, rule: PercentileRule) -> dict[str, float | None]:
    values = intervals.percentiles(list(_QUANTILES.values()), rule)
    return {"mean": intervals.mean_s, **dict(zip(_QUANTILES, values, strict=True)), "max": intervals.max_s}


def _slo(slo: Mapping[str, float | None], done: Columns, submitted: int, makespan_s: float) -> dict[str, Any]:
    """Return the limits, the share of submitted requests that meet all of them, and those per second.

    One that was rejected or failed meets nothing; a request of one token has no gaps: only its TTFT can miss a limit.
    """
    columns = {"ttft_s": "ttft_s", "tpot_s": "tpot_s", "itl_s": "itl_max_s"}
    unknown = set(slo) - set(columns)
    if unknown:
        raise ValueError(f"unknown limits {sorted(unknown)}; allowed: {', '.join(columns)}")
    limits = {name: limit for name, limit in slo.items() if limit is not None}
    met = np.ones(done["ttft_s"].size, dtype=np.bool_)
    for name, limit in limits.items():
        met &= ~(done[columns[name]] > limit)
    n_met = int(met.sum())
    return {
        "limits": limits,
        "attainment": n_met / submitted if submitted else None,
        "goodput_requests_per_s": _rate(n_met, makespan_s),
    }


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if values.size else None


def _rate(amount: float, time_s: float) -> float | None:
    return amount / time_s if time_s > 0.0 else None
