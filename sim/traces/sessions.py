"""Sessions: requests that wait for the answer to the one before, and how open-loop traces are seen as such.

A session is one main stream of turns and any number of side streams (sub-agents). Main streams do not wait for
sub-agents: the recorded pause before a main turn already holds what waiting for a sub-agent there was.
"""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count, islice
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from models.errors import InputError
from sim.traces.derived import DerivedTrace
from sim.traces.record import NO_ID, Trace, TraceRecord

# A block in more requests than this belongs to a prompt that sessions share: the common block of the Mooncake
# conversation trace is in all of them, the next most frequent one in .4 %, and none of its synthetic trace in more than
# .6 %. Of few requests one session may be a large part, so it takes some number of them too.
_COMMON_SHARE = 0.05
_COMMON_REQUESTS = 100


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


@runtime_checkable
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


def placed(trace: SessionTrace, starts_s: Iterator[float]) -> SessionTrace:
    """Return *trace* with its sessions, in their order, started at the times of *starts_s* [s].

    The times must not go back; reading raises InputError where they do, and where there are fewer than sessions.
    """
    return _PlacedSessions(trace=trace, starts_s=starts_s)


def read_once(trace: SessionTrace, limit: int | None = None) -> SessionTrace:
    """Return the first *limit* sessions of a trace, read now and held: compactly, for block lists are made later."""
    return _HeldSessions(trace=trace, held=tuple(islice(trace.sessions(), limit)))


def uniform_starts(sessions: int, over_s: float, random: np.random.Generator) -> Iterator[float]:
    """Return the starts of so many *sessions*, drawn evenly over a time [s], in order."""
    return iter(np.sort(random.uniform(0.0, over_s, sessions)).tolist())


def poisson_starts(rate_per_s: float, random: np.random.Generator) -> Iterator[float]:
    """Yield starts of a Poisson process [s], without end."""
    at_s = 0.0
    while True:
        at_s += float(random.exponential(1.0 / rate_per_s))
        yield at_s


def by_session(trace: Trace) -> SessionTrace:
    """Return a trace of requests as one of sessions; a trace of sessions is returned as it is.

    Where the requests name no sessions they are inferred from their blocks: a request belongs to the session of the
    last request that holds the deepest of the blocks at its start that were seen before, and begins one where that
    block is common to much of the trace or where there is none. Much is more than 5 % of all requests and more than
    100. Of a request whose pause is not known, the pause is the gap to the arrival before it in its session; it holds
    the time that the answer took.

    All requests are held while the sessions are read, since any of them may go on to the end of the trace.
    """
    return trace if isinstance(trace, SessionTrace) else _GroupedRequests(trace=trace)


def common_from(requests: int) -> float:
    """Return above how many uses a block is common to much of a trace of so many requests (see `by_session`)."""
    return max(_COMMON_SHARE * requests, _COMMON_REQUESTS)


def with_session(trace: Trace) -> Iterator[tuple[int, TraceRecord]]:
    """Yield the requests by arrival, as they stand in the trace, each with its session as `by_session` numbers them."""
    return _GroupedRequests(trace=trace).with_session()


@dataclass(slots=True, kw_only=True)
class _HeldSessions(DerivedTrace[SessionTrace]):
    held: tuple[Session, ...]

    @property
    def starts_known(self) -> bool:
        return self.trace.starts_known

    def sessions(self) -> Iterator[Session]:
        return iter(self.held)

    def records(self) -> Iterator[TraceRecord]:
        return merged(self.held)


@dataclass(slots=True, kw_only=True)
class _PlacedSessions(DerivedTrace[SessionTrace]):
    starts_s: Iterator[float]
    starts_known: ClassVar[bool] = True
    # Starts come from a stream that can be read once, sessions are read many times.
    _known_s: "array[float]" = field(default_factory=lambda: array("d"), init=False)

    def sessions(self) -> Iterator[Session]:
        for index, session in enumerate(self.trace.sessions()):
            if index == len(self._known_s):
                self._known_s.append(self._next_start_s(index))
            yield replace(session, starts_at_s=self._known_s[index])

    def records(self) -> Iterator[TraceRecord]:
        return merged(self.sessions())

    def _next_start_s(self, index: int) -> float:
        start_s = next(self.starts_s, None)
        if start_s is None:
            raise InputError(f"{self.name}: {index} session starts are given, but there are more sessions")
        least_s = self._known_s[-1] if index else 0.0
        if not least_s <= start_s < math.inf:
            raise InputError(f"{self.name}: session {index} starts at {start_s:g} s; must be at least {least_s:g} s")
        return start_s


@dataclass(slots=True)
class _Held:
    """A request without the room that a list of blocks takes."""

    arrived_at_s: float
    prompt_tokens: int
    output_tokens: int
    block_ids: "array[int]"
    partial_block_id: int
    think_s: float


@dataclass(slots=True, kw_only=True)
class _GroupedRequests(DerivedTrace[Trace]):
    starts_known: ClassVar[bool] = True

    def records(self) -> Iterator[TraceRecord]:
        """Yield the requests as they stand in the trace, with session and pause filled in."""
        last_s: dict[int, float] = {}
        for session_id, record in self.with_session():
            record.session_id = session_id
            if math.isnan(record.think_s) and session_id in last_s:
                record.think_s = record.arrived_at_s - last_s[session_id]
            last_s[session_id] = record.arrived_at_s
            yield record

    def sessions(self) -> Iterator[Session]:
        """Yield the sessions by their first arrival."""
        sessions: dict[int, list[_Held]] = {}
        for record in self.records():
            sessions.setdefault(record.session_id, []).append(
                _Held(
                    record.arrived_at_s,
                    record.prompt_tokens,
                    record.output_tokens,
                    array("q", record.block_ids),
                    record.partial_block_id,
                    record.think_s,
                )
            )
        for session_id, turns in sessions.items():
            stream = Stream(session_id=session_id, turns=partial(_records, session_id, turns))
            starts_at_s = turns[0].arrived_at_s
            yield Session(session_id=session_id, starts_at_s=starts_at_s, streams=(stream,), requests=len(turns))

    def with_session(self) -> Iterator[tuple[int, TraceRecord]]:
        """Yield the requests by arrival, each with the number of its session."""
        requests = 0
        largest_id = NO_ID
        references: Counter[int] = Counter()
        for record in self.trace.records():
            requests += 1
            largest_id = max(largest_id, record.session_id)
            if largest_id == NO_ID:
                references.update(record.block_ids)
        if largest_id != NO_ID:
            # A request without a session among others that have one is alone.
            lone = count(largest_id + 1)
            for record in self.trace.records():
                yield record.session_id if record.session_id != NO_ID else next(lone), record
            return
        often = common_from(requests)
        common = {block_id for block_id, times in references.items() if times > often}
        del references
        yield from _inferred(self.trace.records(), common)


def _inferred(records: Iterator[TraceRecord], common: set[int]) -> Iterator[tuple[int, TraceRecord]]:
    last: dict[int, int] = {}
    sessions = count()
    for record in records:
        ids = record.block_ids
        if record.partial_block_id != NO_ID:
            # A prompt that is sent again has the same unfilled block; of a short one it is all there is.
            ids = [*ids, record.partial_block_id]
        deepest = NO_ID
        for block_id in ids:
            if block_id not in last:
                break
            deepest = block_id
        session_id = next(sessions) if deepest == NO_ID or deepest in common else last[deepest]
        last.update(dict.fromkeys(ids, session_id))
        yield session_id, record


def _records(session_id: int, turns: list[_Held]) -> Iterator[TraceRecord]:
    starts_at_s = turns[0].arrived_at_s
    for turn in turns:
        yield TraceRecord(
            turn.arrived_at_s - starts_at_s,
            turn.prompt_tokens,
            turn.output_tokens,
            turn.block_ids.tolist(),
            session_id,
            turn.partial_block_id,
            turn.think_s,
        )
