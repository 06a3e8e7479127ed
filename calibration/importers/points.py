"""Cells of all files put together: what was measured several times becomes one point with a spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median, stdev

from calibration.importers.cells import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of the grid.

    Parameters
    ----------
    cell : Cell
        The median of its runs.
    runs : int
        How many there were.
    spread : float or None
        Relative standard deviation of the rate over the runs; None for a single one.
    """

    cell: Cell
    runs: int = 1
    spread: float | None = None

    def text(self) -> str:
        """Return what a person calls it, such as '1 MiB reads, queue depth 16, random, median of 3 runs'."""
        share = self.cell.write_fraction
        if self.cell.depth is None:
            parts = [self.cell.label]
        else:
            mix = {0.0: "reads", 1.0: "writes"}.get(share, f"I/Os, {share:.0%} of the bytes written")
            parts = [f"{size_text(self.cell.io_bytes)} {mix}", f"queue depth {self.cell.depth:g}"]
        parts += [self.cell.pattern] * bool(self.cell.pattern)
        if self.runs > 1:
            parts.append(f"median of {self.runs} runs")
        return ", ".join(parts)


def points_of(cells: Iterable[Cell]) -> list[Point]:
    """Return the points of all *cells*: cells of one size, depth, mix and pattern are runs of one point."""
    runs: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        if cell.bytes_per_s > 0:
            size = None if cell.depth is None else round(cell.io_bytes)
            key = (size, cell.depth, cell.pattern, round(cell.write_fraction, 2), cell.is_bound)
            runs.setdefault(key, []).append(cell)
    return [_point(same) for same in runs.values()]


def size_text(io_bytes: float) -> str:
    """Return an I/O size in binary units: '4 KiB', '1 MiB'."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if io_bytes >= factor:
            return f"{io_bytes / factor:.4g} {unit}"
    return f"{io_bytes:.4g} B"


def _point(same: Sequence[Cell]) -> Point:
    if len(same) == 1:
        return Point(cell=same[0])
    rates = [cell.bytes_per_s for cell in same]
    return Point(
        cell=replace(
            same[0],
            read_bytes_per_s=median(cell.read_bytes_per_s for cell in same),
            write_bytes_per_s=median(cell.write_bytes_per_s for cell in same),
            read_latency_s=_median(cell.read_latency_s for cell in same),
            write_latency_s=_median(cell.write_latency_s for cell in same),
        ),
        runs=len(same),
        spread=stdev(rates) * len(rates) / sum(rates),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
