"""One flow against the chunks that it sums up, moved one by one.

What the flow leaves out, and so how far the two may lie apart:

* A chunk's software time is in the flow's ceiling. On a full link the ceiling does not count, but each chunk still
  waits for its software: a load of r rounds takes up to r software times longer than its flow. Where loads contend,
  software time has to be small against a chunk's time for the two to agree.
* Chunks are whole. In the last, partly filled round of a load whose link is full, fewer chunks are under way than the
  link could carry: at most one chunk's time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import pytest
from flows_kit import GB, some_links
from hypothesis import given, settings
from hypothesis import strategies as st

from models.software import SoftwarePath
from sim.clock import ARRIVAL, Clock
from sim.recording import LinkMeter
from sim.transfers.chunkwise import ChunkNetwork
from sim.transfers.flows import READ, WRITE, FlowNetwork, Hop, Link

MB = 1e6


@dataclass(frozen=True)
class Load:
    path: int
    rounds: int
    in_flight: int
    processes: int = 1
    missing: int = 0
    """Chunks that the last round is short of."""
    at_s: float = 0.0

    @property
    def chunks(self) -> int:
        return self.rounds * self.in_flight - self.missing


@dataclass(frozen=True)
class Case:
    links: Sequence[Link]
    paths: Sequence[Sequence[Hop]]
    loads: Sequence[Load]
    chunk_bytes: float
    software_s: float
    stream_bytes_per_s: float | None
    process_bytes_per_s: float | None = None

    def software(self, load: Load) -> SoftwarePath:
        return SoftwarePath(
            in_flight=load.in_flight,
            software_s=self.software_s,
            stream_bytes_per_s=self.stream_bytes_per_s,
            process_bytes_per_s=self.process_bytes_per_s,
        )


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[Link], list[list[Hop]]]:
    """Up to four links of 5 to 100 GB/s, and paths over one to three of them."""
    links = some_links(draw, st.floats(5.0, 100.0), most=4)
    hops = st.builds(
        Hop,
        link=st.sampled_from([link.name for link in links]),
        direction=st.sampled_from([READ, WRITE]),
        passes=st.sampled_from([1.0, 1.0, 2.0]),
    )
    return links, draw(st.lists(st.lists(hops, min_size=1, max_size=3), min_size=1, max_size=3))


@st.composite
def alone(draw: st.DrawFn) -> Case:
    """One load on a random path, with any software time."""
    links, paths = draw(networks())
    in_flight = draw(st.sampled_from([1, 1, 2, 4, 32]))
    load = Load(
        path=draw(st.integers(0, len(paths) - 1)),
        rounds=draw(st.integers(1, 12)),
        in_flight=in_flight,
        processes=draw(st.sampled_from([1, 1, 2, 8])),
        missing=draw(st.integers(0, in_flight - 1)),
    )
    limits = st.none() | st.floats(1.0 * GB, 20.0 * GB)
    return Case(
        links, paths, [load], draw(st.floats(1.0, 100.0)) * MB, draw(st.floats(0.0, 0.02)), draw(limits), draw(limits)
    )


@st.composite
def contended(draw: st.DrawFn) -> Case:
    """Several loads at random times: chunks of LMCache's size, software time up to 0.3 % of a chunk's at full speed."""
    links, paths = draw(networks())
    chunk_bytes = draw(st.floats(10.0, 100.0)) * MB
    stream = draw(st.floats(1.0, 8.0)) * GB
    loads = st.builds(
        Load,
        path=st.integers(0, len(paths) - 1),
        rounds=st.integers(2, 12),
        in_flight=st.sampled_from([1, 4, 8, 32]),
        processes=st.sampled_from([1, 1, 2]),
        at_s=st.floats(0.0, 0.5),
    )
    fastest_s = chunk_bytes / 2 / stream
    return Case(
        links,
        paths,
        draw(st.lists(loads, min_size=2, max_size=6)),
        chunk_bytes,
        draw(st.floats(0.0, 0.003)) * fastest_s,
        stream,
    )


def timed(case: Case, clock: Clock, start: Callable[[Load, Callable[[], None]], None]) -> list[float]:
    """Return how long each load takes [s]."""
    took_s = [inf] * len(case.loads)

    def begin(i: int, load: Load) -> None:
        def on_done() -> None:
            took_s[i] = clock.now_s - load.at_s

        clock.at(load.at_s, ARRIVAL, lambda _: start(load, on_done))

    for i, load in enumerate(case.loads):
        begin(i, load)
    clock.run()
    return took_s


def as_flows(case: Case) -> list[float]:
    clock = Clock()
    network = FlowNetwork(clock, case.links, LinkMeter([link.name for link in case.links]))
    paths = [network.path(hops) for hops in case.paths]

    def start(load: Load, on_done: Callable[[], None]) -> None:
        ceiling = case.software(load).ceiling_bytes_per_s(
            chunks=load.chunks, chunk_bytes=case.chunk_bytes, processes=load.processes
        )
        network.start(paths[load.path], load.chunks * case.chunk_bytes, on_done, ceiling)

    return timed(case, clock, start)


def as_chunks(case: Case) -> list[float]:
    clock = Clock()
    network = ChunkNetwork(clock, case.links)
    paths = [network.path(hops) for hops in case.paths]

    def start(load: Load, on_done: Callable[[], None]) -> None:
        software = case.software(load)
        network.start(paths[load.path], load.chunks, case.chunk_bytes, on_done, software, processes=load.processes)

    return timed(case, clock, start)


@given(case=contended())
@settings(max_examples=100)
def test_flows_equal_chunks_within_a_hundredth_where_software_time_is_small(case: Case) -> None:
    assert as_flows(case) == pytest.approx(as_chunks(case), rel=0.01)


@given(case=alone())
@settings(max_examples=200)
def test_a_load_alone_takes_its_flow_time_plus_at_most_its_software_time_and_a_chunk(case: Case) -> None:
    load = case.loads[0]
    (flow_s,), (chunks_s,) = as_flows(case), as_chunks(case)
    piece_bytes = case.chunk_bytes / load.processes
    slowest = min(case.stream_bytes_per_s or inf, case.process_bytes_per_s or inf)
    last_chunk_s = piece_bytes / slowest if load.missing else 0.0
    assert flow_s * (1.0 - 1e-9) <= chunks_s
    assert chunks_s <= (flow_s + load.rounds * case.software_s + last_chunk_s) * (1.0 + 1e-9)


@given(case=alone())
@settings(max_examples=60)
def test_a_load_that_no_link_holds_back_takes_exactly_its_flow_time(case: Case) -> None:
    wide = [Link(link.name, 1e5 * GB, 1e5 * GB) for link in case.links]
    free = Case(wide, case.paths, case.loads, case.chunk_bytes, case.software_s, 4.0 * GB)
    assert as_flows(free) == pytest.approx(as_chunks(free), rel=1e-6)


def one_link(loads: Sequence[Load], **limits: float | None) -> Case:
    links = [Link("pipe", 10 * GB, 10 * GB)]
    limits = {"software_s": 0.0, "stream_bytes_per_s": None} | limits
    return Case(links, [[Hop("pipe", READ)]], loads, 100 * MB, **limits)  # type: ignore[arg-type]


def test_chunks_by_hand() -> None:
    # One in flight: 10 chunks of 5 ms software and 10 ms on the link.
    assert as_chunks(one_link([Load(0, 10, 1)], software_s=0.005)) == [pytest.approx(0.150)]
    # Four in flight share the link after one common software time: (5 + 40) ms a round, two rounds.
    assert as_chunks(one_link([Load(0, 2, 4)], software_s=0.005)) == [pytest.approx(0.090)]
    # A stream of 2 GB/s is the limit, three rounds of 50 ms; the last one holds one chunk only.
    assert as_chunks(one_link([Load(0, 3, 4, missing=3)], stream_bytes_per_s=2 * GB)) == [pytest.approx(0.150)]
    # Two processes of 3 GB/s each move half of every chunk: 20 chunks at 6 GB/s.
    assert as_chunks(one_link([Load(0, 5, 4, processes=2)], process_bytes_per_s=3 * GB)) == [pytest.approx(2 / 6)]
    # A load of one chunk at a time gets the same share of the link as one of 32.
    assert as_chunks(one_link([Load(0, 32, 1), Load(0, 1, 32)])) == [pytest.approx(0.64), pytest.approx(0.64)]


def test_software_time_on_a_full_link_is_what_the_flow_leaves_out() -> None:
    # The link is the limit: the flow takes 10 x 10 ms; chunk by chunk, 10 x 5 ms of software come on top.
    case = one_link([Load(0, 10, 1)], software_s=0.005, stream_bytes_per_s=20 * GB)
    assert as_flows(case) == [pytest.approx(0.100)]
    assert as_chunks(case) == [pytest.approx(0.150)]
