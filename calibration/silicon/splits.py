"""The two splits that are reported, and the errors on rows that were not fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from calibration.silicon.fitting import Array, Fit, Log, fit, predict, thinned
from calibration.silicon.rows import ENGINES, Row
from models.errors import InputError

SPLITS: Final[Mapping[str, Callable[[Row], bool]]] = {
    "half": lambda row: row.in_fit_half,
    "hopper": lambda row: row.is_hopper,
    "all": lambda _: True,
}
"""Which rows are fitted: half of the groups by the hash of their name; those of H100 and H200 alone; or all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors of one figure over some rows: medians of the absolute and the signed error, and a percentile.

    A row that cannot run counts as one with an infinite error in the median of absolute errors.
    """

    rows: int
    not_run: int
    median_absolute: float
    bias: float
    p90_absolute: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitResult:
    """One engine fitted on one side of a split: the fit, and each row with what was simulated for it."""

    engine: str
    split: str
    fitted: Fit
    rows: Sequence[Row]
    simulated: Array

    def errors(self, figure: int, rows: Iterable[Row]) -> Errors:
        """Return the errors of TTFT (0) or TPOT (1) over some of its rows."""
        ids = {row.id for row in rows}
        places = [place for place, row in enumerate(self.rows) if row.id in ids]
        measured = np.array([[self.rows[place].ttft_s, self.rows[place].tpot_s] for place in places]).reshape(-1, 2)
        return errors_of(self.simulated[places, figure], measured[:, figure])


def errors_of(simulated: Array, measured: Array) -> Errors:
    """Return the errors of one figure; NaN stands for a row that cannot run."""
    relative = simulated / measured - 1.0
    ran = relative[~np.isnan(relative)]
    absolute = np.where(np.isnan(relative), np.inf, np.abs(relative))
    nothing = float("nan")
    return Errors(
        rows=len(relative),
        not_run=len(relative) - len(ran),
        median_absolute=float(np.median(absolute)) if len(relative) else nothing,
        bias=float(np.median(ran)) if len(ran) else nothing,
        p90_absolute=float(np.percentile(np.abs(ran), 90)) if len(ran) else nothing,
    )


def run_split(
    engine: str,
    split: str,
    rows: Sequence[Row],
    *,
    most_rows: int,
    jobs: int | None = None,
    log: Log | None = None,
) -> SplitResult:
    """Fit an engine on one side of a split, on a thinned set of rows, and simulate all of its rows."""
    own = [row for row in rows if row.engine == engine]
    chosen = thinned([row for row in own if SPLITS[split](row)], most_rows)
    if not chosen:
        message = f"no row of {engine} is on the fitted side of the split '{split}'"
        raise InputError(message)
    found = fit(chosen, jobs=jobs, log=log)
    simulated = predict(own, [found.values], jobs=jobs)[0]
    return SplitResult(engine=engine, split=split, fitted=found, rows=own, simulated=simulated)


def table(results: Sequence[SplitResult]) -> str:
    """Return the errors of all results as text, by engine and by group."""
    lines = []
    for result in results:
        fitted_side = SPLITS[result.split]
        lines.append(f"\n{result.engine}, split {result.split}: fitted on {result.fitted.rows} rows")
        for name, fitted in (("fitted side", True), ("NOT FITTED", False)):
            lines.append(_line(result, name, [row for row in result.rows if fitted_side(row) == fitted]))
        for group in sorted({row.group for row in result.rows}, key=lambda name: (name.split("|")[1], name)):
            members = [row for row in result.rows if row.group == group]
            mark = "  fitted " if fitted_side(members[0]) else "  held   "
            lines.append(_line(result, mark + group, members))
    return "\n".join(lines)


def _line(result: SplitResult, name: str, rows: Sequence[Row]) -> str:
    ttft, tpot = (result.errors(figure, rows) for figure in (0, 1))
    return (
        f"{name:<62} {tpot.rows:>4}  TPOT {100 * tpot.median_absolute:5.1f} % bias {100 * tpot.bias:+5.1f} % "
        f"p90 {100 * tpot.p90_absolute:5.0f} %  TTFT {100 * ttft.median_absolute:5.1f} % bias {100 * ttft.bias:+5.1f} %"
    )


def engines_of(rows: Sequence[Row]) -> list[str]:
    """Return the engines that occur, in a fixed order."""
    return [engine for engine in ENGINES if any(row.engine == engine for row in rows)]
