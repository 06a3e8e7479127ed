"""Loads over numbered contexts: a closed loop at a concurrency, one wave, and requests at a rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import numpy as np

from sim.clock import ARRIVAL, Wakeup
from sim.cluster import Cluster
from sim.engine.request import Request

_CONTEXT_KEYS: Final = 1 << 50
"""Chunk ids of numbered contexts begin here, far above the ids that traces use."""
_CONTEXT_SPAN: Final = 1 << 24
"""Chunk ids set aside for one context."""
_OWN_KEYS: Final = 1 << 56
"""Chunk ids of what is a request's own begin here."""
_PHASE_REQUESTS: Final = 1 << 26
"""Requests set aside for one phase, so that what is a request's own differs from that of every other phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """Numbered contexts, each with chunks of its own: equal numbers share their whole prefix.

    Where a request has tokens of its own at the end, equal numbers share what stands before them.

    Parameters
    ----------
    prompt_tokens, output_tokens : int
        Lengths [tokens].
    chunk_tokens : int
        Unit of residency [tokens].
    shortest : float
        Lengths are drawn evenly between this share of the above and all of it; 1: they are all alike.
    random : Generator or None
        Draws them; needed where ``shortest`` is below 1.
    own_tokens : int
        Tokens at the end of each prompt that no other request has [tokens].
    """

    prompt_tokens: int
    output_tokens: int
    chunk_tokens: int
    shortest: float = 1.0
    random: np.random.Generator | None = None
    own_tokens: int = 0
    _count: Iterator[int] = field(default_factory=count, init=False, repr=False, compare=False)

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
        prompt_tokens, output_tokens = self._drawn(self.prompt_tokens), self._drawn(self.output_tokens)
        cluster.submit(
            session_id=number,
            phase=phase,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            chunks=self._chunks(first, prompt_tokens, phase),
            replica=replica,
            on_end=on_end,
        )

    def _chunks(self, first: int, prompt_tokens: int, phase: int) -> list[int]:
        """Return the prompt's chunks; one that holds any token of the request's own is its own."""
        chunks = list(range(first, first + prompt_tokens // self.chunk_tokens))
        if self.own_tokens:
            shared = max(prompt_tokens - self.own_tokens, 0) // self.chunk_tokens
            own = _OWN_KEYS + (phase * _PHASE_REQUESTS + next(self._count)) * _CONTEXT_SPAN
            chunks[shared:] = range(own, own + len(chunks) - shared)
        return chunks

    def _drawn(self, longest: int) -> int:
        if self.shortest >= 1.0 or self.random is None:
            return longest
        return int(self.random.integers(max(1, int(longest * self.shortest)), longest, endpoint=True))


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
    random : Generator or None
        Brings the requests into random order, each context as often as in turn; None: in turn.
    """

    contexts: Contexts
    concurrency: int
    requests: int
    sessions: int | None = None
    first_session: int = 0
    think_s: float = 0.0
    per_replica: bool = False
    random: np.random.Generator | None = None
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
        order = None if self.random is None else self.random.permutation(self.requests).tolist()

        def send(_: Wakeup) -> None:
            nonlocal sent
            number = sent if order is None else order[sent]
            session = number if self.sessions is None else number % self.sessions
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


@dataclass(slots=True, kw_only=True)
class PoissonLoad:
    """Requests at a rate, whatever the cluster does, each over a context drawn at random.

    Parameters
    ----------
    contexts : Contexts
        What is sent.
    rate_per_s : float
        Mean requests a second; gaps are exponential.
    requests : int
        How many.
    sessions : int
        Contexts, each as likely as the others.
    random : Generator
        Draws gaps and contexts.
    first_session : int
        Number of the first context.
    """

    contexts: Contexts
    rate_per_s: float
    requests: int
    sessions: int
    random: np.random.Generator
    first_session: int = 0
    _ended: int = 0

    def start(self, cluster: Cluster, phase: int, on_done: Callable[[], None]) -> None:
        """Send the first request after the first gap from now."""
        clock = cluster.clock
        self._ended = 0
        # Drawn apart, so that with another rate the same contexts come in the same order at scaled times.
        arrivals_s = clock.now_s + np.cumsum(self.random.standard_exponential(self.requests)) / self.rate_per_s
        chosen = self.first_session + self.random.integers(self.sessions, size=self.requests)
        arrivals = zip(arrivals_s.tolist(), chosen.tolist(), strict=True)

        def send_next() -> None:
            following = next(arrivals, None)
            if following is not None:
                when_s, session = following
                clock.at(when_s, ARRIVAL, lambda _: send(session))

        def send(session: int) -> None:
            send_next()
            self.contexts.submit(cluster, phase, session, None, ended)

        def ended(_: Request) -> None:
            self._ended += 1
            if self._ended == self.requests:
                on_done()

        send_next()

    def fraction_done(self) -> float:
        """Return ended over all requests."""
        return self._ended / self.requests
