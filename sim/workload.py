"""What clients do: replay a trace, keep a closed loop going, send one wave; and phases of these on one warm cluster.

A driver's ``start`` sends its first requests and ``on_done`` is called once when all of its requests have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from models.errors import ScenarioError
from sim.clock import ARRIVAL, Wakeup
from sim.cluster import Cluster
from sim.engine.request import Request
from sim.traces.record import Trace, TraceRecord

_CONTEXT_KEYS: Final = 1 << 50
"""Chunk ids of numbered contexts begin here, far above the ids that traces use."""
_CONTEXT_SPAN: Final = 1 << 24
"""Chunk ids set aside for one context."""


class Driver(Protocol):
    """Sends requests to a cluster."""

    def start(self, cluster: Cluster, phase: int, on_done: Callable[[], None]) -> None:
        """Begin now."""

    def fraction_done(self) -> float | None:
        """Return how much of it is done, 0 to 1; None where that cannot be known."""


def blocks_per_chunk(trace_block_tokens: int, stack_chunk_tokens: int, engine_block_tokens: int, where: str) -> int:
    """Return how many of a trace's blocks make one chunk: the smallest multiple that is at least the stack's chunk.

    Raises
    ------
    ScenarioError
        If a chunk would not be a whole number of engine blocks.
    """
    count = -(-stack_chunk_tokens // trace_block_tokens)
    if count * trace_block_tokens % engine_block_tokens:
        problem = (
            f"a chunk of {count} x {trace_block_tokens} tokens is no multiple of the engine's block of "
            f"{engine_block_tokens} tokens; set engine.block_tokens to a divisor"
        )
        raise ScenarioError(where, problem)
    return count


@dataclass(slots=True, kw_only=True)
class OpenLoop:
    """Replays a trace at its own times, counted from its first request, whatever the cluster does.

    Parameters
    ----------
    trace : Trace
        The requests, in time order.
    chunk_blocks : int
        Trace blocks a chunk; a chunk is named by its last block's id (ids are chained).
    rate_scale : float
        Arrival times are divided by this; the order, and so the reuse, stays.
    limit : int or None
        Stop after so many requests.
    expected : int or None
        How many requests the trace is known to hold, for :meth:`fraction_done`.
    """

    trace: Trace
    chunk_blocks: int
    rate_scale: float = 1.0
    limit: int | None = None
    expected: int | None = None
    _sent: int = 0
    _ended: int = 0
    _exhausted: bool = False

    def start(self, cluster: Cluster, phase: int, on_done: Callable[[], None]) -> None:
        """Begin to replay now."""
        clock = cluster.clock
        began_s = clock.now_s
        records = self.trace.records()
        step = self.chunk_blocks

        def ended(_: Request) -> None:
            self._ended += 1
            if self._exhausted and self._ended == self._sent:
                on_done()

        def arrive(record: TraceRecord) -> None:
            self._sent += 1
            blocks = record.block_ids
            following = self._next(records)
            if following is None:
                self._exhausted = True
            else:
                when_s = began_s + (following.arrived_at_s - origin_s) / self.rate_scale
                clock.at(max(when_s, clock.now_s), ARRIVAL, lambda _: arrive(following))
            cluster.submit(
                session_id=record.session_id,
                phase=phase,
                prompt_tokens=record.prompt_tokens,
                output_tokens=record.output_tokens,
                chunks=blocks if step == 1 else blocks[step - 1 :: step],
                on_end=ended,
            )

        first = self._next(records)
        if first is None:
            raise ScenarioError(self.trace.name, "the trace holds no request")
        # The first request arrives now: traces may count from the epoch.
        origin_s = first.arrived_at_s
        clock.at(began_s, ARRIVAL, lambda _: arrive(first))

    def _next(self, records: Iterator[TraceRecord]) -> TraceRecord | None:
        if self.limit is not None and self._sent >= self.limit:
            return None
        return next(records, None)

    def fraction_done(self) -> float | None:
        """Return ended over expected requests, where their number is known."""
        total = min((n for n in (self.limit, self.expected) if n is not None), default=None)
        return None if total is None else min(self._ended / total, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """Numbered contexts, each with chunks of its own: equal numbers share their whole prefix.

    Parameters
    ----------
    prompt_tokens, output_tokens : int
        Lengths [tokens].
    chunk_tokens : int
        Unit of residency [tokens].
    """

    prompt_tokens: int
    output_tokens: int
    chunk_tokens: int

    def submit(
        self,
        cluster: Cluster,
        phase: int,
        session: int,
        replica: int | None,
        on_end: Callable[[Request], None],
    ) -> None:
        """Send one request over a context; contexts of a client bound to one replica differ from another's."""
        number = session if replica is None else session * len(cluster.replicas) + replica
        first = _CONTEXT_KEYS + number * _CONTEXT_SPAN
        cluster.submit(
            session_id=number,
            phase=phase,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            chunks=list(range(first, first + self.prompt_tokens // self.chunk_tokens)),
            replica=replica,
            on_end=on_end,
        )


def _targets(cluster: Cluster, per_replica: bool) -> Sequence[int | None]:
    """Return whom groups of clients are bound to: each replica has its own, or one group leaves it to the router."""
    return range(len(cluster.replicas)) if per_replica else [None]


@dataclass(slots=True, kw_only=True)
class ClosedLoop:
    """A fixed number of clients; each sends its next request when its last has ended.

    Parameters
    ----------
    contexts : Contexts
        What is sent.
    concurrency, requests : int
        Clients and requests in all (for each replica where ``per_replica``).
    sessions : int or None
        Contexts used in turn; None: a new one for every request.
    first_session : int
        Number of the first context.
    think_s : float
        Pause between answer and next request [s].
    per_replica : bool
        Every replica has its own clients and contexts.
    """

    contexts: Contexts
    concurrency: int
    requests: int
    sessions: int | None = None
    first_session: int = 0
    think_s: float = 0.0
    per_replica: bool = False
    _ended: int = 0
    _total: int = 1

    def start(self, cluster: Cluster, phase: int, on_done: Callable[[], None]) -> None:
        """Send each client's first request now."""
        targets = _targets(cluster, self.per_replica)
        self._total = self.requests * len(targets)
        self._ended = 0
        for target in targets:
            self._start_clients(cluster, phase, target, on_done)

    def _start_clients(self, cluster: Cluster, phase: int, target: int | None, on_done: Callable[[], None]) -> None:
        clock = cluster.clock
        sent = 0
        planned = min(self.concurrency, self.requests)

        def send(_: Wakeup) -> None:
            nonlocal sent
            session = sent if self.sessions is None else sent % self.sessions
            sent += 1
            self.contexts.submit(cluster, phase, self.first_session + session, target, ended)

        def ended(_: Request) -> None:
            # What a client will send is counted when it is planned, so that two ends of one instant plan two requests.
            nonlocal planned
            self._ended += 1
            if planned < self.requests:
                planned += 1
                clock.at(clock.now_s + self.think_s, ARRIVAL, send)
            elif self._ended == self._total:
                on_done()

        for _ in range(planned):
            clock.at(clock.now_s, ARRIVAL, send)

    def fraction_done(self) -> float:
        """Return ended over all requests."""
        return self._ended / self._total


@dataclass(slots=True, kw_only=True)
class Wave:
    """All requests at once, each over a context of its own.

    Parameters
    ----------
    contexts : Contexts
        What is sent.
    requests : int
        How many (for each replica where ``per_replica``).
    random : Generator
        Draws jitter and order.
    first_session : int
        Number of the first context.
    jitter_s : float
        Arrivals are spread evenly at random over this time [s].
    shuffle : bool
        Whether contexts arrive in random order.
    per_replica : bool
        Every replica has its own clients and contexts.
    """

    contexts: Contexts
    requests: int
    random: np.random.Generator
    first_session: int = 0
    jitter_s: float = 0.0
    shuffle: bool = True
    per_replica: bool = False
    _ended: int = 0
    _total: int = 1

    def start(self, cluster: Cluster, phase: int, on_done: Callable[[], None]) -> None:
        """Send the wave now."""
        clock = cluster.clock
        targets = _targets(cluster, self.per_replica)
        self._total = self.requests * len(targets)
        self._ended = 0

        def ended(_: Request) -> None:
            self._ended += 1
            if self._ended == self._total:
                on_done()

        def send(session: int, target: int | None) -> Callable[[Wakeup], None]:
            return lambda _: self.contexts.submit(cluster, phase, session, target, ended)

        for target in targets:
            order = self.random.permutation(self.requests) if self.shuffle else np.arange(self.requests)
            delays_s = np.sort(self.random.uniform(0.0, self.jitter_s, self.requests))
            for session, delay_s in zip(order.tolist(), delays_s.tolist(), strict=True):
                clock.at(clock.now_s + delay_s, ARRIVAL, send(self.first_session + session, target))

    def fraction_done(self) -> float:
        """Return ended over all requests."""
        return self._ended / self._total


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One load on the warm cluster.

    Parameters
    ----------
    name : str
        As in results.
    driver : Driver
        The load.
    clear : tuple of str
        Tiers emptied before it begins.
    restart : bool
        Engines restart before it: HBM is lost, and every index that lives in a process.
    """

    name: str
    driver: Driver
    clear: tuple[str, ...] = ()
    restart: bool = False
