"""Published measurements, each tied to the scenario that is set up as its report describes."""

from __future__ import annotations

from importlib import resources
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Measurement(_Table):
    """One published figure.

    Parameters
    ----------
    id : str
        Unique name.
    scenario : str
        The shipped scenario that reproduces its set-up.
    figure : str
        Which figure of the run's summary it is, as a dotted path.
    value : float
        What was measured, in ``unit``.
    unit : str
        ``s`` or ``tokens/s``.
    """

    id: str
    scenario: str
    figure: str
    value: Annotated[float, Field(gt=0)]
    unit: str


class Report(_Table):
    """The figures of one source, with what its licence asks to be named."""

    source: str
    licence: str
    figures: list[Measurement]


def reports() -> list[Report]:
    """Return all published measurements that ship, by file name."""
    folder = resources.files("calibration").joinpath("measured")
    files = sorted((item for item in folder.iterdir() if item.name.endswith(".yaml")), key=lambda item: item.name)
    return [Report.model_validate(yaml.safe_load(item.read_text(encoding="utf-8"))) for item in files]
