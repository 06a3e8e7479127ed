"""One law covers serial and parallel reads."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.software import SoftwarePath

CHUNK = 64 * 2**20  # R1: 256 tokens x 262,144 B in one file


def test_r1_serial_reads_at_the_rate_of_one_stream() -> None:
    serial = SoftwarePath(in_flight=1, software_s=0.0, stream_bytes_per_s=1.0e9)
    assert serial.ceiling_bytes_per_s(chunks=33, chunk_bytes=CHUNK, processes=1) == pytest.approx(1.0e9)


def test_r1_patched_reads_take_two_rounds() -> None:
    patched = SoftwarePath(in_flight=32, software_s=0.0, stream_bytes_per_s=1.0e9)
    two_rounds_s = 2 * CHUNK / 1.0e9
    assert patched.ceiling_bytes_per_s(chunks=33, chunk_bytes=CHUNK, processes=1) == pytest.approx(
        33 * CHUNK / two_rounds_s
    )
    limited = SoftwarePath(in_flight=32, software_s=0.0, stream_bytes_per_s=1.0e9, process_bytes_per_s=5.3e9)
    assert limited.ceiling_bytes_per_s(chunks=33, chunk_bytes=CHUNK, processes=1) == 5.3e9
    assert limited.ceiling_bytes_per_s(chunks=118, chunk_bytes=CHUNK, processes=8) <= 8 * 5.3e9


def test_software_time_is_paid_once_a_round() -> None:
    path = SoftwarePath(in_flight=4, software_s=0.01, stream_bytes_per_s=None)
    assert path.ceiling_bytes_per_s(chunks=10, chunk_bytes=1e6, processes=2) == pytest.approx(10e6 / (3 * 0.01))


def test_nothing_limits() -> None:
    free = SoftwarePath(in_flight=1, software_s=0.0)
    assert free.ceiling_bytes_per_s(chunks=5, chunk_bytes=1e6, processes=1) == math.inf
    assert free.ceiling_bytes_per_s(chunks=0, chunk_bytes=1e6, processes=1) == math.inf


@given(st.integers(1, 500), st.integers(1, 64), st.integers(1, 8))
def test_more_in_flight_or_processes_never_hurt(chunks: int, in_flight: int, processes: int) -> None:
    def ceiling(in_flight: int, processes: int) -> float:
        path = SoftwarePath(in_flight=in_flight, software_s=1e-3, stream_bytes_per_s=1e9, process_bytes_per_s=5e9)
        return path.ceiling_bytes_per_s(chunks=chunks, chunk_bytes=CHUNK, processes=processes)

    assert ceiling(in_flight, processes) <= ceiling(in_flight + 1, processes)
    assert ceiling(in_flight, processes) <= ceiling(in_flight, processes + 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"in_flight": 0, "software_s": 0.0},
        {"in_flight": 1, "software_s": -1.0},
        {"in_flight": 1, "software_s": 0.0, "stream_bytes_per_s": 0.0},
    ],
)
def test_bad_paths(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be|at least"):
        SoftwarePath(**wrong)  # type: ignore[arg-type]  # wrong on purpose
