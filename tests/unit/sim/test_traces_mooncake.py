import gzip
import json
import os
import pickle
import random
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest

from models.errors import TraceError, UnknownNameError
from sim.traces import NO_ID, READERS, TraceRecord, open_trace
from sim.traces.files import Head
from sim.traces.ordering import LOOK_AHEAD_ROWS

SHARED = Path(os.environ.get("KVTIER_SHARED", Path(__file__).parents[3].parent / "shared"))
GOOD = {"timestamp": 1500, "input_length": 1100, "output_length": 7, "hash_ids": [0, 5, 9]}


def mooncake_file(name: str) -> Path:
    path = SHARED / "traces" / "mooncake" / f"{name}_trace.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no Mooncake {name} trace under {SHARED}; set KVTIER_SHARED")
    return path


def row(**changes: object) -> str:
    return json.dumps({**GOOD, **changes})


def short_row(timestamp: float, block_id: int = 1) -> str:
    return row(timestamp=timestamp, input_length=512, hash_ids=[block_id])


def write(folder: Path, *lines: str) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path) -> list[TraceRecord]:
    return list(open_trace(path).records())


def test_a_row_becomes_a_record(tmp_path):
    assert read(write(tmp_path, row())) == [TraceRecord(1.5, 1100, 7, [0, 5], NO_ID, 9)]


def test_a_prompt_of_whole_blocks_has_no_partial_block(tmp_path):
    (record,) = read(write(tmp_path, row(input_length=1536)))
    assert record.block_ids == [0, 5, 9]
    assert record.partial_block_id == NO_ID


def test_a_prompt_below_one_block_has_no_full_block(tmp_path):
    (record,) = read(write(tmp_path, row(input_length=1, hash_ids=[4])))
    assert record.block_ids == []
    assert record.partial_block_id == 4


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"output_length": 0}, id="no output"),
        pytest.param({"timestamp": 0.25}, id="fraction of a millisecond"),
        pytest.param({"type": "chat", "nested": {"a": [None]}}, id="extra keys"),
        pytest.param({"hash_ids": [0, 1, 2**62 - 1]}, id="largest id"),
    ],
)
def test_allowed_rows(tmp_path, changes):
    assert len(read(write(tmp_path, row(**changes)))) == 1


def test_blank_lines_are_skipped_and_duplicates_kept(tmp_path):
    path = write(tmp_path, "", row(), "   ", row(), "")
    assert len(read(path)) == 2
    path.write_text(path.read_text() + "{")
    with pytest.raises(TraceError, match=r"trace\.jsonl:6: "):
        read(path)


def test_line_ends_marks_and_a_missing_last_newline_do_not_matter(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + f"{row()}\r\n{row()}".encode())
    assert len(read(path)) == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not a JSON object (EOF"),
        ("not json", "not a JSON object (expected"),
        (row() + row(), "not a JSON object (trailing characters"),
        ("[1, 2]", "a row of this format is a JSON object; this is [1, 2]"),
        ("null", "this is null"),
        ('"text"', 'this is "text"'),
        ("[" * 1000, "recursion limit"),
        ('{"timestamp": 0}', "key 'input_length' is missing"),
        (row(timestamp="0"), 'timestamp is "0"; must be a number of milliseconds'),
        (row(timestamp=True), "timestamp is true; must be a number"),
        (row(timestamp=float("nan")), "timestamp is NaN; must be from 0"),
        (row(timestamp=float("inf")), "timestamp is Infinity; must be from 0"),
        (row(timestamp=-1), "timestamp is -1; must be from 0"),
        (row(timestamp=1.7e15), "must be from 0 to 8589934592000 milliseconds"),
        (row(input_length=-5), "input_length is -5; must be at least 1"),
        (row(input_length=0, hash_ids=[]), "input_length is 0; must be at least 1"),
        (row(input_length=1100.0), "input_length is 1100.0; must be a whole number of tokens"),
        (row(input_length=True), "input_length is true; must be a whole number"),
        (row(input_length=None), "input_length is null; must be a whole number"),
        (row(input_length=2**40), "input_length is 1099511627776; must be at most 2147483647"),
        (row(output_length=-1), "output_length is -1; must be at least 0"),
        (row(output_length="7"), "output_length is"),
        (row(output_length=10**4000), "output_length is 1000"),
        (row(hash_ids="0 5 9"), 'hash_ids is "0 5 9"; must be a list'),
        (row(hash_ids=None), "hash_ids is null; must be a list"),
        (row(hash_ids=[0, 5]), "hash_ids has 2 ids, but 1100 prompt tokens make 3 blocks of 512"),
        (row(hash_ids=[0, 5, 9, 10]), "hash_ids has 4 ids"),
        (row(hash_ids=[]), "hash_ids has 0 ids"),
        (row(hash_ids=[0, -5, 9]), "hash_ids[1] is -5; must be a whole number from 0 to 2**62 - 1"),
        (row(hash_ids=[0, 5, 2**62]), "hash_ids[2] is 4611686018427387904"),
        (row(hash_ids=[0, 5.0, 9]), "hash_ids[1] is 5.0"),
        (row(hash_ids=[0, True, 9]), "hash_ids[1] is true"),
        (row(hash_ids=[0, [5], 9]), "hash_ids[1] is [5]"),
        (row(hash_ids=[0, 5, 5]), "hash_ids[2] repeats 5"),
    ],
)
def test_malformed_rows_name_file_line_and_reason(tmp_path, line, problem):
    path = write(tmp_path, row(), line)
    with pytest.raises(TraceError) as caught:
        read(path)
    text = str(caught.value)
    assert text.startswith(f"{path}:2: ")
    assert problem in text
    assert "\n" not in text
    assert len(text) < len(str(path)) + 200
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_a_long_value_is_cut_short_in_the_message(tmp_path):
    with pytest.raises(TraceError, match=r"input_length is \"x{39}\.\.\.; must"):
        read(write(tmp_path, row(input_length="x" * 5000)))


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(row().encode() + b"\n" + b'{"timestamp": 0, "a": "\xff"}\n')
    with pytest.raises(TraceError, match=r":2: not UTF-8 text \(byte 24 of the line is 0xff\)"):
        read(path)


def test_missing_file_folder_pipe_and_odd_names(tmp_path):
    with pytest.raises(TraceError, match=r"none\.jsonl: no such file"):
        open_trace(tmp_path / "none.jsonl")
    with pytest.raises(TraceError, match="holds no files; a trace is a text file"):
        open_trace(tmp_path)
    with pytest.raises(TraceError, match="not a file name"):
        open_trace("a\0b")
    with pytest.raises(TraceError, match="cannot be read"):
        open_trace(write(tmp_path, row()) / "below a file")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="is not a regular file"):
        open_trace(tmp_path / "pipe")


@pytest.mark.parametrize("content", ["", "\n", " \n\n\t\n"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("format", [None, "mooncake"])
def test_empty_files(tmp_path, content, packed, format):
    path = tmp_path / ("trace.jsonl.gz" if packed else "trace.jsonl")
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    with pytest.raises(TraceError, match="the file is empty; a trace holds at least one request"):
        open_trace(path, format=format)


def test_zero_bytes_called_gz_are_an_empty_file(tmp_path):
    path = tmp_path / "trace.jsonl.gz"
    path.touch()
    with pytest.raises(TraceError, match="empty"):
        open_trace(path)


def test_gzip_is_told_by_content(tmp_path):
    plain_text = (row() + "\n").encode()
    path = tmp_path / "no suffix"
    path.write_bytes(gzip.compress(plain_text) + gzip.compress(plain_text))
    assert len(read(path)) == 2
    path = tmp_path / "plain.jsonl.gz"
    path.write_bytes(plain_text)
    with pytest.raises(TraceError, match=r"the name ends in \.gz but the file is not gzipped"):
        open_trace(path)


def test_damaged_gzip(tmp_path):
    rng = random.Random(0)
    lines = "\n".join(row(timestamp=rng.random() * 1e6) for _ in range(9_000))
    packed = gzip.compress(lines.encode())
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(TraceError, match=r"gz:\d+: gzip data end too early; the file is truncated"):
        read(path)
    path.write_bytes(packed[:100] + bytes(100) + packed[200:])
    with pytest.raises(TraceError, match=r"gzip data are damaged|not a trace format|not UTF-8|not a JSON object"):
        read(path)
    path.write_bytes(packed[:-8] + bytes(8))
    with pytest.raises(TraceError, match=r"gzip data are damaged \(CRC check failed"):
        read(path)


def test_rows_out_of_order_are_sorted_and_ties_keep_the_order_of_the_file(tmp_path):
    path = write(tmp_path, short_row(2000, 1), short_row(0, 2), short_row(2000, 3), short_row(1000, 4), short_row(0, 5))
    assert [(record.arrived_at_s, record.block_ids) for record in read(path)] == [
        (0.0, [2]),
        (0.0, [5]),
        (1.0, [4]),
        (2.0, [1]),
        (2.0, [3]),
    ]


def test_a_row_may_be_late_by_the_look_ahead_and_no_more(tmp_path):
    late = [short_row(stamp) for stamp in range(1, LOOK_AHEAD_ROWS + 1)]
    records = read(write(tmp_path, *late, short_row(0)))
    assert [record.arrived_at_s for record in records] == [stamp / 1000 for stamp in range(LOOK_AHEAD_ROWS + 1)]
    path = write(tmp_path, short_row(1), *late, short_row(0))
    with pytest.raises(
        TraceError, match=rf":{LOOK_AHEAD_ROWS + 2}: arrival at 0 s stands more than 10000 rows too late"
    ):
        read(path)


def test_each_call_reads_afresh(tmp_path):
    trace = open_trace(write(tmp_path, row(), row()))
    first = trace.records()
    next(first).block_ids.clear()
    assert [record.block_ids for record in trace.records()] == [[0, 5], [0, 5]]
    assert (trace.name, trace.block_tokens, trace.has_prefixes) == ("trace.jsonl", 512, True)


def test_formats_are_detected_or_named(tmp_path):
    other = write(tmp_path, "day,question,answer", "2023-11-16,4808,10")
    with pytest.raises(TraceError, match=r":1: not a trace format that kvtier knows; known are .*\bmooncake\b"):
        open_trace(other)
    with pytest.raises(TraceError, match=":1: not a JSON object"):
        list(open_trace(other, format="mooncake").records())
    with pytest.raises(UnknownNameError, match="did you mean 'mooncake'"):
        open_trace(other, format="moncake")


def test_bailian_rows_are_not_taken_for_mooncake():
    # Same keys, but seconds and 16-token blocks: read as Mooncake they would be silently wrong.
    def sniffed(line: str) -> bool:
        return READERS.create("mooncake").sniff(Head(name="trace.jsonl", text=line))

    assert sniffed(row())
    assert not sniffed(row(chat_id=1, parent_chat_id=-1))


def test_reading_holds_only_the_look_ahead(tmp_path):
    def peak_bytes(n_rows: int) -> int:
        path = tmp_path / "long.jsonl"
        with path.open("w") as stream:
            stream.writelines(short_row(index, index) + "\n" for index in range(n_rows))
        trace = open_trace(path)
        tracemalloc.start()
        assert sum(1 for _ in trace.records()) == n_rows
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(4 * LOOK_AHEAD_ROWS) < 1.1 * peak_bytes(LOOK_AHEAD_ROWS)


@pytest.mark.parametrize(
    ("name", "n_requests", "n_full_blocks"), [("conversation", 12_031, 276_491), ("synthetic", 3_993, 117_888)]
)
def test_the_mooncake_traces_read_whole(name, n_requests, n_full_blocks):
    records = list(open_trace(mooncake_file(name)).records())
    assert len(records) == n_requests
    assert sum(len(record.block_ids) for record in records) == n_full_blocks
    assert all(len(record.block_ids) == record.prompt_tokens // 512 for record in records)
    assert all(before.arrived_at_s <= after.arrived_at_s for before, after in pairwise(records))


@pytest.mark.benchmark
def test_reading_speed():
    trace = open_trace(mooncake_file("conversation"))
    best_s = min(_timed_s(trace) for _ in range(3))
    assert best_s < 0.3  # 0.10 s on the machine it was written on


def _timed_s(trace) -> float:
    start_s = time.perf_counter()
    for _ in trace.records():
        pass
    return time.perf_counter() - start_s
