"""Sessions put in order: a generated trace that can be read request by request or session by session."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import ClassVar

from sim.traces.record import TraceRecord
from sim.traces.sessions import Session, merged


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedTrace:
    """The sessions of a generator, drawn afresh at every reading.

    Read by `records`, requests arrive when the fitted gaps say, and the trace ends in the midst of sessions, as a cut
    from a running service does. Read by `sessions`, every session is whole: those that start within *duration_s*, or
    the first ones that together have at least *requests*.

    Parameters
    ----------
    name
        What to call the trace in results.
    block_tokens
        Size of the blocks [tokens].
    draw
        Returns a fresh, endless or finite iterator over the sessions by start.
    n_sessions
        Number of sessions to make, or None.
    requests
        Number of requests to make, or None.
    duration_s
        Time after which no request arrives and no session starts [s], or None.
    arrival_quantum_s
        Arrivals are rounded down to multiples of this [s], or not where None.
    """

    name: str
    block_tokens: int
    draw: Callable[[], Iterator[Session]]
    n_sessions: int | None = None
    requests: int | None = None
    duration_s: float | None = None
    arrival_quantum_s: float | None = None
    has_prefixes: ClassVar[bool] = True
    starts_known: ClassVar[bool] = True

    def sessions(self) -> Iterator[Session]:
        """Yield the sessions by start."""
        n_left = math.inf if self.requests is None else self.requests
        for session in self._drawn():
            if self.duration_s is not None and _start_s(session) >= self.duration_s:
                return
            if n_left <= 0:
                return
            yield session
            n_left -= session.requests

    def _drawn(self) -> Iterator[Session]:
        return islice(self.draw(), self.n_sessions)

    def records(self) -> Iterator[TraceRecord]:
        """Yield the requests by arrival; memory grows with the sessions under way, not with the requests."""
        until_s = math.inf if self.duration_s is None else self.duration_s
        quantum_s = self.arrival_quantum_s
        for record in islice(merged(self._drawn()), self.requests):
            if record.arrived_at_s >= until_s:
                return
            if quantum_s is not None:
                record.arrived_at_s = record.arrived_at_s // quantum_s * quantum_s
            yield record


def in_poisson_order(
    make: Callable[[int, float], Session], gaps: Iterator[float], rate_per_s: float
) -> Iterator[Session]:
    """Yield what *make* returns for session 0, 1, ... and its start [s], in a Poisson process of *rate_per_s* [1/s].

    *gaps* are exponential draws of mean 1.
    """
    starts_at_s = 0.0
    for session_id in count():
        starts_at_s += next(gaps) / rate_per_s
        yield make(session_id, starts_at_s)


def _start_s(session: Session) -> float:
    return session.starts_at_s or 0.0
