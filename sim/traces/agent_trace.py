"""Traces of coding agents, whatever file they stand in: what holds for a whole trace of logged sessions."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from models.errors import TraceError
from sim.traces.agent_log import LoggedRequest, agent_session
from sim.traces.bad_lines import BadLines
from sim.traces.fields import MAX_ID, BadRowError, seconds, seconds_or_none, shown, text, whole
from sim.traces.record import TraceRecord
from sim.traces.sessions import Session, merged

# Local ids keep the lower bits, the session has the upper ones.
_SESSION_BITS = 32
_MAX_LOCAL_ID = 2**_SESSION_BITS - 1
_MAX_BLOCK_TOKENS = 2**20
# Sixteen times the longest context window there is. A short line of the delta form may claim any length, and a list of
# that many blocks is then made.
_MAX_PROMPT_TOKENS = 2**24

Agents = dict[str | None, list[LoggedRequest]]
"""The requests of a session by sub-agent; None is the main one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHeader:
    """What a session says of its blocks: their size [tokens], and whether ids are local to it or global."""

    block_tokens: int
    scope: str

    @property
    def max_id(self) -> int:
        """Largest id that a session may use."""
        return _MAX_LOCAL_ID if self.scope == "local" else MAX_ID


@dataclass(slots=True, kw_only=True)
class AgentTrace(ABC):
    """Sessions of coding agents in a file, archive or folder; every call of `sessions` or `records` reads it afresh.

    Parameters
    ----------
    path
        Where it is.
    bad_lines
        Takes what is malformed.
    drop_repeats
        Leave out requests that repeat the one before them in their stream.
    """

    path: Path
    bad_lines: BadLines
    drop_repeats: bool
    starts_known: ClassVar[bool] = False
    has_prefixes: ClassVar[bool] = True
    repeats: int = field(default=0, init=False)
    """Requests, in the last pass so far, that have the prompt of the one before them in their stream."""
    _first: AgentHeader | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    @property
    def block_tokens(self) -> int:
        """Size of the blocks that the ids name [tokens]."""
        return self._header.block_tokens

    def records(self) -> Iterator[TraceRecord]:
        """Yield the requests by arrival, as if all sessions had started at 0; raises what `sessions` raises."""
        return merged(self.sessions())

    def sessions(self) -> Iterator[Session]:
        """Yield the sessions in the order of the file; raises TraceError where it cannot be read or holds none."""
        self.repeats = 0
        is_local = self._header.scope == "local"
        session_id = 0
        for agents in self.logged_sessions(self._header):
            self._count_repeats(agents)
            first_id = (session_id + 1) << _SESSION_BITS if is_local else 0
            yield agent_session(session_id, agents, self.block_tokens, first_id)
            session_id += 1
        if not session_id:
            raise TraceError(str(self.path), self.bad_lines.none_left() or "the file holds no requests")

    @abstractmethod
    def first_header(self) -> AgentHeader:
        """Return what the first sound session says of its blocks; raises TraceError where there is none."""

    @abstractmethod
    def logged_sessions(self, first: AgentHeader) -> Iterator[Agents]:
        """Yield the sessions as logged; one that differs from *first* is malformed."""

    @property
    def _header(self) -> AgentHeader:
        if self._first is None:
            self._first = self.first_header()
        return self._first

    def _count_repeats(self, agents: Agents) -> None:
        for agent, requests in agents.items():
            kept = requests[:1]
            for before, request in pairwise(requests):
                if request.runs or request.keep < before.blocks or request.prompt_tokens != before.prompt_tokens:
                    kept.append(request)
            self.repeats += len(requests) - len(kept)
            if self.drop_repeats:
                agents[agent] = kept


def header_of(row: dict[str, Any], scope_key: str) -> AgentHeader:
    """Return what the header of a session says of its blocks; raises BadRowError where it is malformed."""
    block_tokens = whole(row, "block_size", least=1, most=_MAX_BLOCK_TOKENS)
    scope = text(row, scope_key)
    if scope not in ("local", "global"):
        raise BadRowError(f"{scope_key} is {shown(scope)}; must be local or global")
    return AgentHeader(block_tokens=block_tokens, scope=scope)


def require_same(header: AgentHeader, first: AgentHeader) -> None:
    """Raise BadRowError where a session cannot stand in one trace with the first."""
    if header != first:
        raise BadRowError(
            f"a session with blocks of {header.block_tokens} tokens and ids of {header.scope} scope; the first session "
            f"has {first.block_tokens} and {first.scope}"
        )


def logged_request(
    row: dict[str, Any],
    header: AgentHeader,
    before: list[LoggedRequest],
    *,
    keep: int,
    runs: tuple[int, ...],
    blocks: int,
    begins_at_s: float = 0.0,
) -> LoggedRequest:
    """Return a request from its fields; *before* are those before it in its stream, whose log begins at *begins_at_s*.

    Raises BadRowError where a field is malformed, or where the request goes back in time.
    """
    prompt_tokens = whole(row, "in", least=1, most=_MAX_PROMPT_TOKENS)
    if blocks * header.block_tokens > prompt_tokens:
        raise BadRowError(f"{blocks} blocks of {header.block_tokens} tokens are more than the {prompt_tokens} of in")
    sent_at_s = begins_at_s + seconds(row, "t")
    if before and sent_at_s < before[-1].sent_at_s:
        raise BadRowError(f"t is {sent_at_s:g} s, before the request before it ({before[-1].sent_at_s:g} s)")
    return LoggedRequest(
        sent_at_s,
        prompt_tokens,
        whole(row, "out"),
        seconds_or_none(row, "api_time"),
        seconds_or_none(row, "think_time"),
        keep,
        runs,
        blocks,
    )
