"""A part of a trace: whole sessions drawn at random, so that what is reused inside them stays reused.

Rows drawn one by one would lose nearly all reuse. What sessions share among them, such as a system prompt, is missed
once for every trace rather than once for every session, so the hit ratio of a small part is a little lower.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from models.errors import InputError
from sim.traces.derived import DerivedTrace
from sim.traces.record import Trace, TraceRecord
from sim.traces.sessions import Session, SessionTrace, merged, with_session


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of a trace a sample took."""

    sessions: int
    of_sessions: int
    requests: int
    of_requests: int


def sampled(
    trace: Trace, random: np.random.Generator, *, sessions: int | None = None, share: float | None = None
) -> tuple[Trace, Share]:
    """Return so many *sessions* of a trace, or that *share* of them, at their own times, and what that comes to.

    Sessions are those that the trace names, or else inferred (`sim.traces.sessions.by_session`). The trace is read once
    to count them. Raises InputError where there are fewer, TraceError where the trace is malformed.
    """
    requests = _requests_by_session(trace)
    wanted = sessions if sessions is not None else round((share or 0.0) * len(requests))
    if not 1 <= wanted <= len(requests):
        raise InputError(
            f"{trace.name}: {wanted} sessions cannot be taken; must be from 1 to the {len(requests)} of it"
        )
    is_taken = np.zeros(len(requests), dtype=np.bool_)
    is_taken[random.choice(len(requests), wanted, replace=False)] = True
    counts = np.array(requests, dtype=np.int64)
    taken = Share(
        sessions=wanted,
        of_sessions=len(requests),
        requests=int(counts[is_taken].sum()),
        of_requests=int(counts.sum()),
    )
    flags = bytes(is_taken)
    if isinstance(trace, SessionTrace):
        return _SomeSessions(trace=trace, taken=flags), taken
    return _SomeRequests(trace=trace, taken=flags), taken


def _requests_by_session(trace: Trace) -> "array[int]":
    """Return how many requests each session has, by the order in which sessions appear."""
    if isinstance(trace, SessionTrace):
        return array("q", (session.requests for session in trace.sessions()))
    requests = array("q")
    for number, _ in _numbered(trace):
        if number == len(requests):
            requests.append(0)
        requests[number] += 1
    return requests


def _numbered(trace: Trace) -> Iterator[tuple[int, TraceRecord]]:
    """Yield the requests by arrival with their session, numbered in order of appearance."""
    numbers: dict[int, int] = {}
    for session_id, record in with_session(trace):
        yield numbers.setdefault(session_id, len(numbers)), record


@dataclass(slots=True, kw_only=True)
class _SomeRequests(DerivedTrace[Trace]):
    taken: bytes = field(repr=False)

    def records(self) -> Iterator[TraceRecord]:
        return (record for number, record in _numbered(self.trace) if self.taken[number])


@dataclass(slots=True, kw_only=True)
class _SomeSessions(DerivedTrace[SessionTrace]):
    taken: bytes = field(repr=False)

    @property
    def starts_known(self) -> bool:
        return self.trace.starts_known

    def records(self) -> Iterator[TraceRecord]:
        return merged(self.sessions())

    def sessions(self) -> Iterator[Session]:
        return (session for number, session in enumerate(self.trace.sessions()) if self.taken[number])
