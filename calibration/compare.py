"""Measured against simulated: runs the scenarios of published measurements and puts both figures side by side.

``python -m calibration.compare`` prints the table of the README.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

from calibration.published import Measurement, reports
from scenarios.build import simulate
from scenarios.loader import load_scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One figure, measured and simulated.

    Parameters
    ----------
    measurement : Measurement
        The published figure.
    simulated : float
        The simulated one, the median over the seeds, in the same unit.
    """

    measurement: Measurement
    simulated: float

    @property
    def error(self) -> float:
        """Relative error of the simulation: 0.1 is 10 % too high."""
        return self.simulated / self.measurement.value - 1.0


def compare(seeds: Sequence[int] = range(9)) -> list[Comparison]:
    """Simulate every published figure with each seed and return the medians.

    Arrival times decide who makes the first step, so that single seeds differ by a session or two.
    """

    @cache
    def summaries(scenario: str) -> list[dict[str, Any]]:
        return [simulate(load_scenario(scenario, seed=seed)).summary() for seed in seeds]

    return [
        Comparison(
            measurement=measurement,
            simulated=median(_figure(summary, measurement.figure) for summary in summaries(measurement.scenario)),
        )
        for report in reports()
        for measurement in report.figures
    ]


def _figure(summary: dict[str, Any], path: str) -> float:
    value: Any = summary
    for key in path.split("."):
        value = value[key]
    return float(value)


def markdown(rows: Sequence[Comparison]) -> str:
    """Return the rows as a table for people."""
    lines = ["| scenario | figure | measured | simulated | error |", "|---|---|---:|---:|---:|"]
    for row in rows:
        measured = row.measurement
        lines.append(
            f"| `{measured.scenario}` | {measured.figure} | {measured.value:g} {measured.unit} "
            f"| {row.simulated:.4g} | {100 * row.error:+.0f} % |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(markdown(compare()) + "\n")
