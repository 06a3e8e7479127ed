"""A figure of the catalogue that a scenario, or fitted parameters, replace."""

from typing import Any

from pydantic import Field, model_validator

from models.catalogue import Status
from scenarios.quantity import Part


class FigureChange(Part):
    """A number with its unit, and where it comes from; alone it is taken to be an assumption of the scenario."""

    value: str | float = Field(description="Number and unit, such as '10.4 GB/s'; a plain number where there is none.")
    source: str = Field(default="set by the scenario", min_length=1)
    status: Status = "assumed"
    spread: float | None = Field(default=None, ge=0, description="Relative standard deviation.")
    note: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"value": value} if isinstance(value, str | int | float) and not isinstance(value, bool) else value
