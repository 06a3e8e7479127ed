"""Traffic of others against sums done by hand, and random traffic against what must always hold."""

from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.clock import ARRIVAL, Clock
from sim.recording import LinkMeter
from sim.transfers.flows import READ, WRITE, FlowNetwork, Hop, Link
from sim.transfers.forecast import expected_s
from sim.transfers.neighbours import Bursts, Demand, Neighbour, Neighbours

GB = 1e9
RATE = 10 * GB
"""Of the one link here, each way."""


class Bench:
    """One link, a neighbour on it, and loads."""

    def __init__(self, demand: Demand, *, duplex: bool = True, direction: int = READ) -> None:
        self.clock = Clock()
        link = Link("pipe", RATE, RATE, duplex)
        self.meter = LinkMeter(["pipe"])
        self.network = FlowNetwork(self.clock, [link], self.meter)
        self.loads = self.network.path([Hop("pipe", READ)])
        theirs = self.network.path([Hop("pipe", direction)])
        self.neighbour = Neighbour("other", self.clock, self.network, [theirs], demand)
        self.all = Neighbours(self.network, [self.neighbour])
        self.ended_s: dict[str, float] = {}

    def load(self, at_s: float, name: str, n_bytes: float, ceiling: float = inf) -> None:
        def ended() -> None:
            self.ended_s[name] = self.clock.now_s

        self.clock.at(at_s, ARRIVAL, lambda _: self.network.start(self.loads, n_bytes, ended, ceiling))

    def run(self, until_s: float) -> dict[str, object]:
        """Run until the phase ends at a time, then to the end of all that is under way; return what it has done."""
        self.all.begin(0)
        began = self.all.counts(self.network.moved_until_now())
        found: dict[str, object] = {}

        def stop(_: object) -> None:
            ended = self.all.counts(self.network.moved_until_now())
            found.update(self.all.figures(began, ended, until_s)["other"])
            self.all.end(0, last=True)

        self.clock.at(until_s, ARRIVAL + 1, stop)
        self.clock.run()
        return found


# Steady traffic ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("demand", "left"),
    [
        (Demand(rate_bytes_per_s=4 * GB), 6 * GB),  # what it does not ask for is left
        (Demand(rate_bytes_per_s=9 * GB), 5 * GB),  # not more than an equal share each
        (Demand(rate_bytes_per_s=RATE, share=3.0), 2.5 * GB),  # shares 3 to 1
        (Demand(rate_bytes_per_s=RATE, share=0.25), 8 * GB),
        (Demand(rate_bytes_per_s=RATE, share=7.0, limit=0.2), 8 * GB),  # it may not have more
        (Demand(rate_bytes_per_s=RATE, share=15.0), RATE / 16),  # fifteen senders, and the load
    ],
)
def test_a_steady_neighbour_leaves_a_load_what_its_weight_and_its_ceiling_say(demand: Demand, left: float) -> None:
    bench = Bench(demand)
    bench.load(1.0, "load", 5 * left)
    bench.run(until_s=30.0)
    assert bench.ended_s == {"load": pytest.approx(6.0, rel=1e-9)}


def test_it_asks_for_its_rate_all_the_time_and_makes_up_for_nothing() -> None:
    bench = Bench(Demand(rate_bytes_per_s=8 * GB, start_s=2.0, stop_s=12.0))
    bench.load(4.0, "load", 20 * GB)  # 5 GB/s each, for four seconds
    done = bench.run(until_s=20.0)
    assert bench.ended_s == {"load": pytest.approx(8.0)}
    assert done["asked_bytes"] == pytest.approx(80 * GB)
    assert done["moved_bytes"] == pytest.approx(8 * GB * 6 + 5 * GB * 4)
    assert done["mean_bytes_per_s"] == pytest.approx(68 * GB / 20)
    assert "bursts" not in done
    assert bench.clock.now_s == 20.0  # and nothing of it is left for later


def test_the_directions_of_a_link_disturb_each_other_where_they_share_its_time() -> None:
    for duplex, end_s in ((True, 2.0), (False, 2.0 / 0.6)):
        bench = Bench(Demand(rate_bytes_per_s=4 * GB), duplex=duplex, direction=WRITE)
        bench.load(0.0, "load", 20 * GB)
        bench.run(until_s=9.0)
        assert bench.ended_s == {"load": pytest.approx(end_s, rel=1e-9)}


# Bursts --------------------------------------------------------------------------------------------------------------


def test_a_burst_prolongs_a_load_by_the_time_that_its_bytes_take() -> None:
    bench = Bench(Demand(rate_bytes_per_s=inf, bursts=Bursts(20 * GB, inf), start_s=2.0))
    bench.load(0.0, "load", 100 * GB)
    done = bench.run(until_s=30.0)
    assert bench.ended_s == {"load": pytest.approx(12.0, rel=1e-9)}  # 10 s alone; the burst is 2 s of the link
    assert done["bursts"] == {"ended": 1, "mean_s": pytest.approx(4.0), "max_s": pytest.approx(4.0)}
    assert done["moved_bytes"] == pytest.approx(20 * GB, rel=1e-9)


@pytest.mark.parametrize("piece_s", [0.03, 0.7, 50.0])
def test_it_does_not_matter_how_large_its_pieces_are(monkeypatch: pytest.MonkeyPatch, piece_s: float) -> None:
    monkeypatch.setattr("sim.transfers.neighbours._PIECE_S", piece_s)
    test_a_burst_prolongs_a_load_by_the_time_that_its_bytes_take()
    bench = Bench(Demand(rate_bytes_per_s=RATE, share=3.0))
    bench.load(1.0, "load", 10 * GB)
    bench.run(until_s=9.0)
    assert bench.ended_s == {"load": pytest.approx(5.0, rel=1e-9)}


def test_bursts_come_again_until_they_stop() -> None:
    bench = Bench(Demand(rate_bytes_per_s=5 * GB, bursts=Bursts(20 * GB, 10.0), start_s=1.0, stop_s=31.0))
    done = bench.run(until_s=50.0)
    assert done["asked_bytes"] == 60 * GB  # at 1, 11 and 21 s; not at 31 s
    assert done["bursts"] == {"ended": 3, "mean_s": pytest.approx(4.0), "max_s": pytest.approx(4.0)}


def test_a_burst_waits_for_the_one_before() -> None:
    bench = Bench(Demand(rate_bytes_per_s=inf, limit=0.1, bursts=Bursts(6 * GB, 4.0), stop_s=9.0))
    done = bench.run(until_s=40.0)  # at 0, 4 and 8 s, 6 s each: they end at 6, 12 and 18 s
    assert done["bursts"] == {"ended": 3, "mean_s": pytest.approx((6 + 8 + 10) / 3), "max_s": pytest.approx(10.0)}


def test_what_waits_when_the_phase_ends_is_never_moved_and_wakes_nobody() -> None:
    bench = Bench(Demand(rate_bytes_per_s=1 * GB, bursts=Bursts(100 * GB, 1e6)))
    done = bench.run(until_s=10.5)
    assert done["moved_bytes"] == pytest.approx(10.5 * GB)
    assert done["bursts"] == {"ended": 0, "mean_s": None, "max_s": None}
    assert bench.clock.now_s == pytest.approx(11.0)  # the piece under way; not the next burst, eleven days on
    assert bench.network.link_bytes[0][READ] == pytest.approx(11 * GB)


# What the rest of the simulator sees of it ---------------------------------------------------------------------------


def test_nobody_waits_for_it() -> None:
    bench = Bench(Demand(rate_bytes_per_s=5 * GB))
    idle_s: list[float] = []
    bench.network.on_idle = lambda: idle_s.append(bench.clock.now_s)
    active: list[int] = []
    for at_s in (0.5, 2.5):
        bench.clock.at(at_s, ARRIVAL, lambda _: active.append(bench.network.active_flows))
    bench.load(0.0, "load", 10 * GB)
    bench.run(until_s=5.0)
    assert active == [1, 0]
    assert pytest.approx(2.0) in idle_s


@pytest.mark.parametrize(
    ("rate", "share", "taken_s"), [(4 * GB, 1.0, 5.0), (RATE, 1.0, 6.0), (RATE, 4.0, 15.0), (RATE, 0.25, 3.75)]
)
def test_an_estimate_counts_on_it_to_go_on_and_knows_its_weight(rate: float, share: float, taken_s: float) -> None:
    bench = Bench(Demand(rate_bytes_per_s=rate, share=share))
    found: list[float] = []
    bench.clock.at(1.5, ARRIVAL, lambda _: found.append(expected_s(bench.loads, 30 * GB, inf, bench.clock.now_s)))
    bench.load(1.5, "load", 30 * GB)
    bench.run(until_s=30.0)
    assert bench.ended_s["load"] - 1.5 == pytest.approx(taken_s, rel=1e-9)
    assert found == [pytest.approx(taken_s, rel=1e-6)]


# Whatever the traffic ------------------------------------------------------------------------------------------------


rates = st.floats(0.5, 40.0).map(lambda gb: gb * GB)
demands = st.builds(
    Demand,
    rate_bytes_per_s=rates,
    limit=st.sampled_from([1.0, 1.0, 0.3]),
    share=st.sampled_from([1.0, 0.1, 64.0]),
    bursts=st.none()
    | st.builds(Bursts, st.floats(0.1, 60.0).map(lambda gb: gb * GB), st.floats(1.0, 9.0) | st.just(inf)),
    start_s=st.floats(0.0, 8.0),
    stop_s=st.floats(8.5, 15.0) | st.just(inf),
)
loads = st.lists(st.tuples(st.floats(0.0, 9.0), st.floats(0.1, 30.0), rates), max_size=8)


@given(demand=demands, loads=loads, duplex=st.booleans())
@settings(max_examples=100)
def test_bytes_balance_and_no_more_is_moved_than_asked_for_or_allowed(demand, loads, duplex) -> None:
    bench = Bench(demand, duplex=duplex, direction=WRITE)
    for index, (at_s, n_gb, ceiling) in enumerate(loads):
        bench.load(at_s, str(index), n_gb * GB, ceiling)
    done = bench.run(until_s=20.0)
    assert len(bench.ended_s) == len(loads)
    moved, asked = done["moved_bytes"], done["asked_bytes"]
    piece = min(demand.rate_bytes_per_s, demand.limit * RATE)
    assert isinstance(moved, float)
    assert isinstance(asked, float)
    assert moved <= asked + piece  # a piece under way when it stops goes on to its end
    assert moved <= piece * (20.0 - demand.start_s) * (1 + 1e-9)
    assert bench.network.link_bytes[0][READ] == pytest.approx(sum(n_gb for _, n_gb, _ in loads) * GB, abs=1.0)
    for direction in (READ, WRITE):
        metered = bench.meter.total_bytes(0, direction)
        assert metered == pytest.approx(bench.network.link_bytes[0][direction], rel=1e-6, abs=1e4)
    assert bench.network.link_bytes[0][WRITE] <= moved + piece
    assert bench.clock.peek() == inf


@given(
    senders=st.integers(2, 40),
    n_gb=st.floats(1.0, 20.0),
    others=st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.5, 20.0), st.sampled_from([0.5, 1.0, 3.0])), max_size=5),
    ceiling=st.sampled_from([inf, 0.2 * GB]),
)
@settings(max_examples=60)
def test_senders_in_one_flow_of_as_many_shares_are_as_many_flows(senders, n_gb, others, ceiling) -> None:
    def ends(start_all: Callable[[FlowNetwork], None]) -> list[float]:
        clock = Clock()
        network = FlowNetwork(clock, [Link("pipe", RATE, RATE)], LinkMeter(["pipe"]))
        path = network.path([Hop("pipe", READ)])
        ended_s = [0.0] * len(others)

        def begin(index: int, n_bytes: float, share: float) -> None:
            def ended() -> None:
                ended_s[index] = clock.now_s

            network.start(path, n_bytes, ended, inf, share)

        for index, (at_s, gb, share) in enumerate(others):
            clock.at(at_s, ARRIVAL, lambda _, i=index, b=gb * GB, s=share: begin(i, b, s))
        start_all(network)
        clock.run()
        return [*ended_s, clock.now_s]

    def one(network: FlowNetwork) -> None:
        network.start(network._paths[0], n_gb * GB, lambda: None, senders * ceiling, float(senders))

    def many(network: FlowNetwork) -> None:
        for _ in range(senders):
            network.start(network._paths[0], n_gb * GB / senders, lambda: None, ceiling, 1.0)

    assert ends(one) == pytest.approx(ends(many), rel=1e-9)
