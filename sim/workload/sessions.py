"""Sessions: each turn is sent when the one before it has been answered and thought about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf, isnan

from models.errors import ScenarioError
from sim.clock import ARRIVAL, Wakeup
from sim.cluster import Cluster
from sim.engine.request import Request
from sim.traces.record import NO_ID, TraceRecord
from sim.traces.sessions import Session, SessionTrace


@dataclass(slots=True, kw_only=True)
class SessionLoop:
    """Replays the sessions of a trace; inside each one a turn waits for the last answer.

    How long a session takes is thus for the cluster to decide. Recorded arrivals inside a session are not used, pauses
    are: a request comes ``think_s`` after the answer before it, however long that answer took here.

    Parameters
    ----------
    trace : SessionTrace
        The sessions, in their order. The first one starts now, the others as much later as their starts say.
    chunk_blocks : int
        Trace blocks a chunk; a chunk is named by its last block's id (ids are chained).
    users : int or None
        Instead, so many sessions are under way at a time: one starts when another has ended.
    rate_scale : float
        Start times of sessions are divided by this.
    think_scale : float
        Pauses are multiplied by this; 0: every turn follows at once.
    limit : int or None
        Only so many sessions.
    expected : int or None
        How many requests there will be in all, for :meth:`fraction_done`.
    knows_answers : bool
        Whether each turn is read with the next one, whose prompt names the chunks that the answer fills. That prompt is
        taken to be the prompt before, its answer in full, and what is new; where it does not begin with the prompt
        before (a context that was cut down), nothing is known of the answer.
    """

    trace: SessionTrace
    chunk_blocks: int
    users: int | None = None
    rate_scale: float = 1.0
    think_scale: float = 1.0
    limit: int | None = None
    expected: int | None = None
    knows_answers: bool = False
    _answered: int = 0

    def start(self, cluster: Cluster, phase: int, on_done: Callable[[], None]) -> None:
        """Begin with the first session, or with the first one of every user, now."""
        clock = cluster.clock
        began_s = clock.now_s
        sessions = islice(self.trace.sessions(), self.limit)
        first = next(sessions, None)
        if first is None:
            raise ScenarioError(self.trace.name, "the trace holds no session")
        open_sessions = 0  # under way, or waiting for the time of their start

        def start_at(session: Session, when_s: float) -> None:
            nonlocal open_sessions
            open_sessions += 1
            clock.at(max(when_s, clock.now_s), ARRIVAL, lambda _: begin(session))

        def begin(session: Session) -> None:
            following = next(sessions, None) if self.users is None else None
            if following is not None:
                start_at(following, began_s + (_start_s(following) - _start_s(first)) / self.rate_scale)
            _SessionUnderWay(self, cluster, phase, session, ended).begin()

        def ended() -> None:
            nonlocal open_sessions
            open_sessions -= 1
            following = None if self.users is None else next(sessions, None)
            if following is not None:
                start_at(following, clock.now_s)
            elif not open_sessions:
                on_done()

        start_at(first, began_s)
        for session in islice(sessions, (self.users or 1) - 1):
            start_at(session, began_s)

    def answered(self) -> None:
        """Note the end of a request."""
        self._answered += 1

    def fraction_done(self) -> float | None:
        """Return ended over expected requests, where their number is known."""
        return None if self.expected is None else min(self._answered / self.expected, 1.0)


class _SessionUnderWay:
    """One session: its main stream, and the sub-agents that turns of it start."""

    __slots__ = ("_cluster", "_loop", "_main_turns", "_on_end", "_open_streams", "_phase", "_session", "_waiting")

    def __init__(
        self, loop: SessionLoop, cluster: Cluster, phase: int, session: Session, on_end: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._cluster = cluster
        self._phase = phase
        self._session = session
        self._on_end = on_end
        self._open_streams = len(session.streams)
        self._main_turns: float = NO_ID  # the last one that has ended
        self._waiting = list(session.streams[1:])
        """Sub-agents that have not started."""

    def begin(self) -> None:
        """Send the first requests now."""
        self._send_next(self._session.streams[0].turns(), is_main=True)
        self._start_sub_agents()

    def _send_next(self, turns: Iterator[TraceRecord], *, is_main: bool, read: TraceRecord | None = None) -> None:
        """Send the next turn of a stream (``read`` where it has been read already) after its pause, or end it."""
        record = next(turns, None) if read is None else read
        if record is not None:
            pause_s = 0.0 if isnan(record.think_s) else record.think_s
            self._later(pause_s, lambda _: self._send(record, turns, is_main=is_main))
            return
        if is_main:
            self._main_turns = inf
            self._start_sub_agents()
        self._open_streams -= 1
        if not self._open_streams:
            self._on_end()

    def _send(self, record: TraceRecord, turns: Iterator[TraceRecord], *, is_main: bool) -> None:
        chunks = self._chunks(record)
        answer: Sequence[int] = ()
        following = next(turns, None) if self._loop.knows_answers else None
        if following is not None:
            grown = self._chunks(following)
            if grown[: len(chunks)] == chunks:
                end_tokens = record.prompt_tokens + record.output_tokens
                answer = grown[len(chunks) : end_tokens // (self._loop.trace.block_tokens * self._loop.chunk_blocks)]

        def ended(_: Request) -> None:
            self._loop.answered()
            if is_main and self._waiting:
                self._main_turns += 1
                self._start_sub_agents()
            self._send_next(turns, is_main=is_main, read=following)

        self._cluster.submit(
            session_id=self._session.session_id,
            phase=self._phase,
            prompt_tokens=record.prompt_tokens,
            output_tokens=record.output_tokens,
            chunks=chunks,
            answer=answer,
            on_end=ended,
        )

    def _chunks(self, record: TraceRecord) -> list[int]:
        step = self._loop.chunk_blocks
        return record.block_ids if step == 1 else record.block_ids[step - 1 :: step]

    def _start_sub_agents(self) -> None:
        """Start those whose main turn has ended."""
        due = [stream for stream in self._waiting if stream.after_turn <= self._main_turns]
        self._waiting = [stream for stream in self._waiting if stream.after_turn > self._main_turns]
        for stream in due:
            self._later(stream.delay_s, partial(self._begin_sub_agent, stream.turns()))

    def _begin_sub_agent(self, turns: Iterator[TraceRecord], _: Wakeup) -> None:
        self._send_next(turns, is_main=False)

    def _later(self, pause_s: float, action: Callable[[Wakeup], None]) -> None:
        clock = self._cluster.clock
        clock.at(clock.now_s + pause_s * self._loop.think_scale, ARRIVAL, action)


def _start_s(session: Session) -> float:
    if session.starts_at_s is None:
        raise ScenarioError(
            "workload.sessions.starts", "must be uniform, poisson or users: the trace has no start times"
        )
    return session.starts_at_s
