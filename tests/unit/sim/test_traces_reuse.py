"""Reuse counted by runs, against every block for itself."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.traces import NO_ID, TraceRecord
from sim.traces.columns import read_columns
from sim.traces.live_counts import LiveCounts
from sim.traces.reuse_statistics import Reused, reused
from sim.traces.sessions import Session, Stream, by_session, placed, uniform_starts
from sim.traces.statistics import statistics_of, trace_statistics
from sim.traces.weighted import percentiles


@dataclass
class ListTrace:
    rows: list[TraceRecord]
    name: str = "list"
    block_tokens: int = 10
    has_prefixes: bool = True

    def records(self) -> Iterator[TraceRecord]:
        for row in self.rows:
            yield TraceRecord(
                row.arrived_at_s,
                row.prompt_tokens,
                row.output_tokens,
                [*row.block_ids],
                row.session_id,
                row.partial_block_id,
                row.think_s,
            )


@st.composite
def traces(draw: Callable[..., object], *, with_sessions: bool = False) -> ListTrace:
    """Draw prompts that grow, branch, shrink and come again; ids stand for the whole prompt up to their block."""
    names: dict[tuple[int, ...], int] = {}
    paths: list[tuple[int, ...]] = [()]
    rows = []
    for step in range(draw(st.integers(1, 25))):
        base = draw(st.sampled_from(paths))
        kept = base[: draw(st.integers(0, len(base)))] if draw(st.booleans()) else base
        path = kept + tuple(draw(st.lists(st.integers(0, 2), max_size=4)))
        paths.append(path)
        ids = [names.setdefault(path[: end + 1], len(names)) for end in range(len(path))]
        rest = draw(st.integers(0, 2))
        partial = names.setdefault((*path, -rest), len(names)) if rest else NO_ID
        session_id = draw(st.integers(0, 2)) if with_sessions else NO_ID
        rows.append(TraceRecord(float(step), 10 * len(ids) + rest or 1, 1, ids, session_id, partial))
    return ListTrace(rows)


def naive(trace: ListTrace, *, with_partial: bool) -> list[tuple[int, int, int]]:
    """Return (request, request before, distance) of every reference that is not the first to its block."""
    stack: list[int] = []
    last: dict[int, int] = {}
    found = []
    for request, row in enumerate(trace.rows):
        partial = [row.partial_block_id] if with_partial and row.partial_block_id != NO_ID else []
        for block in (*row.block_ids, *partial):
            if block in last:
                found.append((request, last[block], stack.index(block)))
                stack.remove(block)
            stack.insert(0, block)
            last[block] = request
    return found


def by_block(uses: Reused) -> list[tuple[int, int, int]]:
    rows = zip(uses.request.tolist(), uses.before.tolist(), uses.distance.tolist(), uses.blocks.tolist(), strict=True)
    return [(request, before, distance) for request, before, distance, blocks in rows for _ in range(blocks)]


@given(traces(), st.booleans())
def test_parts_of_prompts_say_what_every_block_says(trace, with_partial):
    uses = reused(read_columns(trace), with_partial=with_partial)
    wanted = naive(trace, with_partial=with_partial)
    assert sorted(by_block(uses)) == sorted(wanted)
    ids = Counter(block for row in trace.rows for block in row.block_ids)
    if with_partial:
        ids.update(row.partial_block_id for row in trace.rows if row.partial_block_id != NO_ID)
    assert uses.references == ids.total()
    assert int(uses.new.sum()) == len(ids)
    # What was used last by whom: each block once.
    last = Counter[int]()
    for request, blocks in zip(uses.last_request.tolist(), uses.last_blocks.tolist(), strict=True):
        last[request] += blocks
    owner = {
        block: request for request, row in enumerate(trace.rows) for block in (*row.block_ids, row.partial_block_id)
    }
    assert +last == Counter(owner[block] for block in ids)


@given(traces())
def test_references_and_working_set_of_every_block(trace):
    figures = trace_statistics(trace)
    times = Counter(block for row in trace.rows for block in (*row.block_ids, row.partial_block_id) if block != NO_ID)
    bins = {"1": (1, 1), "2": (2, 2), "3-5": (3, 5), "6-10": (6, 10), ">10": (11, math.inf)}
    for name, (low, high) in bins.items():
        wanted = sum(low <= count <= high for count in times.values()) / len(times) if times else None
        assert figures["share_of_blocks_by_references"][name] == (pytest.approx(wanted) if times else None)
    hits = 0
    seen: set[int] = set()
    for row in trace.rows:
        ids = [*row.block_ids, *([row.partial_block_id] if row.partial_block_id != NO_ID else [])]
        hits += next((place for place, block in enumerate(ids) if block not in seen), len(ids))
        seen.update(ids)
    assert figures["infinite_cache_hit_ratio_blocks"] == (pytest.approx(hits / times.total()) if times else None)


@given(traces(), st.integers(0, 6))
def test_sessions_are_inferred_as_by_session_infers_them(trace, often):
    # The bound on common blocks is lowered, or no small trace would have one.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.traces.sessions._COMMON_REQUESTS", often)
        patch.setattr("sim.traces.sessions._COMMON_SHARE", 0.0)
        columns = read_columns(trace)
        wanted = [record.session_id for record in by_session(trace).records()]
    assert columns.sessions_are == "inferred"
    assert columns.session.tolist() == wanted


@given(traces(with_sessions=True))
def test_what_a_turn_keeps_of_the_one_before(trace):
    columns = read_columns(trace)
    last: dict[int, int] = {}
    for request, row in enumerate(trace.rows):
        before = last.get(row.session_id, NO_ID)
        last[row.session_id] = request
        assert columns.before[request] == before
        if before != NO_ID:
            pairs = zip(trace.rows[before].block_ids, row.block_ids, strict=False)
            same = [first == second for first, second in pairs]
            assert columns.kept[request] == next((place for place, equal in enumerate(same) if not equal), len(same))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=40), st.floats(0, 100))
def test_weighted_percentiles_are_those_of_the_values_repeated(pairs, percent):
    values, weights = np.array(pairs, dtype=np.int64).T
    repeated = np.repeat(values, weights)
    found = percentiles(values, [percent], weights)
    wanted = float(np.percentile(repeated, percent)) if len(repeated) else None
    assert list(found.values()) == [wanted if wanted is None else pytest.approx(wanted)]


def test_live_counts():
    random = np.random.default_rng(0)
    plain: list[int] = []
    counts = LiveCounts()
    for _ in range(3000):
        plain.append(int(random.integers(5)))
        counts.append(plain[-1])
        index = int(random.integers(len(plain)))
        counts.take(index, plain[index] // 2)
        plain[index] -= plain[index] // 2
        start = int(random.integers(len(plain) + 1))
        assert counts.since(start) == sum(plain[start:])
    assert counts.counts().tolist() == plain
    assert len(counts) == 3000


def session(number: int, *streams: list[tuple[float, list[int]]]) -> Session:
    def turns(rows: list[tuple[float, list[int]]]) -> Callable[[], Iterator[TraceRecord]]:
        return lambda: (TraceRecord(at_s, 10 * len(ids), 1, [*ids], number) for at_s, ids in rows)

    made = tuple(Stream(session_id=number, turns=turns(rows)) for rows in streams)
    return Session(session_id=number, starts_at_s=None, streams=made, requests=sum(map(len, streams)))


class Agents:
    name = "agents"
    block_tokens = 10
    has_prefixes = True
    starts_known = False

    def records(self) -> Iterator[TraceRecord]:
        raise AssertionError("sessions are asked for streams")

    def sessions(self) -> Iterator[Session]:
        yield session(0, [(0.0, [1, 2]), (50.0, [1, 2, 3, 4])], [(20.0, [9]), (21.0, [9, 8]), (400.0, [7])])
        yield session(1, [(0.0, [1, 2, 5]), (10.0, [1])])


def test_streams_are_told_apart_and_unknown_starts_leave_figures_out():
    figures = trace_statistics(Agents())
    sessions = figures["session_figures"]
    assert (figures["requests"], figures["sessions"]) == (7, 2)
    assert (sessions["sub_agents"], sessions["sub_agent_requests"]) == (1, 3)
    assert sessions["turns"]["max"] == 2
    assert sessions["duration_s"]["max"] == 400.0
    assert sessions["gap_s"]["p50"] == 30.0  # 50, 1, 379 and 10 s
    kept = sessions["kept_of_the_prompt_before"]
    assert kept == {"at_least_90_percent": 0.5, "partial": 0.0, "below_50_percent": 0.5}
    assert (figures["duration_s"], figures["arrivals"]) == (None, None)
    assert set(figures["working_set_blocks"].values()) == {None}
    # Between sessions no time is known: counted are block 9 after 1 s and, in the second session, block 1 after 10 s.
    assert figures["reuse_time_s"]["p50"] == pytest.approx(5.5)


def test_starts_make_all_figures_known():
    trace = placed(Agents(), uniform_starts(2, 100.0, np.random.default_rng(0)))
    figures = statistics_of(read_columns(trace))
    assert figures["starts_known"]
    assert figures["duration_s"] > 300.0
    assert None not in (figures["arrivals"]["inter_arrival_cv"], figures["stack_distance_blocks"]["p50"])
    assert figures["session_figures"]["gap_s"]["p50"] == pytest.approx(30.0)
