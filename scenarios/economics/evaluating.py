"""Money, energy and wear of a run: what `economics` of its summary holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from models.economics import SECONDS_PER_DAY, busy_share, capital_per_s, energy_cost, power_w
from scenarios.build import Assembly
from scenarios.economics.bill import Item, accelerators, bill_of, capacity_of
from scenarios.economics.savings import gpu_hours_saved
from scenarios.economics.spec import Economics
from scenarios.economics.wear import wear_of
from scenarios.schema import Scenario
from scenarios.topology.parts import Part
from sim.results.result import SimulationResult


class _Power(NamedTuple):
    """Mean power in the run, and power while the cluster is idle [W]."""

    running_w: float
    idle_w: float


def economics_of(scenario: Scenario, result: SimulationResult, assembly: Assembly) -> dict[str, Any]:
    """Return what a run of *scenario*, which says ``economics``, costs: plain values in USD, W, J, B and years.

    *assembly* is that of the same scenario. Money is amortisation and electricity, idle time included; energy a token
    is that of the measured time. Days, of tokens as of wear, are calendar days, of which the cluster works the share
    that is its utilisation. What no catalogue entry says counts as nothing, and its part is listed.
    """
    terms = scenario.economics or Economics()
    bill = bill_of(scenario, assembly)
    summary, window_s = result.summary_values, float(result.measured["window_s"])
    powers = _powers(scenario, result, assembly, bill, terms)
    running_w = sum(power.running_w for power in powers.values() if power is not None)
    idle_w = sum(power.idle_w for power in powers.values() if power is not None)
    capital_usd = sum(_usd(item, terms) for item in bill)
    # For each second of work, the cluster is idle for (1 - utilisation) / utilisation.
    paid_w = running_w + idle_w * (1.0 - terms.utilisation) / terms.utilisation
    capital_usd_per_s = capital_per_s(capital_usd, years=terms.years, utilisation=terms.utilisation)
    energy_usd_per_s = energy_cost(paid_w, pue=terms.pue, price_per_kwh=terms.electricity_usd_per_kwh)
    tokens = (summary["throughput"]["output_tokens_per_s"] or 0.0) * summary["makespan_s"]
    usd = (capital_usd_per_s + energy_usd_per_s) * window_s
    return {
        "usd_per_million_output_tokens": usd / tokens * 1e6 if tokens else None,
        "joules_per_output_token": running_w * window_s / tokens if tokens else None,
        "usd_per_hour": {"capital": capital_usd_per_s * 3600.0, "energy": energy_usd_per_s * 3600.0},
        "capital_usd": capital_usd,
        "power_w": {name: None if power is None else power.running_w for name, power in powers.items()},
        "output_tokens_per_day": tokens / window_s * terms.utilisation * SECONDS_PER_DAY if window_s > 0.0 else None,
        "gpu_hours": sum(count for _, count in accelerators(scenario, assembly)) * window_s / 3600.0,
        "tiers": dict(_tiers(scenario, result, assembly, terms)),
        "bill": [f"{item.count} x {item.what} at {_price(item)}" for item in bill if item.prices],
        "without_price": [item.what for item in bill if not item.prices],
        "without_power": [name for name, power in powers.items() if power is None],
        "caveats": [f"{item.what}: {', '.join(item.caveats)}" for item in bill if item.caveats],
        "terms": terms.model_dump(),
    }


def _tiers(
    scenario: Scenario, result: SimulationResult, assembly: Assembly, terms: Economics
) -> Iterator[tuple[str, dict[str, float | None]]]:
    """Yield what each tier spares and wears, fastest first."""
    summary = result.summary_values
    saved = gpu_hours_saved(result, assembly, list(summary["tiers"]))
    parts = {part.name: part for part in assembly.topology.parts if not part.is_page_cache}
    for name, figures in summary["tiers"].items():
        found: dict[str, float | None] = {"gpu_hours_saved": saved[name]}
        if name in parts:
            found |= wear_of(
                parts[name],
                figures,
                assembly,
                window_s=float(result.measured["window_s"]),
                utilisation=terms.utilisation,
                neighbours=scenario.neighbours,
                traffic=summary.get("neighbours", {}),
            )
        yield name, found


def _usd(item: Item, terms: Economics) -> float:
    rates = {"USD": 1.0, "CNY": terms.usd_per_cny}
    return item.count * sum(price * rates[currency] for currency, price in item.prices.items())


def _price(item: Item) -> str:
    return " + ".join(f"{price:,.0f} {currency}" for currency, price in item.prices.items())


def _powers(
    scenario: Scenario, result: SimulationResult, assembly: Assembly, bill: Sequence[Item], terms: Economics
) -> dict[str, _Power | None]:
    """Return the power of what the cluster consists of, before the building's share; None where nobody knows it."""
    powers: dict[str, _Power | None] = dict(_accelerator_powers(scenario, result, assembly, terms))
    for role in ("servers", "nic", "switch"):
        items = [item for item in bill if item.role == role]
        if items:
            known = [item.count * item.power_w for item in items if item.power_w is not None]
            powers[role] = _Power(sum(known), sum(known)) if len(known) == len(items) else None
    window_s, figures = result.measured["window_s"], result.summary_values["tiers"]
    for part in assembly.topology.parts:
        if not part.is_page_cache:
            powers[part.name] = _tier_power(part, figures[part.name], assembly, window_s)
    return powers


def _accelerator_powers(
    scenario: Scenario, result: SimulationResult, assembly: Assembly, terms: Economics
) -> Iterator[tuple[str, _Power | None]]:
    pools = result.measured["replicas"]
    for (gpu, count), pool in zip(accelerators(scenario, assembly), pools, strict=True):
        name = "accelerators" if len(pools) == 1 else f"accelerators ({pool['kind']})"
        if gpu.tdp_w is None:
            yield name, None
            continue
        idle_w, busy_w = (count * gpu.tdp_w * share for share in (terms.gpu_idle_fraction, terms.gpu_busy_fraction))
        yield name, _Power(power_w(idle_w, busy_w, pool["compute_fraction"]), idle_w)


def _tier_power(part: Part, figures: Mapping[str, Any], assembly: Assembly, window_s: float) -> _Power | None:
    """Return the power of a tier: memory by its size, drives and arrays by how much of the time they read or write."""
    device, places = part.device, len(assembly.topology.pools()[part.name])
    if device.power_w is None:
        if device.power_w_per_byte is None:
            return None
        always_w = device.power_w_per_byte * capacity_of(part, assembly) * places
        return _Power(always_w, always_w)
    idle_w = places * (device.power_w if device.idle_power_w is None else device.idle_power_w)
    busy = busy_share(
        read_bytes=figures["read_bytes"] / places,
        write_bytes=figures["write_bytes"] * part.layout.overhead / places,
        read_bytes_per_s=device.read_bytes_per_s,
        write_bytes_per_s=device.write_bytes_per_s,
        time_s=window_s,
    )
    return _Power(power_w(idle_w, places * device.power_w, busy), idle_w)
