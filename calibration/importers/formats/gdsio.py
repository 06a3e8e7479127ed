"""gdsio, the benchmark of NVIDIA GPUDirect Storage: a line a run."""

from __future__ import annotations

import re
from typing import Final

from calibration.importers.cells import Cell, MeasurementError, Measurements, number
from calibration.importers.reading import IMPORTERS

_RUN: Final = re.compile(
    r"IoType:\s*(?P<io>\w+)\s+XferType:\s*(?P<transfer>\w+)\s+Threads:\s*(?P<threads>\S+)\s+"
    r"DataSetSize:\s*(?P<moved>[^/\s]+)/\S*?\(KiB\)\s+IOSize:\s*(?P<size>[^(\s]+)\(KiB\)\s+"
    r"Throughput:\s*(?P<rate>\S+)\s+GiB/sec,\s*Avg_Latency:\s*(?P<latency>\S+)\s+usecs\s+ops:\s*(?P<ops>\S+)"
)
_FIELDS: Final = "IoType, XferType, Threads, DataSetSize, IOSize, Throughput, Avg_Latency and ops"
_DIRECTIONS: Final = {"READ": "read", "RANDREAD": "read", "WRITE": "write", "RANDWRITE": "write"}


@IMPORTERS.register("gdsio")
class GdsioImporter:
    """Lines of gdsio ("IoType: READ XferType: GPUD Threads: 8 ..."), a run each; the lines between are passed over.

    Format: docs.nvidia.com/gpudirect-storage, Benchmarking and Configuration Guide, "gdsio Utility", and Getting
    Started, "Demonstrating GDS with GDSIO". Throughput is in GiB/s (2**30 B), sizes in KiB. Each thread waits for its
    I/O, so that the threads are the queue depth. A range of sizes counts as bytes moved over operations. Runs too short
    print a latency of 0: it follows from Little's law then.
    """

    def sniff(self, head: str) -> bool:
        """Return whether a run of gdsio is in it."""
        return "IoType:" in head and "XferType:" in head

    def read(self, text: str, where: str) -> Measurements:
        """Return a cell a run."""
        cells = []
        starts = [match.start() for match in re.finditer("IoType:", text)]
        for begin, end in zip(starts, [*starts, len(text)][1:], strict=True):
            spot = f"{where}:{text.count(chr(10), 0, begin) + 1}"
            run = _RUN.match(text, begin, end)
            if run is None:
                raise MeasurementError(spot, f"is no whole line of gdsio; it needs {_FIELDS}")
            cells.append(_cell(run, spot))
        if not cells:
            raise MeasurementError(where, "holds no line of gdsio; they begin with 'IoType:'")
        paths = sorted({cell.pattern.split()[-1] for cell in cells})
        mixed = f"runs over several paths ({', '.join(paths)}) are in one file; each figure is that of the best"
        return Measurements(tool="gdsio", cells=cells, warnings=(mixed,) if len(paths) > 1 else ())


def _cell(run: re.Match[str], where: str) -> Cell:
    direction = _DIRECTIONS.get(run["io"])
    if direction is None:
        raise MeasurementError(where, f"IoType is {run['io']}; allowed: {', '.join(_DIRECTIONS)}")
    operations = number(run["ops"], where, "ops")
    depth = number(run["threads"], where, "Threads")
    if not operations or not depth:
        raise MeasurementError(where, "ops and Threads must be above 0")
    size_kib = (
        number(run["moved"], where, "DataSetSize") / operations
        if "-" in run["size"]
        else number(run["size"], where, "IOSize")
    )
    rate = number(run["rate"], where, "Throughput") * 2**30
    if not rate or not size_kib:
        raise MeasurementError(where, "Throughput and IOSize must be above 0")
    latency_s = number(run["latency"], where, "Avg_Latency") * 1e-6 or None
    return Cell(
        label=f"line {where.rpartition(':')[2]}",
        io_bytes=size_kib * 1024,
        depth=depth,
        read_bytes_per_s=rate if direction == "read" else 0.0,
        write_bytes_per_s=rate if direction == "write" else 0.0,
        read_latency_s=latency_s if direction == "read" else None,
        write_latency_s=latency_s if direction == "write" else None,
        pattern=f"{'random' if run['io'].startswith('RAND') else 'sequential'} {run['transfer']}",
    )
