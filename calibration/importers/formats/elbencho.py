"""elbencho, `--csvfile`: a row a phase of a run."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from typing import Final

from calibration.importers.cells import Cell, MeasurementError, Measurements, number
from calibration.importers.reading import IMPORTERS

_NEEDED: Final = ("operation", "threads", "block size", "MiB/s [last]")
_UNEVEN: Final = 1.1
"""First and last thread that differ by more than a tenth: the device was not equally loaded all the time."""


@IMPORTERS.register("elbencho")
class ElbenchoImporter:
    """CSV of elbencho (`elbencho --csvfile FILE`): rows READ, WRITE, RWMIX and MIX-T are cells, others passed over.

    Format: github breuner/elbencho, docs/csv-docs.md. Rates are "MiB/s [last]" (2**20 B): all bytes over the time until
    the slowest thread ended. The queue depth is hosts x threads (which are per host) x IO depth. In mixed rows the
    plain columns are the writes and "rwmix read ..." the reads. A file may hold many runs, and repeat its header.
    """

    def sniff(self, head: str) -> bool:
        """Return whether the header is elbencho's."""
        return "operation" in head and "MiB/s [last]" in head

    def read(self, text: str, where: str) -> Measurements:
        """Return a cell a row that read or wrote."""
        reader = csv.DictReader(text.splitlines(), strict=True)
        cells: list[Cell] = []
        versions: set[str] = set()
        notes: list[str] = []
        try:
            header = reader.fieldnames or []
            missing = [name for name in _NEEDED if name not in header]
            if missing:
                raise MeasurementError(
                    f"{where}:1", f"lacks the columns {', '.join(missing)}; must be what `elbencho --csvfile` writes"
                )
            for row in reader:
                spot = f"{where}:{reader.line_num}"
                if row["operation"] == "operation":
                    continue
                if None in row or None in row.values():
                    raise MeasurementError(spot, f"has {'more' if None in row else 'fewer'} columns than the header")
                if row["operation"] in {"READ", "WRITE", "MIX-T"} or row["operation"].startswith("RWMIX"):
                    cells.append(_cell(row, spot))
                    versions.add(row.get("version", ""))
                    notes += _notes(row, spot)
        except csv.Error as error:
            raise MeasurementError(f"{where}:{reader.line_num}", f"not CSV: {error}") from None
        if not cells:
            raise MeasurementError(where, "holds no row with operation READ, WRITE, RWMIX or MIX-T")
        tool = " and ".join(["elbencho", *sorted(versions)][:2]).replace(" and ", " ", 1)
        return Measurements(tool=tool.strip(), cells=cells, warnings=tuple(notes))


def _cell(row: Mapping[str, str], where: str) -> Cell:
    operation = row["operation"]
    plain = number(row["MiB/s [last]"] or 0, where, "MiB/s [last]") * 2**20
    mixed = number(row.get("rwmix read MiB/s [last]") or 0, where, "rwmix read MiB/s [last]") * 2**20
    reads, writes = (plain, 0.0) if operation == "READ" else (mixed, plain)
    if reads + writes == 0:
        raise MeasurementError(where, f"{operation} moved nothing: MiB/s [last] is 0 or empty")
    size, threads, hosts, depth = (
        number(row.get(name) or default, where, name)
        for name, default in (("block size", 0), ("threads", 0), ("hosts", 1), ("IO depth", 1))
    )
    if not size or not threads:
        raise MeasurementError(where, "block size and threads must be above 0")
    plain_s = _latency_s(row, "IO lat us [avg]", where)
    return Cell(
        label=f"line {where.rpartition(':')[2]}",
        io_bytes=size,
        depth=threads * max(hosts, 1.0) * max(depth, 1.0),
        read_bytes_per_s=reads,
        write_bytes_per_s=writes,
        read_latency_s=plain_s if operation == "READ" else _latency_s(row, "rwmix read IO lat us [avg]", where),
        write_latency_s=None if operation == "READ" else plain_s,
        pattern="random" if row.get("random") == "1" else "sequential",
    )


def _latency_s(row: Mapping[str, str], name: str, where: str) -> float | None:
    return number(row.get(name) or 0, where, name) * 1e-6 or None


def _notes(row: Mapping[str, str], where: str) -> Iterator[str]:
    line = f"line {where.rpartition(':')[2]}"
    if row.get("direct IO") == "0":
        yield f"{line} ran without direct IO: it measures the page cache too"
    first, last = (number(row.get(f"MiB/s [{end}]") or 0, where, f"MiB/s [{end}]") for end in ("first", "last"))
    if last and first / last > _UNEVEN:
        yield f"{line}: {first:g} MiB/s until the first thread ended, {last:g} until the last; the latter is taken"
