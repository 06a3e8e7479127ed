"""What a run asks of the model, and where that lies outside of what parameters were fitted to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from models.catalogue import load_entry
from scenarios.schema import Scenario
from scenarios.topology.parts import parts_of
from scenarios.uncertainty.fit import Fit
from sim.recording import COMPLETED
from sim.results.result import SimulationResult

_NAMES: Final = {"llm": "model", "accelerator": "accelerator", "device": "device", "device_class": "class of device"}
_NUMBERS: Final = {
    "prompt_tokens": ("context length", 0.0),
    "concurrency": ("requests at once", 0.0),
    "tier_bytes_per_s": ("bandwidth of storage", 0.01),
}
"""Ranges, and by what share of their ends they may be passed: fitted bandwidths are written with few digits."""

Reach = dict[str, Any]
"""Lists of names by :data:`_NAMES`, and ``[least, most]`` by :data:`_NUMBERS`; what a run has none of is left out."""


def reach_of(scenario: Scenario, result: SimulationResult) -> Reach:
    """Return what a run asks of the model.

    Model, accelerators, devices and their classes; prompts of the measured requests [tokens]; requests in the cluster
    at once; what tiers that are not memory can deliver to readers, where the run used them [B/s].
    """
    cluster = scenario.cluster
    accelerators = {cluster.accelerator} | ({cluster.decode.accelerator} if cluster.decode else set())
    parts = [part for part in parts_of(scenario) if not part.is_page_cache]
    reach: Reach = {
        "llm": [scenario.llm],
        "accelerator": sorted({load_entry("accelerator", name).name for name in accelerators if name is not None}),
        "device": sorted({part.device.name for part in parts if not part.is_memory}),
        "device_class": sorted({part.device.device_class for part in parts}),
    }
    requests = result.table("requests")
    counted = result.measured_requests() & (requests["state"] == COMPLETED)
    if counted.any():
        prompts = requests["prompt_tokens"][counted]
        reach["prompt_tokens"] = [int(prompts.min()), int(prompts.max())]
        most = _at_once(requests["arrived_at_s"][counted], requests["finished_at_s"][counted])
        reach["concurrency"] = [most, most]
    links = result.summary_values["links"]
    rates = [rate for part in parts if not part.is_memory and (rate := _bandwidth(part.name, links)) is not None]
    if rates:
        reach["tier_bytes_per_s"] = [min(rates), max(rates)]
    return reach


def joined(reaches: Iterable[Reach]) -> Reach:
    """Return what several runs reach over together."""
    found: Reach = {}
    for reach in reaches:
        for key, value in reach.items():
            if key not in found:
                found[key] = list(value)
            elif key in _NAMES:
                found[key] = sorted({*found[key], *value})
            else:
                found[key] = [min(found[key][0], value[0]), max(found[key][1], value[1])]
    return found


def outside(reach: Reach, fit: Fit | None) -> list[dict[str, Any]]:
    """Return where a run lies outside of what its parameters were fitted to: quantity, value, range and a sentence."""
    if fit is None:
        text = "no fitted parameters: nothing here has been held against a measurement"
        return [{"quantity": "parameters", "value": None, "calibrated": None, "message": text}]
    if fit.calibrated_range is None:
        text = f"{fit.name} does not say what it was fitted to; fit it again"
        return [{"quantity": "calibrated_range", "value": None, "calibrated": None, "message": text}]
    return [*_other_names(reach, fit.calibrated_range), *_beyond(reach, fit.calibrated_range)]


def _other_names(reach: Reach, fitted: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for key, label in _NAMES.items():
        strange = [name for name in reach.get(key, []) if name not in fitted.get(key, [])]
        if strange:
            names = ", ".join(fitted.get(key, [])) or "none"
            text = f"{label} {', '.join(strange)}: fitted to {names}"
            yield {"quantity": key, "value": strange, "calibrated": list(fitted.get(key, [])), "message": text}


def _beyond(reach: Reach, fitted: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for key, (label, slack) in _NUMBERS.items():
        if key not in reach:
            continue
        low, high = reach[key]
        if key not in fitted:
            text = f"{label} {_text(key, high)}: fitted to runs without any"
            yield {"quantity": key, "value": high, "calibrated": None, "message": text}
            continue
        least, most = fitted[key]
        value = high if high > most * (1.0 + slack) else low if low < least * (1.0 - slack) else None
        if value is not None and not (key == "tier_bytes_per_s" and value < least):
            text = f"{label} {_text(key, value)}: fitted to {_text(key, least)} to {_text(key, most)}"
            yield {"quantity": key, "value": value, "calibrated": [least, most], "message": text}


def _text(key: str, value: float) -> str:
    from models.units import format_rate

    return format_rate(value) if key == "tier_bytes_per_s" else f"{value:,.0f}"


def _bandwidth(tier: str, links: Mapping[str, Any]) -> float | None:
    """Return what the ports and the drives of a tier let through together [B/s]; None where nothing crossed them."""
    limits = []
    for family in (tier, f"{tier}.drives"):
        uses = [use for link, use in links.items() if link == family or link.removeprefix(f"{family}.").isdigit()]
        if uses:
            limits.append(max(use["read_capacity_bytes_per_s"] for use in uses))
            if not any(use["read_bytes"] or use["write_bytes"] for use in uses):
                return None
    return min(limits, default=None)


def _at_once(arrived_s: Any, finished_s: Any) -> int:
    """Return the most requests that had arrived and not finished; one that arrives as another ends is not beside it."""
    times = np.concatenate([arrived_s, finished_s])
    steps = np.concatenate([np.ones(arrived_s.size), -np.ones(finished_s.size)])
    order = np.lexsort((steps, times))
    return int(np.cumsum(steps[order]).max())
