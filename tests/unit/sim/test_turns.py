"""So many at once; the others begin in the order in which they came."""

from collections.abc import Callable

import pytest

from sim.tiers.turns import Turns


@pytest.mark.parametrize("at_once", [1, 2, 3, 9])
def test_turns_are_taken_in_order(at_once: int) -> None:
    turns, begun = Turns(at_once), []

    def begin(name: int) -> Callable[[], None]:
        return lambda: begun.append(name)

    for name in range(6):
        turns.take(begin(name))
    assert begun == list(range(min(at_once, 6)))
    for ended in range(6):
        assert len(begun) == min(at_once + ended, 6)
        turns.ended()
    assert begun == list(range(6))
    turns.take(begin(6))  # all turns have been given back
    assert begun[-1] == 6
