"""Sessions: requests that wait for the answer to the one before, and how open-loop traces are seen as such.

A session is one main stream of turns and any number of side streams (sub-agents). Main streams do not wait for
sub-agents: the recorded pause before a main turn already holds what waiting for a sub-agent there was.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
