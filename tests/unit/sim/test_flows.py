"""Flows against sums done by hand: one link is a processor-sharing queue."""

from collections.abc import Sequence
from math import inf

import pytest

from sim.clock import ARRIVAL, COMPLETION, STEP, Clock
from sim.recording import LinkMeter
from sim.transfers.flows import READ, WRITE, FlowNetwork, Hop, Link
from sim.transfers.max_min import Path

GB = 1e9


class Bench:
    """A network, and when its flows ended by name."""

    def __init__(self, *links: Link, now_s: float = 0.0) -> None:
        self.clock = Clock(now_s)
        self.meter = LinkMeter([link.name for link in links])
        self.network = FlowNetwork(self.clock, links, self.meter)
        self.ended: dict[str, float] = {}

    def path(self, *hops: Hop) -> Path:
        return self.network.path(hops)

    def start(self, at_s: float, name: str, path: Path, n_bytes: float, ceiling: float = inf, share: float = 1) -> None:
        def on_done() -> None:
            assert name not in self.ended
            self.ended[name] = self.clock.now_s

        self.clock.at(at_s, ARRIVAL, lambda _: self.network.start(path, n_bytes, on_done, ceiling=ceiling, share=share))

    def run(self) -> dict[str, float]:
        self.clock.run()
        return self.ended


def one_link(gb_per_s: float = 10.0) -> tuple[Bench, Path]:
    bench = Bench(Link("pipe", gb_per_s * GB, gb_per_s * GB))
    return bench, bench.path(Hop("pipe", READ))


def test_a_flow_alone_takes_the_link_or_its_ceiling() -> None:
    bench, pipe = one_link()
    bench.start(0.0, "free", pipe, 20 * GB)
    bench.start(5.0, "capped", pipe, 20 * GB, ceiling=4 * GB)
    assert bench.run() == {"free": pytest.approx(2.0, rel=1e-12), "capped": pytest.approx(10.0, rel=1e-12)}


def test_two_equal_flows_share_evenly_and_end_together() -> None:
    bench, pipe = one_link()
    bench.start(0.0, "a", pipe, 10 * GB)
    bench.start(0.0, "b", pipe, 10 * GB)
    assert bench.run() == {"a": pytest.approx(2.0), "b": pytest.approx(2.0)}
    bench.clock.run(until=10.0)
    assert bench.network.busy_until_now() == [pytest.approx(2.0)]


def test_staggered_arrivals_as_in_processor_sharing() -> None:
    # a alone in [0,1): 10 of 30. a, b in [1,2): 5 each. a, b, c from 2 at 10/3 each: c (5) ends at 3.5, with b at 0 of
    # 10 left: b has 5+5. a: 10 left at 3.5, alone: ends at 4.5.
    bench, pipe = one_link()
    bench.start(0.0, "a", pipe, 30 * GB)
    bench.start(1.0, "b", pipe, 10 * GB)
    bench.start(2.0, "c", pipe, 5 * GB)
    assert bench.run() == {
        "a": pytest.approx(4.5, rel=1e-12),
        "b": pytest.approx(3.5, rel=1e-12),
        "c": pytest.approx(3.5, rel=1e-12),
    }


def test_what_a_ceiling_leaves_goes_to_the_others() -> None:
    # slow runs at 2, the two others share 8. At 2.5 s they are done; slow goes on at 2.
    bench, pipe = one_link()
    bench.start(0.0, "slow", pipe, 10 * GB, ceiling=2 * GB)
    bench.start(0.0, "a", pipe, 10 * GB)
    bench.start(0.0, "b", pipe, 10 * GB)
    assert bench.run() == {"a": pytest.approx(2.5), "b": pytest.approx(2.5), "slow": pytest.approx(5.0)}


def test_shares_weigh_the_filling() -> None:
    # 3 : 1 of 10. Heavy (15) ends at 2 s; light has 5 of 10, then the link alone: 2.5 s.
    bench, pipe = one_link()
    bench.start(0.0, "heavy", pipe, 15 * GB, share=3.0)
    bench.start(0.0, "light", pipe, 10 * GB)
    assert bench.run() == {"heavy": pytest.approx(2.0), "light": pytest.approx(2.5)}


def test_the_textbook_line_of_links() -> None:
    # Bertsekas and Gallager's example: one flow over all links, one on each: everybody gets half of a unit link; the
    # flow on the wide link gets what the long one leaves.
    bench = Bench(Link("a", GB, GB), Link("b", GB, GB), Link("c", 2 * GB, 2 * GB))
    long = bench.path(Hop("a", READ), Hop("b", READ), Hop("c", READ))
    short = {name: bench.path(Hop(name, READ)) for name in "abc"}
    bench.start(0.0, "long", long, GB)
    for name, path in short.items():
        bench.start(0.0, name, path, GB)
    assert bench.run() == {
        "a": pytest.approx(2.0),
        "b": pytest.approx(2.0),
        "long": pytest.approx(2.0),
        "c": pytest.approx(1 / 1.5),
    }


def test_half_duplex_directions_share_time_and_duplex_ones_do_not() -> None:
    # Shared time: both at x with x/10 + x/5 = 1, x = 10/3; the read ends at 3 s, the write has 10 left at 5.
    for duplex, read_s, write_s in ((True, 1.0, 4.0), (False, 3.0, 5.0)):
        bench = Bench(Link("drive", 10 * GB, 5 * GB, duplex=duplex))
        bench.start(0.0, "read", bench.path(Hop("drive", READ)), 10 * GB)
        bench.start(0.0, "write", bench.path(Hop("drive", WRITE)), 20 * GB)
        assert bench.run() == {"read": pytest.approx(read_s), "write": pytest.approx(write_s)}


def test_a_bounce_crosses_the_bus_twice_and_a_slower_device_counts_for_its_flows_only() -> None:
    bench = Bench(Link("bus", 10 * GB, 10 * GB, duplex=False))
    twice = bench.path(Hop("bus", READ, passes=2.0))
    small = bench.path(Hop("bus", READ, bytes_per_s=2 * GB))
    bench.start(0.0, "twice", twice, 10 * GB)
    bench.start(10.0, "small", small, 10 * GB)
    # Together: x/5 + x/2 = 1.
    bench.start(20.0, "both a", twice, 10 / 7 * GB)
    bench.start(20.0, "both b", small, 10 / 7 * GB)
    ended = bench.run()
    assert ended == {
        "twice": pytest.approx(2.0),
        "small": pytest.approx(15.0),
        "both a": pytest.approx(21.0),
        "both b": pytest.approx(21.0),
    }
    assert bench.meter.total_bytes(0, READ) == pytest.approx((20 + 10 + 30 / 7) * GB)  # each pass counts


def test_behind_a_full_link_flows_of_different_ceilings_are_one_class_until_their_ceilings_bind() -> None:
    # 16 flows with ceilings of 1.0, 1.1, ... 2.5 GB/s share 8 GB/s: 0.5 each. At 1 s the half of them with 0.5 GB is
    # done; the others have 1 GB each left and get 1 GB/s each, which is the first one's ceiling: they end at 2 s.
    bench, pipe = one_link(8.0)
    for i in range(16):
        bench.start(0.0, f"{i}", pipe, (0.5 if i % 2 else 1.5) * GB, ceiling=(1.0 + i / 10) * GB)
    bench.clock.run(until=0.5)
    assert len(bench.network._active) == 1
    ended = bench.run()
    assert [ended[f"{i}"] for i in range(1, 16, 2)] == [pytest.approx(1.0)] * 8
    assert [ended[f"{i}"] for i in range(0, 16, 2)] == [pytest.approx(2.0)] * 8
    assert bench.meter.total_bytes(0, READ) == pytest.approx(16 * GB)


def test_flows_leave_their_common_class_one_by_one_as_their_ceilings_bind() -> None:
    # Ten flows share 10 GB/s, ceilings 2.0, 2.1, ... 2.9 GB/s. Seven of 1 GB are done at 1 s; the three left (2.0, 2.1
    # and 2.9) want no more than 7 of the 10, so each runs at its own ceiling from there on.
    bench, pipe = one_link(10.0)
    for i in range(10):
        bench.start(0.0, f"{i}", pipe, (5.0 if i in (0, 1, 9) else 1.0) * GB, ceiling=(2.0 + i / 10) * GB)
    # Another one that comes meanwhile, slower than what is left to each: it never was in that class.
    bench.start(0.0, "slow", pipe, 1 * GB, ceiling=0.1 * GB)
    bench.clock.run(until=0.5)
    assert sorted(cls.n for cls in bench.network._active) == [1, 10]
    ended = bench.run()
    each = 0.99 * GB  # of ten, beside the slow one
    first_s = 1 * GB / each
    assert [ended[f"{i}"] for i in range(2, 9)] == [pytest.approx(first_s)] * 7
    for i, ceiling in ((0, 2.0), (1, 2.1), (9, 2.9)):
        assert ended[f"{i}"] == pytest.approx(first_s + 4.0 / ceiling)
    assert ended["slow"] == pytest.approx(10.0)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the times at which rates were settled."""
    times: list[float] = []
    settle = FlowNetwork._settle

    def noted(network: FlowNetwork) -> None:
        times.append(network._clock.now_s)
        settle(network)

    monkeypatch.setattr(FlowNetwork, "_settle", noted)
    return times


def test_many_starts_of_one_instant_settle_once_and_ends_of_one_instant_too(settled: list[float]) -> None:
    bench, pipe = one_link()
    for i in range(50):
        bench.start(1.0, str(i), pipe, GB, ceiling=(1 + i % 5) * GB)
    bench.run()
    assert settled == [1.0, pytest.approx(6.0)]
    assert set(bench.ended.values()) == {settled[1]}


def test_a_completion_precedes_an_arrival_and_a_step_of_its_instant() -> None:
    bench, pipe = one_link()
    seen: list[str] = []
    bench.clock.at(1.0, STEP, lambda _: seen.append("step"))
    bench.clock.at(1.0, ARRIVAL, lambda _: seen.append("arrival"))
    bench.network.start(pipe, 10 * GB, lambda: seen.append("completion"))
    bench.clock.run()
    assert seen == ["completion", "arrival", "step"]


def test_rates_wait_for_all_changes_of_an_instant(settled: list[float]) -> None:
    # Both replacements arrive at 1.0 after the first flow's end: they share from 1.0, the link never idles.
    bench, pipe = one_link()
    bench.start(0.0, "first", pipe, 10 * GB)
    bench.start(1.0, "a", pipe, 5 * GB)
    bench.start(1.0, "b", pipe, 5 * GB)
    assert bench.run() == {"first": pytest.approx(1.0), "a": pytest.approx(2.0), "b": pytest.approx(2.0)}
    assert bench.network.busy_until_now() == [pytest.approx(2.0)]
    assert settled == [0.0, 1.0, 2.0]


def test_a_flow_may_start_the_next_from_its_end(settled: list[float]) -> None:
    bench, pipe = one_link()
    times: list[float] = []

    def again() -> None:
        times.append(bench.clock.now_s)
        if len(times) < 4:
            bench.network.start(pipe, 10 * GB, again)

    bench.network.start(pipe, 10 * GB, again)
    bench.clock.run()
    assert times == [1.0, 2.0, 3.0, 4.0]
    assert settled == [0.0, *times]


def test_counts_bytes_busy_time_and_flows() -> None:
    bench = Bench(Link("a", 10 * GB, 10 * GB), Link("b", 10 * GB, 10 * GB))
    there = bench.path(Hop("a", READ), Hop("b", WRITE))
    back = bench.path(Hop("a", WRITE))
    bench.start(0.0, "there", there, 10 * GB)
    bench.start(0.5, "back", back, 10 * GB)
    bench.start(5.0, "again", there, 20 * GB)
    busy: list[float] = []
    active: list[int] = []
    bench.clock.at(6.0, COMPLETION, lambda _: busy.extend(bench.network.busy_until_now()))
    bench.clock.at(6.0, STEP, lambda _: active.append(bench.network.active_flows))
    bench.run()
    assert bench.network.link_bytes == [[30 * GB, 10 * GB], [0.0, 30 * GB]]
    assert busy == [pytest.approx(2.5), pytest.approx(2.0)]
    assert active == [1]
    assert bench.network.busy_until_now() == [pytest.approx(3.5), pytest.approx(3.0)]
    assert (bench.network.flows_ended, bench.network.active_flows) == (3, 0)


def test_says_when_nothing_moves_any_more() -> None:
    bench, pipe = one_link()
    idle: list[float] = []
    bench.network.on_idle = lambda: idle.append(bench.clock.now_s)
    bench.start(0.0, "a", pipe, 10 * GB)
    bench.start(0.5, "b", pipe, 10 * GB)
    bench.start(9.0, "c", pipe, 10 * GB)
    bench.run()
    assert idle == [pytest.approx(2.0), pytest.approx(10.0)]


def terms_by_link(bench: Bench, path: Path) -> Sequence[str]:
    return [bench.network.links[resource.index // 2].name for resource, _ in path.terms]


def test_a_link_behind_a_tighter_one_on_every_path_is_left_out() -> None:
    bench = Bench(Link("drives", 5 * GB, 5 * GB), Link("nic", 10 * GB, 10 * GB), Link("bus", 20 * GB, 20 * GB))
    far = bench.path(Hop("drives", READ), Hop("nic", READ), Hop("bus", READ))
    near = bench.path(Hop("bus", READ))
    bench.network.shadow()
    assert terms_by_link(bench, far) == ["drives", "bus"]
    assert terms_by_link(bench, near) == ["bus"]


def test_of_two_links_that_shadow_each_other_one_stays() -> None:
    bench = Bench(Link("a", 5 * GB, 5 * GB), Link("b", 5 * GB, 5 * GB))
    path = bench.path(Hop("a", READ), Hop("b", READ))
    bench.network.shadow()
    assert len(path.terms) == 1


def test_a_path_made_late_may_end_a_shadow_but_not_while_flows_are_under_way() -> None:
    bench = Bench(Link("drives", 5 * GB, 5 * GB), Link("nic", 8 * GB, 8 * GB))
    far = bench.path(Hop("drives", READ), Hop("nic", READ))
    bench.start(0.0, "alone", far, 5 * GB)
    assert bench.run()["alone"] == pytest.approx(1.0)
    near = bench.path(Hop("nic", READ))
    bench.start(2.0, "far", far, 4 * GB)
    bench.start(2.0, "near", near, 4 * GB)
    assert bench.run() == {"alone": pytest.approx(1.0), "far": pytest.approx(3.0), "near": pytest.approx(3.0)}
    bench.network.start(far, GB, lambda: None)
    bench.path(Hop("nic", READ), Hop("drives", READ))
    with pytest.raises(RuntimeError, match="before flows are under way"):
        bench.network.start(near, GB, lambda: None)


def test_refuses_what_is_no_transfer() -> None:
    bench, pipe = one_link()
    for n_bytes in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="positive number of bytes"):
            bench.network.start(pipe, n_bytes, lambda: None)
    with pytest.raises(KeyError):
        bench.path(Hop("pip", READ))
    with pytest.raises(ValueError, match="unique"):
        Bench(Link("a", GB, GB), Link("a", GB, GB))
