"""Sessions: each turn is sent when the one before it has been answered and thought about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Final

from models.errors import ScenarioError
from sim.clock import ARRIVAL, Wakeup
from sim.cluster import Cluster
from sim.engine.request import Request
from sim.traces.record import NO_ID, TraceRecord
from sim.traces.sessions import Session, SessionTrace

_AFTER_ALL: Final = 1 << 62


@dataclass(slots=True, kw_only=True)
class SessionLoop:
    """Replays the sessions of a trace: they start at their times, and inside each one a turn waits for the last answer.

    How long a session takes is thus for the cluster to decide. Recorded arrivals inside a session are not used, pauses
    are: a request comes ``think_s`` after the answer before it, however long that answer took here.

    Parameters
    ----------
    trace : SessionTrace
        Sessions with known starts, in their order. The first one starts now.
    chunk_blocks : int
        Trace blocks a chunk; a chunk is named by its last block's id (ids are chained).
    rate_scale : float
        Start times of sessions are divided by this.
    think_scale : float
        Pauses are multiplied by this; 0: every turn follows at once.
    limit : int or None
        Start only so many sessions.
    expected : int or None
        How many requests there will be in all, for :meth:`fraction_done`.
    """

    trace: SessionTrace
    chunk_blocks: int
    rate_scale: float = 1.0
    think_scale: float = 1.0
    limit: int | None = None
    expected: int | None = None
    _ended: int = 0
    _open_streams: int = 0
    _started: int = 0
    _exhausted: bool = False

    def start(self, cluster: Cluster, phase: int, on_done: Callable[[], None]) -> None:
        """Begin with the first session now."""
        clock = cluster.clock
        began_s = clock.now_s
        sessions = self.trace.sessions()

        def begin(session: Session) -> None:
            self._started += 1
            following = self._next(sessions)
            if following is None:
                self._exhausted = True
            else:
                when_s = began_s + (_start_s(following) - origin_s) / self.rate_scale
                clock.at(max(when_s, clock.now_s), ARRIVAL, lambda _: begin(following))
            self._open_streams += len(session.streams)
            _Running(cluster, phase, session, self.chunk_blocks, self.think_scale, answered, stream_ended).begin()

        def answered() -> None:
            self._ended += 1

        def stream_ended() -> None:
            self._open_streams -= 1
            if self._exhausted and not self._open_streams:
                on_done()

        first = self._next(sessions)
        if first is None:
            raise ScenarioError(self.trace.name, "the trace holds no session")
        origin_s = _start_s(first)
        clock.at(began_s, ARRIVAL, lambda _: begin(first))

    def _next(self, sessions: Iterator[Session]) -> Session | None:
        if self.limit is not None and self._started >= self.limit:
            return None
        return next(sessions, None)

    def fraction_done(self) -> float | None:
        """Return ended over expected requests, where their number is known."""
        return None if self.expected is None else min(self._ended / self.expected, 1.0)


class _Running:
    """One session under way."""

    __slots__ = (
        "_chunk_blocks",
        "_cluster",
        "_main_turn",
        "_on_answer",
        "_on_stream_end",
        "_phase",
        "_session",
        "_think_scale",
        "_waiting",
    )

    def __init__(
        self,
        cluster: Cluster,
        phase: int,
        session: Session,
        chunk_blocks: int,
        think_scale: float,
        on_answer: Callable[[], None],
        on_stream_end: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._phase = phase
        self._session = session
        self._chunk_blocks = chunk_blocks
        self._think_scale = think_scale
        self._on_answer = on_answer
        self._on_stream_end = on_stream_end
        self._main_turn = NO_ID
        self._waiting = list(session.streams[1:])
        """Sub-agents that have not started."""

    def begin(self) -> None:
        """Send the first requests now."""
        self._send_next(self._session.streams[0].turns(), is_main=True)
        self._start_sub_agents()

    def _send_next(self, turns: Iterator[TraceRecord], *, is_main: bool) -> None:
        """Send the next turn of a stream after its pause, or end the stream."""
        record = next(turns, None)
        if record is not None:
            pause_s = 0.0 if isnan(record.think_s) else record.think_s * self._think_scale
            self._later(pause_s, lambda _: self._send(record, turns, is_main=is_main))
            return
        if is_main:
            self._main_turn = _AFTER_ALL
            self._start_sub_agents()
        self._on_stream_end()

    def _send(self, record: TraceRecord, turns: Iterator[TraceRecord], *, is_main: bool) -> None:
        step = self._chunk_blocks

        def ended(_: Request) -> None:
            self._on_answer()
            if is_main and self._waiting:
                self._main_turn += 1
                self._start_sub_agents()
            self._send_next(turns, is_main=is_main)

        blocks = record.block_ids
        self._cluster.submit(
            session_id=self._session.session_id,
            phase=self._phase,
            prompt_tokens=record.prompt_tokens,
            output_tokens=record.output_tokens,
            chunks=blocks if step == 1 else blocks[step - 1 :: step],
            on_end=ended,
        )

    def _start_sub_agents(self) -> None:
        """Start those whose main turn has ended."""
        due = [stream for stream in self._waiting if stream.after_turn <= self._main_turn]
        self._waiting = [stream for stream in self._waiting if stream.after_turn > self._main_turn]
        for stream in due:
            turns = stream.turns()
            self._later(stream.delay_s * self._think_scale, partial(self._begin_sub_agent, turns))

    def _begin_sub_agent(self, turns: Iterator[TraceRecord], _: Wakeup) -> None:
        self._send_next(turns, is_main=False)

    def _later(self, pause_s: float, action: Callable[[Wakeup], None]) -> None:
        clock = self._cluster.clock
        clock.at(clock.now_s + pause_s, ARRIVAL, action)


def _start_s(session: Session) -> float:
    if session.starts_at_s is None:
        raise ScenarioError(
            f"session {session.session_id}", "nothing says when it starts; set workload.sessions.starts"
        )
    return session.starts_at_s
