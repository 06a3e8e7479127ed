"""What the sessions of a trace are like: the figures that `sim.traces.statistics` has of them."""

from typing import Any

import numpy as np

from sim.arrays import Ints
from sim.traces.columns import Columns
from sim.traces.record import NO_ID
from sim.traces.reuse_statistics import IDLE_S
from sim.traces.weighted import chance_of_more, mean_and_percentiles, percentiles, shares

_PERCENTILES = (10, 50, 90, 99)
_GAP_PERCENTILES = (10, 50, 90, 95, 99)
_TURN_BINS = (
    *((turns, turns) for turns in range(1, 6)),
    *((6, 7), (8, 15), (16, 31), (32, 63), (64, 127), (128, 255), (256, None)),
)
# What counts as the same prompt with something added, and as one begun anew.
_KEPT, _DROPPED = 0.9, 0.5


def session_statistics(columns: Columns) -> dict[str, Any] | None:
    """Return the figures of sessions, None where nothing tells them.

    Turns are the requests of main streams. Gaps run from one arrival to the next in a stream, and pauses from the end
    of an answer to the next request. Gaps, pauses and what is kept of the prompt before are those of all streams. The
    chance of another turn counts streams that end as not going on; where the trace has an end in time, a stream that
    was last seen less than that before it does not count.
    """
    session, stream, is_main = columns.session, columns.stream, columns.is_main_stream
    if session is None or stream is None or is_main is None:
        return None
    turns = np.bincount(stream[is_main[stream]], minlength=len(is_main))[is_main]
    sessions = len(turns)
    by_stream = np.lexsort((columns.arrived_at_s, stream))
    starts = np.flatnonzero(np.diff(stream[by_stream], prepend=-1))
    gaps_s = np.diff(columns.arrived_at_s[by_stream])
    gaps_s = np.delete(gaps_s, starts[1:] - 1)
    ends_s = columns.arrived_at_s[by_stream[np.append(starts[1:], len(by_stream)) - 1]]
    since_end_s = columns.arrived_at_s[-1] - ends_s if columns.starts_known else np.full(len(ends_s), np.inf)
    first_s = np.full(sessions, np.inf)
    last_s = np.full(sessions, -np.inf)
    np.minimum.at(first_s, session, columns.arrived_at_s)
    np.maximum.at(last_s, session, columns.arrived_at_s)
    think_s = columns.think_s[~np.isnan(columns.think_s)]
    return {
        "turns": mean_and_percentiles(turns, _PERCENTILES),
        "share_of_sessions_by_turns": shares(turns, _TURN_BINS, np.ones(sessions, dtype=np.int64)),
        "share_of_turns_by_turns": shares(turns, _TURN_BINS, turns),
        "sub_agents": len(is_main) - sessions,
        "sub_agent_requests": len(columns) - int(turns.sum()),
        "duration_s": mean_and_percentiles(last_s - first_s, _PERCENTILES),
        "gap_s": percentiles(gaps_s, _GAP_PERCENTILES),
        "think_s": percentiles(think_s, _GAP_PERCENTILES) if len(think_s) else None,
        "another_turn_given_idle_s": chance_of_more(
            gaps_s,
            np.ones(len(gaps_s), dtype=np.int64),
            since_end_s,
            np.ones(len(ends_s), dtype=np.int64),
            IDLE_S,
        ),
        "kept_of_the_prompt_before": _kept_shares(columns) if columns.has_prefixes else None,
    }


def _kept_shares(columns: Columns) -> dict[str, float | None]:
    """Return the shares of turns that keep so much of the blocks of the request before them."""
    goes_on = np.flatnonzero(columns.before != NO_ID)
    before: Ints = columns.full_blocks[columns.before[goes_on]]
    goes_on, before = goes_on[before > 0], before[before > 0]
    kept = columns.kept[goes_on] / before
    if not len(kept):
        return dict.fromkeys(("at_least_90_percent", "partial", "below_50_percent"))
    most, least = kept >= _KEPT, kept < _DROPPED
    return {
        "at_least_90_percent": float(most.mean()),
        "partial": float((~most & ~least).mean()),
        "below_50_percent": float(least.mean()),
    }
