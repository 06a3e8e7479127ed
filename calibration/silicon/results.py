"""Writes what was fitted as parameters that scenarios use by name, and the errors as tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from math import hypot, isfinite
from pathlib import Path
from typing import Any, Final

from calibration.fitted_file import rounded, yaml_text
from calibration.silicon.efficiencies import PARAMETERS, SOURCE, Parameter
from calibration.silicon.fitting import GROUP_SPREAD, Fit
from calibration.silicon.rows import Row
from calibration.silicon.splits import SPLITS, Errors, SplitResult
from scenarios.whole_files import write_whole_text

LICENCE: Final = "Apache-2.0"
ACCELERATORS: Final = ("h100-sxm", "h200-sxm", "b200-sxm", "b300-sxm", "gb200", "gb300", "rubin")
"""Which entries the parameters are for: those measured, and NVIDIA's later ones, for which they are a prediction."""
_NORMAL_MEDIAN: Final = 0.6745
"""Median of the absolute value of a standard normal variable."""
_DIGITS: Final = 4
_COLUMNS: Final = (
    *("engine", "split", "group", "rows", "not_run", "used_in_fit"),
    *("tpot_median_error", "tpot_bias", "ttft_median_error", "ttft_bias"),
)


def write(folder: Path, found: Sequence[SplitResult], *, left_out: Mapping[str, int], date: str) -> Iterator[Path]:
    """Write parameters of each fit, and the errors as CSV and Markdown, into *folder*; yield the paths."""
    folder.mkdir(exist_ok=True)
    for result in found:
        path = folder / f"{result.engine}-{result.split}.yaml"
        write_whole_text(path, yaml_text(document(result, date=date)))
        yield path
    rows = list(error_rows(found))
    path = folder / "step-times.csv"
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole_text(path, text.getvalue())
    yield path
    path = folder / "step-times.md"
    write_whole_text(path, markdown(rows, left_out))
    yield path


def document(result: SplitResult, *, date: str) -> dict[str, Any]:
    """Return a fit in the form that ``parameters:`` of a scenario reads.

    Spreads are standard deviations of logarithms. Accelerators that were not fitted carry, on efficiencies, what the
    fit was off by on groups that it had not seen.
    """
    fitted = result.fitted
    fitted_side = SPLITS[result.split]
    held = result.errors(1, [row for row in result.rows if not fitted_side(row)])
    unseen = held.median_absolute / _NORMAL_MEDIAN if held.rows else 0.0
    seen = {row.accelerator for row in result.rows if fitted_side(row)}
    parameters: dict[str, Any] = {}
    for parameter in PARAMETERS:
        for key, accelerator, scale in _keys(parameter):
            spread = fitted.deviations[parameter.name]
            if accelerator is not None and accelerator not in seen and parameter.of_library:
                spread = hypot(spread, unseen)
            parameters[key] = _parameter(parameter, scale, fitted, spread)
    what = {"half": "half of the groups", "hopper": "H100 and H200 alone", "all": "all groups"}[result.split]
    return {
        "name": f"{result.engine}-{result.split}",
        "description": f"GPU step times of {result.engine}, fitted to TTFT and TPOT measured on {what}, without tiers",
        "command": f"kvtier calibrate-steps --data silicon.csv --engine {result.engine} --split {result.split}",
        "date": date,
        "source": SOURCE,
        "licence": LICENCE,
        "fit": {
            "rows": fitted.rows,
            "group_factor_spread": GROUP_SPREAD,
            "group_factors": {
                group: {"ttft": rounded(ttft, _DIGITS), "tpot": rounded(tpot, _DIGITS)}
                for group, (ttft, tpot) in fitted.group_factors.items()
            },
            "not_fitted": {"rows": held.rows, "tpot_median_error": rounded(held.median_absolute, _DIGITS)},
        },
        "parameters": parameters,
    }


def _keys(parameter: Parameter) -> Iterator[tuple[str, str | None, float]]:
    """Yield the keys of a parameter, each with its accelerator, if any, and what 1 of the parameter is there."""
    if parameter.of_engine:
        yield f"engine.{parameter.name}", None, 1.0
        return
    for accelerator in ACCELERATORS:
        scale = parameter.scale(accelerator)
        if scale is not None:
            yield f"figures.{accelerator}.{parameter.name}", accelerator, scale


def _parameter(parameter: Parameter, scale: float, fitted: Fit, spread: float) -> dict[str, Any]:
    value = rounded(fitted.values[parameter.name] * scale, _DIGITS)
    return {
        "value": f"{value} {parameter.unit}" if parameter.unit else value,
        "spread": rounded(spread, _DIGITS),
        "from_data": round(fitted.from_data[parameter.name], 2),
        "prior": f"{parameter.prior * scale:.4g} {parameter.unit}".strip(),
        "prior_spread": parameter.spread,
    }


def error_rows(found: Sequence[SplitResult]) -> Iterator[dict[str, Any]]:
    """Yield the errors of each fit on each side, and on each group."""
    for result in found:
        fitted_side = SPLITS[result.split]
        for used in (True, False):
            sides = [row for row in result.rows if fitted_side(row) == used]
            if sides:
                yield _errors(result, "all", used, sides)
        for group in sorted({row.group for row in result.rows}):
            members = [row for row in result.rows if row.group == group]
            yield _errors(result, group, fitted_side(members[0]), members)


def _errors(result: SplitResult, group: str, used: bool, rows: Sequence[Row]) -> dict[str, Any]:
    ttft, tpot = (result.errors(figure, rows) for figure in (0, 1))
    return {
        "engine": result.engine,
        "split": result.split,
        "group": group,
        "rows": tpot.rows,
        "not_run": tpot.not_run,
        "used_in_fit": "yes" if used else "no",
        **_named("tpot", tpot),
        **_named("ttft", ttft),
    }


def _named(figure: str, errors: Errors) -> dict[str, str]:
    return {f"{figure}_median_error": f"{errors.median_absolute:.4f}", f"{figure}_bias": f"{errors.bias:+.4f}"}


def markdown(rows: Sequence[Mapping[str, Any]], left_out: Mapping[str, int]) -> str:
    """Return the errors as two tables, all groups of a side first."""
    head = "| engine | fitted on | group | rows | | TPOT median error | bias | TTFT median error | bias |"
    lines = [head, "|---|---|---|---:|---|---:|---:|---:|---:|"]
    for row in sorted(rows, key=lambda row: row["group"] != "all"):
        figures = [
            f"{100 * float(row[name]):{sign}.1f} %"
            for name, sign in (
                *(("tpot_median_error", ""), ("tpot_bias", "+")),
                *(("ttft_median_error", ""), ("ttft_bias", "+")),
            )
        ]
        side = "fitted" if row["used_in_fit"] == "yes" else "not fitted"
        group = row["group"].replace("|", ", ")
        cells = [row["engine"], row["split"], group, str(row["rows"]), side, *figures]
        lines.append("| " + " | ".join(cells) + " |")
    reasons = "; ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
    return "\n".join([*lines, "", f"Rows left out: {reasons or 'none'}.", ""])


def as_json(found: Sequence[SplitResult]) -> dict[str, Any]:
    """Return fits, errors by engine and group, and every row, ready for JSON."""
    return {
        "fits": [
            {
                "engine": result.engine,
                "split": result.split,
                **asdict(result.fitted),
            }
            for result in found
        ],
        "groups": [
            {name: _number(value) if name.endswith(("error", "bias")) else value for name, value in row.items()}
            for row in error_rows(found)
        ],
        "rows": [
            {
                "id": row.id,
                "split": result.split,
                "used_in_fit": SPLITS[result.split](row),
                "measured": {"ttft_s": row.ttft_s, "tpot_s": row.tpot_s},
                # A row that cannot run has no figures.
                "simulated": None if pair[0] != pair[0] else {"ttft_s": float(pair[0]), "tpot_s": float(pair[1])},
            }
            for result in found
            for row, pair in zip(result.rows, result.simulated, strict=True)
        ],
    }


def _number(text: str) -> float | None:
    value = float(text)
    return value if isfinite(value) else None  # more than half of the rows cannot run
