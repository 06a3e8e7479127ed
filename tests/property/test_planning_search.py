"""The search of a plan, on functions with a known answer: exact where they are monotone, honest where they are not."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.planning.free import ladder
from scenarios.planning.searching import Found, search


@dataclass(frozen=True)
class Verdict:
    meets: bool
    shortfall: float
    can_run: bool = True


def tried(
    values: Sequence[float], start: int, shortfall: Callable[[float], float], *, counts: bool = False
) -> tuple[Found, dict[int, Verdict]]:
    """Search where *shortfall* is at most 0; also what was tried, each at most once."""
    verdicts: dict[int, Verdict] = {}

    def judge(places: Sequence[int]) -> list[Verdict]:
        assert not set(places) & set(verdicts)
        for place in places:
            missed = shortfall(values[place])
            verdicts[place] = Verdict(missed <= 0.0, missed, can_run=missed < math.inf)
        return [verdicts[place] for place in places]

    return search(values, start, judge, counts=counts), verdicts


@st.composite
def ladders(draw: st.DrawFn) -> tuple[float, ...]:
    low = draw(st.floats(1e-3, 1e12))
    high = low * draw(st.floats(1.5, 5000.0))
    whole = draw(st.booleans())
    if whole:
        low, high = max(1, round(low)), max(1, round(low)) + draw(st.integers(1, 3000))
    anchor = math.sqrt(low * high)
    return ladder(low, high, anchor, draw(st.sampled_from([0.02, 0.1])), whole=whole)


@given(ladders(), st.data())
def test_the_least_that_is_good_enough_is_found_exactly(values: tuple[float, ...], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values) - 1))
    threshold = data.draw(st.floats(values[0] * 0.5, values[-1] * 1.5))
    found, verdicts = tried(values, start, lambda value: math.log(threshold / value))
    truth = next((place for place, value in enumerate(values) if value >= threshold), None)
    assert found.place == truth
    assert found.exceptions == ()
    if truth is None:
        assert found.best == len(values) - 1  # the upper bound: the answer to "how close"
        assert found.beyond is None
    elif truth > 0:
        assert found.beyond == truth - 1
        assert not verdicts[truth - 1].meets
    # Growth, thirds of the widest gap (more steps where rounding to places makes them uneven), and the look beyond.
    assert len(verdicts) <= 7 + 2 * math.ceil(math.log(len(values) + 1, 3)) + 2 + 1 + 2


@given(ladders(), st.data())
def test_where_less_is_better_the_most_is_found(values: tuple[float, ...], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values) - 1))
    # Short of the upper bound: where all is good enough nothing tells which side is better.
    threshold = data.draw(st.floats(values[0], math.nextafter(values[-1], 0.0)))
    found, _ = tried(values, start, lambda value: math.log(value / threshold))
    assert found.sense == "most"
    assert found.place == max(place for place, value in enumerate(values) if value <= threshold)


@given(ladders(), st.data())
def test_a_looser_limit_never_needs_more(values: tuple[float, ...], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values) - 1))
    # A figure that falls in steps and is flat in places, as percentiles do.
    levels = sorted(data.draw(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=6)), reverse=True)
    tight, loose = sorted(data.draw(st.tuples(st.floats(0.1, 12.0), st.floats(0.1, 12.0))))

    def figure(value: float) -> float:
        return levels[min(int(len(levels) * values.index(value) / len(values)), len(levels) - 1)]

    answers = [tried(values, start, lambda v, limit=limit: math.log(figure(v) / limit))[0] for limit in (tight, loose)]
    if answers[0].place is not None:
        assert answers[1].place is not None
        assert answers[1].place <= answers[0].place


@given(ladders(), st.data())
def test_whatever_the_function_the_answer_is_one_and_what_speaks_against_it_is_said(
    values: tuple[float, ...], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(values) - 1))
    shortfalls = data.draw(st.lists(st.floats(-3.0, 3.0), min_size=1, max_size=9))
    found, verdicts = tried(values, start, lambda value: shortfalls[values.index(value) % len(shortfalls)])
    good = {place for place, verdict in verdicts.items() if verdict.meets}
    if found.place is None:
        assert not good
        return
    assert found.place in good
    if found.beyond is not None:
        assert abs(found.beyond - found.place) == 1
        assert found.beyond not in good
    own_side = range(found.place, len(values)) if found.sense == "least" else range(found.place + 1)
    otherwise = {place for place in verdicts if (place in good) != (place in own_side)}
    assert set(found.exceptions) == otherwise
    # The safe side: nothing that was tried beyond the bracket contradicts it there, where it ends in a change.
    if found.beyond is not None and (max(verdicts) if found.sense == "least" else min(verdicts)) in good:
        assert good >= {place for place in verdicts if place in own_side}


def test_a_figure_that_wobbles_is_not_monotone_and_the_safe_answer_is_given() -> None:
    values = ladder(1.0, 100.0, 10.0, 0.1)
    island = values[20]  # good enough, though larger values are not
    found, _ = tried(values, 20, lambda value: -0.1 if value == island else math.log(50.0 / value))
    assert found.place == next(place for place, value in enumerate(values) if value >= 50.0)
    assert found.exceptions == (20,)


def test_a_tenth_beyond_the_answer_is_looked_at() -> None:
    values = ladder(1.0, 100.0, 10.0, 0.01)

    def shortfall(value: float) -> float:
        return -0.1 if value >= 48.0 or 42.0 < value < 44.0 else math.log(48.0 / value)

    # From here thirds pass over the window below the answer.
    found, _ = tried(values, 350, shortfall)
    assert 48.0 <= values[found.place or 0] < 48.5
    assert [42.0 < values[place] < 44.0 for place in found.exceptions] == [True]


def test_what_changes_nothing_is_noticed() -> None:
    values = ladder(1, 64, 8, 0.02, whole=True)
    found, verdicts = tried(values, 7, lambda value: 0.5)
    assert (found.place, found.matters) == (None, False)
    assert {0, len(values) - 1} <= set(verdicts)  # both bounds
    assert tried(values, 7, lambda value: -0.5)[0].place == 0


def test_noise_far_above_what_is_needed_does_not_turn_the_search_round() -> None:
    values = ladder(1.0, 4096.0, 64.0, 0.02)
    # Flat but for a little noise that favours less, until the figure breaks down far below.
    found, _ = tried(values, values.index(64.0), lambda value: -0.1 + 1e-3 * math.log(value) if value > 3.0 else 2.0)
    assert found.sense == "least"
    assert 3.0 < values[found.place or 0] < 3.1


@pytest.mark.parametrize("anchor", [1.0, 7.3, 64.0])
def test_a_ladder_has_its_ends_its_anchor_and_even_steps(anchor: float) -> None:
    values = ladder(1.0, 64.0, anchor, 0.02)
    assert values[0] == 1.0
    assert values[-1] == 64.0
    assert anchor in values
    steps = [upper / lower for lower, upper in pairwise(values[1:-1])]
    assert max(steps) < 1.021
    assert min(steps) > 1.019
    assert max(values[1] / values[0], values[-1] / values[-2]) < 1.031  # next to a bound up to half a step more


def test_counts_go_up_by_one_and_later_by_the_precision() -> None:
    values = ladder(1, 1000, 200, 0.02, whole=True)
    assert values[:50] == tuple(range(1, 51))
    assert 200 in values
    assert all(isinstance(value, int) for value in values)
    assert max(upper / lower for lower, upper in pairwise(values[60:])) < 1.03


@given(st.data())
def test_ways_to_split_that_cannot_run_hide_no_answer(data: st.DataObject) -> None:
    heads = data.draw(st.sampled_from([8, 12, 16, 24, 32, 40, 48, 64, 96, 128]))
    fits_on = data.draw(st.integers(1, 4))
    values = [float(value) for value in range(1, data.draw(st.sampled_from([8, 16])) + 1)]
    can = [value for value in values if heads % value == 0 and value >= fits_on]
    threshold, start = (data.draw(st.sampled_from(can)) for _ in range(2))
    found, _ = tried(
        values,
        values.index(start),
        lambda value: math.log(threshold / value) if value in can else math.inf,
        counts=True,
    )
    assert found.place == values.index(threshold)
    assert found.exceptions == ()
    below = [value for value in can if value < threshold]
    if below:
        assert found.beyond == values.index(below[-1])


@given(ladders(), st.data())
def test_below_what_cannot_run_no_more_is_tried_of_what_counts_nothing(
    values: tuple[float, ...], data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(0, len(values) - 1))
    start = data.draw(st.integers(threshold, len(values) - 1))

    def shortfall(limit: float) -> Callable[[float], float]:
        return lambda value: -1.0 if value >= values[threshold] else limit

    (misses, of_misses), (refused, of_refused) = (tried(values, start, shortfall(limit)) for limit in (1.0, math.inf))
    assert (refused.place, refused.beyond) == (misses.place, misses.beyond)
    assert len(of_refused) <= len(of_misses)
