"""What the rows of a fit reach over, so that a prediction elsewhere can be told from one within."""

from __future__ import annotations

from typing import Any

from calibration.fitting import Fitted
from scenarios.build import simulate
from scenarios.loader import load_scenario
from scenarios.uncertainty.reach import Reach, joined, reach_of


def calibrated_range(fitted: Fitted) -> dict[str, Any]:
    """Return models, accelerators, devices, context lengths, requests at once and bandwidths of the rows of a fit.

    Each scenario is run once, with the seed that it names and the fitted parameters.
    """
    values = dict(zip(fitted.plan.parameters, fitted.values, strict=True))
    settings = [f"{key}={value}" for key, value in fitted.plan.overrides(values).items()]
    setups = dict.fromkeys(row.setup for row in fitted.plan.rows)
    found = joined(_reach(name, [*own, *settings]) for name, own in setups)
    rates = "tier_bytes_per_s"
    return found | ({rates: [float(f"{rate:.4g}") for rate in found[rates]]} if rates in found else {})


def _reach(name: str, settings: list[str]) -> Reach:
    scenario = load_scenario(name, overrides=settings)
    return reach_of(scenario, simulate(scenario))
