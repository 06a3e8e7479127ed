from collections.abc import Generator
from math import nan, nextafter
from typing import TypeVar

import pytest
import simpy

from sim.clock import ARRIVAL, COMPLETION, SETTLE, STEP, Callback, Clock, Wakeup

T = TypeVar("T")


def note(seen: list[T], what: T) -> Callback:
    return lambda _: seen.append(what)


def test_ties_run_completions_then_arrivals_then_steps_then_settling() -> None:
    clock = Clock()
    seen: list[str] = []
    for name, order in (("settle", SETTLE), ("step 7", STEP + 7), ("step 0", STEP), ("arrival", ARRIVAL)):
        clock.at(1.0, order, note(seen, name))
    clock.at(1.0, COMPLETION, lambda _: seen.append("completion"))
    clock.run()
    assert seen == ["completion", "arrival", "step 0", "step 7", "settle"]


def test_equal_orders_run_first_come_first_served() -> None:
    clock = Clock()
    seen: list[int] = []
    for i in range(20):
        clock.at(2.0, ARRIVAL, note(seen, i))
    clock.run()
    assert seen == list(range(20))


def test_what_a_completion_schedules_now_still_precedes_later_orders() -> None:
    clock = Clock()
    seen: list[str] = []
    clock.at(1.0, SETTLE, lambda _: seen.append("settle"))
    clock.at(1.0, STEP, lambda _: seen.append("step"))

    def answer(_: Wakeup) -> None:
        clock.at(1.0, ARRIVAL, note(seen, "next request"))

    clock.at(1.0, COMPLETION, answer)
    clock.run()
    assert seen == ["next request", "step", "settle"]


def test_wakes_at_the_very_time_asked_for_where_a_delay_would_miss_it() -> None:
    clock = Clock()
    seen: list[float] = []
    now_s, edge_s = 0.3, 0.9
    assert now_s + (edge_s - now_s) != edge_s

    def begin(_: Wakeup) -> None:
        clock.at(edge_s, STEP, lambda _: seen.append(clock.now_s))

    clock.at(now_s, STEP, begin)
    clock.run()
    assert seen == [edge_s]


def test_refuses_the_past_and_what_is_no_number() -> None:
    clock = Clock(5.0)
    with pytest.raises(ValueError, match=r"already 5\.0 s"):
        clock.at(nextafter(5.0, 0.0), ARRIVAL, lambda _: None)
    with pytest.raises(ValueError, match="cannot wake"):
        clock.at(nan, ARRIVAL, lambda _: None)


def test_knows_what_is_due() -> None:
    clock = Clock()
    assert not clock.more_now()
    clock.at(0.0, SETTLE, lambda _: None)
    clock.at(3.0, STEP, lambda _: None)
    assert clock.more_now()
    clock.step()
    assert not clock.more_now()


def test_an_error_in_a_callback_comes_out_of_run() -> None:
    clock = Clock()

    def fail(_: object) -> None:
        raise RuntimeError("boom")

    clock.at(1.0, ARRIVAL, fail)
    with pytest.raises(RuntimeError, match="boom"):
        clock.run()


def test_wakeups_and_plain_simpy_processes_share_one_clock() -> None:
    clock = Clock()
    seen: list[tuple[str, float]] = []

    def process() -> Generator[simpy.Event, None, None]:
        yield clock.timeout(1.0)
        seen.append(("process", clock.now_s))
        wakeup = clock.at(4.0, ARRIVAL, lambda _: seen.append(("wakeup", clock.now_s)))
        yield wakeup
        seen.append(("process", clock.now_s))

    clock.process(process())
    clock.run(until=10.0)
    assert seen == [("process", 1.0), ("wakeup", 4.0), ("process", 4.0)]
    assert isinstance(clock, simpy.Environment)
