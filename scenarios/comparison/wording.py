"""What a comparison shows of each variant, and how it writes differences."""

from __future__ import annotations

from typing import Final

from scenarios.comparison.intervals import Difference
from scenarios.comparison.metrics import is_share, metric_text

FIGURES: Final = (
    ("ttft_s.p50", "TTFT p50"),
    ("ttft_s.p90", "TTFT p90"),
    ("ttft_s.p99", "TTFT p99"),
    ("itl_s.p99", "ITL p99"),
    ("tpot_s.mean", "TPOT mean"),
    ("throughput.output_tokens_per_s", "tokens/s out"),
    ("hit_ratio_tokens", "hit ratio"),
)
"""Metrics that stand in tables, and what they are called there."""


def difference_text(metric: str, base: float | None, difference: Difference | None) -> str:
    """Return a difference and the ends of its interval: in per cent of *base*, shares in points.

    The ends, since an interval may reach further to one side; rounded to digits that count, none of them becomes 0.
    """
    if difference is None:
        return "-"
    if difference.equal:
        return "equal"
    scale, unit = (100.0, " pt") if is_share(metric) else (100.0 / base if base else 0.0, "%")
    if not scale:
        return metric_text(metric, difference.difference)
    text = f"{_signed(difference.difference * scale)}{unit}"
    if difference.low is None or difference.high is None:
        return f"{text} ?"
    return f"{text} ({_signed(difference.low * scale)} to {_signed(difference.high * scale)})"


def difference_cell(metric: str, base: float | None, difference: Difference | None) -> str:
    """Return :func:`difference_text` on two lines: on one, tables would be wider than terminals and pages."""
    return difference_text(metric, base, difference).replace(" (", "\n(")


def _signed(value: float) -> str:
    # 999.5 and more would be written with an exponent.
    return f"{value:+.3g}" if abs(value) < 999.5 else f"{value:+,.0f}"
