"""Reading and converting hold a part of a trace, however long it is."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.traces import open_trace
from sim.traces.convert import MooncakeLines

CSV_HEADER = "arrived_at_s,prompt_tokens,output_tokens,session_id,block_ids\n"


def csv_rows(rows: int) -> Iterator[str]:
    yield CSV_HEADER
    for row in range(rows):
        yield f"{row},64,1,,{row};{row + 1};{row + 2};{row + 3}\n"


def json_rows(rows: int) -> Iterator[str]:
    for row in range(rows):
        yield f'{{"timestamp": {row}, "input_length": 600, "output_length": 1, "hash_ids": [{row}, {row + 1}]}}\n'


@pytest.mark.parametrize("make", [csv_rows, json_rows])
def test_five_times_the_rows_take_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make) -> None:
    monkeypatch.setattr("sim.traces.ordering.LOOK_AHEAD_ROWS", 1000)  # what is held; fewer, for the sake of time

    def peak_bytes(rows: int) -> int:
        path = tmp_path / "trace"
        with path.open("w") as file:
            file.writelines(make(rows))
        tracemalloc.start()
        try:
            written = sum(1 for _ in MooncakeLines(trace=open_trace(path)))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert written == rows
        return peak

    peak_bytes(100)  # modules are loaded
    assert peak_bytes(5000) < 1.5 * peak_bytes(1000)
