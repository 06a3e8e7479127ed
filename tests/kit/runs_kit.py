"""Chunks as tests name them, by small ints, and as the simulator holds them, in runs."""

from collections.abc import Iterable

from hypothesis import strategies as st

from sim.run_sets import RunCounts, RunSet
from sim.runs import STRAND_BITS, Chain, as_runs

STRAND = 1 << STRAND_BITS

# Two stretches of one strand and the head of the next one, which follows the second of them without continuing it.
WINDOWS = (range(16), range(STRAND - 8, STRAND), range(STRAND, STRAND + 8))
UNIVERSE = [key for window in WINDOWS for key in window]


def runs(*keys: int) -> list[range]:
    return as_runs(keys)


def chain(*keys: int) -> Chain:
    return Chain(as_runs(keys))


def flat(found: Iterable[range]) -> list[int]:
    return [key for run in found for key in run]


def members(found: RunSet | RunCounts, among: Iterable[int] = range(100)) -> set[int]:
    """All that is in there, provided that it is among these keys."""
    inside = {key for key in among if key in found}
    assert len(inside) == len(found)
    return inside


def run_set(keys: Iterable[int]) -> RunSet:
    return RunSet(as_runs(sorted(keys)))


@st.composite
def stretches(draw: st.DrawFn) -> range:
    """An ascending run in one of the windows."""
    window = draw(st.sampled_from(WINDOWS))
    first = draw(st.integers(0, len(window) - 1))
    return window[first : draw(st.integers(first, len(window) - 1)) + 1]


@st.composite
def some_of(draw: st.DrawFn, keys: list[int], *, min_size: int = 0, max_size: int = 5) -> list[range]:
    """Some of the keys as runs, in any order of runs or sorted, so that there are longer ones."""
    chosen = draw(st.lists(st.sampled_from(keys), unique=True, min_size=min_size, max_size=max_size))
    return as_runs(sorted(chosen) if draw(st.booleans()) else chosen)
