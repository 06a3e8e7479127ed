"""What any storage benchmark says: cells of a grid, each a rate at an I/O size, a queue depth and a mix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.errors import LocatedError


class MeasurementError(LocatedError):
    """A file of measurements cannot be used: *where* is the file, with its line or key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One measured point.

    Parameters
    ----------
    label : str
        How its file calls it: a job, or a line.
    io_bytes : float
        Mean size of its I/Os [B].
    depth : float or None
        I/Os outstanding at once; None where the file does not say.
    read_bytes_per_s, write_bytes_per_s : float
        What was moved in each direction, at the same time; 0 where nothing was [B/s].
    read_latency_s, write_latency_s : float or None
        Mean time of one I/O; None where the file does not say [s].
    pattern : str
        What else tells cells of one size and depth apart, such as ``random``.
    is_bound : bool
        Whether the rate is an average over a time in which the device was not always busy, so that it could do more.
    """

    label: str
    io_bytes: float
    depth: float | None
    read_bytes_per_s: float = 0.0
    write_bytes_per_s: float = 0.0
    read_latency_s: float | None = None
    write_latency_s: float | None = None
    pattern: str = ""
    is_bound: bool = False

    @property
    def bytes_per_s(self) -> float:
        """Both directions together [B/s]."""
        return self.read_bytes_per_s + self.write_bytes_per_s

    @property
    def write_fraction(self) -> float:
        """Share of the bytes that was written."""
        return self.write_bytes_per_s / self.bytes_per_s

    def rate(self, direction: str) -> float:
        """Return the rate of ``read`` or ``write`` [B/s]."""
        return self.read_bytes_per_s if direction == "read" else self.write_bytes_per_s

    def latency_s(self, direction: str) -> float | None:
        """Return the mean time of one ``read`` or ``write`` [s]: as measured, or by Little's law; None if unknown."""
        measured = self.read_latency_s if direction == "read" else self.write_latency_s
        if measured is not None:
            return measured
        return None if self.depth is None else self.depth * self.io_bytes / self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What one file holds.

    Parameters
    ----------
    tool : str
        The program that wrote it, with its version where it says so.
    cells : sequence of Cell
        At least one.
    rule : str
        How the figures are to be read, where that is not plain.
    warnings : sequence of str
        What a reader should know before he trusts them.
    """

    tool: str
    cells: Sequence[Cell]
    rule: str = ""
    warnings: Sequence[str] = field(default_factory=tuple)


def number(value: Any, where: str, name: str) -> float:
    """Return a figure of a file as a float, at least 0; raises MeasurementError for anything else."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise MeasurementError(where, f"{name} is '{value}'; must be a number, at least 0") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise MeasurementError(where, f"{name} is {value!r}; must be a number, at least 0")
    return float(value)


def mapping(value: Any, where: str, name: str) -> Mapping[str, Any]:
    """Return a part of a JSON file that has to be an object; raises MeasurementError for anything else."""
    if not isinstance(value, dict):
        raise MeasurementError(where, f"{name} is {'missing' if value is None else 'no object'}; must be a JSON object")
    return value
