"""Whatever stands in a trace file, reading it ends with records or with one TraceError of one line."""

import gzip
import json
import tempfile
from pathlib import Path

import pytest
from damage import mutated
from hypothesis import example, given
from hypothesis import strategies as st
from trace_samples import SAMPLES

from models.errors import TraceError
from sim.traces import READERS, BadLines, open_trace

VALID = b"".join(
    json.dumps(
        {"timestamp": 3000 * index, "input_length": 600, "output_length": index, "hash_ids": [0, index + 1]}
    ).encode()
    + b"\n"
    for index in range(8)
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
small_integers = st.integers(-2, 1600)
rows = st.fixed_dictionaries(
    {},
    optional={
        "timestamp": json_values | small_integers | st.floats(0, 1e6),
        "input_length": json_values | small_integers,
        "output_length": json_values | small_integers,
        "hash_ids": json_values | st.lists(st.integers(-1, 2**62) | json_values, max_size=4),
        "chat_id": json_values,
    },
)


def check(content: bytes, *, suffix: str = ".jsonl", format: str | None = "mooncake") -> None:
    # Said, for ids may as well tell another size: two of them for a prompt of two tokens.
    options = {} if format is None else {"block_tokens": 512}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"trace{suffix}"
        path.write_bytes(content)
        try:
            previous_s = 0.0
            for record in open_trace(path, format=format, **options).records():
                assert record.arrived_at_s >= previous_s
                assert record.prompt_tokens >= 1
                assert record.output_tokens >= 0
                assert len(record.block_ids) == record.prompt_tokens // 512
                assert all(type(block_id) is int and 0 <= block_id < 2**62 for block_id in record.block_ids)
                previous_s = record.arrived_at_s
        except TraceError as error:
            text = str(error)
            assert text.startswith(str(path))
            assert "\n" not in text


@given(st.binary(max_size=200), st.sampled_from([".jsonl", ".jsonl.gz"]), st.sampled_from([None, "mooncake"]))
def test_any_bytes(content, suffix, format):
    check(content, suffix=suffix, format=format)


@given(st.lists(rows | json_values, min_size=1, max_size=4))
@example([{"timestamp": 0, "input_length": 2, "output_length": 0, "hash_ids": [0, 1]}])
def test_any_json(values):
    check("\n".join(json.dumps(value) for value in values).encode())


@given(st.data())
def test_a_valid_file_with_bytes_overwritten(data):
    content = bytearray(VALID)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(content))


@given(st.integers(0, len(VALID)))
def test_a_valid_file_cut_anywhere(length):
    check(VALID[:length], format=None)


@given(st.data())
def test_a_gzip_cut_or_overwritten(data):
    content = bytearray(gzip.compress(VALID, mtime=0))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    check(bytes(content), suffix=".jsonl.gz")


@given(st.permutations(VALID.splitlines()))
def test_any_order_of_the_rows_reads_the_same(lines):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        path.write_bytes(b"\n".join(lines))
        assert [record.output_tokens for record in open_trace(path).records()] == list(range(8))


def test_every_cut_of_a_gzip_is_reported(tmp_path):
    packed = gzip.compress(VALID, mtime=0)
    path = tmp_path / "trace.jsonl.gz"
    for length in range(3, len(packed)):
        path.write_bytes(packed[:length])
        with pytest.raises(TraceError, match="truncated"):
            list(open_trace(path).records())


def read_all(path: Path, format: str | None, *, skip: bool) -> list[int]:
    trace = open_trace(path, format, bad_lines=BadLines(skip=skip))
    previous_s = 0.0
    lengths = []
    for record in trace.records():
        assert record.arrived_at_s >= previous_s
        assert record.output_tokens >= 0
        assert len(record.block_ids) * trace.block_tokens <= record.prompt_tokens
        assert all(type(block_id) is int and 0 <= block_id < 2**62 for block_id in record.block_ids)
        assert not record.think_s < 0
        previous_s = record.arrived_at_s
        lengths.append(record.prompt_tokens)
    return lengths


def test_every_format_has_a_sample():
    assert READERS.names() == sorted(SAMPLES)


@pytest.mark.parametrize("format", SAMPLES)
def test_the_samples_are_sound_and_detected(tmp_path, format):
    path = tmp_path / "trace"
    path.write_text(SAMPLES[format])
    lengths = read_all(path, format, skip=False)
    assert len(lengths) >= 2
    assert read_all(path, None, skip=False) == lengths
    packed = tmp_path / "trace.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_all(packed, None, skip=False) == lengths


@pytest.mark.parametrize("format", SAMPLES)
def test_damaged_samples(format):
    @given(mutated(SAMPLES[format]), st.booleans(), st.booleans())
    def run(content, detect, skip):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace"
            path.write_bytes(content)
            try:
                read_all(path, None if detect else format, skip=skip)
            except TraceError as error:
                text = str(error)
                assert text.startswith(str(path))
                assert "\n" not in text

    run()


@pytest.mark.parametrize("format", SAMPLES)
def test_a_malformed_line_is_reported_or_counted(tmp_path, format):
    path = tmp_path / "trace"
    path.write_text(SAMPLES[format].rstrip("\n") + '\n{"malformed\n')
    number = len(SAMPLES[format].rstrip("\n").split("\n")) + 1
    if number == 2:  # a format of one document a file: what stands behind it spoils it
        with pytest.raises(TraceError, match=r":1: "):
            read_all(path, format, skip=False)
        return
    with pytest.raises(TraceError, match=rf":{number}: "):
        read_all(path, format, skip=False)
    bad_lines = BadLines(skip=True)
    trace = open_trace(path, format, bad_lines=bad_lines)
    sound = list(trace.records())
    assert len(list(trace.records())) == len(sound) >= 2
    assert bad_lines.count == 1  # though it was met twice
    assert bad_lines.first[0].where == f"{path}:{number}"
