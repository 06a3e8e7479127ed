"""From drawn turns to requests: lengths scaled, prompts cut into blocks, streams made of them.

A turn is held as a handful of numbers; its block list is made when it is asked for. Ids of private blocks are made of
the session's number, its stream's number and a running count, so each stream can be made on its own, ids run on
without gaps where a prompt simply grows, and no two sessions share one. Shared blocks count from 0.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sim.traces.record import NO_ID, TraceRecord
from sim.traces.sessions import Session, Stream

# 2**28 private blocks a stream, 2**8 streams a session, 2**26 sessions: together below 2**62, the limit of trace ids.
_STREAM_SHIFT, _SESSION_SHIFT = 28, 36


@dataclass(slots=True)
class Turn:
    """A request as drawn, before lengths are scaled and cut into blocks.

    Parameters
    ----------
    at_s
        Arrival [s] after the start of its session, where nothing delays the session.
    think_s
        Pause before it [s], or NaN for the first of a stream.
    prompt_tokens, output_tokens
        Lengths [tokens].
    kept_tokens
        How much of the prompt before it in the stream it starts with [tokens]; inf where it is the same prompt again.
    """

    at_s: float
    think_s: float
    prompt_tokens: float
    output_tokens: float
    kept_tokens: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutter:
    """Makes streams of requests from turns.

    Parameters
    ----------
    block_tokens
        Size of a block [tokens].
    length_scale
        Factor on all lengths.
    rate_scale
        Everything happens this many times faster.
    partial_ids
        Whether the unfilled last block of a prompt gets an id.
    """

    block_tokens: int
    length_scale: float = 1.0
    rate_scale: float = 1.0
    partial_ids: bool = True

    def session(self, session_id: int, starts_at_s: float, turns: list[Turn], root: Sequence[int] = ()) -> Session:
        """Return a session of one stream, which begins with the shared blocks *root*, at *starts_at_s* [s]."""
        streams = (self.stream(session_id, turns, root),)
        return Session(session_id=session_id, starts_at_s=starts_at_s, streams=streams, requests=len(turns))

    def stream(
        self,
        session_id: int,
        turns: list[Turn],
        root: Sequence[int] = (),
        *,
        number: int = 0,
        after_turn: int = NO_ID,
        delay_s: float = 0.0,
    ) -> Stream:
        """Return stream *number* of a session, whose prompts all start with the shared blocks *root*."""
        return Stream(
            session_id=session_id,
            turns=partial(self._records, session_id, turns, root, number),
            after_turn=after_turn,
            delay_s=delay_s / self.rate_scale,
        )

    def shared_blocks(self, tokens: float) -> int:
        """Return how many whole blocks a shared prefix of *tokens* makes once it is scaled [blocks]."""
        return int(tokens * self.length_scale) // self.block_tokens

    def _records(self, session_id: int, turns: list[Turn], root: Sequence[int], number: int) -> Iterator[TraceRecord]:
        block_tokens, scale, faster = self.block_tokens, self.length_scale, self.rate_scale
        next_id = (session_id + 1 << _SESSION_SHIFT) + (number << _STREAM_SHIFT)
        ids: list[int] = []
        partial_id = NO_ID
        for turn in turns:
            again = turn.kept_tokens == math.inf
            prompt_tokens = max(round(turn.prompt_tokens * scale), 1)
            n_blocks, rest_tokens = divmod(prompt_tokens, block_tokens)
            n_kept = len(ids) if again else min(int(turn.kept_tokens * scale) // block_tokens, len(ids), n_blocks)
            # The unchanged list is reused in place: what is yielded is a copy, its reader's to change.
            if n_kept > len(root):
                del ids[n_kept:]
            else:
                ids = list(root[:n_blocks])
            n_new = n_blocks - len(ids)
            ids.extend(range(next_id, next_id + n_new))
            next_id += n_new
            if not self.partial_ids or not rest_tokens:
                partial_id = NO_ID
            elif not again:
                # A last block that is not full matches nothing but the same prompt sent again.
                partial_id = next_id
                next_id += 1
            output_tokens = max(round(turn.output_tokens * scale), 1)
            # Rescaling would make another NaN, which is not equal to itself.
            think_s = turn.think_s / faster if turn.think_s >= 0 else math.nan
            yield TraceRecord(
                turn.at_s / faster, prompt_tokens, output_tokens, ids.copy(), session_id, partial_id, think_s
            )
