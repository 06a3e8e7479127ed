"""Sessions as a load: who waits for whom, for how long; and requests at a rate."""

from collections import defaultdict
from dataclasses import dataclass
from math import nan

import numpy as np
import pytest
from engine_kit import prepared, scenario, serve, table
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import ScenarioError
from sim.traces.record import NO_ID, TraceRecord
from sim.traces.sessions import Session, Stream, merged
from sim.workload.contexts import Contexts, PoissonLoad
from sim.workload.sessions import SessionLoop

BLOCK = 32
# Clock times of a minute hold 53 bits: differences of two of them are off by a few of their last places.
EXACT_S = 1e-9


@dataclass
class Sessions:
    """Sessions with the turns that each stream has: (prompt tokens, output tokens, pause before)."""

    held: list[Session]
    name = "sessions"
    block_tokens = BLOCK
    has_prefixes = True
    starts_known = True

    def sessions(self):
        return iter(self.held)

    def records(self):
        return merged(self.held)


def stream(session_id, turns, first_id, *, after_turn=NO_ID, delay_s=0.0):
    """One whose prompts grow by a block a turn."""

    def records():
        for number, (output_tokens, think_s) in enumerate(turns):
            blocks = list(range(first_id, first_id + number + 1))
            yield TraceRecord(nan, BLOCK * len(blocks) + 1, output_tokens, blocks, session_id, NO_ID, think_s)

    return Stream(session_id=session_id, turns=records, after_turn=after_turn, delay_s=delay_s)


def session(number, turns, *, starts_at_s=0.0, agents=()):
    streams = [stream(number, turns, number << 20)]
    for place, (after_turn, delay_s, agent_turns) in enumerate(agents, 1):
        streams.append(
            stream(number, agent_turns, (number << 20) + (place << 10), after_turn=after_turn, delay_s=delay_s)
        )
    requests = len(turns) + sum(len(agent_turns) for _, _, agent_turns in agents)
    return Session(session_id=number, starts_at_s=starts_at_s, streams=tuple(streams), requests=requests)


def by_session(result):
    """Each session's requests in order of arrival: (arrival, end, prompt tokens)."""
    rows = table(result)
    found = defaultdict(list)
    for number, *times in zip(
        *(rows[key].tolist() for key in ("session_id", "arrived_at_s", "finished_at_s", "prompt_tokens")), strict=True
    ):
        found[number].append(tuple(times))
    return {number: sorted(times) for number, times in found.items()}


TURNS = st.lists(st.tuples(st.integers(0, 60), st.floats(0.0, 50.0)), min_size=1, max_size=5)


@settings(max_examples=25, deadline=None)
@given(st.lists(TURNS, min_size=1, max_size=4), st.sampled_from([0.5, 1.0, 3.0]))
def test_a_turn_comes_its_pause_after_the_answer_before_it(sessions, think_scale):
    trace = Sessions([session(n, turns, starts_at_s=n * 0.25) for n, turns in enumerate(sessions)])
    loop = SessionLoop(trace=trace, chunk_blocks=1, think_scale=think_scale)
    found = by_session(serve(scenario(), loop))
    for number, turns in enumerate(sessions):
        served = found[number]
        assert [prompt for _, _, prompt in served] == [BLOCK * (n + 1) + 1 for n in range(len(turns))]
        for (_, ended_s, _), (arrived_s, _, _), (_, think_s) in zip(served, served[1:], turns[1:], strict=False):
            assert arrived_s - ended_s == pytest.approx(think_s * think_scale, abs=EXACT_S)
    assert loop.fraction_done() is None


def test_sessions_start_when_the_trace_says_scaled_by_the_rate():
    trace = Sessions([session(n, [(1, nan)], starts_at_s=100.0 + 10.0 * n) for n in range(3)])
    for rate_scale, starts_s in ((1.0, [0.0, 10.0, 20.0]), (4.0, [0.0, 2.5, 5.0])):
        found = by_session(serve(scenario(), SessionLoop(trace=trace, chunk_blocks=1, rate_scale=rate_scale)))
        assert [found[n][0][0] for n in range(3)] == starts_s


def test_a_session_without_a_start_cannot_start_by_the_trace():
    trace = Sessions([session(0, [(1, nan)]), session(1, [(1, nan)], starts_at_s=None)])
    with pytest.raises(ScenarioError, match=r"workload\.sessions\.starts: must be uniform"):
        serve(scenario(), SessionLoop(trace=trace, chunk_blocks=1))


@pytest.mark.parametrize("users", [1, 2, 7])
def test_users_have_one_session_each_and_take_the_next_when_it_ends(users):
    turns = [(5, nan), (20, 3.0)]
    trace = Sessions([session(n, turns, starts_at_s=None) for n in range(5)])
    spans_s = [
        (served[0][0], served[-1][1])
        for served in by_session(serve(scenario(), SessionLoop(trace=trace, chunk_blocks=1, users=users))).values()
    ]
    assert len(spans_s) == 5
    for start_s, _ in spans_s:
        under_way = sum(begin_s <= start_s < end_s for begin_s, end_s in spans_s)
        assert under_way <= users
    ends_s = {0.0} | {end_s for _, end_s in spans_s}
    assert all(start_s in ends_s for start_s, _ in spans_s)
    assert sum(start_s == 0.0 for start_s, _ in spans_s) == min(users, 5)


def test_a_sub_agent_follows_the_end_of_its_turn_and_nobody_waits_for_it():
    agents = [(0, 2.0, [(50, nan), (4, 1.0)]), (9, 0.0, [(1, nan)])]  # the last one's turn does not exist
    trace = Sessions([session(0, [(10, nan), (10, 5.0)], agents=agents)])
    served = by_session(serve(scenario(), SessionLoop(trace=trace, chunk_blocks=1)))[0]
    assert len(served) == 5
    first, agent = served[0], served[1]
    assert agent[0] == pytest.approx(first[1] + 2.0, abs=EXACT_S)
    main = next(row for row in served if row[0] == pytest.approx(first[1] + 5.0, abs=EXACT_S))
    follow_up = next(row for row in served if row[0] == pytest.approx(agent[1] + 1.0, abs=EXACT_S))
    assert main[2] == follow_up[2] == 2 * BLOCK + 1
    assert served[-1][0] == main[1]  # starts with the end of the stream whose turn it waited for


def test_what_a_turn_left_in_the_cache_its_next_one_hits():
    trace = Sessions([session(0, [(5, nan), (5, 1.0), (5, 1.0)])])
    rows = table(serve(scenario(), SessionLoop(trace=trace, chunk_blocks=1)))
    assert rows["hit_tokens_hbm"].tolist() == [0, BLOCK, 2 * BLOCK]


def test_only_so_many_sessions_are_taken_and_progress_ends_at_one():
    trace = Sessions([session(n, [(1, nan), (1, 1.0)], starts_at_s=float(n)) for n in range(9)])
    loop = SessionLoop(trace=trace, chunk_blocks=1, limit=3, expected=6)
    assert len(by_session(serve(scenario(), loop))) == 3
    assert loop.fraction_done() == 1.0


def poisson(rate_per_s, requests=400, sessions=40):
    return PoissonLoad(
        contexts=Contexts(prompt_tokens=65, output_tokens=1, chunk_tokens=32),
        rate_per_s=rate_per_s,
        requests=requests,
        sessions=sessions,
        random=np.random.default_rng(1),
    )


def test_requests_at_a_rate_come_at_that_rate_over_all_contexts():
    rows = table(serve(scenario(), poisson(2.0)))
    gaps_s = np.diff(rows["arrived_at_s"])
    # 400 exponential gaps: their mean is within 4 sigma of 1/rate, their CV within .2 of 1.
    assert gaps_s.mean() == pytest.approx(0.5, abs=4 * 0.5 / 20)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1.0, abs=0.2)
    assert set(rows["session_id"].tolist()) == set(range(40))


def test_at_twice_the_rate_the_same_requests_come_in_half_the_time():
    slow, fast = table(serve(scenario(), poisson(1.0))), table(serve(scenario(), poisson(2.0)))
    assert slow["session_id"].tolist() == fast["session_id"].tolist()
    np.testing.assert_allclose(slow["arrived_at_s"], 2.0 * fast["arrived_at_s"])


def test_the_load_is_done_when_its_last_request_is():
    load = poisson(2.0, requests=5)
    assert load.fraction_done() == 0.0
    prepared(scenario(), load).run()
    assert load.fraction_done() == 1.0
