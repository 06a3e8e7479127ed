"""The figures that variants are compared by, taken from the summary of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from models.units import format_bytes
from scenarios.figure_texts import number, seconds

Metrics = dict[str, float | None]
"""By metric; None where a run has no such figure."""

_PATHS: Final = (
    *(f"ttft_s.{name}" for name in ("mean", "p50", "p90", "p99")),
    "itl_s.p99",
    "tpot_s.mean",
    "throughput.output_tokens_per_s",
    *(f"ttft_parts_s.{name}" for name in ("queue", "load", "compute", "other")),
    "hit_ratio_tokens",
)
_WEAR: Final = ("flash_bytes_per_day", "neighbour_flash_bytes_per_day", "wear_out_years")


def metrics_of(summary: Mapping[str, Any]) -> Metrics:
    """Return the metrics of a run, named by where `kvtier run --json` has them.

    ``tiers.NAME.hit_ratio`` is hit tokens over prompt tokens; over all tiers they add up to ``hit_ratio_tokens``.
    """
    found: Metrics = {path: _at(summary, path) for path in _PATHS}
    all_hits = sum(tier["hit_tokens"] for tier in summary["tiers"].values())
    ratio = summary["hit_ratio_tokens"]
    for name, tier in summary["tiers"].items():
        found[f"tiers.{name}.hit_ratio"] = ratio * tier["hit_tokens"] / all_hits if all_hits else ratio
    for name, tier in summary["tiers"].items():
        found[f"tiers.{name}.write_bytes"] = float(tier["write_bytes"])
    return found | _economics(summary.get("economics"))


def _economics(economics: Mapping[str, Any] | None) -> Metrics:
    """Return what a run costs and wears, where it says so."""
    if economics is None:
        return {}
    keys = ("usd_per_million_output_tokens", "joules_per_output_token", "output_tokens_per_day")
    found: Metrics = {f"economics.{key}": economics[key] for key in keys}
    for name, tier in economics["tiers"].items():
        found |= {f"economics.tiers.{name}.{key}": tier[key] for key in _WEAR if key in tier}
    return found


def medians(runs: Sequence[Metrics]) -> Metrics:
    """Return the median over runs of each metric, runs without it left out."""
    found: Metrics = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [value for run in runs if (value := run.get(name)) is not None]
        found[name] = median(values) if values else None
    return found


def is_share(metric: str) -> bool:
    """Whether a metric is a share of something, whose differences are told in points and not in per cent of it."""
    return metric.endswith(("hit_ratio", "hit_ratio_tokens"))


def metric_text(metric: str, value: float | None) -> str:
    """Return the value of a metric for people."""
    if value is None:
        return "-"
    if is_share(metric):
        return f"{value:.1%}"
    if metric.endswith(("_bytes", "_bytes_per_day")):
        return format_bytes(value)
    if metric.startswith("economics.") or metric.endswith("_per_s"):
        return number(value)
    return seconds(value)


def _at(summary: Mapping[str, Any], path: str) -> float | None:
    value: Any = summary
    for key in path.split("."):
        value = value[key]
    return None if value is None else float(value)
