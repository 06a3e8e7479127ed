"""A catalogue entry from measurements, and how well its curve meets the points that it was read off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import yaml

from calibration.importers.cells import Measurements
from calibration.importers.estimate import Found, estimate
from calibration.importers.points import Point, points_of
from models.catalogue import Entry, Figure, load_entry
from models.figures import KINDS
from models.storage import DeviceCost, device_from_entry
from models.units import format_rate, format_seconds

STAND_INS: Final = {"drive": "nvme-gen4", "array": "storage-scale-llmd", "object": "object-store", "memory": "ddr5"}
"""Catalogue device whose latency stands in, as assumed, where a file says nothing of it."""

_AS_A_READ_SPREAD: Final = 0.5
"""As the shipped entries have it for writes that nobody measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """One point against the curve of the device [B/s]."""

    point: Point
    curve_bytes_per_s: float

    @property
    def error(self) -> float:
        """Relative error of the curve: 0.1 is 10 % too high."""
        return self.curve_bytes_per_s / self.point.cell.bytes_per_s - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A device as imported.

    Parameters
    ----------
    entry : Entry
        What the catalogue file says.
    met : sequence of Met
        Every point whose queue depth is known, against the curve.
    warnings : sequence of str
        What to know before trusting it.
    """

    entry: Entry
    met: Sequence[Met]
    warnings: Sequence[str]

    def yaml(self) -> str:
        """Return the catalogue file: every figure with its unit, source, status and spread, a line each."""
        plain = self.entry.model_dump(exclude_none=True, exclude_defaults=True)
        figures = {name: _compact(figure) for name, figure in plain.pop("figures").items()}
        head = {key: plain[key] for key in ("name", "title", "status", "note", "traits") if key in plain}
        text = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=1000)
        return text + yaml.safe_dump(
            {"figures": figures}, sort_keys=False, allow_unicode=True, width=1000, default_flow_style=None
        )


def import_device(
    files: Sequence[tuple[str, Measurements]],
    *,
    name: str,
    device_class: str = "drive",
    count: int = 1,
    stand_in: str | None = None,
) -> Imported:
    """Return the device that *files* (file name and what it holds) describe.

    Parameters
    ----------
    device_class : str
        One of memory, drive, array, object.
    count : int
        Devices that were measured together as a stripe; figures are for one of them.
    stand_in : str or None
        Catalogue device for required figures that the files do not hold; its figures become assumed ones. None takes
        the class's latencies (`STAND_INS`), and writes as reads.

    Raises CatalogueError, UnknownNameError for a stand-in that is none.
    """
    points = points_of(cell for _, found in files for cell in found.cells)
    found, warnings = estimate(points)
    source = "; ".join(f"{measured.tool}, {Path(file).name}" for file, measured in files)
    figures = {key: _figure(key, figure, source, count) for key, figure in found.items()}
    warnings = [f"{Path(file).name}: {text}" for file, measured in files for text in measured.warnings] + warnings
    for key, figure in _assumed(figures, stand_in, device_class).items():
        figures[key] = figure
        warnings.append(f"{key} is not in the file: {figure.text} assumed ({figure.source})")
    order = list(KINDS["storage"].dimensions)
    entry = Entry(
        kind="storage",
        name=name,
        title=f"{name}, imported from {source}",
        status="measured",
        figures={key: figures[key] for key in sorted(figures, key=order.index)},
        traits={"device_class": device_class, "duplex": "no"},
    )
    return _with_curve(entry, points, count, tuple(dict.fromkeys(m.rule for _, m in files if m.rule)), warnings)


def _with_curve(
    entry: Entry, points: Sequence[Point], count: int, rules: Sequence[str], warnings: list[str]
) -> Imported:
    """Choose whether the directions share the medium by what the mixes say, and note how well the curve meets all."""
    either = [entry, entry.model_copy(update={"traits": {**entry.traits, "duplex": "yes"}})]
    curves = [_met(candidate, points, count) for candidate in either]
    mixes = [_misses(curve) for curve in curves]
    chosen = 1 if mixes[0] and sum(mixes[1]) < sum(mixes[0]) else 0
    entry, met = either[chosen], curves[chosen]
    notes = list(rules)
    if met:
        errors = [abs(row.error) for row in met]
        worst = max(met, key=lambda row: abs(row.error))
        notes.append(
            f"the curve meets the {len(met)} points within {median(errors):.0%} at the median, "
            f"{max(errors):.0%} at worst ({worst.point.text()})"
        )
    if not mixes[0]:
        notes.append("no mix of reads and writes at a known queue depth was measured: one medium for both is assumed")
    return Imported(entry=entry.model_copy(update={"note": "; ".join(notes) + "."}), met=met, warnings=warnings)


def _met(entry: Entry, points: Sequence[Point], count: int) -> list[Met]:
    cost: DeviceCost = device_from_entry(entry).configure(count)
    return [
        Met(
            point=point,
            curve_bytes_per_s=cost.bandwidth_bytes_per_s(
                point.cell.io_bytes, point.cell.depth, point.cell.write_fraction
            ),
        )
        for point in points
        if point.cell.depth is not None and not point.cell.is_bound
    ]


def _misses(curve: Sequence[Met]) -> list[float]:
    return [abs(math.log1p(row.error)) for row in curve if 0 < row.point.cell.write_fraction < 1]


def _figure(key: str, found: Found, source: str, count: int) -> Figure:
    """Return a figure of one device: of a stripe, bandwidth and operations are its part, times are those of one."""
    parts = 1 if key.endswith("latency") or key == "stream_bandwidth" else count
    value, _, unit = _text(key, found.value / parts).partition(" ")
    return Figure(
        value=float(value),
        unit=unit,
        source=source,
        status=found.status,
        spread=None if found.spread is None else float(f"{found.spread:.3g}"),
        note=found.note if parts == 1 else f"one of {count} measured together; {found.note}",
    )


def _text(key: str, value: float) -> str:
    if key.endswith("bandwidth"):
        return format_rate(value)
    return format_seconds(value) if key.endswith("latency") else f"{value / 1e3:.4g} kIOPS"


def _assumed(figures: dict[str, Figure], stand_in: str | None, device_class: str) -> dict[str, Figure]:
    """Return the required figures that were not measured."""
    lacking = [key for key in KINDS["storage"].required if key not in figures]
    other = load_entry("storage", stand_in or STAND_INS[device_class])
    assumed: dict[str, Figure] = {}
    for key in lacking:
        twin = figures.get(key.replace("write", "read") if key.startswith("write") else key.replace("read", "write"))
        if stand_in is None and twin is not None and key.endswith("bandwidth"):
            direction = "read" if key.startswith("write") else "write"
            update = {"source": f"as a {direction}: not measured", "spread": _AS_A_READ_SPREAD, "note": None}
            assumed[key] = twin.model_copy(update={**update, "status": "assumed", "unverified": True})
        else:
            figure = other.figures[key]
            # The catalogue counts bandwidth of an array per drive.
            drives = (other.count("drives") or 1) if key.endswith("bandwidth") else 1
            update = {"source": f"as {other.name}: {figure.source}", "status": "assumed", "unverified": True}
            assumed[key] = figure.model_copy(update={**update, "value": figure.value * drives})
    return assumed


def _compact(figure: dict[str, Any]) -> dict[str, Any]:
    text = f"{figure.pop('value'):.15g} {figure.pop('unit')}"
    return {"value": text, **figure}
