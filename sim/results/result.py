"""The result of a run: tidy tables, a summary, and where they came from. Runs nothing."""

from __future__ import annotations

import platform
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from models.errors import UnknownNameError
from sim.arrays import Ints
from sim.recording.tables import Columns, Labels
from sim.results import files as result_files
from sim.results import plot
from sim.results.summary import measured_mask

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def versions() -> dict[str, str]:
    """Return the versions of kvtier, Python, SimPy and numpy and the platform, for a result's provenance."""
    # 40 ms to import, wanted once a run.
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("kvtier", "simpy", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """What one run found.

    Parameters
    ----------
    scenario : dict
        The resolved scenario, SI units, plain values.
    seed : int
        Seed of the run.
    provenance : dict
        Versions, wall time, events (:func:`versions` and what the caller knows).
    columns : dict
        Tables by name: ``requests`` and ``transfers`` have a row for each, ``tiers`` and ``links`` one for each sample.
    summary_values : dict
        What :meth:`summary` returns (:func:`sim.results.summary.summarise`).
    labels : dict
        By table: the words behind columns of codes (``labels()`` of the recorders).
    measured : dict
        What was counted of the measured time: ``window_s`` [s], and ``replicas``, a dict for each pool of them:
        ``kind``, ``count``, ``compute_fraction`` and ``load_stall_fraction`` of (replicas x time).
    """

    scenario: dict[str, Any]
    seed: int
    provenance: dict[str, Any]
    columns: dict[str, Columns]
    summary_values: dict[str, Any]
    labels: dict[str, Labels] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """Return the summary of the run, a fresh copy: the JSON contract of ``kvtier run --json``."""
        return deepcopy(self.summary_values)

    def to_pandas(self, table: str = "requests") -> pd.DataFrame:
        """Return one table as a DataFrame, units in the column names, codes as categories.

        Raises UnknownNameError if there is no such table.
        """
        import pandas as pd

        labels = self.labels.get(table, {})
        series: dict[str, Any] = {}
        for name, column in self.table(table).items():
            words = labels.get(name)
            codes: Ints = column.astype(np.int64) if words else column
            series[name] = pd.Categorical.from_codes(codes, categories=pd.Index(words)) if words else column
        return pd.DataFrame(series)

    def table(self, name: str) -> Columns:
        """Return one table as arrays by column name. Raises UnknownNameError if there is no such table."""
        if name not in self.columns:
            raise UnknownNameError("table", name, self.columns)
        return self.columns[name]

    def measured_requests(self, *, with_warmup: bool = False) -> NDArray[np.bool_]:
        """Return which requests the summary counts: those of the measured phase, without the warm-up unless asked."""
        run = self.scenario.get("run", {})
        name = run.get("measure")
        phase = None if name is None else self.labels["requests"]["phase"].index(name)
        warmup_s = 0.0 if with_warmup else run.get("warmup", 0.0)
        return measured_mask(self.table("requests"), warmup_s=warmup_s, phase=phase)

    def save(self, directory: str | Path) -> Path:
        """Write the result into *directory*, whole or not at all, and return its path.

        A table is a Parquet file; scenario, summary and provenance are JSON. Raises InputError if *directory* holds
        anything but an earlier result, or cannot be written.
        """
        return result_files.save_result(self, Path(directory))

    @classmethod
    def load(cls, directory: str | Path) -> SimulationResult:
        """Return the result that :meth:`save` wrote. Raises InputError if it is missing or damaged."""
        return cls(**result_files.load_result(Path(directory)))

    @property
    def plot(self) -> ResultPlots:
        """The plots of this result: ``result.plot.overview()`` and its four parts."""
        return ResultPlots(self)


@dataclass(frozen=True, slots=True)
class ResultPlots:
    """The functions of :mod:`sim.results.plot`, with the result filled in; each draws on *ax* where one is given."""

    result: SimulationResult

    def ttft_cdf(self, ax: Axes | None = None) -> Axes:
        """Draw the share of requests that had their first token within a time."""
        return plot.ttft_cdf(self.result, ax)

    def occupancy(self, ax: Axes | None = None) -> Axes:
        """Draw how full every tier is over time."""
        return plot.occupancy(self.result, ax)

    def link_throughput(self, ax: Axes | None = None) -> Axes:
        """Draw what the busiest links carry over time."""
        return plot.link_throughput(self.result, ax)

    def ttft_waterfall(self, ax: Axes | None = None) -> Axes:
        """Draw the parts that add up to the mean TTFT."""
        return plot.ttft_waterfall(self.result, ax)

    def overview(self) -> Figure:
        """Draw all four on one figure."""
        return plot.overview(self.result)
