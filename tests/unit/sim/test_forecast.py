"""How long a flow is expected to take, against how long it then takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.clock import ARRIVAL, Clock
from sim.recording import LinkMeter
from sim.transfers.flows import READ, WRITE, FlowNetwork, Hop, Link
from sim.transfers.forecast import expected_s

RATE = 1e9


def network() -> FlowNetwork:
    links = [Link("wide", 4 * RATE, 4 * RATE), Link("narrow", RATE, RATE / 2, duplex=False)]
    return FlowNetwork(Clock(), links, LinkMeter([link.name for link in links]))


def expected_and_taken(before, n_bytes, ceiling, start_s):
    """What is expected of a flow that begins at ``start_s`` after others (bytes, ceiling, begin), and what it takes."""
    net = network()
    clock = net._clock
    path, back = net.path([Hop("wide", READ), Hop("narrow", READ)]), net.path([Hop("narrow", WRITE)])
    found = {}

    def send(other_bytes, other_ceiling, write):
        return lambda _: net.start(back if write else path, other_bytes, lambda: None, other_ceiling)

    for other_bytes, other_ceiling, begin_s, *write in before:
        clock.at(begin_s, ARRIVAL, send(other_bytes, other_ceiling, bool(write)))

    def begin(_):
        found["expected"] = expected_s(path, n_bytes, ceiling, clock.now_s)
        net.start(path, n_bytes, lambda: found.update(taken=clock.now_s - start_s), ceiling)

    clock.at(start_s, ARRIVAL + 1, begin)
    clock.run()
    return found["expected"], found["taken"]


def test_alone_the_ceiling_or_the_path_decides() -> None:
    assert expected_and_taken([], 2 * RATE, 5 * RATE, 0.0) == pytest.approx((2.0, 2.0))
    assert expected_and_taken([], 2 * RATE, RATE / 4, 0.0) == pytest.approx((8.0, 8.0))


@pytest.mark.parametrize(
    ("before", "taken_s"),
    [
        ([(9 * RATE, 5 * RATE, 0.0)], 4.0),  # the other one is longer: half of the link to the end
        ([(1 * RATE, 5 * RATE, 0.0)], 2.5),  # half a second of it is left at 0.5 s: it waits for that
        ([(9 * RATE, RATE / 4, 0.0)], 2.0 / 0.75),  # the other one cannot take its half
        ([(9 * RATE, 5 * RATE, 0.0, "write")], 6.0),  # a byte written takes two bytes' time of the link
    ],
)
def test_beside_others_it_waits_for_no_more_than_its_own_bytes(before, taken_s) -> None:
    assert expected_and_taken(before, 2 * RATE, 5 * RATE, 0.5) == pytest.approx((taken_s, taken_s), rel=1e-6)


@given(
    before=st.lists(st.tuples(st.floats(1e6, 1e10), st.floats(1e7, 5e9), st.floats(0.0, 2.0)), max_size=8),
    n_bytes=st.floats(1e6, 1e10),
    ceiling=st.floats(1e7, 5e9),
)
def test_on_one_link_the_expectation_is_never_far_off(before, n_bytes, ceiling) -> None:
    """At any time a flow is at its ceiling or no slower than any other; the estimate takes one of them for all time."""
    expected, taken = expected_and_taken(before, n_bytes, ceiling, 2.0)
    assert taken <= 2.0 * expected
    assert expected <= 2.0 * taken


def test_flows_that_begin_together_count_each_other() -> None:
    net = network()
    path = net.path([Hop("narrow", READ)])
    assert expected_s(path, RATE, 9 * RATE, 0.0, [(path, 3 * RATE)]) == pytest.approx(2.0)
    assert expected_s(path, 3 * RATE, 9 * RATE, 0.0, [(path, RATE)]) == pytest.approx(4.0)
    assert net.active_flows == 0
