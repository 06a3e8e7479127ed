"""nixlbench, the benchmark of NVIDIA's transfer library NIXL: settings, then a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from calibration.importers.cells import Cell, MeasurementError, Measurements, number
from calibration.importers.reading import IMPORTERS

_SETTING: Final = re.compile(r"\(--(?P<key>\w+)=[^)]*\)\s*:\s*(?P<value>.*?)\s*$")
_STAMP: Final = re.compile(r"^\[[0-9T:.Z+-]+\]\s")
_STORAGE: Final = frozenset(
    {"GDS", "GDS_MT", "POSIX", "OBJ", "HF3FS", "GUSLI", "AZURE_BLOB", "INFINIA", "AIS_MT", "MARVELL_ODM"}
)
"""Backends that read and write storage; the others move memory over a network."""


@IMPORTERS.register("nixlbench")
class NixlbenchImporter:
    """Output of nixlbench: its settings ("Op type (--op_type=...) : READ"), then a row a block and batch size.

    Format: github ai-dynamo/nixl, benchmark/nixlbench/README.md and `printStats` in src/utils/utils.cpp. "B/W (GB/Sec)"
    counts 1e9 B; of several workers "Aggregate B/W" is their sum. The queue depth is batch size x threads; the latency
    of an I/O is what Little's law makes of both, which at a depth of 1 is the column "Avg Lat.". Columns are found by
    their names, which differ between versions. One file may hold several runs.
    """

    def sniff(self, head: str) -> bool:
        """Return whether the header of the table or a setting is in it."""
        return "Block Size (B)" in head or ("--start_block_size" in head and "--op_type" in head)

    def read(self, text: str, where: str) -> Measurements:
        """Return a cell a row."""
        settings: dict[str, str] = {}
        columns: list[str] | None = None
        cells: list[Cell] = []
        backends: set[str] = set()
        for line_number, raw in enumerate(text.splitlines(), start=1):
            line, spot = _STAMP.sub("", raw).strip(), f"{where}:{line_number}"
            setting = _SETTING.search(line)
            if setting:
                settings[setting["key"]], columns = setting["value"], None
            elif line.startswith("Block Size (B)"):
                columns = re.split(r"\s{2,}", line)
            elif columns is not None and re.match(r"[0-9]", line):
                cells.append(_cell(dict(_columns(columns, line, spot)), settings, spot))
                backends.add(settings.get("backend", "unknown").upper())
            elif line and not line.startswith("-"):
                columns = None
        if not cells:
            raise MeasurementError(where, "holds no row of nixlbench's table, which begins with 'Block Size (B)'")
        network = sorted(backends - _STORAGE - {"UNKNOWN"})
        warning = (
            f"backend {', '.join(network)} moves memory over a network: these figures are not those of a storage device"
        )
        return Measurements(
            tool=f"nixlbench (backend {', '.join(sorted(backends))})",
            cells=cells,
            warnings=(warning,) if network else (),
        )


def _columns(columns: list[str], line: str, where: str) -> list[tuple[str, str]]:
    values = line.split()
    if len(values) != len(columns):
        raise MeasurementError(where, f"has {len(values)} columns; the header has {len(columns)}")
    return list(zip(columns, values, strict=True))


def _cell(row: Mapping[str, str], settings: Mapping[str, str], where: str) -> Cell:
    operation = settings.get("op_type", "").upper()
    if operation not in {"READ", "WRITE"}:
        raise MeasurementError(
            where,
            "no op type stands above the table; keep the settings that nixlbench prints, such as "
            "'(--op_type=[READ,WRITE]) : READ'",
        )
    rate_column = "Aggregate B/W (GB/Sec)" if "Aggregate B/W (GB/Sec)" in row else "B/W (GB/Sec)"
    size, batch = (number(row.get(name), where, name) for name in ("Block Size (B)", "Batch Size"))
    rate = number(row.get(rate_column), where, rate_column) * 1e9
    depth = batch * number(settings.get("num_threads", "1"), where, "num_threads")
    if not size or not depth or not rate:
        raise MeasurementError(where, f"Block Size, Batch Size, num_threads and {rate_column} must be above 0")
    return Cell(
        label=f"line {where.rpartition(':')[2]}",
        io_bytes=size,
        depth=depth,
        read_bytes_per_s=rate if operation == "READ" else 0.0,
        write_bytes_per_s=rate if operation == "WRITE" else 0.0,
        pattern=settings.get("backend", "").upper(),
    )
