"""Whatever stands in a file of any row format, reading it ends with records or with one TraceError of one line."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import TraceError
from sim.traces import BadLines, open_trace
from sim.traces.block_trace import open_block_trace

SAMPLES = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600+00:00,3180,0\n2023-11-16 18:17:04,110,27\n",
    "burstgpt": "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5.0,1722ac82-0a46,43,GPT-4,906,446,1352,Conversation log\n6.0,,1,ChatGPT,7,0,7,API log\n",
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,100,7\n0.3,12,1\n0.1,3,0\n",
    "named-csv": "arrived_at_s,prompt_tokens,output_tokens,session_id,think_s,block_ids\n"
    '1.5,40,3,"a, b",,1 2;3\n2,32,0,,0.5,1;2\n',
    "bailian": '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 6.1, "input_length": 33, "output_length": 2, '
    '"type": "text", "turn": 1, "hash_ids": [8, 9, 6]}\n'
    '{"chat_id": 2, "parent_chat_id": 1, "timestamp": 62, "input_length": 16, "output_length": 0, "hash_ids": [8]}\n',
    "llmservingsim": '{"input_toks": 4, "output_toks": 5, "arrival_time_ns": 100, "input_tok_ids": [1, 2, 3, 4]}\n'
    '{"session_id": "a", "arrival_time_ns": 5, "sub_requests": [{"input_toks": 1, "output_toks": 1, '
    '"tool_duration_ns": 7, "input_tok_ids": [1]}, {"input_toks": 1, "output_toks": 1, "input_tok_ids": [2]}]}\n',
}
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


@pytest.mark.parametrize("format", SAMPLES)
def test_the_samples_are_sound_and_detected(tmp_path, format):
    path = tmp_path / "trace"
    path.write_text(SAMPLES[format])
    expected = [record.prompt_tokens for record in open_trace(path, format).records()]
    assert [record.prompt_tokens for record in open_trace(path).records()] == expected
    assert len(expected) >= 2


@pytest.mark.parametrize("format", SAMPLES)
def test_mutated_files(format):
    @given(mutated(SAMPLES[format]), st.booleans(), st.booleans())
    def run(content, detect, skip):
        check(content, lambda path: check_records(path, None if detect else format, skip=skip))

    run()


@given(mutated(BLOCKS))
def test_mutated_block_traces(content):
    check(content, lambda path: list(open_block_trace(path).accesses()))
