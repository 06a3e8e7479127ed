"""What `kvtier run` and `kvtier compare` print of money, energy and wear."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from models.units import format_bytes
from scenarios.commands.tables import print_pairs, print_table
from scenarios.comparison import Comparison
from scenarios.comparison.least_wear import least_wear
from scenarios.comparison.metrics import metric_text


def print_economics(found: Mapping[str, Any]) -> None:
    """Print the economics of a run; what is missing or assumed goes to stderr."""
    terms, power_w = found["terms"], found["power_w"]
    known_w = sum(power for power in power_w.values() if power is not None)
    hourly = found["usd_per_hour"]
    paid = f"over {terms['years']:g} years at {terms['utilisation']:.0%} use"
    energy = f"PUE {terms['pue']:g}, {terms['electricity_usd_per_kwh']:g} USD/kWh"
    sys.stdout.write("\n")
    print_pairs(
        [
            ("cost", f"{_usd(found['usd_per_million_output_tokens'])} a million output tokens"),
            ("  parts", f"{hourly['capital']:,.2f} USD/h ({found['capital_usd']:,.0f} USD {paid})"),
            ("  energy", f"{hourly['energy']:,.2f} USD/h ({energy}, idle time included)"),
            ("power", f"{known_w:,.0f} W; {_number(found['joules_per_output_token'])} J an output token"),
            ("GPU-hours", f"{_number(found['gpu_hours'])} in the measured time"),
        ]
    )
    sys.stdout.write("\n")
    header = ["tier", "GPU-hours saved", "written/day", "flash/day", "DWPD", "rated", "worn out after"]
    print_table(header, [_tier(name, tier) for name, tier in found["tiers"].items()], numbers_from=1)
    for kind, names in (("price", found["without_price"]), ("power", found["without_power"])):
        if names:
            sys.stderr.write(f"kvtier: warning: no {kind} known, counted as nothing: {', '.join(names)}\n")
    for caveat in found["caveats"]:
        sys.stderr.write(f"kvtier: warning: economics rest on assumed, announced or unverified figures: {caveat}\n")


def print_compared_economics(comparison: Comparison) -> None:
    """Print what the variants cost and wear, and which wears least at a TTFT that is no higher."""
    ran = [found for found in comparison.variants if found.error is None]
    metrics = [metric for metric in ran[0].metrics if metric.startswith("economics.")] if ran else []
    if not metrics:
        return
    names = [metric.removeprefix("economics.").removeprefix("tiers.") for metric in metrics]
    rows = [
        [found.variant.name, *(metric_text(metric, found.metrics.get(metric)) for metric in metrics)] for found in ran
    ]
    sys.stdout.write("\n")
    print_table(["variant", *map(_label, names)], rows, numbers_from=1)
    _print_least(comparison)


def _print_least(comparison: Comparison) -> None:
    least = least_wear(comparison)
    if least is None:
        return
    sys.stdout.write("\n")
    lasts = "what it writes wears nothing out" if least.years is None else f"worn out after {least.years:.3g} years"
    written = format_bytes(least.flash_bytes_per_day)
    among = ", ".join(least.candidates)
    print_pairs([("wears least at no higher mean TTFT", f"{least.variant}: flash {written}/day, {lasts} (of {among})")])


def _label(name: str) -> str:
    labels = {"usd_per_million_output_tokens": "USD/M tokens", "joules_per_output_token": "J/token"}
    for ending, text in (("flash_bytes_per_day", "flash/day"), ("wear_out_years", "years")):
        if name.endswith(ending):
            return f"{name.removesuffix(ending).rstrip('.')} {text}"
    return labels.get(name, name)


def _tier(name: str, tier: Mapping[str, Any]) -> Sequence[str]:
    years = tier.get("wear_out_years")
    return [
        name,
        _number(tier["gpu_hours_saved"]),
        *(
            "-" if tier.get(key) is None else format_bytes(tier[key])
            for key in ("write_bytes_per_day", "flash_bytes_per_day")
        ),
        _number(tier.get("dwpd")),
        _number(tier.get("rated_dwpd")),
        "-" if years is None else f"{years:,.3g} years",
    ]


def _usd(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g} USD"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}"
