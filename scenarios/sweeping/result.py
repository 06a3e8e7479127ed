"""What a sweep found: a table with a row for each point, and plots of it. Runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """The points of a sweep, and what became of each.

    Parameters
    ----------
    table : pyarrow.Table
        As :mod:`scenarios.sweeping.table` describes it.
    taken_over : int
        Points whose run was done by an earlier call.
    strangers : int
        Runs in the journal that are of other points; they are kept there.
    dropped : int
        Lines of the journal that were cut off or damaged; what they held was run again.
    """

    table: Any = field(repr=False)
    taken_over: int = 0
    strangers: int = 0
    dropped: int = 0

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return str(self._about["scenario"])

    @property
    def keys(self) -> tuple[str, ...]:
        """The swept keys; each is a column."""
        return tuple(self._about["keys"])

    @property
    def failed(self) -> int:
        """Number of points that failed."""
        return sum(status != "ok" for status in self.column("status"))

    def __len__(self) -> int:
        """Return the number of points."""
        return int(self.table.num_rows)

    def column(self, name: str) -> list[Any]:
        """Return one column as plain values, None where there is none. Raises UnknownNameError."""
        if name not in self.table.column_names:
            raise UnknownNameError("column", name, self.table.column_names)
        values: list[Any] = self.table.column(name).to_pylist()
        return values

    def to_pandas(self) -> pd.DataFrame:
        """Return the table as a DataFrame; a column of whole numbers with gaps becomes one of floats."""
        frame: pd.DataFrame = self.table.to_pandas()
        return frame

    def save(self, path: str | Path) -> Path:
        """Write the table as Parquet, whole or not at all, and return its path. Raises InputError where that fails."""
        from scenarios.sweeping.table import refuse_foreign, write_table

        target = Path(path)
        refuse_foreign(target)
        write_table(self.table, target)
        return target

    @classmethod
    def load(cls, path: str | Path) -> SweepResult:
        """Return what a sweep wrote to *path*. Raises InputError if it is missing, damaged or something else."""
        from scenarios.sweeping.table import read_table

        return cls(table=read_table(Path(path)))

    @property
    def plot(self) -> SweepPlots:
        """The plots: ``result.plot.overview()`` and its parts."""
        return SweepPlots(self)

    @property
    def _about(self) -> dict[str, Any]:
        from scenarios.sweeping.table import about_table

        return about_table(self.table)


@dataclass(frozen=True, slots=True)
class SweepPlots:
    """The functions of :mod:`scenarios.sweeping.plot`, with the result filled in; each draws on *ax* if it is given."""

    result: SweepResult

    def heat_map(
        self, figure: str = "ttft_s.p90", *, x: str | None = None, y: str | None = None, ax: Axes | None = None
    ) -> Axes:
        """Draw a figure over two keys, the first two unless *x* and *y* are given; mean where several points meet."""
        from scenarios.sweeping import plot

        across, up = self._keys(x, y)
        return plot.heat_map(self.result, figure, x=across, y=up, ax=ax)

    def lines(
        self,
        figures: str | Sequence[str] = ("ttft_s.p50", "ttft_s.p90", "ttft_s.p99"),
        *,
        x: str | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw figures of one unit over a key, the first unless *x* is given; dots where other keys differ too."""
        from scenarios.sweeping import plot

        chosen = [figures] if isinstance(figures, str) else list(figures)
        return plot.lines(self.result, chosen, x=self._keys(x)[0], ax=ax)

    def overview(self) -> Figure:
        """Draw TTFT, throughput, hits and what the TTFT is made of, over the keys."""
        from scenarios.sweeping import plot

        return plot.overview(self.result)

    def _keys(self, *given: str | None) -> list[str]:
        for key in given:
            if key is not None and key not in self.result.keys:
                raise UnknownNameError("swept key", key, self.result.keys)
        left = [key for key in self.result.keys if key not in given]
        if given.count(None) > len(left):
            raise InputError(f"needs {len(given)} swept keys; this sweep has {len(self.result.keys)}")
        return [left.pop(0) if key is None else key for key in given]
