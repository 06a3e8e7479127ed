"""Sessions: requests that wait for the answer to the one before, and how open-loop traces are seen as such.

A session is one main stream of turns and any number of side streams (sub-agents). Main streams do not wait for
sub-agents: the recorded pause before a main turn already holds what waiting for a sub-agent there was.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from sim.traces.record import NO_ID, Trace, TraceRecord


@dataclass(slots=True, kw_only=True)
class Stream:
    """One agent's requests, each sent after the answer to the one before.

    Parameters
    ----------
    session_id
        The session that it is part of.
    turns
        Returns a fresh iterator over the requests. Their block lists are made when a request is asked for, so a stream
        at rest holds little. `arrived_at_s` counts from the start of the session.
    after_turn
        Of a sub-agent: the index of the main stream's turn whose end it follows; `NO_ID` for the main stream.
    delay_s
        Of a sub-agent: from that end to its first request [s].
    """

    session_id: int
    turns: Callable[[], Iterator[TraceRecord]]
    after_turn: int = NO_ID
    delay_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Session:
    """One conversation or agent at work.

    Parameters
    ----------
    session_id
        Its number in the trace.
    starts_at_s
        When it starts on the trace's clock [s]; None where the trace does not say.
    streams
        Its streams, the main one first.
    requests
        Requests in all streams together.
    """

    session_id: int
    starts_at_s: float | None
    streams: tuple[Stream, ...]
    requests: int


class SessionTrace(Trace, Protocol):
    """A trace that knows its sessions."""

    @property
    def starts_known(self) -> bool:
        """Whether the trace says when its sessions start."""
        ...

    def sessions(self) -> Iterator[Session]:
        """Return a fresh stream of the sessions, by start where starts are known; a bad file raises TraceError."""
        ...


def merged(sessions: Iterable[Session]) -> Iterator[TraceRecord]:
    """Yield the requests of *sessions* by arrival, sessions of unknown start from 0; sessions must come by start.

    Of each stream that has begun and not ended, the compact turns and one block list are held. Ties keep the order of
    the sessions.
    """
    waiting: list[tuple[float, int, TraceRecord, Iterator[TraceRecord], float]] = []
    number = count()

    def wait_for_next(turns: Iterator[TraceRecord], starts_at_s: float) -> None:
        record = next(turns, None)
        if record is not None:
            record.arrived_at_s += starts_at_s
            heappush(waiting, (record.arrived_at_s, next(number), record, turns, starts_at_s))

    def released(until_s: float) -> Iterator[TraceRecord]:
        while waiting and waiting[0][0] < until_s:
            _, _, record, turns, starts_at_s = heappop(waiting)
            yield record
            wait_for_next(turns, starts_at_s)

    for session in sessions:
        starts_at_s = session.starts_at_s or 0.0
        yield from released(starts_at_s)
        for stream in session.streams:
            wait_for_next(stream.turns(), starts_at_s)
    yield from released(math.inf)
