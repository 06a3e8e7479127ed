"""fio, `--output-format=json` or `json+`: a grid of block size, queue depth and mix of reads and writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from calibration.importers.cells import Cell, MeasurementError, Measurements, mapping, number
from calibration.importers.reading import IMPORTERS

_ONE_AT_A_TIME: Final = frozenset({"sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"})
"""Engines that wait for each I/O, whatever iodepth says (fio HOWTO, `iodepth`)."""

_DEFAULT_ENGINE: Final = "psync"
"""On Linux (fio HOWTO, `ioengine`)."""

_SHORT_MS: Final = 10_000
"""Runs below ten seconds measure caches and start-up too."""


@IMPORTERS.register("fio")
class FioImporter:
    """JSON of fio (`fio --output-format=json`): one job, or a stonewalled group of jobs, is a cell of the grid.

    Format: fio's documentation, "JSON output" and "Job file format", and what fio 3.33 writes. Jobs of one `groupid`
    ran at once and are added up, with `group_reporting` or without. Rates are `bw_bytes` (before fio 3: `bw` in KiB/s),
    I/O sizes `bw_bytes / iops`, latencies the mean of `lat_ns` (before fio 3: `lat` in us). fio may print notes before
    the JSON.
    """

    def sniff(self, head: str) -> bool:
        """Return whether fio names itself."""
        return '"fio version"' in head

    def read(self, text: str, where: str) -> Measurements:
        """Return a cell a group of jobs."""
        report = _parsed(text, where)
        common = report.get("global options") or {}
        jobs = report.get("jobs")
        if jobs is None and isinstance(report.get("client_stats"), list):
            jobs = [
                job for job in report["client_stats"] if mapping(job, where, "a client").get("jobname") != "All clients"
            ]
        if not isinstance(jobs, list) or not jobs:
            raise MeasurementError(where, "has no jobs; must be the output of `fio --output-format=json`")
        checked = [mapping(job, f"{where}: jobs[{index}]", "the job") for index, job in enumerate(jobs)]
        options = [{**mapping(common, where, "global options"), **_options(job, where)} for job in checked]
        numbered = sorted(
            zip(checked, options, strict=True), key=lambda pair: number(pair[0].get("groupid", 0), where, "groupid")
        )
        cells: list[Cell] = []
        for _, group in groupby(numbered, key=lambda pair: pair[0].get("groupid", 0)):
            cell = _cell(list(group), where)
            if cell is not None:
                cells.append(cell)
        if not cells:
            raise MeasurementError(where, "no job read or wrote anything")
        return Measurements(
            tool=str(report.get("fio version", "fio")),
            cells=cells,
            warnings=tuple(_warnings(checked, options)),
        )


def _parsed(text: str, where: str) -> Mapping[str, Any]:
    start = text.find("{")
    if start < 0:
        raise MeasurementError(where, "holds no JSON; must be the output of `fio --output-format=json`")
    try:
        found, _ = json.JSONDecoder().raw_decode(text, start)
    except (json.JSONDecodeError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise MeasurementError(f"{where}{line}", "not JSON; must be the output of `fio --output-format=json`") from None
    return mapping(found, where, "the report")


def _options(job: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    return mapping(job.get("job options") or {}, f"{where}: {job.get('jobname', 'job')}", "job options")


def _cell(group: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], where: str) -> Cell | None:
    """Return the sum of jobs that ran at once; None where they moved nothing (trim, or no I/O at all)."""
    name = str(group[0][0].get("jobname", "job"))
    rates = {"read": 0.0, "write": 0.0}
    operations = {"read": 0.0, "write": 0.0}
    waits_s = {"read": 0.0, "write": 0.0}
    sizes: set[int] = set()
    depth = 0.0
    for job, options in group:
        spot = f"{where}: {job.get('jobname', 'job')}"
        if number(job.get("error", 0), spot, "error"):
            raise MeasurementError(spot, f"ended with error {job['error']}; its figures are for part of a run")
        for direction in rates:
            rate, iops, latency_s = _direction(job, direction, spot)
            if iops:
                rates[direction] += rate
                operations[direction] += iops
                waits_s[direction] += iops * latency_s
                sizes.add(round(rate / iops))
        depth += _depth(options, sum(other.get("jobname") == job.get("jobname") for other, _ in group), spot)
    total = sum(operations.values())
    if not total:
        return None
    if len(group) > 1 and max(sizes) > 1.05 * min(sizes):
        raise MeasurementError(
            f"{where}: {name}",
            f"ran at once with jobs of other block sizes ({min(sizes)} to {max(sizes)} B); put stonewall between them",
        )
    return Cell(
        label=name,
        io_bytes=round(sum(rates.values()) / total),  # fio rounds both, so that 4 KiB may come out as 4095.99
        depth=depth,
        read_bytes_per_s=rates["read"],
        write_bytes_per_s=rates["write"],
        read_latency_s=waits_s["read"] / operations["read"] if waits_s["read"] else None,
        write_latency_s=waits_s["write"] / operations["write"] if waits_s["write"] else None,
        pattern="random"
        if str(group[0][1].get("rw", group[0][1].get("readwrite", ""))).startswith("rand")
        else "sequential",
    )


def _direction(job: Mapping[str, Any], direction: str, where: str) -> tuple[float, float, float]:
    """Return rate [B/s], operations a second and mean latency [s] of a job in one direction."""
    part = mapping(job.get(direction), where, direction)
    iops = number(part.get("iops"), where, f"{direction}.iops")
    if "bw_bytes" in part:
        rate = number(part["bw_bytes"], where, f"{direction}.bw_bytes")
    else:
        rate = 1024.0 * number(part.get("bw"), where, f"{direction}.bw")
    for key, factor in (("lat_ns", 1e-9), ("lat", 1e-6)):
        if key in part:
            mean = number(mapping(part[key], where, f"{direction}.{key}").get("mean"), where, f"{direction}.{key}.mean")
            return rate, iops, factor * mean
    return rate, iops, 0.0


def _depth(options: Mapping[str, Any], entries: int, where: str) -> float:
    """Return how many I/Os one entry of the report kept outstanding: all clones of the job, or one of them."""
    clones = number(options.get("numjobs", 1), where, "numjobs")
    engine = str(options.get("ioengine", _DEFAULT_ENGINE)).partition(":")[0]
    each = 1.0 if engine in _ONE_AT_A_TIME else number(options.get("iodepth", 1), where, "iodepth")
    depth = each * (clones if entries == 1 else 1.0)
    if depth < 1:
        raise MeasurementError(where, f"keeps {depth:g} I/Os outstanding; iodepth and numjobs must be at least 1")
    return depth


def _warnings(jobs: Sequence[Mapping[str, Any]], options: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    buffered = sum(str(each.get("direct", "0")) == "0" for each in options)
    if buffered:
        yield f"{buffered} of {len(jobs)} jobs ran without direct=1: they measure the page cache too"
    short = sum(0 < max(_runtime_ms(job, "read"), _runtime_ms(job, "write")) < _SHORT_MS for job in jobs)
    if short:
        yield f"{short} of {len(jobs)} jobs ran for less than {_SHORT_MS / 1000:g} s"


def _runtime_ms(job: Mapping[str, Any], direction: str) -> float:
    runtime = job[direction].get("runtime", 0)
    return runtime if isinstance(runtime, int | float) else 0.0
