"""A run as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open: who waited for what, and when.

The file is JSON in the Trace Event Format ("Trace Event Format", Duffy et al., Google, 2016), with complete events (X),
counters (C), instants (i) and names (M):

- A process for each replica. Requests stand in as many rows as there are at once; inside each the parts of its TTFT,
  then its decoding. The parts have their true lengths and add up to the TTFT, but stand one after another: a request
  that waited twice has one slice of both waits.
- A process for the transfers of these requests, with rows for each tier and direction, at their true times.
- A process for the links and one for the tiers, with counters: rates, and used bytes.

Times are microseconds to three decimals, so that nanoseconds are whole.
"""

from __future__ import annotations

import gzip
import heapq
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from models.errors import InputError
from scenarios.whole_files import write_whole
from sim.arrays import Floats, Ints
from sim.recording import COMPLETED, REJECTED
from sim.recording.tables import Columns
from sim.results.result import SimulationResult

DEFAULT_LIMIT: Final = 5_000
"""Requests in a file unless told otherwise: about 10 MB, which a browser opens at once."""
SUFFIXES: Final = (".json", ".json.gz")

_PARTS: Final = ("other", "queue", "load", "compute", "handover")
_POINTS: Final = 4_000
_FIRST_REPLICA: Final = 10
_NOT_ADMITTED, _TRANSFERS, _LINKS, _TIERS = 1, 2, 3, 4

Event = dict[str, Any]


def check_trace_file(path: Path) -> None:
    """Raise InputError for a file that no trace can go to; to be asked before the run, not after it."""
    if not path.name.lower().endswith(SUFFIXES):
        raise InputError(f"--perfetto {path}: the name must end in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise InputError(f"--perfetto {path}: there is no folder {path.parent}")


def write_trace(result: SimulationResult, path: Path, *, limit: int = DEFAULT_LIMIT) -> None:
    """Write a run's trace, gzipped if the name ends in .gz, whole or not at all. Raises InputError."""
    check_trace_file(path)
    text = json.dumps(trace_of(result, limit=limit), separators=(",", ":"), allow_nan=False).encode("utf-8")
    # No time of day in the file: the same run gives the same bytes.
    data = gzip.compress(text, mtime=0) if path.name.endswith(".gz") else text
    write_whole(path, lambda file: file.write(data))


def trace_of(result: SimulationResult, *, limit: int = DEFAULT_LIMIT) -> dict[str, Any]:
    """Return a run as a trace of the *limit* requests that arrived first, with all that moved until they ended.

    Raises ValueError if *limit* is less than 1.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}; must be at least 1")
    table = result.table("requests")
    order = np.argsort(table["arrived_at_s"], kind="stable")[:limit]
    requests = {name: column[order] for name, column in table.items()}
    ends_s = requests["finished_at_s"][np.isfinite(requests["finished_at_s"])]
    until_s = float(ends_s.max()) if ends_s.size else 0.0
    shown = int(order.size)
    total = int(table["arrived_at_s"].size)
    return {
        "traceEvents": [
            *_requests(requests),
            *_transfers(result, requests["request_id"]),
            *_links(result, until_s),
            *_tiers(result, until_s),
        ],
        "displayTimeUnit": "ms",
        "otherData": {
            "scenario": result.scenario.get("name", "run"),
            "seed": result.seed,
            "bottleneck": result.summary_values["bottleneck"],
            "requests": f"the first {shown:,} of {total:,}" if shown < total else f"all {total:,}",
            "parts": "true lengths, one after another",
        },
    }


def _requests(requests: Columns) -> Iterator[Event]:
    parts = [part for part in _PARTS if f"{part}_s" in requests]
    for replica in sorted(set(requests["replica"].tolist())):
        pid = _NOT_ADMITTED if replica < 0 else _FIRST_REPLICA + replica
        yield from _named(pid, "not admitted" if replica < 0 else f"replica {replica}", sort=pid)
        rows = np.flatnonzero(requests["replica"] == replica)
        starts, ends = _ns(requests["arrived_at_s"][rows]), _ns(requests["finished_at_s"][rows])
        lanes = _lanes(starts, np.maximum(starts, ends))
        for lane in range(max(lanes, default=-1) + 1):
            yield from _row(pid, lane + 1, f"requests {lane + 1}")
        for row, start, end, lane in zip(rows.tolist(), starts.tolist(), ends.tolist(), lanes, strict=True):
            yield from _request(requests, parts, row, (start, max(start, end)), (pid, lane + 1))


def _request(
    requests: Columns, parts: Sequence[str], row: int, span_ns: tuple[int, int], place: tuple[int, int]
) -> Iterator[Event]:
    start, end = span_ns
    state = int(requests["state"][row])
    name = f"request {int(requests['request_id'][row])}"
    counts = ("session_id", "prompt_tokens", "output_tokens", "computed_prompt_tokens", "preemptions")
    told = [*counts, *(key for key in requests if key.startswith("hit_tokens_"))]
    arguments: dict[str, Any] = {key: int(requests[key][row]) for key in told}
    loads = {key: float(requests[key][row]) for key in requests if key.startswith("load_") and key != "load_s"}
    arguments |= {key: seconds for key, seconds in loads.items() if seconds > 0.0}
    if state != COMPLETED:
        what = "rejected" if state == REJECTED else "failed"
        if end > start:
            yield _slice(f"{name} {what}", "request", (start, end), place, arguments)
        else:
            pid, tid = place
            yield {"ph": "i", "s": "t", "name": f"{name} {what}", "ts": start / 1e3, "pid": pid, "tid": tid}
        return
    yield _slice(name, "request", (start, end), place, arguments | {"ttft_s": float(requests["ttft_s"][row])})
    # Ends of the parts are rounded, not their lengths: they then meet, and the last one ends with the TTFT.
    first_token = int(_ns(requests["first_token_at_s"][row : row + 1])[0])
    until_s = np.cumsum([max(float(requests[f"{part}_s"][row]), 0.0) for part in parts])
    edges = np.minimum(_ns(float(requests["arrived_at_s"][row]) + until_s), first_token).tolist()
    edges[-1] = first_token
    at = start
    for part, edge in zip(parts, edges, strict=True):
        if edge > at:
            yield _slice(part, "ttft", (at, edge), place)
            at = edge
    if end > first_token:
        yield _slice("decode", "decode", (first_token, end), place)


def _transfers(result: SimulationResult, request_ids: Ints) -> Iterator[Event]:
    table = result.table("transfers")
    words = result.labels["transfers"]
    kept = np.isin(table["request_id"], request_ids)
    yield from _named(_TRANSFERS, "transfers", sort=_TRANSFERS)
    tid = 0
    for tier, name in enumerate(words["tier"]):
        for kind, direction in enumerate(words["kind"]):
            rows = np.flatnonzero(kept & (table["tier"] == tier) & (table["kind"] == kind))
            rows = rows[np.argsort(table["started_at_s"][rows], kind="stable")]
            starts, ends = _ns(table["started_at_s"][rows]), _ns(table["finished_at_s"][rows])
            lanes = _lanes(starts, ends)
            for row, start, end, lane in zip(rows.tolist(), starts.tolist(), ends.tolist(), lanes, strict=True):
                arguments = {"bytes": int(table["n_bytes"][row]), "replica": int(table["replica"][row])}
                label = f"{direction} for request {int(table['request_id'][row])}"
                yield _slice(label, direction, (start, end), (_TRANSFERS, tid + lane + 1), arguments)
            for lane in range(max(lanes, default=-1) + 1):
                yield from _row(_TRANSFERS, tid + lane + 1, f"{name} {direction} {lane + 1}")
            tid += max(lanes, default=-1) + 1


def _links(result: SimulationResult, until_s: float) -> Iterator[Event]:
    table = result.table("links")
    yield from _named(_LINKS, "links", sort=_LINKS)
    for code, name in enumerate(result.labels["links"]["link"]):
        rows = np.flatnonzero((table["link"] == code) & (table["time_s"] <= until_s))
        if not rows.size:
            continue
        time_s = table["time_s"][rows]
        step_s = float(time_s[1] - time_s[0]) if time_s.size > 1 else 1.0
        merged = -(-rows.size // _POINTS)
        starts = np.arange(0, rows.size, merged)
        widths = np.diff(np.append(starts, rows.size))
        means = [np.add.reduceat(table[f"{way}_bytes_per_s"][rows], starts) / widths for way in ("read", "write")]
        read, write = ((mean / 1e9).tolist() for mean in means)
        for at, reads, writes in zip(_ns(time_s[starts]).tolist(), read, write, strict=True):
            yield _counter(f"{name} [GB/s]", at, _LINKS, {"read": reads, "write": writes})
        # A counter holds its last value for good.
        end = int(_ns(time_s[-1:] + step_s)[0])
        yield _counter(f"{name} [GB/s]", end, _LINKS, {"read": 0.0, "write": 0.0})


def _tiers(result: SimulationResult, until_s: float) -> Iterator[Event]:
    table = result.table("tiers")
    yield from _named(_TIERS, "tiers", sort=_TIERS)
    for code, name in enumerate(result.labels["tiers"]["tier"]):
        rows = np.flatnonzero((table["tier"] == code) & (table["time_s"] <= until_s))
        rows = rows[:: max(-(-rows.size // _POINTS), 1)]
        used = (table["used_bytes"][rows] / 1e9).tolist()
        for at, value in zip(_ns(table["time_s"][rows]).tolist(), used, strict=True):
            yield _counter(f"{name} [GB used]", at, _TIERS, {"used": float(value)})


def _lanes(starts: Ints, ends: Ints) -> list[int]:
    """Return a row for each interval, by start, so that none meets another in its row; as few rows as can be."""
    lanes: list[int] = []
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        lanes.append(lane)
        heapq.heappush(busy, (end, lane))
    return lanes


def _ns(time_s: Floats) -> Ints:
    """Return times in whole nanoseconds; what is not known (NaN) is 0."""
    rounded: Ints = np.rint(np.nan_to_num(np.asarray(time_s, dtype=np.float64)) * 1e9).astype(np.int64)
    return rounded


def _slice(
    name: str, category: str, span_ns: tuple[int, int], place: tuple[int, int], arguments: dict[str, Any] | None = None
) -> Event:
    (start, end), (pid, tid) = span_ns, place
    event = {"ph": "X", "name": name, "cat": category, "ts": start / 1e3, "dur": (end - start) / 1e3}
    return event | {"pid": pid, "tid": tid} | ({"args": arguments} if arguments else {})


def _counter(name: str, at: int, pid: int, values: dict[str, float]) -> Event:
    return {"ph": "C", "name": name, "ts": at / 1e3, "pid": pid, "tid": 0, "args": values}


def _named(pid: int, name: str, *, sort: int) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": sort}}


def _row(pid: int, tid: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
    yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}
