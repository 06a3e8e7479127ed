"""Whatever stands in a file of any row format, reading it ends with records or with one TraceError of one line."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_trace_samples import ROW_SAMPLES

from models.errors import TraceError
from sim.traces import BadLines, open_trace
from sim.traces.block_trace import open_block_trace

BLOCKS = "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,512,42932746\n"

pieces = st.sampled_from(
    [
        '"',
        ",",
        "\n",
        "-",
        "1e400",
        "nan",
        "9" * 400,
        "null",
        "[",
        ".0",
        "{}",
        "\0",
        ";",
        "true",
        '"x"',
        "é",
        "٣",
        " ",
        "_1",
    ]
)


@st.composite
def mutated(draw: Callable[..., object], sample: str) -> bytes:
    """Draw a file with a few bytes overwritten, cut out or put in."""
    content = bytearray(sample.encode())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        cut = draw(st.integers(0, 6))
        content[at : at + cut] = draw(st.binary(max_size=2) | pieces.map(str.encode))
    return bytes(content)


def check(content: bytes, read: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(content)
        try:
            read(path)
        except TraceError as error:
            text = str(error)
            assert text.startswith(str(path))
            assert "\n" not in text


def check_records(path: Path, format: str | None, *, skip: bool) -> None:
    trace = open_trace(path, format, bad_lines=BadLines(skip=skip))
    previous_s = 0.0
    for record in trace.records():
        assert record.arrived_at_s >= previous_s
        assert record.prompt_tokens >= 1
        assert record.output_tokens >= 0
        assert len(record.block_ids) in (0, record.prompt_tokens // trace.block_tokens)
        assert all(type(block_id) is int and 0 <= block_id < 2**62 for block_id in record.block_ids)
        previous_s = record.arrived_at_s


@pytest.mark.parametrize("format", ROW_SAMPLES)
def test_the_samples_are_sound_and_detected(tmp_path, format):
    path = tmp_path / "trace"
    path.write_text(ROW_SAMPLES[format])
    expected = [record.prompt_tokens for record in open_trace(path, format).records()]
    assert [record.prompt_tokens for record in open_trace(path).records()] == expected
    assert len(expected) >= 2


@pytest.mark.parametrize("format", ROW_SAMPLES)
def test_mutated_files(format):
    @given(mutated(ROW_SAMPLES[format]), st.booleans(), st.booleans())
    def run(content, detect, skip):
        check(content, lambda path: check_records(path, None if detect else format, skip=skip))

    run()


@given(mutated(BLOCKS))
def test_mutated_block_traces(content):
    check(content, lambda path: list(open_block_trace(path).accesses()))
