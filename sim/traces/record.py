"""What a request trace is to the simulator: a name, a block size and a stream of records.

This file does not read files (see `sim.traces.readers`) and draws no random numbers (see `sim.generators`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

NO_ID = -1
"""Stands where a record has no session or no partial block: real ids are 0 or more."""


@dataclass(slots=True)
class TraceRecord:
    """One request of a trace.

    Not frozen and with positional fields, unlike the other records of kvtier: a million of them are made for each run,
    and the guarded constructor of a frozen dataclass costs three times as much.

    Parameters
    ----------
    arrived_at_s
        Arrival [s] on the trace's own clock, 0 or more.
    prompt_tokens
        Length of the prompt [tokens], 1 or more.
    output_tokens
        Length of the answer [tokens]; some traces hold 0.
    block_ids
        The full blocks of the prompt, first to last; equal ids mean equal prompts up to the end of that block.
    session_id
        The conversation that the request belongs to, or `NO_ID`.
    partial_block_id
        Id of the unfilled last block where the trace names one, or `NO_ID`. It never matches the full block that a
        longer prompt has in that place, so it counts in statistics of a trace but not in a cache.
    think_s
        Pause [s] between the end of the answer before it in its stream and this request; NaN where the trace does not
        say, and for the first request of a stream.
    """

    arrived_at_s: float
    prompt_tokens: int
    output_tokens: int
    block_ids: list[int]
    session_id: int = NO_ID
    partial_block_id: int = NO_ID
    think_s: float = math.nan


class Trace(Protocol):
    """A source of requests that can be read any number of times."""

    @property
    def name(self) -> str:
        """What to call the trace in results."""
        ...

    @property
    def block_tokens(self) -> int:
        """Size of the blocks that the ids name [tokens]."""
        ...

    @property
    def has_prefixes(self) -> bool:
        """Whether the records say which blocks they share; without that no request can hit."""
        ...

    def records(self) -> Iterator[TraceRecord]:
        """Return a fresh stream of the records in order of arrival; a file that turns out bad raises TraceError."""
        ...
