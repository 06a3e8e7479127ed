"""What a trace looks like before it is simulated: arrivals, lengths, sessions, and how its blocks are reused.

Times nothing and caches nothing: for hit ratios at a given capacity see `sim.replay`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.arrays import Floats
from sim.traces.columns import Columns, read_columns
from sim.traces.record import NO_ID, Trace
from sim.traces.reuse_statistics import block_statistics, reused, root_statistics
from sim.traces.session_statistics import session_statistics
from sim.traces.weighted import mean_and_percentiles

COUNT_WINDOW_S = 60

_LENGTH_PERCENTILES = (50, 90, 99)


def trace_statistics(trace: Trace) -> dict[str, Any]:
    """Return the figures of a trace, as `statistics_of` does; raises TraceError where it is malformed or empty.

    Sessions are read whole; of a generated trace `sim.traces.convert.by_arrival` gives what arrives before its end.
    """
    return statistics_of(read_columns(trace))


def statistics_of(columns: Columns) -> dict[str, Any]:
    """Return the figures of a trace as a dict that JSON can hold; None where a figure does not exist.

    Times are seconds, lengths tokens, distances and working sets blocks. Percentiles are linear (numpy's default). CV
    is standard deviation over mean, dispersion is variance over mean, both of the population; counts are taken over
    whole minutes from the first arrival, since a last minute cut short would pass for a burst.

    Where the trace has prefixes, the block figures stand twice: at the top for all ids, with the unfilled last block
    of each prompt where the trace names one, and under `full_blocks_only` for what a cache can hold. A block hits only
    where all blocks before it in the prompt hit. Each counts in the order of arrival, and inside a prompt first to
    last. The working set is Denning's: distinct blocks in a window, averaged over all windows inside the trace
    (P. J. Denning, "The working set model for program behavior", CACM 11(5), 1968). The chance that a block is used
    again after so long counts blocks that were not, unless the trace ends sooner.

    Where the trace does not say when its sessions start, what needs that is None, and times between uses are those of
    uses by one session.
    """
    duration_s = float(columns.arrived_at_s[-1] - columns.arrived_at_s[0]) if columns.starts_known else None
    statistics: dict[str, Any] = {
        "name": columns.name,
        "block_tokens": columns.block_tokens,
        "has_prefixes": columns.has_prefixes,
        "starts_known": columns.starts_known,
        "requests": len(columns),
        "sessions": None if columns.session is None else int(columns.session.max()) + 1,
        "sessions_are": columns.sessions_are,
        "duration_s": duration_s,
        "rate_requests_per_s": len(columns) / duration_s if duration_s else None,
        "arrivals": _arrival_statistics(columns.arrived_at_s) if columns.starts_known else None,
        "prompt_tokens": mean_and_percentiles(columns.prompt_tokens, _LENGTH_PERCENTILES),
        "output_tokens": mean_and_percentiles(columns.output_tokens, _LENGTH_PERCENTILES),
        "zero_output_requests": int(np.count_nonzero(columns.output_tokens == 0)),
    }
    if columns.has_prefixes:
        full = block_statistics(columns, reused(columns, with_partial=False), with_partial=False)
        has_partial = bool((columns.partial_id != NO_ID).any())
        every = full
        if has_partial:
            every = block_statistics(columns, reused(columns, with_partial=True), with_partial=True)
        statistics |= every
        statistics["full_blocks_only"] = full
        statistics["first_blocks"] = root_statistics(columns)
    statistics["session_figures"] = session_statistics(columns)
    return statistics


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
