import json
import math
from pathlib import Path

import pytest

from models.errors import InputError, TraceError
from sim.traces import NO_ID, BadLines, TraceRecord, open_trace
from sim.traces.sessions import by_session


def row(prompt_tokens: int, *ids: int, **changes: object) -> dict[str, object]:
    return {"timestamp": 0, "input_length": prompt_tokens, "output_length": 7, "hash_ids": list(ids), **changes}


def write(folder: Path, *rows: dict[str, object]) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path) -> list[TraceRecord]:
    return list(open_trace(path).records())


def without(row: dict[str, object], *keys: str) -> dict[str, object]:
    return {key: value for key, value in row.items() if key not in keys}


# The example of the Dynamo documentation.
DYNAMO = [
    {
        "session_id": "s-a",
        "timestamp": 1000,
        "input_length": 2048,
        "output_length": 128,
        "hash_ids": [1, 2, 3, 4],
    },
    {"session_id": "s-a", "delay": 250, "input_length": 2560, "output_length": 128, "hash_ids": [1, 2, 3, 4, 5]},
    {"session_id": "s-b", "timestamp": 1010, "input_length": 1024, "output_length": 64, "hash_ids": [9, 10]},
    {"session_id": "s-b", "delay_ms": 50, "input_length": 1536, "output_length": 64, "hash_ids": [9, 10, 11]},
]


def test_sessions_with_delays(tmp_path):
    path = write(tmp_path, *DYNAMO)
    records = read(path)
    assert [(record.arrived_at_s, record.session_id) for record in records] == [
        (1.0, 0),
        (1.01, 1),
        (1.06, 1),
        (1.25, 0),
    ]
    sessions = list(by_session(open_trace(path)).sessions())
    assert [(session.starts_at_s, session.requests) for session in sessions] == [(1.0, 2), (1.01, 2)]
    assert [[turn.think_s for turn in session.streams[0].turns()][1:] for session in sessions] == [[0.25], [0.05]]


def test_later_turns_may_have_a_time_or_both_or_neither(tmp_path):
    rows = [
        row(512, 1, session_id=5),
        row(512, 1, session_id=5, timestamp=3000),
        row(512, 1, session_id=5, timestamp=9000, delay=4000),
        without(row(512, 1, session_id=5), "timestamp"),
        without(row(512, 1, session_id=5, delay=0.5), "timestamp"),
        row(512, 1, timestamp=9001),
    ]
    records = read(write(tmp_path, *rows))
    assert [record.arrived_at_s for record in records] == [0, 3, 9, 9, 9.0005, 9.001]
    assert [record.session_id for record in records] == [0, 0, 0, 0, 0, NO_ID]
    assert math.isnan(records[0].think_s)
    assert math.isnan(records[1].think_s)
    assert [record.think_s for record in records[2:5]] == [4.0, 0.0, 0.0005]


def test_other_names_of_the_keys(tmp_path):
    path = write(tmp_path, {"created_time": 2500, "input_tokens": 1100, "output_tokens": 0, "hash_ids": [1, 2, 3]})
    assert repr(read(path)) == repr([TraceRecord(2.5, 1100, 0, [1, 2], NO_ID, 3)])


def test_rows_without_ids(tmp_path):
    rows = [without(row(1100, text_input="told", extra={}), "hash_ids")] * 2
    trace = open_trace(write(tmp_path, *rows))
    assert not trace.has_prefixes
    assert [(record.block_ids, record.partial_block_id) for record in trace.records()] == [([], NO_ID)] * 2
    mixed = write(tmp_path, row(1100, 1, 2, 3), *rows)
    assert open_trace(mixed).has_prefixes
    with pytest.raises(TraceError, match=":2: key 'hash_ids' is missing"):
        read(mixed)


@pytest.mark.parametrize("size", [1, 16, 64, 256, 1024])
def test_the_size_of_blocks_is_told_by_the_number_of_ids(tmp_path, size):
    lengths = (7 * size, 20 * size + size // 2)
    path = write(tmp_path, *(row(length, *range(-(-length // size))) for length in lengths))
    trace = open_trace(path)
    assert trace.block_tokens == size
    assert [len(record.block_ids) for record in trace.records()] == [7, 20]


def test_short_prompts_fit_the_size_of_the_format_or_several(tmp_path):
    assert open_trace(write(tmp_path, row(100, 1), row(500, 2))).block_tokens == 512
    path = write(tmp_path, row(60, 1, 2), row(31, 3))  # two blocks of 32, one of 32: 32 alone
    assert open_trace(path).block_tokens == 32
    path = write(tmp_path, row(700, 1), row(600, 3))  # one block of 1024 or 2048 or ...
    with pytest.raises(TraceError, match="hash_ids fit blocks of several sizes; say which with --block-tokens"):
        open_trace(path)
    assert open_trace(path, block_tokens=1000).block_tokens == 1000
    assert len(list(open_trace(path, "mooncake", block_tokens=1024).records())) == 2
    with pytest.raises(InputError, match="block_tokens is 0; must be at least 1"):
        open_trace(path, block_tokens=0)


def test_a_malformed_row_does_not_decide_the_size(tmp_path):
    bad = row(1000, *range(17))  # of no size
    path = write(tmp_path, bad, row(1000, *range(16)), row(100, 1, 2))
    trace = open_trace(path, bad_lines=BadLines(skip=True))
    assert trace.block_tokens == 64
    assert len(list(trace.records())) == 2
    with pytest.raises(TraceError, match=":1: hash_ids has 17 ids, but 1000 prompt tokens make 16 blocks of 64"):
        read(path)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (without(row(512, 1), "timestamp"), "key 'timestamp' is missing"),
        (without(row(512, 1, session_id="new"), "timestamp"), "the first turn of a session needs it"),
        (row(512, 1, delay=5), "delay is 5, but there is no turn of its session before it"),
        (row(512, 1, session_id="new", delay=5), "delay is 5, but there is no turn of its session before it"),
        (row(512, 1, session_id="a", delay=-5), "delay is -5; must be from 0 to"),
        (row(512, 1, session_id="a", delay="5"), 'delay is "5"; must be a number of milliseconds'),
        (row(512, 1, session_id=[1]), "session_id is [1]; must be text or a whole number"),
        (row(512, 1, session_id="a", timestamp=-1), "timestamp is -1"),
        ({"timestamp": 1, "messages": [], "output_length": 1}, "the tokens of messages are not counted"),
    ],
)
def test_malformed_rows_of_the_variants(tmp_path, bad, problem):
    path = write(tmp_path, row(1100, 1, 2, 3, session_id="a"), bad)
    with pytest.raises(TraceError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert problem in str(caught.value)
    bad_lines = BadLines(skip=True)
    assert len(list(open_trace(path, bad_lines=bad_lines).records())) == 1
    assert bad_lines.count == 1
