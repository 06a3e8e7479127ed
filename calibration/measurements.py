"""Measured figures: a CSV table with a row for each, tied to the scenario that is set up as its measurement was."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from math import inf
from pathlib import Path
from typing import Final

from calibration.exclusions import Exclusion, read_exclusions
from calibration.metrics import check_metric, unit_factor
from models.errors import InputError, LocatedError, UnknownNameError
from models.text_files import read_text
from scenarios.layers import shipped
from scenarios.loader import load_scenario

COLUMNS: Final = ("id", "group", "scenario", "settings", "metric", "value", "unit", "noise", "client_s", "note")
_NEEDED: Final = ("id", "scenario", "metric", "value", "unit")


class MeasurementError(LocatedError):
    """A table of measurements is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured figure.

    Parameters
    ----------
    id, group : str
        Unique name, and what it is reported with.
    scenario : str
        The scenario that reproduces its set-up: a shipped name or a path.
    settings : tuple of str
        ``key=value`` overrides of that scenario.
    metric : str
        Which figure of the run it is (:mod:`calibration.metrics`).
    value, unit : float, str
        What was measured; above 0.
    noise : float or None
        Relative standard deviation of the measurement; None: that of the fit.
    client_s : float
        Time that the measured wall clock runs before the first request [s]; counts in throughput only.
    note, where : str
        What else is to be said, and the line that it stands on.
    """

    id: str
    group: str
    scenario: str
    settings: tuple[str, ...]
    metric: str
    value: float
    unit: str
    noise: float | None
    client_s: float
    note: str
    where: str

    @property
    def setup(self) -> tuple[str, tuple[str, ...]]:
        """What has to be simulated for it."""
        return self.scenario, self.settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The figures of one source, with what its licence asks to be named.

    ``seeds`` is how many seeds its runs need at most, None where that is left to the command; ``excluded`` are
    published figures of the source that are not simulated.
    """

    name: str
    source: str
    licence: str
    rows: tuple[Measurement, ...]
    seeds: int | None = None
    excluded: tuple[Exclusion, ...] = ()


def tables() -> list[Table]:
    """Return the measurements that ship, by file name."""
    return [read_table(name) for name in table_names()]


def table_names() -> list[str]:
    """Return the names of the tables that ship."""
    return list(_shipped())


def read_table(name_or_path: str, folder: Path | None = None) -> Table:
    """Return a table by shipped name or by path (.csv), relative to *folder* where that is given.

    Raises
    ------
    UnknownNameError
        For a name that does not ship.
    MeasurementError
        For a file that cannot be read, a column or a value that is wrong, an id that stands twice.
    """
    if not name_or_path.endswith(".csv"):
        found = _shipped()
        if name_or_path not in found:
            raise UnknownNameError("table of measurements", name_or_path, found)
        text = found[name_or_path].read_text(encoding="utf-8")
        return replace(_table(name_or_path, f"{name_or_path}.csv", text), excluded=read_exclusions(name_or_path))
    path = Path(name_or_path) if folder is None else folder / name_or_path
    return _table(path.stem, str(path), read_text(path, MeasurementError, encoding="utf-8-sig"))


def check_scenarios(rows: Sequence[Measurement], settings: Sequence[str] = ()) -> None:
    """Load every scenario of the rows, with *settings* on top of its own; InputError names the row of a wrong one."""
    seen = set()
    for row in rows:
        if row.setup not in seen:
            seen.add(row.setup)
            try:
                load_scenario(row.scenario, overrides=[*row.settings, *settings])
            except InputError as error:
                raise MeasurementError(row.where, f"{row.id}: {error}") from None


def _shipped() -> dict[str, Traversable]:
    return shipped("measured", of="calibration", ending=".csv")


def _table(name: str, label: str, text: str) -> Table:
    lines = text.splitlines()
    said = dict(_comments(lines))
    rows = tuple(_rows(lines, label))
    if not rows:
        raise MeasurementError(label, "holds no measurement")
    seen: dict[str, str] = {}
    for row in rows:
        if row.id in seen:
            raise MeasurementError(row.where, f"id '{row.id}' stands twice (first at {seen[row.id]})")
        seen[row.id] = row.where
    seeds = said.get("seeds")
    if seeds is not None and not (seeds.isdigit() and int(seeds) > 0):
        raise MeasurementError(label, f"seeds is '{seeds}'; must be a whole number, at least 1")
    return Table(
        name=name,
        source=said.get("source", label),
        licence=said.get("licence", ""),
        rows=rows,
        seeds=None if seeds is None else int(seeds),
    )


def _comments(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        key, colon, value = line.removeprefix("#").partition(":")
        if line.startswith("#") and colon:
            yield key.strip(), value.strip()


def _rows(lines: Sequence[str], label: str) -> Iterator[Measurement]:
    numbered = [(n, line) for n, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")]
    if not numbered:
        return
    number, first = numbered[0]
    names = [name.strip() for name in next(csv.reader([first]))]
    missing = [name for name in _NEEDED if name not in names]
    unknown = [name for name in names if name not in COLUMNS]
    if missing or unknown or len(set(names)) < len(names):
        wrong = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(unknown) or 'a column twice'}"
        raise MeasurementError(f"{label}:{number}", f"{wrong}; the columns are {','.join(COLUMNS)}")
    for number, line in numbered[1:]:
        where = f"{label}:{number}"
        values = next(csv.reader([line]))
        if len(values) != len(names):
            raise MeasurementError(where, f"has {len(values)} values; must have {len(names)}")
        yield _measurement({key: value.strip() for key, value in zip(names, values, strict=True)}, where)


def _measurement(row: dict[str, str], where: str) -> Measurement:
    for name in _NEEDED:
        if not row[name]:
            raise MeasurementError(where, f"{name} is empty")
    try:
        unit_factor(check_metric(row["metric"]), row["unit"])
    except InputError as error:
        raise MeasurementError(where, str(error)) from None
    return Measurement(
        id=row["id"],
        group=row.get("group") or "all",
        scenario=row["scenario"],
        settings=tuple(part.strip() for part in row.get("settings", "").split(";") if part.strip()),
        metric=row["metric"],
        value=_number(row["value"], "value", where),
        unit=row["unit"],
        noise=_number(row["noise"], "noise", where) if row.get("noise") else None,
        client_s=_number(row["client_s"], "client_s", where) if row.get("client_s") else 0.0,
        note=row.get("note", ""),
        where=where,
    )


def _number(text: str, name: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise MeasurementError(where, f"{name} is '{text}'; must be a number") from None
    if not 0.0 < value < inf:
        raise MeasurementError(where, f"{name} is {text}; must be above 0 and finite")
    return value
