"""How the blocks of a trace are reused: the figures that `sim.traces.statistics` has of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.arrays import Floats, Ints
from sim.traces.columns import Columns
from sim.traces.record import NO_ID
from sim.traces.reuse import Parts
from sim.traces.weighted import chance_of_more, percentiles, shares

WORKING_SET_WINDOWS_S = (60, 300, 600)
IDLE_S = (0, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400)
"""Idle times after which the chance of another use is given [s]."""

REUSE_PERCENTILES = (25, 50, 75, 90, 99, 99.9)
REFERENCE_BINS = ((1, 1), (2, 2), (3, 5), (6, 10), (11, None))

_HIT_PERCENTILES = (1, 5, 10, 25, 50, 75, 90)
_LISTED_ROOTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Reused:
    """Block references of a trace, by parts of prompts; see `sim.traces.reuse.Parts`."""

    request: Ints
    before: Ints
    blocks: Ints
    distance: Ints
    new: Ints
    """By request: blocks that no request before had."""
    hits: Ints
    """By request: blocks that an infinite cache has."""
    per_request: Ints
    """By request: blocks."""
    last_request: Ints
    last_blocks: Ints
    """Requests, and the blocks that were last used by each entry."""

    @property
    def references(self) -> int:
        """Block references in all."""
        return int(self.per_request.sum())


def reused(columns: Columns, *, with_partial: bool) -> Reused:
    """Return the references to full blocks, or *with_partial* to all blocks that the trace names."""
    reuse = columns.reuse
    full, seen = columns.full_blocks, _longs(reuse.seen)
    request, before, blocks, distance, partial_between = _parts(reuse.parts)
    last_blocks, last_partial = map(_longs, reuse.last_uses())
    last_request = _longs(reuse.uses.request)
    if not with_partial:
        return Reused(
            request=request,
            before=before,
            blocks=blocks,
            distance=distance,
            new=full - seen,
            hits=seen,
            per_request=full,
            last_request=last_request,
            last_blocks=last_blocks,
        )
    partial = _parts(reuse.partial_parts)
    is_partial = columns.partial_id != NO_ID
    partial_again = np.zeros(len(columns), dtype=np.bool_)
    partial_again[partial[0]] = True
    return Reused(
        request=np.concatenate((request, partial[0])),
        before=np.concatenate((before, partial[1])),
        blocks=np.concatenate((blocks, partial[2])),
        distance=np.concatenate((distance + partial_between, partial[3] + partial[4])),
        new=full - seen + (is_partial & ~partial_again),
        hits=seen + (partial_again & (seen == full)),
        per_request=full + is_partial,
        last_request=np.concatenate((last_request, np.arange(len(columns)))),
        last_blocks=np.concatenate((last_blocks, last_partial)),
    )


def block_statistics(columns: Columns, uses: Reused, *, with_partial: bool) -> dict[str, Any]:
    """Return the figures of the references *uses*; those that need the time between sessions are None without it."""
    hit_tokens = np.minimum(uses.hits * columns.block_tokens, columns.prompt_tokens)
    arrived_at_s, known = columns.arrived_at_s, columns.starts_known
    reuse_s = arrived_at_s[uses.request] - arrived_at_s[uses.before]
    in_order = np.ones(len(reuse_s), dtype=np.bool_)
    idle_at_end_s = arrived_at_s[-1] - arrived_at_s[uses.last_request]
    if not known and columns.session is not None:
        # Only inside a session is the time between two requests known, and how long its end is past is not.
        in_order = columns.session[uses.request] == columns.session[uses.before]
        idle_at_end_s = np.full(len(uses.last_request), np.inf)
    has_blocks = uses.per_request > 0
    at_most_one = int(np.count_nonzero(uses.hits <= 1))
    return {
        "block_references": uses.references,
        "unique_blocks": int(uses.new.sum()),
        "infinite_cache_hit_ratio_blocks": int(uses.hits.sum()) / uses.references if uses.references else None,
        "infinite_cache_hit_ratio_tokens": float(hit_tokens.sum() / columns.prompt_tokens.sum()),
        "hit_ratio_of_requests": percentiles(
            uses.hits[has_blocks] / uses.per_request[has_blocks], percents=_HIT_PERCENTILES
        ),
        "requests_hitting_at_most_one_block": at_most_one,
        "share_of_requests_hitting_at_most_one_block": at_most_one / len(columns),
        "reuse_time_s": percentiles(reuse_s[in_order], REUSE_PERCENTILES, uses.blocks[in_order]),
        "stack_distance_blocks": percentiles(
            uses.distance if known else uses.distance[:0], REUSE_PERCENTILES, uses.blocks if known else uses.blocks[:0]
        ),
        "working_set_blocks": {
            f"in_{window_s}_s": _working_set_blocks(columns, uses, window_s) if known else None
            for window_s in WORKING_SET_WINDOWS_S
        },
        "reused_later_given_idle_s": chance_of_more(
            reuse_s[in_order], uses.blocks[in_order], idle_at_end_s, uses.last_blocks, IDLE_S
        ),
        "share_of_blocks_by_references": _reference_shares(columns, with_partial=with_partial),
    }


def root_statistics(columns: Columns) -> dict[str, Any]:
    """Return how many distinct first blocks there are, and the requests and sessions that begin with the commonest.

    Of a prompt that fills no block the first one is the partial one.
    """
    roots = _longs(columns.reuse.root)
    is_partial = (roots == NO_ID) & (columns.partial_id != NO_ID)
    # A number of their own: below those of strands.
    roots[is_partial] = NO_ID - 1 - columns.partial_id[is_partial]
    found, requests = np.unique(roots[roots != NO_ID], return_counts=True)
    sessions = np.zeros(len(found), dtype=np.int64)
    if columns.session is not None:
        _, first = np.unique(columns.session, return_index=True)
        begun = roots[first]
        sessions = np.bincount(np.searchsorted(found, begun[begun != NO_ID]), minlength=len(found))
    most = np.lexsort((-requests, -sessions))[:_LISTED_ROOTS]
    return {
        "distinct": len(found),
        "requests": requests[most].tolist(),
        "sessions": sessions[most].tolist(),
    }


def _longs(values: Any) -> Ints:
    return np.array(values, dtype=np.int64)


def _parts(parts: Parts) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    return (
        _longs(parts.request),
        _longs(parts.before),
        _longs(parts.blocks),
        _longs(parts.distance),
        _longs(parts.partial_between),
    )


def _reference_shares(columns: Columns, *, with_partial: bool) -> dict[str, float | None]:
    """Return the share of blocks by the number of references to them."""
    strands, blocks = columns.reuse.uses_by_strand()
    # The n-th longest use of a strand reaches what is used n times or more, and the next one what is used more often.
    firsts = np.flatnonzero(np.diff(strands, prepend=-1))
    times = np.arange(len(strands)) - np.repeat(firsts, np.diff(firsts, append=len(strands))) + 1
    shorter = np.append(blocks[1:], 0)
    shorter[np.append(firsts[1:], len(strands)) - 1] = 0
    weights = blocks - shorter
    if with_partial:
        _, partial_times = np.unique(columns.partial_id[columns.partial_id != NO_ID], return_counts=True)
        times = np.append(times, partial_times)
        weights = np.append(weights, np.ones(len(partial_times), dtype=np.int64))
    return shares(times, REFERENCE_BINS, weights)


def _working_set_blocks(columns: Columns, uses: Reused, window_s: float) -> float | None:
    """Return the mean number of distinct blocks in a window [blocks], or None if the trace is no longer than it."""
    arrived_at_s = columns.arrived_at_s
    first_s, last_s = arrived_at_s[0], arrived_at_s[-1] - window_s
    if last_s <= first_s:
        return None

    # A window that starts at x sees a reference at t where t - window < x <= t. It counts its block there unless the
    # reference before to the same block is seen as well (x up to that one's time).
    def counted(at_s: Floats, from_s: Floats, blocks: Ints) -> float:
        stay_s = np.minimum(at_s, last_s) - np.maximum(np.maximum(from_s, at_s - window_s), first_s)
        return float((stay_s.clip(min=0) * blocks).sum())

    total = counted(arrived_at_s[uses.request], arrived_at_s[uses.before], uses.blocks)
    total += counted(arrived_at_s, np.full(len(columns), -np.inf), uses.new)
    return total / float(last_s - first_s)
