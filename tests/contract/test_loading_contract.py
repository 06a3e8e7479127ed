"""What every load-or-recompute policy and every prefetch keeps, whoever wrote it."""

from itertools import accumulate
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.policies.loading import LOADING
from sim.policies.prefetch import PREFETCH

NEEDED = {"next-turn": {"after_s": 30.0}}
"""Arguments that a prefetch cannot be made without."""


class Offer:
    """Parts of some chunks, each chunk with a time to load and a time to compute."""

    def __init__(self, parts: list[tuple[int, float]], compute_s: float, overlaps: bool) -> None:
        self.parts = [chunks for chunks, _ in parts]
        self.overlaps = overlaps
        self._load_s = [0.0, *accumulate(each_s for chunks, each_s in parts for _ in range(chunks))]
        self._compute_s = compute_s

    def load_s(self, chunks: int) -> float:
        return self._load_s[chunks]

    def compute_s(self, chunks: int) -> float:
        return (len(self._load_s) - chunks) * self._compute_s

    def time_s(self, chunks: int) -> float:
        both = self.load_s(chunks), self.compute_s(chunks)
        return max(both) if self.overlaps else sum(both)


class Waiting(NamedTuple):
    """A request in the queue."""

    request_id: int
    session_id: int = -1
    priority: int = 0
    arrived_at_s: float = 0.0
    target: int = 100


offers = st.builds(
    Offer,
    st.lists(st.tuples(st.integers(1, 9), st.floats(0.0, 5.0)), min_size=1, max_size=4),
    st.floats(1e-3, 5.0),
    st.booleans(),
)


@pytest.mark.parametrize("name", LOADING.names())
@given(offer=offers)
def test_a_choice_is_some_of_what_is_offered_and_always_the_same(name: str, offer: Offer) -> None:
    policy = LOADING.create(name)
    chosen = policy.chunks(offer)
    assert 0 <= chosen <= sum(offer.parts)
    assert policy.chunks(offer) == chosen


@given(offer=offers)
def test_quicker_is_never_slower_than_all_or_nothing(offer: Offer) -> None:
    best = offer.time_s(LOADING.create("quicker").chunks(offer))
    assert best <= min(offer.time_s(0), offer.time_s(sum(offer.parts)))
    # Load and compute times that are lines within a part have their best cut at its ends, or where they are even.
    cuts = [offer.time_s(cut) for cut in range(sum(offer.parts) + 1)]
    assert best <= min(cuts) + 1e-9


@pytest.mark.parametrize("name", PREFETCH.names())
@given(queued=st.integers(0, 20), arrived=st.booleans())
def test_a_prefetch_wants_requests_that_wait(name: str, queued: int, arrived: bool) -> None:
    policy = PREFETCH.create(name, **NEEDED.get(name, {}))
    waiting = [Waiting(number) for number in range(queued)]
    newest = waiting[-1] if waiting and arrived else None
    wanted = list(policy.wanted(waiting, newest))
    assert set(wanted) <= set(waiting)
    assert len(wanted) == len(set(wanted))
    assert list(policy.wanted(waiting, newest)) == wanted


@pytest.mark.parametrize("name", PREFETCH.names())
def test_a_prefetch_has_a_limit_and_knows_when(name: str) -> None:
    policy = PREFETCH.create(name, **NEEDED.get(name, {}))
    assert policy.under_way_bytes is None
    assert PREFETCH.create(name, under_way_bytes=7, **NEEDED.get(name, {})).under_way_bytes == 7
    after_s = policy.next_turn_s(Waiting(1, session_id=3))
    assert after_s is None or after_s >= 0.0
