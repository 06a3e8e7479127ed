"""What every admission filter and every placement must do, whichever it is."""

from itertools import count as numbers
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs_kit import UNIVERSE, flat, some_of

from sim.policies.base import ADMISSION, PLACEMENT
from sim.policies.placement import writes_of
from sim.runs import Runs

# Arguments without which one cannot be made.
NEEDS: dict[str, dict[str, Any]] = {
    "break-even": {"load_s": lambda chunks: 3.0 + chunks, "recompute_s": lambda chunks: 0.5 * chunks**2},
    "frequency": {"window_s": 6.0},
    "min-prefix": {"chunk_tokens": 32, "min_tokens": 96},
    "tinylfu": {"capacity_chunks": 6},
}


def made(name: str) -> Any:
    needs = dict(NEEDS.get(name, {}))
    if name == "frequency":
        needs["now_s"] = numbers().__next__
    return ADMISSION.create(name, **needs)


CALLS = st.lists(
    st.tuples(st.sampled_from(["use", "admit"]), some_of(UNIVERSE, max_size=8), some_of(UNIVERSE, max_size=4)),
    max_size=20,
)


@pytest.mark.parametrize("name", ADMISSION.names())
@settings(deadline=None)
@given(calls=CALLS, room=st.integers(0, 6))
def test_a_filter_admits_a_part_of_what_it_is_offered_in_its_order(
    name: str, calls: list[tuple[str, Runs, Runs]], room: int
) -> None:
    one, other = made(name), made(name)
    for call, chunks, rivals in calls:
        if call == "use":
            one.use(chunks)
            other.use(chunks)
            continue

        def victims(wanted: int, rivals: Runs = rivals) -> Runs:
            return [range(key, key + 1) for key in flat(rivals)[:wanted]]

        admitted = flat(one.admit(chunks, room, victims))
        offered = flat(chunks)
        assert admitted == [key for key in offered if key in set(admitted)]
        assert len(set(admitted)) == len(admitted)
        assert admitted == flat(other.admit(chunks, room, victims)), "the same calls, another answer"


@pytest.mark.parametrize("name", sorted(NEEDS.keys() - {"frequency"}))
def test_asking_changes_nothing(name: str) -> None:
    filter_ = made(name)
    filter_.use([range(5)])
    answers = [flat(filter_.admit([range(3), range(7, 9)], 1, lambda n: [range(n)])) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("name", PLACEMENT.names())
@settings(deadline=None)
@given(prompts=st.lists(some_of(UNIVERSE, max_size=8), max_size=20))
def test_a_placement_selects_a_part_of_what_was_used(name: str, prompts: list[Runs]) -> None:
    assert writes_of(name) in {"at-use", "at-eviction", "never"}
    placement: Any = PLACEMENT.create(name)
    if not hasattr(placement, "used"):
        return
    for prompt in prompts:
        selected = flat(placement.used(prompt))
        assert selected == [key for key in flat(prompt) if key in set(selected)]
