"""MLPerf Storage, the KV-cache benchmark: JSON of one run of `kv-cache.py`, or mlpstorage's summary of many."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from calibration.importers.cells import Cell, MeasurementError, Measurements, mapping, number
from calibration.importers.reading import IMPORTERS

_GIB: Final = float(2**30)


@IMPORTERS.register("mlperf-kvcache")
class MlperfKvCacheImporter:
    """Results of MLPerf Storage's KV-cache benchmark: `kv-cache.py --output FILE`, or `kvcache_run_summary.json`.

    Format: github mlcommons/storage, kv_cache_benchmark/README.md, `get_stats` in kv_cache/cache.py (for units) and
    section 6.3.4 of its rules (for the summary). `tier_storage_read_bandwidth_gbps` is, against its name, GiB/s
    (2**30 B), and it is all bytes over the whole run, reads and writes mixed and with pauses: a lower bound. Latencies
    are of whole KV entries of unknown sizes and tell nothing of the device's own.
    """

    def sniff(self, head: str) -> bool:
        """Return whether a key of these results is in it."""
        keys = (
            '"total_storage_io_latency"',
            '"end_to_end_latencies"',
            '"cache_stats"',
            '"aggregated_read_bandwidth_gbps"',
        )
        return head.lstrip().startswith("{") and any(key in head for key in keys)

    def read(self, text: str, where: str) -> Measurements:
        """Return a cell a run, or a cell an option of the summary."""
        try:
            report = mapping(json.loads(text), where, "the file")
        except (json.JSONDecodeError, RecursionError) as error:
            line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise MeasurementError(
                f"{where}{line}", "not JSON; must be what kv-cache.py or mlpstorage writes"
            ) from None
        cells = list(_options(report, where) if "options" in report else _run(report, where))
        if not cells:
            raise MeasurementError(
                where, "nothing was read from or written to the storage tier; was all of it in GPU or CPU memory?"
            )
        return Measurements(
            tool="MLPerf Storage KV-cache benchmark",
            cells=cells,
            rule="bytes of the storage tier over the whole run, reads and writes mixed: a lower bound",
            warnings=("its rates are averages over a run with pauses: the device can do more",),
        )


def _options(report: Mapping[str, Any], where: str) -> Iterator[Cell]:
    for name, option in mapping(report["options"], where, "options").items():
        spot = f"{where}: options.{name}"
        part = mapping(option, spot, "the option")
        yield from _cell(part, "aggregated_{}_bandwidth_gbps", f"option {name}", spot)


def _run(report: Mapping[str, Any], where: str) -> Iterator[Cell]:
    stats = mapping(mapping(report.get("summary"), where, "summary").get("cache_stats"), where, "summary.cache_stats")
    if "tier_storage_read_bandwidth_gbps" not in stats:
        raise MeasurementError(
            f"{where}: summary.cache_stats",
            "has no tier_storage_read_bandwidth_gbps; versions before MLPerf Storage v3.0 do not write it",
        )
    yield from _cell(stats, "tier_storage_{}_bandwidth_gbps", "the run", f"{where}: summary.cache_stats")


def _cell(part: Mapping[str, Any], key: str, label: str, where: str) -> Iterator[Cell]:
    reads, writes = (
        number(part.get(key.format(direction)), where, key.format(direction)) * _GIB for direction in ("read", "write")
    )
    if reads + writes > 0:
        # The size of an entry differs from request to request; nothing in the file depends on it.
        yield Cell(
            label=label, io_bytes=0.0, depth=None, read_bytes_per_s=reads, write_bytes_per_s=writes, is_bound=True
        )
