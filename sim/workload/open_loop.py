"""Open loop: a trace at its own times, whatever the cluster does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from models.errors import ScenarioError
from sim.clock import ARRIVAL
from sim.cluster import Cluster
from sim.engine.request import Request
from sim.traces.record import Trace, TraceRecord


def blocks_per_chunk(trace_block_tokens: int, stack_chunk_tokens: int, engine_block_tokens: int, where: str) -> int:
    """Return how many of a trace's blocks make one chunk: the smallest multiple that is at least the stack's chunk.

    Raises
    ------
    ScenarioError
        If a chunk would not be a whole number of engine blocks.
    """
    count = -(-stack_chunk_tokens // trace_block_tokens)
    if count * trace_block_tokens % engine_block_tokens:
        problem = (
            f"a chunk of {count} x {trace_block_tokens} tokens is no multiple of the engine's block of "
            f"{engine_block_tokens} tokens; set engine.block_tokens to a divisor"
        )
        raise ScenarioError(where, problem)
    return count


@dataclass(slots=True, kw_only=True)
class OpenLoop:
    """Replays a trace at its own times, counted from its first request, whatever the cluster does.

    Parameters
    ----------
    trace : Trace
        The requests, in time order.
    chunk_blocks : int
        Trace blocks a chunk; a chunk is named by its last block's id (ids are chained).
    rate_scale : float
        Arrival times are divided by this; the order, and so the reuse, stays.
    limit : int or None
        Stop after so many requests.
    expected : int or None
        How many requests the trace is known to hold, for :meth:`fraction_done`.
    """

    trace: Trace
    chunk_blocks: int
    rate_scale: float = 1.0
    limit: int | None = None
    expected: int | None = None
    _sent: int = 0
    _ended: int = 0
    _exhausted: bool = False

    def start(self, cluster: Cluster, phase: int, on_done: Callable[[], None]) -> None:
        """Begin to replay now."""
        clock = cluster.clock
        began_s = clock.now_s
        records = self.trace.records()
        step = self.chunk_blocks

        def ended(_: Request) -> None:
            self._ended += 1
            if self._exhausted and self._ended == self._sent:
                on_done()

        def arrive(record: TraceRecord) -> None:
            self._sent += 1
            blocks = record.block_ids
            following = self._next(records)
            if following is None:
                self._exhausted = True
            else:
                when_s = began_s + (following.arrived_at_s - origin_s) / self.rate_scale
                clock.at(max(when_s, clock.now_s), ARRIVAL, lambda _: arrive(following))
            cluster.submit(
                session_id=record.session_id,
                phase=phase,
                prompt_tokens=record.prompt_tokens,
                output_tokens=record.output_tokens,
                chunks=blocks if step == 1 else blocks[step - 1 :: step],
                on_end=ended,
            )

        first = self._next(records)
        if first is None:
            raise ScenarioError(self.trace.name, "the trace holds no request")
        # The first request arrives now: traces may count from the epoch.
        origin_s = first.arrived_at_s
        clock.at(began_s, ARRIVAL, lambda _: arrive(first))

    def chunk_ids(self) -> Iterator[Sequence[int]]:
        """Yield the chunks of every request, in the order in which they will be sent."""
        step = self.chunk_blocks
        for record in islice(self.trace.records(), self.limit):
            yield record.block_ids[step - 1 :: step]

    def _next(self, records: Iterator[TraceRecord]) -> TraceRecord | None:
        if self.limit is not None and self._sent >= self.limit:
            return None
        return next(records, None)

    def fraction_done(self) -> float | None:
        """Return ended over expected requests, where their number is known."""
        total = min((n for n in (self.limit, self.expected) if n is not None), default=None)
        return None if total is None else min(self._ended / total, 1.0)
