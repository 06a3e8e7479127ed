"""Random networks and flows, replayed by the simulator's classes of flows and by a filling flow by flow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import strategies as st

from sim.clock import ARRIVAL, Clock, Wakeup
from sim.transfers.chunkwise import ChunkNetwork, Weights, reserved_rates
from sim.transfers.flows import FlowNetwork, Hop, Link
from sim.transfers.max_min import FlowClass

GB = 1e9

Look = Callable[[float, Sequence[FlowClass]], None]
"""Is shown the time and the classes under way, whenever the rates have settled."""


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
    kept: Sequence[float | None]
    """By path: None for the tiers' own, for others' what is kept from them."""


def some_links(draw: st.DrawFn, rates: st.SearchStrategy[float], *, most: int) -> list[Link]:
    """Draw up to that many links, of *rates* in GB/s."""
    return [
        Link(f"l{i}", draw(rates) * GB, draw(rates) * GB, duplex=draw(st.booleans()))
        for i in range(draw(st.integers(1, most)))
    ]


@st.composite
def cases(draw: st.DrawFn, *, max_flows: int = 24, kept: Sequence[float | None] = (None,)) -> Case:
    # Few different rates, times and ceilings, so that ties and equal classes occur; odd ones, so that nothing is round.
    rates = st.sampled_from([1.0, 2.5, 10.0]) | st.floats(0.5, 50.0)
    links = some_links(draw, rates, most=5)
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
    shares = draw(st.lists(st.sampled_from(kept), min_size=len(paths), max_size=len(paths)))
    return Case(links, paths, draw(st.lists(flows, min_size=1, max_size=max_flows)), shares)


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
    for path, kept in zip(paths, case.kept, strict=True):
        if kept is not None:
            network.give_to_others(path, kept)
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
        rates = reserved_rates(demands, [case.kept[case.flows[i].path] for i in active])
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
