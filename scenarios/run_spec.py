"""What a scenario may say of links, of limits, and of how it is run and measured."""

from typing import Literal

from pydantic import Field

from scenarios.quantity import BytesPerS, Part, Seconds


class LinkSpec(Part):
    """Figures of a link that replace those of the catalogue."""

    bandwidth: BytesPerS | None = Field(default=None, description="Nominal rate, each way.")
    latency: Seconds | None = Field(default=None, description="Latency a transfer [s].")
    delivered_fraction: float | None = Field(default=None, gt=0, le=1, description="What arrives of the nominal rate.")


class Slo(Part):
    """Limits that a request must keep to count as good."""

    ttft: Seconds | None = Field(default=None, gt=0, description="Time to first token [s].")
    tpot: Seconds | None = Field(default=None, gt=0, description="Mean time an output token after the first [s].")
    itl: Seconds | None = Field(default=None, gt=0, description="Longest time between two tokens [s].")


class Run(Part):
    """How the run is made and what of it is measured."""

    seed: int = Field(default=0, ge=0, description="Seed of everything random.")
    warmup: Seconds = Field(
        default=0.0, description="Requests that arrive before this time are left out of the figures [s]."
    )
    measure: str | None = Field(default=None, description="Only this phase is measured; null: all of them.")
    percentiles: Literal["linear", "nearest-rank", "floor-index"] = Field(
        default="linear", description="Percentile rule."
    )
