import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from trace_samples import SAMPLES

from models.errors import InputError
from sim.traces import NO_ID, Trace, TraceRecord, open_trace
from sim.traces.sessions import (
    Session,
    SessionTrace,
    Stream,
    by_session,
    merged,
    placed,
    poisson_starts,
    uniform_starts,
)

SHARED = Path(os.environ.get("KVTIER_SHARED", Path(__file__).parents[3].parent / "shared"))


@dataclass
class ListTrace:
    rows: list[TraceRecord] = field(default_factory=list)
    name: str = "list"
    block_tokens: int = 10
    has_prefixes: bool = True

    def records(self) -> Iterator[TraceRecord]:
        for row in self.rows:
            yield TraceRecord(
                row.arrived_at_s,
                row.prompt_tokens,
                row.output_tokens,
                row.block_ids.copy(),
                row.session_id,
                row.partial_block_id,
                row.think_s,
            )


def session(number: int, starts_at_s: float | None, *streams: list[float]) -> Session:
    def turns(at_s: list[float]) -> Iterator[TraceRecord]:
        return (TraceRecord(at, 10, 1, [], number) for at in at_s)

    return Session(
        session_id=number,
        starts_at_s=starts_at_s,
        streams=tuple(Stream(session_id=number, turns=lambda at_s=at_s: turns(at_s)) for at_s in streams),
        requests=sum(map(len, streams)),
    )


def arrivals(sessions: list[Session]) -> list[tuple[float, int]]:
    return [(record.arrived_at_s, record.session_id) for record in merged(sessions)]


def request(
    at_s: float, *blocks: int, session: int = NO_ID, rest: int = NO_ID, think_s: float = math.nan
) -> TraceRecord:
    return TraceRecord(at_s, 10 * len(blocks) + 5, 1, list(blocks), session, rest, think_s)


def grouped(*rows: TraceRecord) -> list[tuple[int, list[float]]]:
    sessions = by_session(ListTrace(list(rows))).sessions()
    return [
        (session.session_id, [session.starts_at_s + turn.arrived_at_s for turn in session.streams[0].turns()])
        for session in sessions
    ]


def test_sessions_and_streams_are_merged_by_arrival_with_ties_by_session():
    sessions = [session(0, 0.0, [0, 50, 60], [10, 55]), session(1, 5.0, [0, 5, 50]), session(2, 55.0, [0])]
    assert arrivals(sessions) == [
        (0, 0),
        (5, 1),
        (10, 0),
        (10, 1),
        (50, 0),
        (55, 0),
        (55, 1),
        (55, 2),
        (60, 0),
    ]
    assert arrivals([session(3, None, [0, 2]), session(4, None, [0, 1])]) == [(0, 3), (0, 4), (1, 4), (2, 3)]


def test_merging_asks_for_a_session_no_earlier_than_it_starts():
    asked = []

    def sessions() -> Iterator[Session]:
        for number in range(4):
            asked.append(number)
            yield session(number, 100.0 * number, [0, 20])

    records = merged(sessions())
    assert next(records).session_id == 0
    assert asked == [0, 1]


def test_placed_sessions_start_as_told_and_can_be_read_again(tmp_path):
    path = tmp_path / "trace"
    path.write_text(SAMPLES["kv-cache-tester-delta"])
    trace = placed(open_trace(path), iter([7.0, 7.5, 900.0]))
    assert isinstance(trace, SessionTrace)
    assert (trace.starts_known, trace.block_tokens, trace.name, trace.has_prefixes) == (True, 64, "trace", True)
    for _ in range(2):
        assert [found.starts_at_s for found in trace.sessions()] == [7.0, 7.5]
        assert [record.arrived_at_s for record in trace.records()] == [7.0, 7.5, 71.0, 76.0, 87.0]


@pytest.mark.parametrize(
    ("starts_s", "problem"),
    [
        ([1.0], "trace: 1 session starts are given, but there are more sessions"),
        ([1.0, 0.5], "trace: session 1 starts at 0.5 s; must be at least 1 s"),
        ([-1.0, 0.5], "trace: session 0 starts at -1 s; must be at least 0 s"),
        ([math.nan, 0.5], "session 0 starts at nan s"),
        ([0.0, math.inf], "session 1 starts at inf s"),
    ],
)
def test_starts_that_cannot_be(tmp_path, starts_s, problem):
    path = tmp_path / "trace"
    path.write_text(SAMPLES["kv-cache-tester-delta"])
    with pytest.raises(InputError) as caught:
        list(placed(open_trace(path), iter(starts_s)).sessions())
    assert problem in str(caught.value)


def test_start_processes():
    starts_s = list(uniform_starts(20_000, 3600.0, np.random.default_rng(0)))
    assert len(starts_s) == 20_000
    assert all(0 <= before <= after < 3600 for before, after in pairwise(starts_s))
    assert np.histogram(starts_s, bins=4, range=(0, 3600))[0] == pytest.approx([5000] * 4, rel=0.05)
    assert starts_s == list(uniform_starts(20_000, 3600.0, np.random.default_rng(0)))
    poisson = poisson_starts(0.5, np.random.default_rng(0))
    gaps_s = np.diff([0.0, *(next(poisson) for _ in range(20_000))])
    assert gaps_s.mean() == pytest.approx(2.0, rel=0.03)
    assert gaps_s.std() == pytest.approx(2.0, rel=0.03)
    assert gaps_s.min() > 0


def test_given_sessions_are_kept_and_requests_without_one_stand_alone():
    rows = [
        request(0, 1, session=7),
        request(1, 1),
        request(2, 1, 2, session=3),
        request(9, 1, session=7),
        request(10, 1),
    ]
    assert grouped(*rows) == [(7, [0, 9]), (8, [1]), (3, [2]), (9, [10])]


def test_pauses_are_those_of_the_trace_or_gaps_however_long():
    trace = by_session(
        ListTrace([request(0, 1, session=0), request(4, 1, session=0, think_s=1.5), request(90_004, 1, session=0)])
    )
    (found,) = trace.sessions()
    think_s = [turn.think_s for turn in found.streams[0].turns()]
    assert math.isnan(think_s[0])
    assert think_s[1:] == [1.5, 90_000.0]
    assert [record.think_s for record in trace.records()][1:] == [1.5, 90_000.0]


def test_a_request_belongs_to_the_last_that_holds_its_deepest_known_block():
    rows = [
        request(0, 1, 2, rest=3),
        request(1, 10, 11),
        request(2, 1, 2, 4, 5),  # goes on
        request(3, 1, 2, 4, 6),  # branches
        request(4, 10, 11, rest=12),
        request(5, 20),
        request(6, 30, 20),  # a known block behind an unknown one says nothing
        request(7, rest=40),
        request(8, rest=40),  # a short prompt sent again
    ]
    assert grouped(*rows) == [(0, [0, 2, 3]), (1, [1, 4]), (2, [5]), (3, [6]), (4, [7, 8])]


def test_a_block_that_much_of_the_trace_begins_with_makes_no_session():
    rows = [request(at, 0, at + 1) for at in range(101)]
    assert len(grouped(*rows)) == 101
    assert len(grouped(*rows[:100])) == 1  # 100 requests may be one session
    rows += [request(200 + at, 1_000_000 + at) for at in range(2_000)]
    assert len(grouped(*rows)) == 2_001  # 101 of 2,101 requests are less than one in twenty


def test_grouping_leaves_the_requests_as_they_are():
    rows = [request(0, 1, 2, rest=3), request(1, 9), request(2, 1, 2, 4), request(2, 9, 10)]
    trace = by_session(ListTrace(rows))
    assert [(record.arrived_at_s, record.block_ids, record.partial_block_id) for record in trace.records()] == [
        (row.arrived_at_s, row.block_ids, row.partial_block_id) for row in rows
    ]
    assert [record.session_id for record in trace.records()] == [0, 1, 0, 1]
    first = next(trace.sessions())
    turns = first.streams[0].turns()
    next(turns).block_ids.clear()
    assert [turn.block_ids for turn in first.streams[0].turns()] == [[1, 2], [1, 2, 4]]
    assert [turn.partial_block_id for turn in first.streams[0].turns()] == [3, NO_ID]


def test_a_trace_of_sessions_is_itself(tmp_path):
    path = tmp_path / "trace"
    path.write_text(SAMPLES["hash64c"])
    trace = open_trace(path)
    assert by_session(trace) is trace


def mooncake(name: str) -> Trace:
    path = SHARED / "traces" / "mooncake" / f"{name}_trace.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no Mooncake {name} trace under {SHARED}; set KVTIER_SHARED")
    return open_trace(path)


# From the published description of the traces: sessions, and the shares of those with 1, 2, 3, 4, 5, 6-8, > 8 turns.
@pytest.mark.parametrize(
    ("name", "n_sessions", "shares"),
    [
        ("conversation", 7_373, (0.694, 0.178, 0.063, 0.027, 0.016, 0.015, 0.008)),
        ("synthetic", 2_211, (0.816, 0.034, 0.030, 0.027, 0.020, 0.051, 0.023)),
    ],
)
def test_the_sessions_of_the_mooncake_traces_are_the_published_ones(name, n_sessions, shares):
    lengths = Counter(found.requests for found in by_session(mooncake(name)).sessions())
    assert lengths.total() == n_sessions
    bins = [range(1, 2), range(2, 3), range(3, 4), range(4, 5), range(5, 6), range(6, 9), range(9, 10_000)]
    found = [sum(lengths[length] for length in bin_) / n_sessions for bin_ in bins]
    assert found == pytest.approx(shares, abs=0.0006)
