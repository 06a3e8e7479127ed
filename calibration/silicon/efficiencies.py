"""The figures that are fitted for one engine: prior, bounds and unit of each, and what a run makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from models.catalogue import load_entry

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
    of_library : bool
        Whether it is a share of what libraries reach on a part (matrix products, copies and reductions alone, as its
        catalogue entry has them) rather than the part's figure itself.
    """

    name: str
    unit: str
    prior: float
    spread: float
    low: float
    high: float
    of_library: bool = False

    @property
    def of_engine(self) -> bool:
        """Whether it is a key of a scenario's engine rather than a figure of an accelerator."""
        return self.name in _OF_ENGINE

    def scale(self, accelerator: str) -> float | None:
        """Return what 1 of it is as a figure of an accelerator; None where libraries have none there."""
        return load_entry("accelerator", accelerator).optional_si(self.name) if self.of_library else 1.0


def _share(name: str, prior: float, spread: float, *, high: float, of_library: bool = False) -> Parameter:
    return Parameter(name=name, unit="", prior=prior, spread=spread, low=0.02, high=high, of_library=of_library)


# Efficiencies are shares of what a part's libraries reach, so that what is known of a new part (its matrix products
# reach 0.57 of peak where Hopper's reach 0.65, its reductions 0.76 where Hopper's reach 1.06) need not be fitted.
# Priors: engines are near their libraries where one large kernel does the work (16-bit products, copies), less so where
# quantising, small products or the ranks' waiting come between; wide enough for whole engines. What kernels take beyond
# the roofline is that of AIConfigurator's tables of single operators (aiconfigurator-core 0.12.0: vLLM 0.24.0, SGLang
# 0.5.14 and TensorRT-LLM 1.3.0rc20 on H100, H200 and B200), which are no serving runs. There, products of 1,024 to
# 8,192 tokens on a B200 reach 0.83 of the catalogue's figure in FP8 and 0.69 in FP4 (0.64 to 0.71 by engine): the prior
# of FP4, which no Hopper multiplies, is to FP8's as that. A decode of few sequences takes 28 to 41 us a layer of
# Llama-3.1-8B more in 16 bit on one GPU, of which `Llm.kernels` counts ten kernels, and 45 to 98 us in FP8; tensor
# parallelism adds 5 to 12 us to two all-reduces that wait for nobody. Routed experts of one token take 14 to 55 us
# (vLLM, SGLang) or 16 to 170 us (TensorRT-LLM) beyond their weights, and are routed besides; they read weights at 0.7
# to 1.0 of the other kernels' efficiency. Those of 8,192 tokens take a + b / tensor parallelism: b is products at 0.4
# to 0.9 of the other kernels' efficiency, a passes about 10 bytes an element of each chosen expert's hidden vector. KV
# is read at 1.03 to 1.13 of copies. A step's own time is what engines do not overlap: sampling and the preparation of
# inputs. Fixed times of which only the order of magnitude is known are a factor of two or more. A layer passes its
# activations about ten times (two norms, two residual sums, rotation, activation function and quantisation), and
# launches some tens of kernels of about 10 us each where no CUDA graph does.
PARAMETERS: Final = (
    _share("bf16_efficiency", 1.0, 0.25, high=1.5, of_library=True),
    _share("fp8_efficiency", 0.8, 0.25, high=1.5, of_library=True),
    _share("fp4_efficiency", 0.66, 0.25, high=1.5, of_library=True),
    _share("hbm_efficiency", 0.97, 0.1, high=1.12, of_library=True),
    _share("collective_efficiency", 0.75, 0.3, high=1.2, of_library=True),
    _share("expert_compute_factor", 0.5, 0.4, high=1.5),
    _share("expert_hbm_factor", 0.85, 0.3, high=1.5),
    _share("kv_hbm_factor", 1.05, 0.15, high=1.5),
    Parameter(name="routing_skew", unit="", prior=1.0, spread=0.4, low=0.02, high=3.0),
    Parameter(name="step_fixed", unit="ms", prior=0.5, spread=1.0, low=0.02, high=20.0),
    Parameter(name="kernel_fixed", unit="us", prior=3.5, spread=0.3, low=0.02, high=20.0),
    Parameter(name="collective_latency", unit="us", prior=8.0, spread=0.7, low=0.2, high=200.0),
    Parameter(name="moe_layer_fixed", unit="us", prior=40.0, spread=0.6, low=0.2, high=200.0),
    Parameter(name="sequence_fixed", unit="us", prior=20.0, spread=0.7, low=0.02, high=200.0),
    Parameter(name="prompt_layer_fixed", unit="us", prior=300.0, spread=0.9, low=5.0, high=5000.0),
    Parameter(name="activation_passes", unit="", prior=10.0, spread=0.7, low=0.5, high=100.0),
    Parameter(name="expert_activation_passes", unit="", prior=5.0, spread=0.7, low=0.5, high=100.0),
    Parameter(name="mixed_step_factor", unit="", prior=1.1, spread=0.2, low=1.0, high=4.0),
    Parameter(name="request_latency", unit="ms", prior=15.0, spread=1.0, low=0.2, high=500.0),
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
        scale = None if parameter.of_engine else parameter.scale(accelerator)
        if scale is not None:
            value = float(values[parameter.name]) * scale
            figures[parameter.name] = {"value": f"{value!r} {parameter.unit}" if parameter.unit else value}
    entry = {"base": accelerator, "name": path.stem, "status": "fitted", "source": source, "figures": figures}
    path.write_text(yaml.safe_dump(entry, sort_keys=False, width=120), encoding="utf-8")
