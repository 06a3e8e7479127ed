"""A trace that is one file of rows, as most formats are: what is the same in all of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sim.traces.bad_lines import BadLines
from sim.traces.ordering import Row, in_time_order
from sim.traces.record import TraceRecord

NO_PREFIX_BLOCK_TOKENS = 16
"""Block size of traces that name no blocks [tokens]: vLLM's default, so that any engine's block size fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTrace:
    """A file of one request a row; every call of `records` reads it afresh.

    Parameters
    ----------
    path
        The file.
    bad_lines
        Takes its malformed rows.
    block_tokens
        Size of the blocks that the ids name [tokens].
    has_prefixes
        Whether the rows name blocks.
    rows
        Reads the rows as they stand, from a path and to where malformed ones go.
    notes
        What a user has to know of the trace to trust a result, a sentence each.
    """

    path: Path
    bad_lines: BadLines
    block_tokens: int
    has_prefixes: bool
    rows: Callable[[Path, BadLines], Iterator[Row]]
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def records(self) -> Iterator[TraceRecord]:
        """Yield the requests by arrival; malformed rows go to `bad_lines`, all else that is wrong raises TraceError."""
        return in_time_order(self.rows(self.path, self.bad_lines), self.path, self.bad_lines)
