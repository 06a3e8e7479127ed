"""Random networks and flows: fair rates at every instant, nothing lost, the same ends as a filling flow by flow."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, ulp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.clock import ARRIVAL, SETTLE, Clock, Wakeup
from sim.transfers.chunkwise import ChunkNetwork, Weights, max_min_rates
from sim.transfers.flows import FlowNetwork, Hop, Link
from sim.transfers.max_min import FlowClass, Resource

GB = 1e9

Look = Callable[[float, Sequence[FlowClass]], None]
"""Is shown the time and the classes under way, whenever the rates have settled."""


@pytest.fixture(autouse=True, scope="module")
def two_are_a_crowd() -> Iterator[None]:
    """Pool whatever can be pooled: cases of eight classes on a path would be rare."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.transfers.flows.CROWD", 2)
        yield


@dataclass(frozen=True)
class Flow:
    at_s: float
    path: int
    n_bytes: float
    ceiling: float
    share: float


@dataclass(frozen=True)
class Case:
    links: Sequence[Link]
    paths: Sequence[Sequence[Hop]]
    flows: Sequence[Flow]


@st.composite
def cases(draw: st.DrawFn, *, max_flows: int = 24) -> Case:
    # Few different rates, times and ceilings, so that ties and equal classes occur; odd ones, so that nothing is round.
    rates = st.sampled_from([1.0, 2.5, 10.0]) | st.floats(0.5, 50.0)
    links = [
        Link(f"l{i}", draw(rates) * GB, draw(rates) * GB, duplex=draw(st.booleans()))
        for i in range(draw(st.integers(1, 5)))
    ]
    hops = st.builds(
        Hop,
        link=st.sampled_from([link.name for link in links]),
        direction=st.integers(0, 1),
        passes=st.sampled_from([1.0, 1.0, 2.0]),
        bytes_per_s=st.none() | st.none() | rates.map(lambda rate: rate * GB),
    )
    paths = draw(st.lists(st.lists(hops, min_size=1, max_size=4), min_size=1, max_size=5))
    flows = st.builds(
        Flow,
        at_s=st.sampled_from([0.0, 0.0, 0.5, 1.0]) | st.floats(0.0, 3.0),
        path=st.integers(0, len(paths) - 1),
        n_bytes=st.sampled_from([1e6, 1e9, 4e9]) | st.floats(1e6, 1e10),
        ceiling=st.sampled_from([inf, inf, GB, 3 * GB]) | st.floats(0.05 * GB, 20 * GB),
        share=st.sampled_from([1.0, 1.0, 1.0, 0.5, 3.0]),
    )
    return Case(links, paths, draw(st.lists(flows, min_size=1, max_size=max_flows)))


class Rows:
    """A meter that keeps what it is told."""

    def __init__(self) -> None:
        self.classes: list[Sequence[tuple[int, int, float]]] = []
        self.rows: list[tuple[int, float, float, float]] = []

    def register(self, links: Sequence[tuple[int, int, float]]) -> int:
        self.classes.append(tuple(links))
        return len(self.classes) - 1

    def add(self, class_id: int, t0_s: float, t1_s: float, n_bytes: float) -> None:
        self.rows.append((class_id, t0_s, t1_s, n_bytes))


class Watched(FlowNetwork):
    """A network that is looked at whenever its rates have settled."""

    look: Look | None = None
    unshadowed = False

    def _settle(self) -> None:
        super()._settle()
        if self.look is not None:
            self.look(self._clock.now_s, list(self._active))

    def shadow(self) -> None:
        if not self.unshadowed:
            super().shadow()
        self._shadows_known = True


def drain(clock: Clock, *, events: int) -> None:
    """Run to the end, which must come within that many events."""
    for _ in range(events):
        if clock.peek() == inf:
            return
        clock.step()
    pytest.fail(f"still busy after {events} events, at {clock.now_s} s")


def replay(
    case: Case,
    *,
    look: Look | None = None,
    unshadowed: bool = False,
    from_s: float = 0.0,
) -> tuple[list[float], FlowNetwork, Rows]:
    """Return when each flow ended [s], the network, and what was metered."""
    clock, meter = Clock(from_s), Rows()
    network = Watched(clock, case.links, meter)
    network.look, network.unshadowed = look, unshadowed
    paths = [network.path(hops) for hops in case.paths]
    ended_s = [-1.0] * len(case.flows)

    def start(i: int, flow: Flow) -> Callable[[Wakeup], None]:
        def on_done() -> None:
            assert ended_s[i] < 0.0, "a flow ended twice"
            ended_s[i] = clock.now_s

        return lambda _: network.start(paths[flow.path], flow.n_bytes, on_done, flow.ceiling, flow.share)

    for i, flow in enumerate(case.flows):
        clock.at(from_s + flow.at_s, ARRIVAL, start(i, flow))
    # A flow is a start, two settlings, a wake-up and at most two that came too early.
    drain(clock, events=8 * len(case.flows))
    assert min(ended_s) >= 0.0, "a flow never ended"
    return ended_s, network, meter


def flow_by_flow(case: Case) -> list[float]:
    """Return when each flow ends, by filling every flow on its own anew at every start and end."""
    resolve = ChunkNetwork(Clock(), case.links)
    weights = [resolve.path(hops) for hops in case.paths]
    left = [flow.n_bytes for flow in case.flows]
    ended_s = [-1.0] * len(case.flows)
    waiting = sorted(range(len(case.flows)), key=lambda i: case.flows[i].at_s)
    active: list[int] = []
    now_s = 0.0
    while waiting or active:
        demands: list[tuple[Weights, float, float]] = []
        for i in active:
            flow = case.flows[i]
            alone = 1.0 / max(weights[flow.path].values())
            demands.append((weights[flow.path], min(flow.ceiling, alone), flow.share))
        rates = max_min_rates(demands)
        next_s = case.flows[waiting[0]].at_s if waiting else inf
        first_s = min((now_s + left[i] / rate for i, rate in zip(active, rates, strict=True)), default=inf)
        step_s = min(next_s, first_s) - now_s
        now_s = min(next_s, first_s)
        for i, rate in zip(active, rates, strict=True):
            left[i] -= rate * step_s
            if left[i] <= rate * 1e-13:
                ended_s[i] = now_s
        active = [i for i in active if ended_s[i] < 0.0]
        while waiting and case.flows[waiting[0]].at_s <= now_s:
            active.append(waiting.pop(0))
    return ended_s


def ceilings(cls: FlowClass) -> list[float]:
    return [ceiling for _, _, ceiling, _ in cls.ends]


@given(case=cases())
@settings(max_examples=150)
def test_rates_are_max_min_fair_and_no_link_is_overfull_at_any_time(case: Case) -> None:
    def look(_: float, classes: Sequence[FlowClass]) -> None:
        used: dict[Resource, float] = {}
        demand: dict[Resource, float] = {}
        level_on: dict[Resource, float] = {}
        for cls in classes:
            assert cls.rate > 0.0
            for resource, weight in cls.path.all_terms:
                used[resource] = used.get(resource, 0.0) + cls.n * cls.rate * weight
                level_on[resource] = max(level_on.get(resource, 0.0), cls.rate / cls.share)
            for resource, weight in cls.path.terms:
                demand[resource] = demand.get(resource, 0.0) + sum(ceilings(cls)) * weight
        assert {resource: resource.demand for resource in demand} == pytest.approx(demand, rel=1e-9)
        assert max(used.values(), default=0.0) <= 1.0 + 2e-9
        for cls in classes:
            assert len(cls.ends) == cls.n
            assert cls.rate <= min(ceilings(cls)) * (1.0 + 1e-12)
            if cls.rate < max(ceilings(cls)) * (1.0 - 1e-9):
                # It is held back by a full link, on which nobody has more for its share.
                assert any(
                    used[resource] >= 1.0 - 1e-9 and level_on[resource] <= cls.rate / cls.share * (1.0 + 1e-9)
                    for resource, _ in cls.path.all_terms
                )

    replay(case, look=look)


@given(case=cases())
@settings(max_examples=150)
def test_work_is_conserved(case: Case) -> None:
    ended_s, network, meter = replay(case)
    assert network.flows_ended == len(case.flows)
    assert network.active_flows == 0
    # Whatever is idle is so exactly, so that rounding cannot pile up over a run.
    assert all(path.n == 0 and not path.classes for path in network._paths)
    assert all(resource.demand == 0.0 and not resource.classes for resource in network._resources)
    asked = [[0.0, 0.0] for _ in case.links]
    for flow in case.flows:
        for hop in case.paths[flow.path]:
            asked[int(hop.link.removeprefix("l"))][hop.direction] += hop.passes * flow.n_bytes
    metered = [[0.0, 0.0] for _ in case.links]
    for class_id, t0_s, t1_s, n_bytes in meter.rows:
        assert 0.0 <= t0_s < t1_s <= max(ended_s)
        for link, direction, passes in meter.classes[class_id]:
            metered[link][direction] += passes * n_bytes
    for link in range(len(case.links)):
        assert network.link_bytes[link] == pytest.approx(asked[link], rel=1e-12)
        # A flow ends at most a few roundings of the clock early.
        assert metered[link] == pytest.approx(asked[link], rel=1e-9)


@given(case=cases(max_flows=12))
@settings(max_examples=60)
def test_what_is_metered_is_the_integral_of_the_rates(case: Case) -> None:
    settled: list[tuple[float, dict[int, float]]] = []

    def look(now_s: float, classes: Sequence[FlowClass]) -> None:
        by_class: dict[int, float] = {}
        for cls in classes:
            by_class[cls.path.meter_class] = by_class.get(cls.path.meter_class, 0.0) + cls.n * cls.rate
        settled.append((now_s, by_class))

    ended_s, _, meter = replay(case, look=look)
    integral = [0.0] * len(meter.classes)
    for (t0_s, rates), (t1_s, _) in zip(settled, [*settled[1:], (max(ended_s), {})], strict=True):
        for class_id, rate in rates.items():
            integral[class_id] += rate * (t1_s - t0_s)
    moved = [0.0] * len(meter.classes)
    for class_id, _, _, n_bytes in meter.rows:
        moved[class_id] += n_bytes
    assert moved == pytest.approx(integral, rel=1e-9, abs=1.0)


@given(case=cases())
@settings(max_examples=150)
def test_classes_end_their_flows_when_a_filling_flow_by_flow_does(case: Case) -> None:
    ended_s, _, _ = replay(case)
    assert ended_s == pytest.approx(flow_by_flow(case), rel=1e-9, abs=1e-11)


@given(case=cases())
@settings(max_examples=150)
def test_shadowing_changes_nothing(case: Case) -> None:
    shadowed, network, _ = replay(case)
    plain, unshadowed, _ = replay(case, unshadowed=True)
    assert all(path.terms == path.all_terms for path in unshadowed._paths)
    assert shadowed == pytest.approx(plain, rel=1e-9, abs=1e-11)
    assert network.busy_until_now() == pytest.approx(unshadowed.busy_until_now(), rel=1e-9, abs=1e-11)


@given(case=cases())
@settings(max_examples=50)
def test_the_same_case_gives_the_same_bits(case: Case) -> None:
    first, _, meter = replay(case)
    again, _, meter_again = replay(case)
    assert first == again
    assert meter.rows == meter_again.rows


@given(
    case=cases(max_flows=12),
    from_s=st.sampled_from([1e6, 1e9, 3e9]),
    scale=st.sampled_from([1e-9, 1e-6, 1e-3, 1.0, 1e3]),
)
@settings(max_examples=150)
def test_nothing_stalls_late_on_the_clock(case: Case, from_s: float, scale: float) -> None:
    # From a few bytes, moved in less than one rounding of the clock, to 10 TB.
    flows = [
        Flow(flow.at_s * scale, flow.path, max(flow.n_bytes * scale, 1.0), flow.ceiling, flow.share)
        for flow in case.flows
    ]
    scaled = Case(case.links, case.paths, flows)
    ended_s, _, _ = replay(scaled, from_s=from_s)  # in a bounded number of events, or it fails
    early_s, _, _ = replay(scaled)
    # Every event may be some roundings late or early, and so may all that follow from it.
    roundings_s = 64 * len(flows) * ulp(2 * from_s)
    assert [end_s - from_s for end_s in ended_s] == pytest.approx(early_s, abs=roundings_s, rel=1e-9)


def test_settling_is_the_last_thing_of_an_instant() -> None:
    case = Case([Link("l0", GB, GB)], [[Hop("l0", 0)]], [Flow(1.0, 0, GB, inf, 1.0)] * 5)
    looks: list[int] = []
    clock = Clock()
    network = Watched(clock, case.links, Rows())
    network.look = lambda _, classes: looks.append(sum(cls.n for cls in classes))
    path = network.path(case.paths[0])
    for order in (ARRIVAL, SETTLE - 1, ARRIVAL):
        clock.at(1.0, order, lambda _: network.start(path, GB, lambda: None))
    clock.run()
    assert looks == [3, 0]
