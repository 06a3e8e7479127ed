"""`iostat -x`, what Linux counts of a drive: a report an interval, as text or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from calibration.importers.cells import Cell, MeasurementError, Measurements, mapping, number
from calibration.importers.reading import IMPORTERS
from models.errors import UnknownNameError

_UNITS: Final = {"kB/s": 1024.0, "MB/s": 1024.0**2, "sec/s": 512.0}
"""Bytes of what iostat calls kB, MB and sectors (iostat(1): 1K blocks, or 512-byte blocks with POSIXLY_CORRECT)."""

_DECIMAL_COMMA: Final = re.compile(r"^([0-9]+),([0-9]+)$")
_BUSY_SHARE: Final = 0.5
"""An interval counts as busy from half of the highest rate on: the first and last second of a burst are cut off."""

_TRICKLE_SHARE: Final = 0.05
"""A direction that reaches less than a twentieth of the other is not what the log is about."""

_FEW_OUTSTANDING: Final = 2.0
"""Up to so many requests in flight, await is a time of the drive; above, it is mostly the queue."""

_ALONE_SHARE: Final = 0.1
"""Reads with less than a tenth of writes beside them count as alone, and the other way round."""


@IMPORTERS.register("iostat")
@dataclass(frozen=True, slots=True)
class IostatImporter:
    """Log of `iostat -x SECONDS`, text or `-o JSON`: the mean of the busy intervals of one drive.

    Format: iostat(1) of sysstat 12.6.1. "kB" is 1024 B there: figures in "GB/s" that are kB/s / 1e6 are 2.4 % low. The
    first report is since boot and left out. A rate is the mean of the intervals above half of the highest, those with
    only reads (or only writes) where there are some. await is taken for a latency only where few requests were in
    flight (requests a second x await). What a log shows is what was asked of the drive, which may be less than it can
    do; a trickle in one direction beside a flood in the other is left out.

    Parameters
    ----------
    disk : str or None
        Which drive of the log; None where it holds one that did anything.
    """

    disk: str | None = None

    def sniff(self, head: str) -> bool:
        """Return whether columns of extended statistics are in it."""
        return any(f"r{unit}" in head for unit in _UNITS) and "await" in head

    def read(self, text: str, where: str) -> Measurements:
        """Return a cell a direction of the chosen drive."""
        reports = _json_reports(text, where) if text.lstrip().startswith("{") else _text_reports(text, where)
        if len(reports) < 2:
            raise MeasurementError(
                where,
                f"holds {len(reports)} reports; the first is since boot, so there must be at least 2 (`iostat -x 1`)",
            )
        by_disk: dict[str, list[Mapping[str, float]]] = {}
        for report in reports[1:]:
            for disk, row in report.items():
                by_disk.setdefault(disk, []).append(row)
        disk = self._chosen(by_disk, where)
        sides = [(name, cell) for name in ("read", "write") for cell in _busy(by_disk[disk], name, disk)]
        if not sides:
            raise MeasurementError(where, f"{disk} read and wrote nothing after the first report")
        # What the system writes by the way says nothing of what the drive can write.
        least = _TRICKLE_SHARE * max(cell.rate(name) for name, cell in sides)
        cells = [cell for name, cell in sides if cell.rate(name) >= least]
        intervals = len(by_disk[disk])
        return Measurements(
            tool="iostat -x",
            cells=cells,
            rule=f"{disk}: mean of the busy ones of {intervals} intervals, 1 kB = 1024 B",
            warnings=("a log shows what was asked of the drive: at less than full load its figures are lower bounds",),
        )

    def _chosen(self, by_disk: Mapping[str, Sequence[Mapping[str, float]]], where: str) -> str:
        if self.disk is not None:
            if self.disk not in by_disk:
                raise UnknownNameError(f"drive of {where}", self.disk, by_disk)
            return self.disk
        active = [disk for disk, rows in by_disk.items() if any(row["read"] + row["write"] > 0 for row in rows)]
        if len(active) == 1:
            return active[0]
        if not active:
            raise MeasurementError(where, "no drive read or wrote anything after the first report")
        raise MeasurementError(
            where, f"holds several drives that were used; choose one with --disk ({', '.join(active)})"
        )


def _busy(rows: Sequence[Mapping[str, float]], direction: str, disk: str) -> list[Cell]:
    other = "write" if direction == "read" else "read"
    alone = [row for row in rows if row[direction] > 0 and row[other] <= _ALONE_SHARE * row[direction]]
    used = alone or [row for row in rows if row[direction] > 0]
    if not used:
        return []
    peak = max(row[direction] for row in used)
    busy = [row for row in used if row[direction] >= _BUSY_SHARE * peak]
    rate, operations = (fmean(row[key] for row in busy) for key in (direction, f"{direction}_ops"))
    waits = [
        wait_s
        for row in used
        for wait_s in (row[f"{direction}_await_s"],)
        if wait_s > 0 and wait_s * row[f"{direction}_ops"] <= _FEW_OUTSTANDING
    ]
    beside = 0.0 if alone else fmean(row[other] for row in busy)
    return [
        Cell(
            label=f"{len(busy)} busy interval{'s' * (len(busy) > 1)} of {disk}, the highest {peak / 1e9:.4g} GB/s",
            io_bytes=rate / operations if operations else 0.0,
            depth=None,
            read_bytes_per_s=rate if direction == "read" else beside,
            write_bytes_per_s=rate if direction == "write" else beside,
            read_latency_s=min(waits, default=None) if direction == "read" else None,
            write_latency_s=min(waits, default=None) if direction == "write" else None,
            is_bound=not alone,
        )
    ]


def _row(values: Mapping[str, Any], where: str) -> dict[str, float]:
    row: dict[str, float] = {}
    for direction, letter in (("read", "r"), ("write", "w")):
        unit = next((unit for unit in _UNITS if f"{letter}{unit}" in values), None)
        if unit is None or f"{letter}/s" not in values:
            raise MeasurementError(where, f"lacks {letter}/s or {letter}kB/s; must be a report of `iostat -x`")
        row[direction] = _UNITS[unit] * number(values[f"{letter}{unit}"], where, f"{letter}{unit}")
        row[f"{direction}_ops"] = number(values[f"{letter}/s"], where, f"{letter}/s")
        wait = values.get(f"{letter}_await", values.get("await", 0))
        row[f"{direction}_await_s"] = 1e-3 * number(wait, where, f"{letter}_await")
    return row


def _text_reports(text: str, where: str) -> list[dict[str, dict[str, float]]]:
    reports: list[dict[str, dict[str, float]]] = []
    columns: list[str] | None = None
    for line_number, line in enumerate(text.splitlines(), start=1):
        words = [_DECIMAL_COMMA.sub(r"\1.\2", word) for word in line.split()]
        if not words:
            columns = None
        elif words[0] in {"Device", "Device:"}:
            columns = words[1:]
            reports.append({})
        elif columns is not None:
            spot = f"{where}:{line_number}"
            if len(words) != len(columns) + 1:
                raise MeasurementError(spot, f"has {len(words)} columns; the header has {len(columns) + 1}")
            reports[-1][words[0]] = _row(dict(zip(columns, words[1:], strict=True)), spot)
    return reports


def _json_reports(text: str, where: str) -> list[dict[str, dict[str, float]]]:
    try:
        found = mapping(json.loads(text), where, "the file")
    except (json.JSONDecodeError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise MeasurementError(
            f"{where}{line}", "not JSON; a log that was cut off lacks its end (stop iostat with a count)"
        ) from None
    hosts = mapping(found.get("sysstat"), where, "sysstat").get("hosts")
    if not isinstance(hosts, list) or len(hosts) != 1:
        raise MeasurementError(f"{where}: sysstat.hosts", "must be a list of one host")
    statistics = mapping(hosts[0], where, "the host").get("statistics")
    if not isinstance(statistics, list):
        raise MeasurementError(f"{where}: sysstat.hosts[0].statistics", "must be a list of reports")
    reports = []
    for index, report in enumerate(statistics):
        spot = f"{where}: statistics[{index}]"
        disks = mapping(report, spot, "the report").get("disk")
        if not isinstance(disks, list):
            raise MeasurementError(spot, "has no list 'disk'; must be a report of `iostat -x -o JSON`")
        rows = [mapping(disk, spot, "the disk") for disk in disks]
        reports.append({str(row.get("disk_device")): _row(row, spot) for row in rows})
    return reports
