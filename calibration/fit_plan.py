"""What to fit: a YAML file of measured rows and of parameters with their priors."""

from __future__ import annotations

from math import exp, log
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calibration.measurements import Measurement, check_scenarios, read_table
from calibration.simulating import SEEDS
from models.errors import InputError, LocatedError, UnknownNameError
from models.text_files import read_text
from models.yaml_files import read_mapping
from scenarios.layers import shipped
from scenarios.loader import load_scenario
from scenarios.parameters import split_key
from scenarios.problems import first_problem

_SHOWN_DIGITS: Final = 10


class FitError(LocatedError):
    """A file that says what to fit is wrong."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Parameter(_Strict):
    """A number to fit, in ``unit``.

    ``prior`` is the best guess without the data and ``sd`` its standard deviation: of the logarithm (0.1 is 10 %), or
    with ``transform: linear`` in the unit. The fit stays within ``bounds``. ``why`` says where the prior comes from.
    """

    unit: str = ""
    prior: float
    sd: Annotated[float, Field(gt=0)]
    bounds: Annotated[list[float], Field(min_length=2, max_length=2)]
    transform: Literal["log", "linear"] = "log"
    why: Annotated[str, Field(min_length=1)]

    def to_x(self, value: float) -> float:
        """Return a value as standard deviations from the prior."""
        if self.transform == "log":
            return log(value / self.prior) / self.sd
        return (value - self.prior) / self.sd

    def from_x(self, x: float) -> float:
        """Return the value that lies *x* standard deviations from the prior."""
        return self.prior * exp(x * self.sd) if self.transform == "log" else self.prior + x * self.sd

    def text(self, value: float) -> str:
        """Return a value with its unit, as a scenario writes it."""
        return f"{value:.{_SHOWN_DIGITS}g} {self.unit}".strip()


class Rows(_Strict):
    """Which rows of the data are fitted: all, or those of some groups and some ids, without others."""

    groups: list[str] | None = None
    ids: list[str] = []
    without: list[str] = []


class _Plan(_Strict):
    name: Annotated[str, Field(min_length=1)]
    description: str = ""
    data: Annotated[str, Field(min_length=1)]
    rows: Rows = Rows()
    noise: Annotated[float, Field(gt=0, lt=1)] = 0.05
    seeds: Annotated[int, Field(ge=1)] = SEEDS
    on_top_of: str | None = None
    parameters: Annotated[dict[str, Parameter], Field(min_length=1)]


class FitPlan:
    """A checked plan with its measurements.

    Parameters
    ----------
    plan : _Plan
        What the file says.
    where : str
        The file.
    folder : Path or None
        Where files that it names are looked for.

    Raises
    ------
    InputError
        For rows that do not exist, a prior outside its bounds, a key that no scenario has.
    """

    def __init__(self, plan: _Plan, where: str, folder: Path | None) -> None:
        self.name = plan.name
        self.description = plan.description
        self.noise = plan.noise
        self.seeds = plan.seeds
        self.on_top_of = plan.on_top_of
        self.parameters = plan.parameters
        self.table = read_table(plan.data, folder)
        self.rows = _chosen(self.table.rows, plan.rows, where)
        for key, parameter in self.parameters.items():
            _check_parameter(key, parameter, where)
        check_scenarios(self.rows, [f"{key}={value}" for key, value in self.overrides({}).items()])
        self._check_keys(where)

    def overrides(self, values: dict[str, float]) -> dict[str, str | float]:
        """Return parameters as a scenario writes them, in place of those that it names."""
        texts = {key: self.parameters[key].text(value) for key, value in values.items()}
        return {"parameters": self.on_top_of or "null", **texts}

    def noise_of(self, row: Measurement) -> float:
        """Return the relative standard deviation of a row."""
        return row.noise or self.noise

    def _check_keys(self, where: str) -> None:
        first = self.rows[0]
        for key, parameter in self.parameters.items():
            settings = [f"{k}={v}" for k, v in self.overrides({key: parameter.prior}).items()]
            try:
                load_scenario(first.scenario, overrides=[*first.settings, *settings])
            except InputError as error:
                raise FitError(f"{where}: parameters.{key}", str(error)) from None


def plan_names() -> list[str]:
    """Return the names of the fits that ship."""
    return list(shipped("fits", of="calibration"))


def load_plan(name_or_path: str) -> FitPlan:
    """Return a fit by shipped name or path (.yaml); raises UnknownNameError, InputError."""
    if name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path)
        text = read_text(path, FitError, label=name_or_path)
        return FitPlan(_parsed(text, name_or_path), name_or_path, path.parent)
    found = shipped("fits", of="calibration")
    if name_or_path not in found:
        raise UnknownNameError("fit", name_or_path, found)
    label = f"{name_or_path}.yaml"
    return FitPlan(_parsed(found[name_or_path].read_text(encoding="utf-8"), label), label, None)


def _parsed(text: str, where: str) -> _Plan:
    raw: dict[str, Any] = read_mapping(text, where)
    try:
        return _Plan.model_validate(raw)
    except ValidationError as error:
        raise FitError(where, first_problem(error)) from None


def _chosen(rows: tuple[Measurement, ...], rule: Rows, where: str) -> tuple[Measurement, ...]:
    ids, groups = {row.id for row in rows}, {row.group for row in rows}
    for name in (*rule.ids, *rule.without):
        if name not in ids:
            raise FitError(f"{where}: rows", str(UnknownNameError("row", name, sorted(ids))))
    for name in rule.groups or ():
        if name not in groups:
            raise FitError(f"{where}: rows", str(UnknownNameError("group", name, sorted(groups))))
    everything = rule.groups is None and not rule.ids
    chosen = tuple(
        row
        for row in rows
        if row.id not in rule.without and (everything or row.id in rule.ids or row.group in (rule.groups or ()))
    )
    if not chosen:
        raise FitError(f"{where}: rows", "none is left")
    return chosen


def _check_parameter(key: str, parameter: Parameter, where: str) -> None:
    label = f"{where}: parameters.{key}"
    split_key(key, where)
    low, high = parameter.bounds
    if not low < high:
        raise FitError(label, f"bounds are {low:g} and {high:g}; the first must be the smaller")
    if parameter.transform == "log" and low <= 0:
        raise FitError(label, f"the lower bound is {low:g}; must be above 0 (or transform: linear)")
    if not low <= parameter.prior <= high:
        raise FitError(label, f"prior {parameter.prior:g} is outside its bounds, {low:g} to {high:g}")
