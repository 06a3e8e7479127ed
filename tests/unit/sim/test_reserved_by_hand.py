"""Shares of links that are kept for the tiers, against sums done by hand."""

from math import inf

import pytest

from sim.clock import ARRIVAL, Clock
from sim.recording import LinkMeter
from sim.transfers.flows import READ, WRITE, Hop, Link
from sim.transfers.forecast import expected_s
from sim.transfers.max_min import Path
from sim.transfers.varying import VaryingNetwork

GB = 1e9
LONG = 1e6 * GB
HEAVY = 99.0


class Bench:
    """Two links of 10 GB/s, and a third of 1 GB/s; what is under way, and at which rate."""

    def __init__(self, *, duplex: bool = True) -> None:
        links = [Link("a", 10 * GB, 10 * GB, duplex), Link("b", 10 * GB, 10 * GB), Link("narrow", GB, GB)]
        self.clock = Clock()
        self.network = VaryingNetwork(self.clock, links, LinkMeter([link.name for link in links]))
        self._paths: list[Path] = []

    def path(self, links: str, kept: float | None, direction: int = READ) -> Path:
        path = self.network.path([Hop(link, direction) for link in links.split()])
        if kept is not None:
            self.network.give_to_others(path, kept)
        self._paths.append(path)
        return path

    def tiers(self, links: str = "a", ceiling: float = inf, n_bytes: float = LONG, at_s: float = 0.0) -> None:
        path = self.path(links, None)
        self.clock.at(at_s, ARRIVAL, lambda _: self.network.start(path, n_bytes, lambda: None, ceiling))

    def other(self, kept: float, share: float = HEAVY, direction: int = READ) -> None:
        path = self.path("a", kept, direction)
        self.clock.at(0.0, ARRIVAL, lambda _: self.network.start(path, LONG, lambda: None, inf, share))

    def rates(self, at_s: float = 0.0) -> list[object]:
        """What each has at a time, in the order in which they were named [GB/s]."""
        while self.clock.peek() <= at_s:
            self.clock.step()
        found = [sum(cls.rate for cls in path.classes.values()) / GB for path in self._paths]
        return [pytest.approx(rate, rel=1e-9) for rate in found]


def test_the_tiers_have_what_is_kept_however_heavy_the_other_is() -> None:
    bench = Bench()
    bench.tiers()
    bench.other(0.6)
    assert bench.rates() == [6.0, 4.0]


def test_what_is_kept_is_the_tiers_together() -> None:
    bench = Bench()
    bench.tiers()
    bench.tiers()
    bench.other(0.6)
    assert bench.rates() == [3.0, 3.0, 4.0]


def test_it_is_a_least_and_takes_nothing_from_those_whose_weight_gives_them_more() -> None:
    bench = Bench()
    bench.tiers()
    bench.other(0.6, share=0.25)
    assert bench.rates() == [8.0, 2.0]


def test_what_the_tiers_do_not_ask_for_the_other_gets() -> None:
    bench = Bench()
    bench.tiers(ceiling=2 * GB)
    bench.other(0.6)
    assert bench.rates() == [2.0, 8.0]


def test_it_gets_all_before_and_after() -> None:
    bench = Bench()
    bench.other(0.6)
    bench.tiers(n_bytes=6 * GB, at_s=1.0)
    assert [bench.rates(at_s) for at_s in (0.5, 1.5, 2.5)] == [[10.0, 0.0], [4.0, 6.0], [10.0, 0.0]]


def test_what_the_tiers_cannot_use_for_another_link_the_other_gets() -> None:
    bench = Bench()
    bench.tiers("a narrow")
    bench.tiers("narrow")
    bench.other(0.6)  # 4 as long as the tiers could use 6, and the 5.5 that they cannot
    assert bench.rates() == [0.5, 0.5, 9.5]


def test_others_share_by_weight_what_the_tiers_cannot_use() -> None:
    bench = Bench()
    bench.tiers("a narrow")
    bench.tiers("narrow")
    bench.other(0.6, share=2.0)
    bench.other(0.6, share=1.0)
    assert bench.rates() == [0.5, 0.5, 9.5 * 2 / 3, 9.5 / 3]


def test_two_that_as_much_is_kept_from_are_held_together() -> None:
    bench = Bench()
    bench.tiers()
    bench.other(0.6, share=300.0)
    bench.other(0.6, share=100.0)
    assert bench.rates() == [6.0, 3.0, 1.0]


def test_the_one_that_more_is_kept_from_is_held_alone_too() -> None:
    bench = Bench()
    bench.tiers()
    bench.other(0.2)
    bench.other(0.7)
    assert bench.rates() == [2.0, 5.0, 3.0]


def test_one_that_nothing_is_kept_from_competes_for_what_is_kept_from_another() -> None:
    bench = Bench()
    bench.tiers()
    bench.other(0.6)
    bench.other(0.0, share=2.0)
    assert bench.rates() == [2.0, 4.0, 4.0]


def test_no_more_is_kept_than_the_tiers_ask_for() -> None:
    bench = Bench()
    bench.tiers(ceiling=GB)
    bench.other(0.6, share=4.0)
    bench.other(0.0, share=2.0)
    assert bench.rates() == [1.0, 6.0, 3.0]


def test_directions_that_share_the_time_of_a_drive_share_what_is_kept() -> None:
    for duplex, expected in ((True, [10.0, 10.0]), (False, [6.0, 4.0])):
        bench = Bench(duplex=duplex)
        bench.tiers()
        bench.other(0.6, direction=WRITE)
        assert bench.rates() == expected


def test_a_share_is_one_of_what_a_loss_leaves() -> None:
    bench = Bench()
    bench.tiers()
    bench.other(0.6)
    bench.clock.at(1.0, ARRIVAL, lambda _: bench.network.leave("a", 0.5, 1.0))
    bench.clock.at(2.0, ARRIVAL, lambda _: bench.network.leave("a", 1.0, 1.0))
    assert [bench.rates(at_s) for at_s in (0.5, 1.5, 2.5)] == [[6.0, 4.0], [3.0, 2.0], [6.0, 4.0]]


@pytest.mark.parametrize("kept", [(0.6,), (0.6, 0.6), (0.2, 0.7), (0.05,), (0.6, 0.0)])
@pytest.mark.parametrize("loads", [0, 1, 3])
@pytest.mark.parametrize("ceiling", [inf, 1.5 * GB])
def test_an_estimate_counts_on_what_is_kept(kept: tuple[float, ...], loads: int, ceiling: float) -> None:
    bench = Bench()
    for share in kept:
        bench.other(share)
    for _ in range(loads):
        bench.tiers(ceiling=ceiling)
    path = bench.path("a", None)
    bench.rates()
    estimate_s = expected_s(path, 30 * GB, ceiling, 0.0)
    ended_s: list[float] = []
    bench.network.start(path, 30 * GB, lambda: ended_s.append(bench.clock.now_s), ceiling)
    while not ended_s:
        bench.clock.step()
    assert estimate_s == pytest.approx(ended_s[0], rel=1e-6)
