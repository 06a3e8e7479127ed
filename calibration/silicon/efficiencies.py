"""The figures that are fitted for one engine: prior, bounds and unit of each, and what a run makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

SOURCE: Final = "fitted by kvtier to AIConfigurator's silicon sample (InferenceX and NVIDIA; Apache-2.0)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One fitted figure, always above 0 and fitted on its logarithm.

    Parameters
    ----------
    name, unit : str
        Figure of an accelerator entry, or ``mixed_step_factor`` and ``request_latency`` of the engine.
    prior, spread : float
        Centre in that unit, and standard deviation of the logarithm.
    low, high : float
        Bounds in that unit.
    """

    name: str
    unit: str
    prior: float
    spread: float
    low: float
    high: float


def _share(name: str, prior: float, spread: float, high: float = 0.98) -> Parameter:
    return Parameter(name=name, unit="", prior=prior, spread=spread, low=0.02, high=high)


# Priors: GEMM and triad efficiencies of the catalogue's sources, wide enough for whole engines; fixed times and factors
# of which only the order of magnitude is known are a factor of two.
PARAMETERS: Final = (
    _share("bf16_efficiency", 0.6, 0.25),
    _share("fp8_efficiency", 0.5, 0.25),
    _share("fp4_efficiency", 0.3, 0.25),
    _share("hbm_efficiency", 0.85, 0.1),
    _share("collective_efficiency", 0.7, 0.3, high=1.2),
    _share("expert_compute_factor", 0.6, 0.3, high=1.5),
    _share("expert_hbm_factor", 0.7, 0.3, high=1.5),
    Parameter(name="routing_skew", unit="", prior=1.0, spread=0.4, low=0.02, high=3.0),
    Parameter(name="step_fixed", unit="ms", prior=2.0, spread=0.7, low=0.02, high=20.0),
    Parameter(name="layer_fixed", unit="us", prior=15.0, spread=0.7, low=0.2, high=200.0),
    Parameter(name="collective_latency", unit="us", prior=15.0, spread=0.7, low=0.2, high=200.0),
    Parameter(name="token_fixed", unit="us", prior=3.0, spread=0.7, low=0.02, high=60.0),
    Parameter(name="mixed_step_factor", unit="", prior=1.1, spread=0.2, low=1.0, high=4.0),
    Parameter(name="request_latency", unit="ms", prior=15.0, spread=0.5, low=0.2, high=500.0),
)
NAMES: Final = tuple(parameter.name for parameter in PARAMETERS)
_OF_ENGINE: Final = frozenset({"mixed_step_factor", "request_latency"})

Efficiencies = Mapping[str, float]
"""One value for each name, in the parameter's unit."""


def priors() -> dict[str, float]:
    """Return every parameter at the centre of its prior."""
    return {parameter.name: parameter.prior for parameter in PARAMETERS}


def engine_settings(values: Efficiencies) -> dict[str, float | str]:
    """Return the part of the figures that a scenario says under ``engine``."""
    return {
        "mixed_step_factor": values["mixed_step_factor"],
        "request_latency": f"{values['request_latency']!r} ms",
    }


def write_entry(path: Path, accelerator: str, values: Efficiencies, *, source: str = SOURCE) -> None:
    """Write an accelerator entry that differs from the shipped one in the fitted figures only."""
    figures: dict[str, dict[str, str | float]] = {}
    for parameter in PARAMETERS:
        if parameter.name not in _OF_ENGINE:
            value = float(values[parameter.name])
            figures[parameter.name] = {"value": f"{value!r} {parameter.unit}" if parameter.unit else value}
    entry = {"base": accelerator, "name": path.stem, "status": "fitted", "source": source, "figures": figures}
    path.write_text(yaml.safe_dump(entry, sort_keys=False, width=120), encoding="utf-8")
