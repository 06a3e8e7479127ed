"""Random networks and flows: fair rates at every instant, nothing lost, the same ends as a filling flow by flow."""

from collections.abc import Iterator, Sequence
from math import inf, ulp

import pytest
from flows_kit import GB, Case, Flow, Rows, Watched, cases, ceilings, flow_by_flow, replay
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.clock import ARRIVAL, SETTLE, Clock
from sim.transfers.flows import Hop, Link
from sim.transfers.max_min import FlowClass, Resource


@pytest.fixture(autouse=True, scope="module")
def two_are_a_crowd() -> Iterator[None]:
    """Pool whatever can be pooled: cases of eight classes on a path would be rare."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.transfers.flows.CROWD", 2)
        yield


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
    scaled = Case(case.links, case.paths, flows, case.kept)
    ended_s, _, _ = replay(scaled, from_s=from_s)  # in a bounded number of events, or it fails
    early_s, _, _ = replay(scaled)
    # Every event may be some roundings late or early, and so may all that follow from it.
    roundings_s = 64 * len(flows) * ulp(2 * from_s)
    assert [end_s - from_s for end_s in ended_s] == pytest.approx(early_s, abs=roundings_s, rel=1e-9)


def test_settling_is_the_last_thing_of_an_instant() -> None:
    case = Case([Link("l0", GB, GB)], [[Hop("l0", 0)]], [Flow(1.0, 0, GB, inf, 1.0)] * 5, [None])
    looks: list[int] = []
    clock = Clock()
    network = Watched(clock, case.links, Rows())
    network.look = lambda _, classes: looks.append(sum(cls.n for cls in classes))
    path = network.path(case.paths[0])
    for order in (ARRIVAL, SETTLE - 1, ARRIVAL):
        clock.at(1.0, order, lambda _: network.start(path, GB, lambda: None))
    clock.run()
    assert looks == [3, 0]
