"""A whole trace as arrays, for its statistics: some 150 bytes a request and 8 a distinct block."""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import TraceError
from sim.arrays import Floats, Ints
from sim.traces.record import NO_ID, Trace, TraceRecord
from sim.traces.reuse import Reuse
from sim.traces.sessions import Session, SessionTrace, Stream, common_from, merged

OnRequest = Callable[[int], None]
"""Called with the number of requests read so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The requests of a trace, one entry each, in order of arrival.

    `session` and `stream` number from 0; without sub-agents they are the same, and both are None where nothing tells
    sessions. `before` is the request before in the stream or `NO_ID`, `kept` the number of its blocks that this one
    begins with. Where sessions are inferred, `before` is the request that has the deepest block seen before.
    """

    name: str
    block_tokens: int
    has_prefixes: bool
    starts_known: bool
    sessions_are: str | None
    arrived_at_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    think_s: Floats
    full_blocks: Ints
    partial_id: Ints
    session: Ints | None
    stream: Ints | None
    is_main_stream: NDArray[np.bool_] | None
    """By stream."""
    before: Ints
    kept: Ints
    reuse: Reuse

    def __len__(self) -> int:
        return len(self.arrived_at_s)


def read_columns(trace: Trace, on_request: OnRequest = lambda _: None) -> Columns:
    """Read a trace once; raises TraceError where it is malformed or holds no request."""
    reader = _Reader()
    if isinstance(trace, SessionTrace):
        reader.read(_by_stream(trace, reader.session_of_stream), on_request, is_stream=True)
    else:
        reader.read(trace.records(), on_request, is_stream=False)
    if not reader.arrived_at_s:
        raise TraceError(trace.name, "the trace holds no requests")
    reader.reuse.end()
    return reader.columns(trace)


class _Reader:
    def __init__(self) -> None:
        self.arrived_at_s, self.think_s = array("d"), array("d")
        self.prompt_tokens, self.output_tokens = array("q"), array("q")
        self.full_blocks, self.partial_id = array("i"), array("q")
        self.stream, self.before, self.kept = array("i"), array("i"), array("i")
        self.session_of_stream = array("i")
        """Of a trace of sessions."""
        self.has_sessions = False
        self.reuse = Reuse()
        self._numbers: dict[int, int] = {}
        self._last = array("i")
        """By stream: its last request so far."""

    def read(self, records: Iterator[TraceRecord], on_request: OnRequest, *, is_stream: bool) -> None:
        """Take all records; *is_stream*: their session is the number of their stream."""
        self.has_sessions = is_stream
        reuse = self.reuse
        for request, record in enumerate(records):
            self.arrived_at_s.append(record.arrived_at_s)
            self.think_s.append(record.think_s)
            self.prompt_tokens.append(record.prompt_tokens)
            self.output_tokens.append(record.output_tokens)
            self.full_blocks.append(len(record.block_ids))
            self.partial_id.append(record.partial_block_id)
            reuse.add(record.block_ids, record.partial_block_id)
            stream = record.session_id
            if not is_stream:
                stream = self._number(stream)
            while stream >= len(self._last):
                self._last.append(NO_ID)
            before = self._last[stream]
            self._last[stream] = request
            self.stream.append(stream)
            self.before.append(before)
            self.kept.append(self._kept(request, before) if before != NO_ID else 0)
            on_request(request + 1)

    def columns(self, trace: Trace) -> Columns:
        """Return what was read."""
        stream = session = is_main = None
        before, kept = _ints(self.before), _ints(self.kept)
        if self.has_sessions:
            stream = session = _ints(self.stream)
            is_main = np.ones(len(self._last), dtype=np.bool_)
            if self.session_of_stream:
                of_stream = _ints(self.session_of_stream)
                is_main = np.diff(of_stream, prepend=-1) > 0
                session = of_stream[stream]
        elif trace.has_prefixes:
            stream = session = self._inferred()
            is_main = np.ones(int(session.max()) + 1, dtype=np.bool_)
            goes_on = np.zeros(len(session), dtype=np.bool_)
            goes_on[1:] = session[1:] <= np.maximum.accumulate(session)[:-1]
            before = np.where(goes_on, _ints(self.reuse.parent), NO_ID)
            kept = np.where(goes_on, _ints(self.reuse.seen), 0)
        sessions_are = "given" if self.has_sessions else "inferred" if trace.has_prefixes else None
        return Columns(
            name=trace.name,
            block_tokens=trace.block_tokens,
            has_prefixes=trace.has_prefixes,
            starts_known=not isinstance(trace, SessionTrace) or trace.starts_known,
            sessions_are=sessions_are,
            arrived_at_s=np.frombuffer(self.arrived_at_s, dtype=np.float64),
            prompt_tokens=np.frombuffer(self.prompt_tokens, dtype=np.int64),
            output_tokens=np.frombuffer(self.output_tokens, dtype=np.int64),
            think_s=np.frombuffer(self.think_s, dtype=np.float64),
            full_blocks=_ints(self.full_blocks),
            partial_id=np.frombuffer(self.partial_id, dtype=np.int64),
            session=session,
            stream=stream,
            is_main_stream=is_main,
            before=before,
            kept=kept,
            reuse=self.reuse,
        )

    def _number(self, session_id: int) -> int:
        """Return the number of a session; requests without one are alone."""
        if session_id == NO_ID:
            return len(self._last)
        self.has_sessions = True
        number = self._numbers.get(session_id)
        if number is None:
            number = self._numbers[session_id] = len(self._last)
        return number

    def _kept(self, request: int, before: int) -> int:
        reuse = self.reuse
        if reuse.parent[request] == before:  # it has the deepest of the blocks seen before, so all of them
            return reuse.seen[request]
        return reuse.common_blocks(reuse.last_block[before], reuse.last_block[request])

    def _inferred(self) -> Ints:
        """Return the sessions as `sim.traces.sessions.by_session` infers them."""
        parents, deepest = self.reuse.parent, self.reuse.deepest
        often = common_from(len(parents))
        is_common = self.reuse.used_more_than(often, deepest)
        sessions = array("i")
        found = 0
        for parent, common in zip(parents, is_common.tolist(), strict=True):
            if parent == NO_ID or common:
                sessions.append(found)
                found += 1
            else:
                sessions.append(sessions[parent])
        return _ints(sessions)


def _by_stream(trace: SessionTrace, session_of_stream: "array[int]") -> Iterator[TraceRecord]:
    """Yield the requests by arrival with the number of their stream for a session, and note whose stream that is."""

    def sessions() -> Iterator[Session]:
        for number, session in enumerate(trace.sessions()):
            streams = []
            for stream in session.streams:
                streams.append(replace(stream, turns=partial(_numbered, stream, len(session_of_stream))))
                session_of_stream.append(number)
            yield replace(session, streams=tuple(streams))

    return merged(sessions())


def _numbered(stream: Stream, number: int) -> Iterator[TraceRecord]:
    for record in stream.turns():
        record.session_id = number
        yield record


def _ints(values: "array[int]") -> Ints:
    """Return an array of whole numbers in 64 bits."""
    typed: NDArray[Any] = np.frombuffer(values, dtype=np.dtype(values.typecode)) if values else np.zeros(0)
    return typed.astype(np.int64)
