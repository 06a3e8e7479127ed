"""Turns of a session in little room: each prompt as what it keeps of the one before and what is new.

Prompts of a session grow: a session of 70 turns of 100,000 tokens shares almost all of its blocks between turns. Stored
like this, the longest public trace takes a few hundred bytes a request in place of some 60 kB.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sim.prefix_tree import common_prefix
from sim.traces.record import NO_ID, TraceRecord


@dataclass(slots=True)
class Turn:
    """One request of a stream; positional, since traces make many of them.

    Parameters
    ----------
    arrived_at_s
        From the start of the session [s].
    prompt_tokens, output_tokens
        Lengths [tokens].
    think_s
        As in `TraceRecord`.
    keep
        How many blocks at the start of the prompt are those of the turn before.
    runs
        The other blocks: first id, number of consecutive ids, first id, ...
    """

    arrived_at_s: float
    prompt_tokens: int
    output_tokens: int
    think_s: float
    keep: int
    runs: tuple[int, ...]


def replayed(turns: Iterable[Turn], session_id: int, block_tokens: int, *, first_id: int = 0) -> Iterator[TraceRecord]:
    """Yield the requests of one stream; *first_id* is added to every block id.

    Blocks of *block_tokens* that a prompt has no room for are left out of its record.
    """
    held: list[int] = []
    for turn in turns:
        del held[turn.keep :]
        starts = iter(turn.runs)
        for start, count in zip(starts, starts, strict=True):
            held.extend(range(first_id + start, first_id + start + count))
        # A copy: a record's list is its reader's to change.
        block_ids = held[: turn.prompt_tokens // block_tokens]
        yield TraceRecord(
            turn.arrived_at_s, turn.prompt_tokens, turn.output_tokens, block_ids, session_id, NO_ID, turn.think_s
        )


def difference(before: list[int], ids: list[int]) -> tuple[int, tuple[int, ...]]:
    """Return what a block list keeps of the one before it, and the rest as runs (see `Turn`)."""
    keep = common_prefix(before, ids)
    runs: list[int] = []
    for block_id in ids[keep:]:
        if runs and runs[-2] + runs[-1] == block_id:
            runs[-1] += 1
        else:
            runs += (block_id, 1)
    return keep, tuple(runs)
