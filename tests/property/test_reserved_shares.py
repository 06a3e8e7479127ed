"""Shares of links that are kept from others' traffic, on random networks: what the tiers get, and that none is idle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import Final

import pytest
from flows_kit import GB, Case, Flow, Rows, Watched, cases, ceilings, flow_by_flow, replay
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.clock import Clock
from sim.transfers.flows import READ, WRITE, Hop, Link
from sim.transfers.max_min import FlowClass, Resource

KEPT: Final = (None, None, 0.0, 0.2, 0.5, 0.9)
CAPACITY: Final = 10 * GB
"""Of the one link, where there is one."""


@pytest.fixture(autouse=True, scope="module")
def two_are_a_crowd() -> Iterator[None]:
    """Pool whatever can be pooled: others' flows are pooled as little as the tiers' else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.transfers.flows.CROWD", 2)
        yield


@st.composite
def contended(draw: st.DrawFn) -> Case:
    """Few links, many flows over one or some of them: the tiers' are often held back elsewhere."""
    rates = st.sampled_from([GB, 3 * GB, 10 * GB])
    links = [Link(f"l{i}", draw(rates), draw(rates), duplex=draw(st.booleans())) for i in range(3)]
    hop = st.builds(Hop, st.sampled_from(["l0", "l1", "l2"]), st.sampled_from([READ, READ, WRITE]))
    route = st.lists(hop, min_size=1, max_size=3, unique=True)
    paths = draw(st.lists(st.tuples(route, st.sampled_from(KEPT)), min_size=3, max_size=6))
    flow = st.builds(
        Flow,
        at_s=st.sampled_from([0.0, 0.0, 0.5]),
        path=st.integers(0, len(paths) - 1),
        n_bytes=st.sampled_from([1e9, 4e9, 5e9]),
        ceiling=st.sampled_from([inf, inf, 0.3 * GB, 0.7 * GB]),
        share=st.sampled_from([1.0, 1.0, 0.5, 16.0]),
    )
    flows = draw(st.lists(flow, min_size=6, max_size=16))
    return Case(links, [hops for hops, _ in paths], flows, [kept for _, kept in paths])


# Any network ---------------------------------------------------------------------------------------------------------


@given(case=cases(kept=KEPT) | contended())
@settings(max_examples=200)
def test_classes_end_their_flows_when_a_filling_flow_by_flow_does(case: Case) -> None:
    ended_s, _, _ = replay(case)
    assert ended_s == pytest.approx(flow_by_flow(case), rel=1e-9, abs=1e-11)


@given(case=cases(kept=KEPT) | contended())
@settings(max_examples=100)
def test_links_out_of_the_filling_change_nothing(case: Case) -> None:
    shadowed, _, _ = replay(case)
    plain, _, _ = replay(case, unshadowed=True)
    assert shadowed == pytest.approx(plain, rel=1e-9, abs=1e-11)


@given(case=cases(kept=KEPT) | contended())
@settings(max_examples=200)
def test_no_link_has_room_that_anybody_on_it_could_use(case: Case) -> None:
    def look(_: float, classes: Sequence[FlowClass]) -> None:
        used: dict[Resource, float] = {}
        for cls in classes:
            for resource, weight in cls.path.all_terms:
                used[resource] = used.get(resource, 0.0) + cls.n * cls.rate * weight
        assert max(used.values(), default=0.0) <= 1.0 + 2e-9
        for cls in classes:
            assert 0.0 < cls.rate <= min(ceilings(cls)) * (1.0 + 1e-12)
            if cls.rate < max(ceilings(cls)) * (1.0 - 1e-9):
                assert max(used[resource] for resource, _ in cls.path.all_terms) >= 1.0 - 1e-9

    replay(case, look=look)


@given(case=cases(kept=KEPT) | contended())
@settings(max_examples=100)
def test_nothing_kept_is_what_all_flows_alike_get(case: Case) -> None:
    alike, _, meter = replay(replace(case, kept=[None] * len(case.paths)))
    nothing, _, meter_again = replay(replace(case, kept=[None if kept is None else 0.0 for kept in case.kept]))
    assert nothing == alike
    assert meter_again.rows == meter.rows


@given(case=cases(kept=(0.2, 0.5, 0.9)))
@settings(max_examples=50)
def test_what_nobody_asks_for_is_kept_from_nobody(case: Case) -> None:
    alike, _, _ = replay(replace(case, kept=[None] * len(case.paths)))
    assert replay(case)[0] == alike


# One link ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asking:
    """One flow of the tiers (``kept`` None) or of others."""

    ceiling: float
    share: float
    kept: float | None


def flows(kept: st.SearchStrategy[float | None]) -> st.SearchStrategy[list[Asking]]:
    ceiling = st.sampled_from([inf, GB, 3 * GB]) | st.floats(0.05 * GB, 20 * GB)
    one = st.builds(Asking, ceiling=ceiling, share=st.sampled_from([1.0, 1.0, 0.5, 64.0]), kept=kept)
    return st.lists(one, min_size=1, max_size=8)


def rates(asking: Sequence[Asking]) -> list[float]:
    """Return what each of some flows gets of the one link [B/s]."""
    clock = Clock()
    network = Watched(clock, [Link("l0", CAPACITY, CAPACITY)], Rows())
    found: list[dict[int, float]] = []
    paths = [network.path([Hop("l0", READ)]) for _ in asking]
    network.look = lambda _, classes: found.append({paths.index(cls.path): cls.rate for cls in classes})
    for path, flow in zip(paths, asking, strict=True):
        if flow.kept is not None:
            network.give_to_others(path, flow.kept)
        network.start(path, GB, lambda: None, flow.ceiling, flow.share)
    while not found:
        clock.step()
    return [found[0][i] for i in range(len(asking))]


def asked(asking: Sequence[Asking]) -> float:
    return sum(min(flow.ceiling, CAPACITY) for flow in asking)


def tiers(asking: Sequence[Asking], found: Sequence[float]) -> float:
    return sum(rate for flow, rate in zip(asking, found, strict=True) if flow.kept is None)


kept_or_tiers = st.none() | st.sampled_from([0.1, 0.5, 0.5, 0.9]) | st.floats(0.01, 0.99)


@given(asking=flows(kept_or_tiers))
def test_the_tiers_get_what_is_kept_or_what_they_ask_for_and_all_is_used(asking: list[Asking]) -> None:
    found = rates(asking)
    least = min((flow.kept for flow in asking if flow.kept is not None), default=1.0)
    theirs = asked([flow for flow in asking if flow.kept is None])
    assert tiers(asking, found) >= min(theirs, least * CAPACITY) * (1.0 - 1e-9)
    assert sum(found) == pytest.approx(min(asked(asking), CAPACITY), rel=1e-9)


@given(asking=flows(st.just(0.0) | kept_or_tiers))
def test_all_from_whom_a_share_is_kept_are_held_to_the_rest_together(asking: list[Asking]) -> None:
    found = rates(asking)
    theirs = asked([flow for flow in asking if flow.kept is None])
    for share in {flow.kept for flow in asking} - {None}:
        held = sum(rate for flow, rate in zip(asking, found, strict=True) if (flow.kept or -1.0) >= share)
        assert held <= (CAPACITY - min(share * CAPACITY, theirs)) * (1.0 + 1e-9)


@given(asking=flows(st.just(0.0) | kept_or_tiers), more=st.floats(0.0, 0.99), data=st.data())
def test_the_more_is_kept_from_anybody_the_more_each_of_the_tiers_has(asking, more, data) -> None:
    plain = [replace(flow, kept=None if flow.kept is None else 0.0) for flow in asking]
    one = data.draw(st.integers(0, len(asking) - 1))
    raised = [
        replace(flow, kept=max(flow.kept, more)) if i == one and flow.kept is not None else flow
        for i, flow in enumerate(asking)
    ]
    by_step = [rates(step) for step in (plain, asking, raised)]
    for less, further in pairwise(by_step):
        for flow, before, after in zip(asking, less, further, strict=True):
            if flow.kept is None:
                assert after >= before * (1.0 - 1e-9)
