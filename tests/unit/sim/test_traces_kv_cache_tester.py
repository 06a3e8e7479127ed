import copy
import gzip
import io
import json
import math
import os
import tarfile
import tracemalloc
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from trace_samples import KV_CACHE_TESTER, KV_CACHE_TESTER_DELTA, lines

from models.errors import InputError, TraceError
from sim.prefix_tree import common_prefix
from sim.traces import NO_ID, BadLines, TraceRecord, open_trace
from sim.traces.sessions import Session, SessionTrace
from sim.traces.turns import difference

SHARED = Path(os.environ.get("KVTIER_SHARED", Path(__file__).parents[3].parent / "shared"))
FOLDER = SHARED / "traces" / "kv-cache-tester"
FIRST = 1 << 32
SECOND = 2 << 32


def staged(name: str) -> Path:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"no kv-cache-tester {name} under {SHARED}; set KVTIER_SHARED")
    return path


def delta_file(folder: Path, *rows: dict[str, object]) -> Path:
    path = folder / "delta.jsonl"
    path.write_text(lines(rows))
    return path


def header(**changes: object) -> dict[str, object]:
    return {"trace": "x", "block_size": 64, "scope": "local", **changes}


def request(t: float, keep: int, new: list[list[int]], **changes: object) -> dict[str, object]:
    blocks = keep + sum(run[1] for run in new)
    return {"t": t, "in": 64 * blocks + 5, "out": 10, "keep": keep, "new": new, "nb": blocks, **changes}


def turns(session: Session, stream: int = 0) -> list[TraceRecord]:
    return list(session.streams[stream].turns())


def think_s(path: Path) -> list[float]:
    (session,) = open_trace(path).sessions()
    return [turn.think_s for turn in turns(session)]


def test_sessions_of_the_sample_by_hand(tmp_path):
    trace = open_trace(delta_file(tmp_path, *KV_CACHE_TESTER_DELTA))
    assert isinstance(trace, SessionTrace)
    assert (trace.block_tokens, trace.starts_known, trace.has_prefixes) == (64, False, True)
    first, second = trace.sessions()
    assert (first.session_id, first.starts_at_s, first.requests) == (0, None, 4)
    main, agent = first.streams
    assert (main.after_turn, main.delay_s) == (NO_ID, 0.0)
    start, follow_up = main.turns()
    assert start.block_ids == [FIRST + 1, FIRST + 2, FIRST + 3]
    assert math.isnan(start.think_s)
    assert follow_up.block_ids == [FIRST + 1, FIRST + 2, FIRST + 3, FIRST + 4, FIRST + 7]
    assert (follow_up.arrived_at_s, follow_up.prompt_tokens, follow_up.output_tokens) == (80.0, 330, 9)
    assert follow_up.think_s == 78.0
    # The agent's log is dated 70 s and lasts 6 s, so it ran from 64 s, 62 s after the end of the main turn.
    assert (agent.after_turn, agent.delay_s) == (0, 62.0)
    assert [turn.arrived_at_s for turn in agent.turns()] == [64.0, 69.0]
    assert [turn.block_ids for turn in agent.turns()] == [[FIRST + 9, FIRST + 10]] * 2
    assert turns(second)[0].block_ids == [SECOND + 1]  # local ids of two sessions are not the same


def test_records_merge_sessions_and_sub_agents_by_arrival(tmp_path):
    records = list(open_trace(delta_file(tmp_path, *KV_CACHE_TESTER_DELTA)).records())
    assert [(record.session_id, record.arrived_at_s) for record in records] == [
        (0, 0.0),
        (1, 0.0),
        (0, 64.0),
        (0, 69.0),
        (0, 80.0),
    ]
    assert [record.output_tokens for record in records] == [20, 1, 5, 0, 9]  # no output is kept as such


def test_a_record_is_its_readers_to_change(tmp_path):
    (session,) = open_trace(delta_file(tmp_path, header(), request(0, 0, [[0, 3]]), request(9, 3, [[3, 1]]))).sessions()
    stream = session.streams[0].turns()
    next(stream).block_ids.clear()
    assert next(stream).block_ids == [FIRST, FIRST + 1, FIRST + 2, FIRST + 3]
    assert len(turns(session)[0].block_ids) == 3


def test_global_ids_are_kept(tmp_path):
    rows = [header(scope="global"), request(0, 0, [[7, 2]]), header(scope="global"), request(0, 0, [[7, 1], [40, 1]])]
    records = list(open_trace(delta_file(tmp_path, *rows)).records())
    assert [record.block_ids for record in records] == [[7, 8], [7, 40]]


def test_an_agent_in_the_background_starts_when_its_log_does(tmp_path):
    # Dated .4 s after the main turn, 300 s long: it cannot have run before that time.
    rows = [
        header(),
        request(0, 0, [[0, 1]], api_time=100.0),
        request(500, 1, [[1, 1]], api_time=10.0),
        request(510.4, 0, [[9, 1]], agent="a", api_time=20.0),
        request(800, 1, [], agent="a", api_time=10.4),
    ]
    (session,) = open_trace(delta_file(tmp_path, *rows)).sessions()
    agent = session.streams[1]
    assert agent.after_turn == 1
    assert agent.delay_s == pytest.approx(0.4)
    assert [turn.arrived_at_s for turn in agent.turns()] == [510.4, 800.0]


def test_pauses_are_logged_or_gaps_or_gaps_less_an_estimated_service_time(tmp_path):
    rows = [
        header(),
        request(0, 0, [[0, 10]], api_time=4.0),
        request(10, 10, [], api_time=2.0, think_time=6.5),  # logged: 6.5, not the gap of 6
        request(20, 10, []),  # 10 - 2
        request(120, 10, [], think_time=108.0),  # logged from the answer at 12 s on, so too long
        request(121, 10, [], think_time=109.0),  # less than the estimate
    ]
    service_s = 1.3 + 0.015 * 10 + 1.5 * 645 / 100_000
    assert think_s(delta_file(tmp_path, *rows))[1:] == pytest.approx([6.5, 8.0, 100 - service_s, 0.0])


def test_repeats_are_counted_and_left_out_on_demand(tmp_path):
    rows = [
        header(scope="global"),
        request(0, 0, [[0, 3]], api_time=1.0),
        request(1, 3, []),
        request(9, 3, [], **{"in": 64 * 3 + 6}),  # as many blocks, but one token more
        request(15, 2, [], **{"in": 64 * 3 + 6}),  # as many tokens, but fewer blocks
        request(20, 2, [[7, 1]]),
    ]
    path = delta_file(tmp_path, *rows)
    trace = open_trace(path)
    assert len(list(trace.records())) == 5
    assert len(list(trace.records())) == 5
    assert trace.repeats == 1
    trace = open_trace(path, drop_repeats=True)
    (session,) = trace.sessions()
    assert [turn.arrived_at_s for turn in turns(session)] == [0, 9, 15, 20]
    assert session.requests == 4
    assert turns(session)[1].think_s == 8.0  # counted from the one that is kept
    with pytest.raises(InputError, match="has no parameter 'drop_repeat'; did you mean 'drop_repeats'"):
        open_trace(path, drop_repeat=True)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (request(9, 4, []), "keep is 4, but the request before it has 3 blocks"),
        (request(9, -1, [[0, 1]]), "keep is -1; must be at least 0"),
        (request(9, 3, [], nb=4), "nb is 4, but keep and new make 3 blocks"),
        (request(9, 3, [[5, 1]], **{"in": 255}), "4 blocks of 64 tokens are more than the 255 of in"),
        ({**request(9, 3, []), "new": None}, "new is null; must be a list of [first id, number of ids]"),
        ({**request(9, 3, []), "new": [[1]]}, "new has [1]; must hold pairs"),
        ({**request(9, 3, []), "new": [[1, 1.0]]}, "new has [1, 1.0]; must hold pairs"),
        (request(9, 3, [[5, 0]]), "new has [5, 0]; must hold at least one id"),
        (request(9, 3, [[-1, 1]]), "new has [-1, 1]; must hold at least one id, from 0 to 4294967295"),
        (request(9, 3, [[2**32 - 1, 2]]), "from 0 to 4294967295"),
        (request(-1, 3, []), "t is -1; must be from 0 to"),
        (request(1, 3, []), "t is 1 s, before the request before it (2 s)"),
        (request(9, 3, [], **{"in": 0}), "in is 0; must be at least 1"),
        (request(9, 3, [], **{"in": 2**40}), "must be at most"),
        (request(9, 3, [], out=None), "out is null; must be a whole number"),
        (request(9, 3, [], api_time="1"), 'api_time is "1"; must be a number of seconds'),
        (request(9, 3, [], think_time=-2), "think_time is -2; must be from 0"),
        (request(9, 0, [[1, 1]], agent=3), "agent is 3; must be text"),
        ({"in": 1}, "key 'keep' is missing"),
        (header(scope="global"), "ids of global scope; the first session has 64 and local"),
        (header(block_size=16), "a session with blocks of 16 tokens"),
        (header(scope="town"), 'scope is "town"; must be local or global'),
    ],
)
def test_malformed_lines_of_the_delta_form(tmp_path, row, problem):
    path = delta_file(tmp_path, header(), request(0, 0, [[0, 3]]), request(2, 3, []), row)
    with pytest.raises(TraceError) as caught:
        list(open_trace(path).sessions())
    assert str(caught.value).startswith(f"{path}:4: ")
    assert problem in str(caught.value)


def test_after_a_skipped_line_the_rest_of_its_session_is_left_out_too(tmp_path):
    rows = [
        header(),
        request(0, 0, [[0, 3]]),
        {"t": "x"},
        request(9, 3, []),
        request(10, 0, [[5, 1]]),
        header(),
        request(0, 0, [[1, 1]]),
    ]
    bad_lines = BadLines(skip=True)
    trace = open_trace(delta_file(tmp_path, *rows), bad_lines=bad_lines)
    assert [session.requests for session in trace.sessions()] == [1, 1]
    assert [session.requests for session in trace.sessions()] == [1, 1]
    assert bad_lines.count == 3
    assert "follows a malformed line of its session" in str(bad_lines.first[1])
    nothing = delta_file(tmp_path, header(), {"t": "x"})
    with pytest.raises(TraceError, match=r"no request is left: 1 malformed line left out; the first: .*:2: key 'keep'"):
        list(open_trace(nothing, bad_lines=BadLines(skip=True)).sessions())
    with pytest.raises(TraceError, match=r":1: no session begins here: key 'block_size' is missing"):
        list(open_trace(delta_file(tmp_path, request(0, 0, [[0, 1]])), "kv-cache-tester-delta").sessions())
    with pytest.raises(TraceError, match="the file holds no requests"):
        list(open_trace(delta_file(tmp_path, header())).sessions())


def flat(session: Session) -> tuple[Any, ...]:
    streams = [
        (stream.after_turn, stream.delay_s, [repr(turn) for turn in stream.turns()]) for stream in session.streams
    ]
    return session.session_id, session.requests, streams


def test_the_published_form_reads_like_the_delta_form(tmp_path):
    path = tmp_path / "trace_0001.json"
    path.write_text(json.dumps(KV_CACHE_TESTER, indent=1))
    (raw,) = open_trace(path).sessions()
    delta, _ = open_trace(delta_file(tmp_path, *KV_CACHE_TESTER_DELTA)).sessions()
    assert flat(raw) == flat(delta)


def test_folders_and_archives_of_sessions(tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    document = json.dumps(KV_CACHE_TESTER).encode()
    (folder / "trace_2.json.gz").write_bytes(gzip.compress(document))
    (folder / "trace_1.json").write_bytes(document)
    (folder / "zzz_licence.txt").write_text("Apache-2.0")
    (folder / ".hidden.json").write_text("{")
    archive = tmp_path / "traces.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("._trace_1.json", "trace_1.json", "trace_2.json.gz", "zzz_licence.txt"):
            content = document if name == "trace_1.json" else gzip.compress(document) if "gz" in name else b"{"
            entry = tarfile.TarInfo(f"traces/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    for path in (folder, archive):
        sessions = list(open_trace(path).sessions())
        assert [(session.session_id, session.requests) for session in sessions] == [(0, 4), (1, 4)]
        assert turns(sessions[1])[0].block_ids == [SECOND + 1, SECOND + 2, SECOND + 3]


@pytest.mark.parametrize(
    ("where", "value", "problem"),
    [
        (("requests", 0, "hash_ids"), [1, 2, "3"], 'requests[0]: hash_ids is [1, 2, "3"]; must be a list of whole'),
        (("requests", 0, "hash_ids"), [1, 2**32], "requests[0]: hash_ids holds ids from 1 to 4294967296"),
        (("requests", 1, "requests", 1, "out"), -1, "requests[1].requests[1]: out is -1"),
        (("requests", 1, "agent_id"), None, "agent_id is null; must be text"),
        (("requests", 1, "requests"), 7, "requests is 7; must be a list"),
        (("requests", 1), [], "requests[1] is []; must be an object"),
        (("requests", 2, "t"), -0.5, "requests[2]: t is -0.5"),
        (("hash_id_scope",), "town", "must be local or global"),
    ],
)
def test_malformed_session_files(tmp_path, where, value, problem):
    session = copy.deepcopy(KV_CACHE_TESTER)
    holder: Any = session
    for step in where[:-1]:
        holder = holder[step]
    holder[where[-1]] = value
    (tmp_path / "trace_1.json").write_text(json.dumps(KV_CACHE_TESTER))
    (tmp_path / "trace_2.json").write_text(json.dumps(session))
    with pytest.raises(TraceError) as caught:
        list(open_trace(tmp_path).sessions())
    assert str(caught.value).startswith(f"{tmp_path / 'trace_2.json'}:1: ")
    assert problem in str(caught.value)
    bad_lines = BadLines(skip=True)
    assert len(list(open_trace(tmp_path, bad_lines=bad_lines).sessions())) == 1
    assert bad_lines.count == 1


def test_differences_of_block_lists():
    assert difference([], [5, 6, 9]) == (0, (5, 2, 9, 1))
    assert difference([5, 6, 9], [5, 6]) == (2, ())
    assert difference([5, 6, 9], [5, 6, 8, 9]) == (2, (8, 2))
    for length in range(9):
        for at in range(length + 1):
            before = list(range(length))
            assert common_prefix(before, [*before[:at], 99, *before[at + 1 :]]) == min(at, length)


def test_the_staged_sessions_read_whole_and_agree():
    delta = open_trace(staged("v8_local_710traces_delta.jsonl.gz"))
    raw = open_trace(staged("raw_sample"))
    n_requests = 0
    for ours, theirs in zip(raw.sessions(), islice(delta.sessions(), 8), strict=True):
        assert flat(ours) == flat(theirs)
        n_requests += ours.requests
    assert n_requests == 1091
    sessions = list(delta.sessions())
    assert (len(sessions), sum(session.requests for session in sessions)) == (710, 49_334)
    agents = [stream for session in sessions for stream in session.streams[1:]]
    assert len(agents) == 63
    # Launched 1 to 8 s after the end of a turn, the four in the background at once, two when the user came back.
    assert sorted(round(agent.delay_s, 1) for agent in agents)[:4] == [0.2, 0.4, 0.4, 0.4]
    assert sum(1.0 < agent.delay_s < 8.0 for agent in agents) == 57
    assert delta.repeats == 0


def test_all_block_lists_of_the_staged_sessions_in_bounded_time_and_memory():
    trace = open_trace(staged("v8_local_710traces_delta.jsonl.gz"))
    n_requests = n_blocks = without_output = 0
    previous_s = 0.0
    for record in trace.records():
        n_requests += 1
        n_blocks += len(record.block_ids)
        without_output += record.output_tokens == 0
        assert record.arrived_at_s >= previous_s
        previous_s = record.arrived_at_s
    assert (n_requests, n_blocks, without_output) == (49_334, 94_310_647, 27)


def test_sessions_at_rest_hold_no_block_lists():
    trace = open_trace(staged("v8_local_710traces_delta.jsonl.gz"))
    tracemalloc.start()
    sessions = list(islice(trace.sessions(), 50))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 700 * sum(session.requests for session in sessions)
