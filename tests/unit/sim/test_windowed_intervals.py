"""Token intervals by windows of time: the windows add up to the whole, and their number stays bounded."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sim.recording import TokenIntervals, WindowedIntervals


def recorded(times_s: list[float], gaps_s: list[float]) -> tuple[Any, WindowedIntervals]:
    """One gap at each time, in both kinds of record."""
    clock: Any = SimpleNamespace(now_s=0.0)
    plain, windowed = TokenIntervals(), WindowedIntervals(clock)
    for now_s, gap_s in zip(times_s, gaps_s, strict=True):
        clock.now_s = now_s
        for log in (plain, windowed):
            log.add(gap_s, gap_s, 1, 3)
    return plain, windowed


def test_the_record_of_the_whole_is_the_same() -> None:
    random = np.random.default_rng(1)
    times_s, gaps_s = np.cumsum(random.exponential(0.1, 3000)).tolist(), random.exponential(0.03, 3000).tolist()
    plain, windowed = recorded(times_s, gaps_s)
    assert windowed.percentiles([0.5, 0.99]) == plain.percentiles([0.5, 0.99])
    assert (windowed.count, windowed.max_s) == (plain.count, plain.max_s)
    assert windowed.mean_s == pytest.approx(plain.mean_s, rel=1e-12)  # added up in other portions


@pytest.mark.parametrize("length_s", [20.0, 100.0, 3600.0, 1e5])
def test_windows_are_of_one_length_and_their_number_is_bounded(length_s: float) -> None:
    times_s = np.linspace(5.0, 5.0 + length_s, 4000)
    _, windowed = recorded(times_s.tolist(), [0.01] * 2000 + [0.04] * 2000)
    ends_s, counts = windowed.windows()
    assert counts.sum() == 3 * 4000
    assert (60 if length_s > 30.0 else 30) <= len(counts) <= 120
    assert ends_s == pytest.approx([0.01, 0.04], rel=1e-3)
    # Short gaps came in the first half of the time, long ones in the second; in between is one window with both.
    halves = counts > 0
    switch = int(np.argmax(halves[:, 1]))
    assert halves[:switch].tolist() == [[True, False]] * switch
    assert switch == pytest.approx(2000 / counts[0].sum() * 3, abs=1)
    full = counts[:-1].sum(axis=1)
    assert full.max() - full.min() <= 6  # one time more or less in a window


def test_nothing_recorded_is_one_empty_window() -> None:
    ends_s, counts = WindowedIntervals(SimpleNamespace(now_s=0.0)).windows()  # type: ignore[arg-type]
    assert ends_s.size == 0
    assert counts.shape == (1, 0)


def test_a_long_silence_leaves_empty_windows() -> None:
    _, windowed = recorded([0.0, 1000.0], [0.01, 0.02])
    _, counts = windowed.windows()
    assert counts[0].tolist() == [3, 0]
    assert counts[-1].tolist() == [0, 3]
    assert not counts[1:-1].any()
    assert len(counts) <= 120
