"""What a gate asks for: a YAML file of checks with their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from models.errors import InputError, LocatedError, UnknownNameError
from models.text_files import read_text
from models.units import parse_quantity
from models.yaml_files import read_mapping
from scenarios.layers import shipped
from scenarios.problems import first_problem

Measure = Literal["baseline", "candidate", "reduction", "increase", "baseline-spread", "candidate-spread"]
"""What of a figure is held against the bounds.

The figure of one side; by which share the candidate is below (``reduction``) or above (``increase``) the baseline; or
the range of one side's repeats over their median.
"""
SHARES: Final = ("reduction", "increase", "baseline-spread", "candidate-spread")
_POINT: Final = "{point}"
_DIMENSIONS: Final = ("number", "seconds", "ops_per_s", "bytes_per_s", "bytes")


class GateError(LocatedError):
    """A file of gates, or the evidence for them, is wrong."""


def figure_value(value: str | float, dimensions: Sequence[str] = _DIMENSIONS) -> float | None:
    """Return a figure in SI units, of the first of *dimensions* that it can be read as; None where there is none."""
    for dimension in dimensions:
        with suppress(InputError):
            return parse_quantity(value, dimension)
    return None


def _as_number(value: Any, dimensions: Sequence[str]) -> Any:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return value
    found = figure_value(value, dimensions)
    if found is None:
        raise ValueError(f"'{value}' is no share, number, time, rate or size")
    return found


def _share(value: Any) -> Any:
    return _as_number(value, ("number",))


def _bound(value: Any) -> Any:
    return _as_number(value, _DIMENSIONS)


Share = Annotated[float, BeforeValidator(_share), Field(ge=0, lt=1)]
Bound = Annotated[float, BeforeValidator(_bound)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Check(_Strict):
    """One bound, or band, of one figure.

    ``figure`` is where a run's summary has it, ``csv`` how a table of measurements calls it. ``precision`` is the step
    that the criterion is written in: with 1 %, 28.9 % counts as the 29 % that it would be reported as.
    """

    figure: Annotated[str, Field(min_length=1)]
    csv: Annotated[str, Field(min_length=1)]
    measure: Measure
    at_least: Bound | None = None
    above: Bound | None = None
    at_most: Bound | None = None
    precision: Share = 0.0

    @model_validator(mode="after")
    def _has_bounds(self) -> Check:
        if self.at_least is not None and self.above is not None:
            raise ValueError("has at_least and above; give one of them")
        if self.at_least is None and self.above is None and self.at_most is None:
            raise ValueError("needs a bound: at_least, above or at_most")
        if self.low > self.high:
            raise ValueError(f"no value is at least {self.low:g} and at most {self.high:g}")
        return self

    @property
    def low(self) -> float:
        """The least that passes, -inf without one."""
        found = self.at_least if self.above is None else self.above
        return -inf if found is None else found

    @property
    def high(self) -> float:
        """The most that passes, inf without one."""
        return inf if self.at_most is None else self.at_most

    @property
    def least_values(self) -> int:
        """How many values it takes: one does not scatter."""
        return 2 if self.measure.endswith("-spread") else 1

    def margin(self, value: float) -> float:
        """Return how far a value lies inside the nearer bound, half the precision included; below 0 outside."""
        return min(value - self.low, self.high - value) + self.precision / 2.0

    def holds(self, value: float) -> bool:
        """Whether a value passes."""
        return self.margin(value) > 0.0 if self.above is not None else self.margin(value) >= 0.0


class Gate(_Strict):
    """Some checks that are passed or failed together; what it does not say of its evidence, the file does."""

    title: Annotated[str, Field(min_length=1)]
    checks: Annotated[list[Check], Field(min_length=1)]
    baseline: str | None = None
    candidate: str | None = None
    points: Annotated[list[str], Field(min_length=1)] | None = None


class Gates(_Strict):
    """A file of gates.

    ``baseline`` and ``candidate`` name the evidence at each of the ``points``, which stand for ``{point}`` in them.
    ``noise`` is the relative standard deviation of a measurement that was not repeated, ``model_error`` that of a
    simulated figure beside the scatter of its seeds.
    """

    name: Annotated[str, Field(min_length=1)]
    description: str = ""
    baseline: Annotated[str, Field(min_length=1)]
    candidate: Annotated[str, Field(min_length=1)]
    points: Annotated[list[str], Field(min_length=1)] = [""]
    noise: Share
    model_error: Share
    gates: Annotated[dict[str, Gate], Field(min_length=1)]

    def subjects(self, gate: str, point: str, check: Check) -> tuple[str, ...]:
        """Return what a check of a gate is about at a point: the baseline, the candidate, or both in this order."""
        asked = self.gates[gate]
        sides = {"baseline": asked.baseline or self.baseline, "candidate": asked.candidate or self.candidate}
        named = {side: name.replace(_POINT, point) for side, name in sides.items()}
        side = check.measure.partition("-")[0]
        return (named[side],) if side in named else tuple(named.values())

    def points_of(self, gate: str) -> list[str]:
        """Return the points at which a gate is judged."""
        return self.gates[gate].points or self.points


def gates_text(name: str) -> str:
    """Return a file of gates that ships; raises UnknownNameError."""
    found = shipped("gates/library")
    if name not in found:
        raise UnknownNameError("file of gates", name, found)
    return found[name].read_text(encoding="utf-8")


def load_gates(name_or_path: str) -> Gates:
    """Return a file of gates by shipped name or path (.yaml); raises UnknownNameError, GateError."""
    is_file = name_or_path.endswith((".yaml", ".yml"))
    text = read_text(Path(name_or_path), GateError, label=name_or_path) if is_file else gates_text(name_or_path)
    try:
        return Gates.model_validate(read_mapping(text, name_or_path))
    except ValidationError as error:
        raise GateError(name_or_path, first_problem(error)) from None
