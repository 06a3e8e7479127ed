"""What variants cost and wear, in words and rows: for `kvtier compare` and for reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from models.units import format_bytes
from scenarios.comparison.comparing import Comparison
from scenarios.comparison.least_wear import EQUAL_SHARE, OTHERS_FLASH, least_wear
from scenarios.comparison.metrics import metric_text
from scenarios.figure_texts import number

_LABELS: Final = {
    "usd_per_million_output_tokens": "USD/M tokens",
    "joules_per_output_token": "J/token",
    "output_tokens_per_day": "tokens/day",
}
_WEAR_LABELS: Final = {
    ".flash_bytes_per_day": "flash/day",
    f".{OTHERS_FLASH}": "flash/day of others",
    ".wear_out_years": "years",
}


def compared_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]] | None:
    """Return header and rows of what each variant that ran costs and wears; None where no run says."""
    ran = [found for found in comparison.variants if found.error is None]
    metrics = list(dict.fromkeys(name for found in ran for name in found.metrics if name.startswith("economics.")))
    if not metrics:
        return None
    rows = [
        [found.variant.name, *(metric_text(metric, found.metrics.get(metric)) for metric in metrics)] for found in ran
    ]
    return ["variant", *map(_label, metrics)], rows


def least_pairs(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield which variant wears least for an output token at no higher TTFT, where any run says what it wears."""
    least = least_wear(comparison)
    if least is None:
        return
    lasts = "what it writes wears nothing out" if least.years is None else f"worn out after {least.years:.3g} years"
    token, day = (format_bytes(each) for each in (least.flash_bytes_per_output_token, least.flash_bytes_per_day))
    written = f"flash {token} an output token, {day}/day at its own {number(least.output_tokens_per_day)} tokens/day"
    alike = f" ({', '.join(least.equals)} within {EQUAL_SHARE:.0%})" if least.equals else ""
    among = ", ".join(least.candidates)
    beside = any(name.endswith(OTHERS_FLASH) for one in comparison.variants for name in one.metrics)
    aside = ", neighbours' writes aside" if beside else ""
    yield (
        "wears least for its work at no higher mean TTFT",
        f"{least.variant}{alike}: {written}; {lasts}{aside} (of {among})",
    )


def _label(metric: str) -> str:
    name = metric.removeprefix("economics.").removeprefix("tiers.")
    for ending, text in _WEAR_LABELS.items():
        if name.endswith(ending):
            return f"{name.removesuffix(ending)} {text}"
    return _LABELS.get(name, name)
