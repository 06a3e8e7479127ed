"""Links that lose a part of their capacity while flows are on them: times worked out by hand."""

import pytest

from sim.clock import COMPLETION, Clock
from sim.recording import LinkMeter
from sim.transfers.flows import READ, WRITE, Hop, Link
from sim.transfers.varying import VaryingNetwork

GB = 1e9


def network(clock, *, duplex=True):
    links = [Link("a", 2 * GB, 1 * GB, duplex), Link("b", 3 * GB, 3 * GB)]
    return VaryingNetwork(clock, links, LinkMeter(["a", "b"]))


def ends_of(changes, flows, *, duplex=True):
    """When each flow (start, GB, links and directions) ends, given changes (time, link, read share, write share)."""
    clock = Clock()
    net = network(clock, duplex=duplex)
    ends = {}
    for index, (at_s, size, hops) in enumerate(flows):
        path = net.path([Hop(link, direction) for link, direction in hops])

        def start(_, index=index, size=size, path=path) -> None:
            net.start(path, size * GB, lambda: ends.update({index: clock.now_s}))

        clock.at(at_s, COMPLETION, start)
    for at_s, link, read, write in changes:
        clock.at(at_s, COMPLETION, lambda _, change=(link, read, write): net.leave(*change))
    clock.run()
    assert not net.active_flows
    return [pytest.approx(ends[index], rel=1e-9) for index in range(len(flows))]


def test_a_flow_under_way_feels_the_loss_and_the_return_at_once() -> None:
    flow = [(0.0, 10.0, [("a", READ)])]
    assert ends_of([], flow) == [5.0]
    # 4 GB in 2 s, then half the rate: 6 s more.
    assert ends_of([(2.0, "a", 0.5, 1.0)], flow) == [8.0]
    # 4 GB, 2 GB in 2 s at half the rate, the other 4 GB at the whole one.
    assert ends_of([(2.0, "a", 0.5, 1.0), (4.0, "a", 1.0, 1.0)], flow) == [6.0]


def test_a_flow_that_began_meanwhile_is_as_quick_as_ever_afterwards() -> None:
    assert ends_of([(0.0, "a", 0.25, 1.0), (2.0, "a", 1.0, 1.0)], [(1.0, 4.5, [("a", READ)])]) == [4.0]


def test_directions_lose_their_own_shares() -> None:
    flows = [(0.0, 2.0, [("a", READ)]), (0.0, 2.0, [("a", WRITE)])]
    assert ends_of([(0.0, "a", 0.5, 1.0)], flows) == [2.0, 2.0]
    assert ends_of([(0.0, "a", 1.0, 0.5)], flows) == [1.0, 4.0]


def test_the_two_directions_of_a_drive_still_share_its_time() -> None:
    flows = [(0.0, 2.0, [("a", READ)]), (0.0, 2.0, [("a", WRITE)])]
    # Each B/s of reads takes 1/2 and of writes 1/1 of a GB/s' time: both get 2/3 GB/s; half of that when half is lost.
    assert ends_of([], flows, duplex=False) == [3.0, 3.0]
    assert ends_of([(0.0, "a", 0.5, 0.5)], flows, duplex=False) == [6.0, 6.0]


def test_a_link_that_was_wide_enough_may_become_the_narrowest() -> None:
    flows = [(0.0, 6.0, [("a", READ), ("b", READ)])]
    assert ends_of([], flows) == [3.0]
    assert ends_of([(1.0, "b", 1 / 3, 1.0)], flows) == [5.0]
    assert ends_of([(1.0, "b", 0.9, 1.0)], flows) == [3.0]


def test_two_losses_do_not_add_to_each_other_and_none_may_be_total() -> None:
    flow = [(0.0, 10.0, [("a", READ)])]
    assert ends_of([(0.0, "a", 0.5, 1.0), (0.0, "a", 0.25, 1.0)], flow) == [20.0]
    with pytest.raises(ValueError, match="must be above 0"):
        network(Clock()).leave("a", 0.0, 1.0)
