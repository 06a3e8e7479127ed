"""Money, energy and wear in words and rows, from what `economics` of a summary has: for commands and for reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scenarios.figure_texts import size

_TIER_HEADER: Final = ("tier", "GPU-hours saved", "written/day", "flash/day", "DWPD", "rated", "worn out after")
_OTHERS: Final = "neighbour_flash_bytes_per_day"


def cost_pairs(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a run costs and draws; the name of a part of the figure above it begins with spaces."""
    terms, hourly = found["terms"], found["usd_per_hour"]
    known_w = sum(power for power in found["power_w"].values() if power is not None)
    paid = f"over {terms['years']:g} years at {terms['utilisation']:.0%} use"
    energy = f"PUE {terms['pue']:g}, {terms['electricity_usd_per_kwh']:g} USD/kWh"
    yield "cost", f"{_usd(found['usd_per_million_output_tokens'])} a million output tokens"
    yield "  parts", f"{hourly['capital']:,.2f} USD/h ({found['capital_usd']:,.0f} USD {paid})"
    yield "  energy", f"{hourly['energy']:,.2f} USD/h ({energy}, idle time included)"
    yield "power", f"{known_w:,.0f} W; {_number(found['joules_per_output_token'])} J an output token"
    yield "GPU-hours", f"{_number(found['gpu_hours'])} in the measured time"


def tier_table(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of what each tier spares and wears; where neighbours write to any, their part too."""
    header, rows = list(_TIER_HEADER), [_tier(name, tier) for name, tier in found["tiers"].items()]
    tiers = found["tiers"].values()
    if any(_OTHERS in tier for tier in tiers):
        column = header.index("flash/day") + 1
        header.insert(column, "of it others'")
        for row, tier in zip(rows, tiers, strict=True):
            row.insert(column, size(tier.get(_OTHERS)))
    return header, rows


def economics_warnings(found: Mapping[str, Any]) -> list[str]:
    """Return what is counted as nothing, and which figures nobody vouches for."""
    missing = [
        f"no {kind} known, counted as nothing: {', '.join(names)}"
        for kind, names in (("price", found["without_price"]), ("power", found["without_power"]))
        if names
    ]
    resting = "economics rest on assumed, announced or unverified figures"
    return [*missing, *(f"{resting}: {caveat}" for caveat in found["caveats"])]


def _tier(name: str, tier: Mapping[str, Any]) -> list[str]:
    years = tier.get("wear_out_years")
    return [
        name,
        _number(tier["gpu_hours_saved"]),
        *(size(tier.get(key)) for key in ("write_bytes_per_day", "flash_bytes_per_day")),
        _number(tier.get("dwpd")),
        _number(tier.get("rated_dwpd")),
        "-" if years is None else f"{years:,.3g} years",
    ]


def _usd(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g} USD"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}"
