"""What a trace looks like before it is simulated: arrivals, lengths, and how its blocks are reused.

Holds the trace's numbers in arrays (8 bytes a block id), because stack distances need all of them. Times nothing and
caches nothing: for hit ratios at a given capacity see `sim.replay`.
"""

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import TraceError
from sim.arrays import Floats, Ints
from sim.traces.record import NO_ID, Trace
from sim.traces.stack_distance import lru_stack_distances, previous_references

COUNT_WINDOW_S = 60
WORKING_SET_WINDOWS_S = (60, 300, 600)

_LENGTH_PERCENTILES = (50, 90, 99)
_REUSE_PERCENTILES = (25, 50, 75, 90, 99)


def trace_statistics(trace: Trace) -> dict[str, Any]:
    """Return the figures of a trace as a dict that JSON can hold; None where a figure does not exist.

    Times are seconds, lengths tokens, distances and working sets blocks. Percentiles are linear (numpy's default). CV
    is standard deviation over mean, dispersion is variance over mean, both of the population; counts are taken over
    whole minutes from the first arrival, since a last minute cut short would pass for a burst.

    Where the trace has prefixes, the block figures stand twice: at the top for all ids, with the unfilled last block
    of each prompt where the trace names one, and under `full_blocks_only` for what a cache can hold. A block hits only
    where all blocks before it in the prompt hit. Each counts in the order of arrival, and inside a prompt first to
    last. The working set is Denning's: distinct blocks in a window, averaged over all windows inside the trace
    (P. J. Denning, "The working set model for program behavior", CACM 11(5), 1968).

    Raises TraceError where the trace is malformed or holds no request.
    """
    columns = _collect(trace)
    duration_s = float(columns.arrived_at_s[-1] - columns.arrived_at_s[0])
    n_requests = len(columns.arrived_at_s)
    statistics: dict[str, Any] = {
        "name": trace.name,
        "block_tokens": trace.block_tokens,
        "has_prefixes": trace.has_prefixes,
        "requests": n_requests,
        "sessions": columns.n_sessions,
        "duration_s": duration_s,
        "rate_requests_per_s": n_requests / duration_s if duration_s > 0 else None,
        "arrivals": _arrival_statistics(columns.arrived_at_s),
        "prompt_tokens": _length_statistics(columns.prompt_tokens),
        "output_tokens": _length_statistics(columns.output_tokens),
        "zero_output_requests": int(np.count_nonzero(columns.output_tokens == 0)),
    }
    if trace.has_prefixes:
        statistics |= _block_statistics(columns, trace.block_tokens)
        columns = columns.without_partial_blocks()  # in its place: a million requests have 200 MB of ids
        statistics["full_blocks_only"] = _block_statistics(columns, trace.block_tokens)
    return statistics


def format_statistics(statistics: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the figures of `trace_statistics` as rows (what, value with its unit) for a table."""
    rows = [
        ("trace", str(statistics["name"])),
        ("requests", _text(statistics["requests"])),
        ("duration", _text(statistics["duration_s"], "s")),
        ("rate", _text(statistics["rate_requests_per_s"], "requests/s")),
        ("distinct arrival stamps", _text(statistics["arrivals"]["distinct_stamps"])),
        ("CV of inter-arrival times", _text(statistics["arrivals"]["inter_arrival_cv"])),
        ("CV of arrivals a minute", _text(statistics["arrivals"]["per_60_s_cv"])),
        ("dispersion of arrivals a minute", _text(statistics["arrivals"]["per_60_s_dispersion"])),
        ("prompt", _figures(statistics["prompt_tokens"], "tokens")),
        ("output", _figures(statistics["output_tokens"], "tokens")),
        ("requests without output", _text(statistics["zero_output_requests"])),
    ]
    if statistics["sessions"] is not None:
        rows.insert(2, ("sessions", _text(statistics["sessions"])))
    if not statistics["has_prefixes"]:
        return [*rows, ("prefixes", "none in this trace: no request can hit")]
    full = statistics["full_blocks_only"]
    return [
        *rows,
        ("block", _text(statistics["block_tokens"], "tokens")),
        ("block references", _both(statistics, full, "block_references")),
        ("distinct blocks", _both(statistics, full, "unique_blocks")),
        ("infinite-cache hit ratio, blocks", _both(statistics, full, "infinite_cache_hit_ratio_blocks")),
        ("infinite-cache hit ratio, tokens", _both(statistics, full, "infinite_cache_hit_ratio_tokens")),
        ("requests that hit 1 block at most", _both(statistics, full, "requests_hitting_at_most_one_block")),
        ("time between uses of a block", _figures(statistics["reuse_time_s"], "s")),
        ("LRU stack distance", _figures(statistics["stack_distance_blocks"], "blocks")),
        ("working set", _figures(statistics["working_set_blocks"], "blocks")),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The records of a trace as arrays; `ids` holds the blocks of all requests one after another."""

    arrived_at_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    n_sessions: int | None
    ids: Ints
    request_of_id: Ints
    is_partial: NDArray[np.bool_]

    def without_partial_blocks(self) -> "_Columns":
        """Return the same requests with their full blocks only."""
        full = ~self.is_partial
        return _Columns(
            arrived_at_s=self.arrived_at_s,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            n_sessions=self.n_sessions,
            ids=self.ids[full],
            request_of_id=self.request_of_id[full],
            is_partial=self.is_partial[full],
        )


def _collect(trace: Trace) -> _Columns:
    arrived_at_s, prompt_tokens, output_tokens = array("d"), array("q"), array("q")
    ids, n_ids, last_is_partial, sessions = array("q"), array("q"), array("b"), array("q")
    for record in trace.records():
        arrived_at_s.append(record.arrived_at_s)
        prompt_tokens.append(record.prompt_tokens)
        output_tokens.append(record.output_tokens)
        sessions.append(record.session_id)
        ids.extend(record.block_ids)
        has_partial = record.partial_block_id != NO_ID
        if has_partial:
            ids.append(record.partial_block_id)
        last_is_partial.append(has_partial)
        n_ids.append(len(record.block_ids) + has_partial)
    if not arrived_at_s:
        raise TraceError(trace.name, "the trace holds no requests")
    ends = np.cumsum(np.frombuffer(n_ids, dtype=np.int64))
    is_partial = np.zeros(len(ids), dtype=np.bool_)
    is_partial[ends[np.frombuffer(last_is_partial, dtype=np.int8) == 1] - 1] = True
    known_sessions = np.unique(np.frombuffer(sessions, dtype=np.int64))
    known_sessions = known_sessions[known_sessions != NO_ID]
    return _Columns(
        arrived_at_s=np.frombuffer(arrived_at_s, dtype=np.float64),
        prompt_tokens=np.frombuffer(prompt_tokens, dtype=np.int64),
        output_tokens=np.frombuffer(output_tokens, dtype=np.int64),
        n_sessions=len(known_sessions) or None,
        ids=np.frombuffer(ids, dtype=np.int64) if ids else np.zeros(0, dtype=np.int64),
        request_of_id=np.repeat(np.arange(len(n_ids), dtype=np.int64), np.frombuffer(n_ids, dtype=np.int64)),
        is_partial=is_partial,
    )


def _arrival_statistics(arrived_at_s: Floats) -> dict[str, Any]:
    since_first_s = arrived_at_s - arrived_at_s[0]
    n_windows = int(since_first_s[-1] // COUNT_WINDOW_S)
    counts = np.bincount((since_first_s // COUNT_WINDOW_S).astype(np.int64))[:n_windows]
    return {
        "distinct_stamps": len(np.unique(arrived_at_s)),
        "inter_arrival_cv": _cv(np.diff(arrived_at_s)),
        "per_60_s_cv": _cv(counts),
        "per_60_s_dispersion": float(counts.var() / counts.mean()) if counts.any() else None,
    }


def _cv(values: NDArray[Any]) -> float | None:
    return float(values.std() / values.mean()) if values.any() else None


def _length_statistics(lengths_tokens: Ints) -> dict[str, Any]:
    return {
        "mean": float(lengths_tokens.mean()),
        **_percentiles(lengths_tokens, _LENGTH_PERCENTILES),
        "max": int(lengths_tokens.max()),
        "min": int(lengths_tokens.min()),
    }


def _percentiles(values: NDArray[Any], percents: tuple[int, ...]) -> dict[str, float | None]:
    if len(values) == 0:
        return {f"p{percent}": None for percent in percents}
    return {f"p{percent}": float(np.percentile(values, percent)) for percent in percents}


def _block_statistics(columns: _Columns, block_tokens: int) -> dict[str, Any]:
    n_requests = len(columns.arrived_at_s)
    previous = previous_references(columns.ids)
    reused = previous >= 0
    hits = np.bincount(columns.request_of_id[_unbroken(reused, columns.request_of_id)], minlength=n_requests)
    hit_tokens = np.minimum(hits * block_tokens, columns.prompt_tokens)
    referenced_at_s = columns.arrived_at_s[columns.request_of_id]
    return {
        "block_references": len(columns.ids),
        "unique_blocks": int(np.count_nonzero(~reused)),
        "infinite_cache_hit_ratio_blocks": float(hits.sum() / len(columns.ids)) if len(columns.ids) else None,
        "infinite_cache_hit_ratio_tokens": float(hit_tokens.sum() / columns.prompt_tokens.sum()),
        "requests_hitting_at_most_one_block": int(np.count_nonzero(hits <= 1)),
        "reuse_time_s": _percentiles(referenced_at_s[reused] - referenced_at_s[previous[reused]], _REUSE_PERCENTILES),
        "stack_distance_blocks": _percentiles(lru_stack_distances(previous), _REUSE_PERCENTILES),
        "working_set_blocks": {
            f"in_{window_s}_s": _working_set_blocks(referenced_at_s, previous, window_s, columns.arrived_at_s)
            for window_s in WORKING_SET_WINDOWS_S
        },
    }


def _unbroken(reused: NDArray[np.bool_], request_of_id: Ints) -> NDArray[np.bool_]:
    """Return which references hit in an infinite cache: those with no first use in the same prompt up to them."""
    misses: Ints = np.cumsum(~reused)
    # Misses of the earlier requests, at each reference: the count before the first block of its own request.
    starts = np.flatnonzero(np.diff(request_of_id, prepend=-1))
    n_ids = np.diff(starts, append=len(request_of_id))
    misses_before: Ints = np.repeat(misses[starts] - ~reused[starts], n_ids)
    return np.equal(misses, misses_before)


def _working_set_blocks(referenced_at_s: Floats, previous: Ints, window_s: float, arrived_at_s: Floats) -> float | None:
    """Return the mean number of distinct blocks in a window [blocks], or None if the trace is no longer than it."""
    first_s, last_s = arrived_at_s[0], arrived_at_s[-1] - window_s
    if last_s <= first_s:
        return None
    # A window that starts at x sees a reference at t where t - window < x <= t. It counts its block there unless the
    # reference before to the same block is seen as well (x up to that one's time).
    from_s = referenced_at_s - window_s
    reused = previous >= 0
    from_s[reused] = np.maximum(from_s[reused], referenced_at_s[previous[reused]])
    np.maximum(from_s, first_s, out=from_s)
    counted_s = np.minimum(referenced_at_s, last_s)
    counted_s -= from_s
    return float(counted_s.clip(min=0, out=counted_s).sum() / (last_s - first_s))


def _text(value: float | None, unit: str = "") -> str:
    """Return a figure with four significant digits, whole numbers in full."""
    if value is None:
        return "n/a"
    number = f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.4g}"
    return f"{number} {unit}".rstrip()


def _figures(figures: dict[str, float | None], unit: str) -> str:
    listed = ", ".join(f"{name.replace('_', ' ')} {_text(value)}" for name, value in figures.items())
    return f"{listed} {unit}"


def _both(statistics: dict[str, Any], full: dict[str, Any], key: str) -> str:
    value, value_full = _text(statistics[key]), _text(full[key])
    return value if value == value_full else f"{value} ({value_full} without partial last blocks)"
