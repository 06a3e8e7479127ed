"""Writes any trace in the Mooncake format, with the sessions and pauses of its variants.

What is written, reads back as the same records (`sim.traces.readers.mooncake`), but for what the format cannot hold:
`Losses` counts that. A prompt's last block that is not full has an id in this format; where the trace names none, it
gets one that nothing else has, as do blocks that the trace leaves out. A sub-agent becomes a session of its own.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from models.errors import InputError, TraceError
from sim.traces.derived import DerivedTrace
from sim.traces.fields import MAX_ID, MAX_S
from sim.traces.record import NO_ID, Trace, TraceRecord
from sim.traces.sessions import Session, SessionTrace, Stream, merged

BLOCK_TOKENS = 512
"""The block size that the format states [tokens]; others are told by the number of ids."""


@dataclass(slots=True, kw_only=True)
class Losses:
    """What a conversion could not keep, counted while it is written."""

    requests: int = 0
    """Requests written so far."""
    sub_agents: int = 0
    unnamed_blocks: int = 0
    """Blocks that got ids of their own; all of them private, as a partial last block is."""
    lone_pauses: int = 0
    """Pauses of requests that have no session, or no request before them in it."""
    starts_unknown: bool = False
    block_tokens: int = BLOCK_TOKENS

    def sentences(self) -> Iterator[str]:
        """Yield what a user has to know, a sentence each."""
        if self.starts_unknown:
            yield "the trace does not say when its sessions start: all start at 0 s (--starts gives them times)"
        if self.sub_agents:
            yield f"the format has no sub-agents: {self.sub_agents:,} became sessions of their own, at recorded times"
        if self.unnamed_blocks:
            yield (
                f"{self.unnamed_blocks:,} blocks that the trace does not name (partial last ones, mostly) got ids that "
                "nothing else has"
            )
        if self.lone_pauses:
            yield f"{self.lone_pauses:,} pauses are left out: no request of their session stands before them"
        if self.block_tokens != BLOCK_TOKENS:
            yield (
                f"blocks are of {self.block_tokens} tokens, where the format states {BLOCK_TOKENS}; readers tell the "
                "size by the number of ids, or need to be told"
            )


@dataclass(slots=True, kw_only=True)
class MooncakeLines:
    """The lines of a trace in the Mooncake format.

    Parameters
    ----------
    trace
        What to write.
    block_tokens
        Size of the blocks written [tokens], a multiple of the trace's; None for the trace's own.
    names
        What sessions are called, by their number, where the trace is to be read by its `records`; see `by_stream`.
    """

    trace: Trace
    block_tokens: int | None = None
    names: list[int | str] | None = None
    losses: Losses = field(default_factory=Losses, init=False)
    _merge: int = field(default=1, init=False)
    _private_id: int = field(default=MAX_ID + 1, init=False)
    """Ids of blocks without one are given out from the largest downwards: the trace's own are not known yet."""
    _largest_id: int = field(default=NO_ID, init=False)
    """Of the trace's own ids so far."""

    def __post_init__(self) -> None:
        """Refuse blocks that do not merge into the wanted ones; raises InputError."""
        own = self.trace.block_tokens
        wanted = self.block_tokens or own
        if self.trace.has_prefixes and (wanted < own or wanted % own):
            raise InputError(f"{self.trace.name}: block_tokens is {wanted}; must be a multiple of the trace's {own}")
        self._merge = wanted // own if self.trace.has_prefixes else 1
        self.losses.block_tokens = wanted if self.trace.has_prefixes else BLOCK_TOKENS

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines by arrival; raises TraceError where the trace is malformed."""
        begun: set[int | str] = set()
        for name, record in self._named_records():
            row: dict[str, object] = {"timestamp": _milliseconds(record.arrived_at_s)}
            if name is not None:
                row["session_id"] = name
            if not math.isnan(record.think_s):
                if name in begun and name is not None:
                    row["delay"] = _milliseconds(record.think_s)
                else:
                    self.losses.lone_pauses += 1
            if name is not None and name not in begun:
                begun.add(name)
                self.losses.sub_agents += isinstance(name, str)
            row["input_length"] = record.prompt_tokens
            row["output_length"] = record.output_tokens
            if self.trace.has_prefixes:
                row["hash_ids"] = self._ids(record)
            self.losses.requests += 1
            yield json.dumps(row).encode() + b"\n"

    def _named_records(self) -> Iterator[tuple[int | str | None, TraceRecord]]:
        """Yield the requests by arrival with what their session is called in the file."""
        if self.names is not None or not isinstance(self.trace, SessionTrace):
            for record in self.trace.records():
                session_id = record.session_id
                yield None if session_id == NO_ID else self.names[session_id] if self.names else session_id, record
            return
        self.losses.starts_unknown = not self.trace.starts_known
        names: list[int | str] = []
        for record in merged(by_stream(self.trace.sessions(), names)):
            yield names[record.session_id], record

    def _ids(self, record: TraceRecord) -> list[int]:
        """Return the ids of all blocks of a prompt, the last of which may be partial."""
        ids, merge = record.block_ids, self._merge
        blocks = -(-record.prompt_tokens // (self.trace.block_tokens * merge))
        if record.partial_block_id != NO_ID:
            ids = [*ids, record.partial_block_id]
        self._largest_id = max(self._largest_id, max(ids, default=NO_ID))
        # A merged block is named by its last one, which stands for all before it. What is left at the end is the
        # partial block, and its name is the last one's too if all of the prompt has names.
        found = ids[merge - 1 :: merge]
        named = len(ids) == -(-record.prompt_tokens // self.trace.block_tokens)
        if len(found) < blocks and named:
            found.append(ids[-1])
        while len(found) < blocks:
            self._private_id -= 1
            self.losses.unnamed_blocks += 1
            found.append(self._private_id)
        if self._private_id <= self._largest_id:
            problem = f"has the block id {self._largest_id}, which leaves too few for blocks without one"
            raise TraceError(self.trace.name, problem)
        return found


def by_stream(sessions: Iterable[Session], names: list[int | str]) -> Iterator[Session]:
    """Yield *sessions* whose requests carry the number of their stream for a session, and note what streams are called.

    A main stream is called by the number of its session, a sub-agent by that and its own: `7/1`.
    """
    for session in sessions:
        streams = []
        for number, stream in enumerate(session.streams):
            streams.append(replace(stream, turns=partial(_numbered, stream, len(names))))
            names.append(f"{session.session_id}/{number}" if number else session.session_id)
        yield replace(session, streams=tuple(streams))


def by_arrival(trace: Trace) -> Trace:
    """Return a trace of sessions as one of requests only, which are those that its `records` yields."""
    return _Requests(trace=trace)


@dataclass(slots=True, kw_only=True)
class _Requests(DerivedTrace[Trace]):
    def records(self) -> Iterator[TraceRecord]:
        return self.trace.records()


def _numbered(stream: Stream, number: int) -> Iterator[TraceRecord]:
    for record in stream.turns():
        record.session_id = number
        yield record


def _milliseconds(time_s: float) -> int | float:
    """Return a time in milliseconds: whole ones as such, others as short as they read back the same."""
    if time_s > MAX_S:
        raise InputError(f"a time of {time_s:g} s is too late for a trace; it may hold up to {MAX_S:g} s")
    short, exact = round(time_s * 1000, 6), time_s * 1000
    candidates = (short, exact, math.nextafter(exact, math.inf), math.nextafter(exact, 0.0))
    # One float in forty is no thousandth of another: then it is off by its last bit.
    time_ms = next((candidate for candidate in candidates if candidate / 1000 == time_s), short)
    return int(time_ms) if time_ms.is_integer() else time_ms
