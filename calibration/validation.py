"""Measured against simulated: every row of every table, with its error, whether it was fitted, and by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.measurements import Measurement, Table, check_scenarios
from calibration.simulating import SEEDS, medians
from scenarios.loader import load_scenario
from scenarios.parameters import read_parameters
from scenarios.runner import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One figure, measured and simulated (the median over the seeds), in the unit of the measurement."""

    measurement: Measurement
    simulated: float
    used_in_fit: bool

    @property
    def error(self) -> float:
        """Relative error of the simulation: 0.1 is 10 % too high."""
        return self.simulated / self.measurement.value - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """All rows of some tables, and the seeds that were run."""

    tables: tuple[Table, ...]
    rows: tuple[Comparison, ...]
    seeds: int

    def groups(self) -> list[dict[str, Any]]:
        """Return for each group the rows, those fitted, the mean, median and worst of absolute errors, and bias."""
        found = []
        for name in dict.fromkeys(row.measurement.group for row in self.rows):
            members = [row for row in self.rows if row.measurement.group == name]
            errors = np.array([row.error for row in members])
            found.append(
                {
                    "group": name,
                    "rows": len(members),
                    "used_in_fit": sum(row.used_in_fit for row in members),
                    "mean_abs_error": float(np.abs(errors).mean()),
                    "median_abs_error": float(np.median(np.abs(errors))),
                    "worst_abs_error": float(np.abs(errors).max()),
                    "bias": float(errors.mean()),
                }
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return what ``kvtier validate --json`` prints."""
        return {
            "seeds": self.seeds,
            "sources": [
                {"name": t.name, "source": t.source, "licence": t.licence, "seeds": seeds_of(t, self.seeds)}
                for t in self.tables
            ],
            "rows": [
                {
                    "id": row.measurement.id,
                    "group": row.measurement.group,
                    "scenario": row.measurement.scenario,
                    "metric": row.measurement.metric,
                    "unit": row.measurement.unit,
                    "measured": row.measurement.value,
                    "simulated": row.simulated,
                    "error": row.error,
                    "used_in_fit": row.used_in_fit,
                }
                for row in self.rows
            ],
            "groups": self.groups(),
            "excluded": [
                {"group": left_out.group, "ids": list(left_out.ids), "why": left_out.why}
                for table in self.tables
                for left_out in table.excluded
            ],
        }


def seeds_of(table: Table, seeds: int) -> int:
    """Return how many seeds a table is simulated with where *seeds* are asked for."""
    return min(seeds, table.seeds or seeds)


def validate(
    tables: Sequence[Table],
    *,
    seeds: int = SEEDS,
    parameters: str | None = None,
    jobs: int | None = None,
    progress: Report | None = None,
) -> Validation:
    """Simulate every row of the tables, with *parameters* in place of those that its scenario names.

    Raises InputError for a scenario that does not exist or is wrong, KvTierError for a run that fails.
    """
    rows = [row for table in tables for row in table.rows]
    point = None if parameters is None else {"parameters": parameters}
    check_scenarios(rows, () if parameters is None else [f"parameters={parameters}"])
    simulated: list[float] = []
    for table in tables:
        report = None if progress is None else _part(progress, len(simulated), len(table.rows), len(rows))
        simulated += medians(table.rows, point, seeds=seeds_of(table, seeds), jobs=jobs, progress=report)
    return Validation(
        tables=tuple(tables),
        rows=tuple(
            Comparison(measurement=row, simulated=value, used_in_fit=_was_fitted(row, parameters))
            for row, value in zip(rows, simulated, strict=True)
        ),
        seeds=seeds,
    )


def _part(progress: Report, done: int, rows: int, total: int) -> Report:
    """Return a report of the next *rows* of *total* rows, *done* of which have ended."""

    def report(fraction: float | None, ended: int) -> None:
        progress(None if fraction is None else (done + fraction * rows) / total, ended)

    return report


def _was_fitted(row: Measurement, parameters: str | None) -> bool:
    """Whether the fitted parameters of the row's scenario have seen it."""
    name = parameters or _named(row.setup)
    return name is not None and name != "null" and row.id in _fitted_rows(name)


@cache
def _named(setup: tuple[str, tuple[str, ...]]) -> str | None:
    return load_scenario(setup[0], overrides=setup[1]).parameters


@cache
def _fitted_rows(parameters: str) -> frozenset[str]:
    rows = read_parameters(parameters).value.get("rows")
    return frozenset() if rows is None else frozenset(map(str, rows.plain()))


def markdown(validation: Validation) -> str:
    """Return groups and rows as two tables in Markdown, as README.md shows them."""
    lines = ["| group | figures | fitted | mean error | worst | bias |", "|---|---:|---:|---:|---:|---:|"]
    lines += [
        f"| {g['group']} | {g['rows']} | {g['used_in_fit']} | {g['mean_abs_error']:.1%} | {g['worst_abs_error']:.1%} "
        f"| {g['bias']:+.1%} |"
        for g in validation.groups()
    ]
    waves = []
    for row in validation.rows:
        measured = row.measurement
        if measured.metric == "ttft_p50" and not measured.settings:
            held = "fitted" if row.used_in_fit else "predicted"
            figures = f"{measured.value:.4g} s | {row.simulated:.4g} s | {row.error:+.1%}"
            waves.append(f"| `{measured.scenario}` | {figures} | {held} |")
    if waves:
        lines += ["", "| scenario | TTFT p50 measured | simulated | error | |", "|---|---:|---:|---:|---|", *waves]
    return "\n".join(lines)


def parity_plot(validation: Validation) -> Figure:
    """Draw simulated over measured, fitted and held out, one panel a kind of figure."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    kinds = {
        "time": "time [s]",
        "throughput": "throughput [tokens/s]",
        "disk": "bandwidth [iostat GB/s]",
        "hit": "hit ratio [%]",
    }
    shown = {kind: [row for row in validation.rows if _kind(row.measurement) == kind] for kind in kinds}
    shown = {kind: rows for kind, rows in shown.items() if rows}
    figure = Figure(figsize=(4.6 * len(shown), 4.9), layout="constrained")
    groups = list(dict.fromkeys(row.measurement.group for row in validation.rows))
    for axis, (kind, rows) in zip(np.atleast_1d(figure.subplots(1, len(shown))), shown.items(), strict=True):
        points = {row.measurement.id: _point(row) for row in rows}
        for number, group in enumerate(groups):
            for fitted in (True, False):
                chosen = [r for r in rows if r.measurement.group == group and r.used_in_fit == fitted]
                if chosen:
                    xs, ys = zip(*(points[row.measurement.id] for row in chosen), strict=True)
                    colour = f"C{number % 10}"
                    label = f"{group} ({'fitted' if fitted else 'held out'})"
                    face = "none" if fitted else colour
                    axis.scatter(xs, ys, s=26, edgecolors=colour, facecolors=face, label=label, zorder=3)
        values = np.array(list(points.values()))
        # Hit ratios may be 0, which has no logarithm.
        linear = kind == "hit"
        low, high = (-2.0, 102.0) if linear else (values.min() / 1.3, values.max() * 1.3)
        line = np.array([low, high])
        axis.plot(line, line, color="0.4", linewidth=1)
        axis.fill_between(line, line * 0.9, line * 1.1, color="0.9", zorder=0)
        name = "linear" if linear else "log"
        axis.set(xscale=name, yscale=name)
        axis.set(xlim=(low, high), ylim=(low, high), title=kinds[kind], xlabel="measured", ylabel="simulated")
        for scale in () if linear else (axis.xaxis, axis.yaxis):
            few = high / low < 100.0
            scale.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
            scale.set_major_formatter(StrMethodFormatter("{x:g}"))
            scale.set_minor_formatter(NullFormatter())
        axis.legend(fontsize=6.5, loc="upper left")
    figure.suptitle("Simulated over measured; the band is ± 10 %", fontsize=10)
    return figure


def _kind(measurement: Measurement) -> str:
    name = measurement.metric.partition("_")[0]
    return name if name in {"disk", "hit"} else "throughput" if measurement.metric.endswith("throughput") else "time"


def _point(row: Comparison) -> tuple[float, float]:
    scale = {"ms": 1e-3, "1": 100.0, "": 100.0}.get(row.measurement.unit, 1.0)
    return row.measurement.value * scale, row.simulated * scale
