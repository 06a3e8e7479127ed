"""Measured evidence: a CSV table with a figure in each line."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Final

from models.text_files import read_text
from scenarios.gates.criteria import GateError, figure_value

_NEEDED: Final = ("id", "metric", "value", "unit")
# kB of 1024 B divided by 1e6: what tables of iostat figures call GB/s.
_IOSTAT: Final = "iostat GB/s"


class MeasuredTable:
    """The figures of a table, by what they were measured of.

    Columns ``id, metric, value, unit`` are needed. What a line was measured of stands in ``scenario``, or else in its
    id before the last dash: ``r2-nvme-c8-p50`` is a figure of ``r2-nvme-c8``. Lines of the same metric and subject are
    repeats. Lines that override settings of their scenario (``settings``) are of something else.

    Raises
    ------
    GateError
        For a file that cannot be read, a column that lacks, a value that is none.
    """

    def __init__(self, path: str) -> None:
        self._rows = _rows(read_text(Path(path), GateError, encoding="utf-8-sig", label=path), path)
        if not self._rows:
            raise GateError(path, "holds no measurement")

    def figures(self, name: str) -> Mapping[str, Sequence[float]]:
        """Return the repeats of every metric of a subject, in SI units; empty if it was not measured."""
        found: dict[str, list[float]] = {}
        for subject, metric, value in self._rows:
            if subject == name:
                found.setdefault(metric, []).append(value)
        return found


def _rows(text: str, path: str) -> list[tuple[str, str, float]]:
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")]
    if not lines:
        return []
    header = [name.strip() for name in next(csv.reader([lines[0][1]]))]
    missing = [name for name in _NEEDED if name not in header]
    if missing:
        raise GateError(f"{path}:{lines[0][0]}", f"lacks {', '.join(missing)}; needs {', '.join(_NEEDED)}")
    found = []
    for number, line in lines[1:]:
        where = f"{path}:{number}"
        values = next(csv.reader([line]))
        if len(values) != len(header):
            raise GateError(where, f"has {len(values)} values; must have {len(header)}")
        row = {key: value.strip() for key, value in zip(header, values, strict=True)}
        if not row.get("settings"):
            subject = row.get("scenario") or row["id"].rpartition("-")[0]
            found.append((subject, row["metric"], _value(row["value"], row["unit"], where)))
    return found


def _value(text: str, unit: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise GateError(where, f"value is '{text}'; must be a number") from None
    if not -inf < number < inf:
        raise GateError(where, f"value is {text}; must be finite")
    if unit == _IOSTAT:
        return number * 1.024e9
    found = figure_value(f"{number!r} {unit}")
    if found is None:
        raise GateError(where, f"unit is '{unit}'; must be one such as s, ms, tok/s, GB/s or %")
    return found
