"""A plain CSV with named columns, the easiest way to bring a trace of one's own.

The header names the columns, in any order; other columns are passed over. The names in brackets are taken as well.

- `arrived_at_s` (`arrival_s`, `arrival_time_s`, `timestamp_s`) in seconds, or `timestamp_ms` (`arrival_ms`)
- `prompt_tokens` (`input_tokens`, `input_length`), at least 1
- `output_tokens` (`completion_tokens`, `output_length`), 0 or more
- `session_id`, optional: any text; empty where a request belongs to none
- `think_s`, optional: pause from the end of the answer before it in its session; empty where unknown
- `block_ids`, optional: whole numbers with `;` or spaces between them, first block to last. Equal ids mean equal
  prompts up to the end of that block. Either the full blocks only, or one more for a last block that is not full.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from models.errors import TraceError
from sim.traces.bad_lines import BadLines
from sim.traces.csv_rows import column_names, csv_rows, seconds, shown, tokens
from sim.traces.fields import MAX_ID, BadRowError
from sim.traces.file_trace import FileTrace
from sim.traces.files import Head, read_head
from sim.traces.ordering import Row
from sim.traces.reading import READERS, require_block_tokens
from sim.traces.record import NO_ID, TraceRecord

_ARRIVED_S = ("arrived_at_s", "arrival_s", "arrival_time_s", "timestamp_s")
_ARRIVED_MS = ("timestamp_ms", "arrival_ms")
_PROMPT = ("prompt_tokens", "input_tokens", "input_length")
_OUTPUT = ("output_tokens", "completion_tokens", "output_length")
_OPTIONAL = (("session_id",), ("think_s",), ("block_ids",))


@READERS.register("named-csv")
@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCsvReader:
    """CSV with arrived_at_s (or timestamp_ms), prompt_tokens, output_tokens, perhaps session_id, think_s, block_ids.

    Parameters
    ----------
    block_tokens
        Size of the blocks that `block_ids` names [tokens].
    """

    several_files: ClassVar[bool] = False
    block_tokens: int = 16

    def __post_init__(self) -> None:
        """Refuse blocks of no tokens; raises InputError."""
        require_block_tokens(self.block_tokens)

    def sniff(self, head: Head) -> bool:
        """Return whether the header names a column of prompt lengths and one of outputs."""
        names = column_names(head.first_line)
        return any(name in names for name in _PROMPT) and any(name in names for name in _OUTPUT)

    def open(self, path: Path, bad_lines: BadLines) -> FileTrace:
        """Return the trace in *path*, without reading it yet."""
        return FileTrace(
            path=path,
            bad_lines=bad_lines,
            block_tokens=self.block_tokens,
            has_prefixes="block_ids" in column_names(read_head(path).first_line),
            rows=self._rows,
        )

    def _rows(self, path: Path, bad_lines: BadLines) -> Iterator[Row]:
        arrived_column, per_s = _arrival_column(path)
        sessions: dict[str, int] = {}
        has_blocks = "block_ids" in column_names(read_head(path).first_line)
        columns = ((arrived_column,), _PROMPT, _OUTPUT)
        for number, (arrived, prompt, output, session, think, blocks, _) in csv_rows(
            path, columns, bad_lines, optional=_OPTIONAL
        ):
            try:
                arrived_at_s = seconds(arrived_column, arrived, per_s=per_s)
                prompt_tokens = tokens("prompt_tokens", prompt, least=1)
                output_tokens = tokens("output_tokens", output, least=0)
                think_s = seconds("think_s", think) if think.strip() else math.nan
                ids, partial_id = self._blocks(blocks, prompt_tokens) if has_blocks else ([], NO_ID)
            except BadRowError as error:
                bad_lines.report(f"{path}:{number}", str(error))
                continue
            session_id = sessions.setdefault(session.strip(), len(sessions)) if session.strip() else NO_ID
            yield (
                arrived_at_s,
                number,
                TraceRecord(arrived_at_s, prompt_tokens, output_tokens, ids, session_id, partial_id, think_s),
            )

    def _blocks(self, text: str, prompt_tokens: int) -> tuple[list[int], int]:
        """Return the full blocks of a row and its partial one, checked."""
        ids = []
        for word in text.replace(";", " ").split():
            if not (word.isascii() and word.isdecimal() and len(word) <= len(str(MAX_ID)) and int(word) <= MAX_ID):
                raise BadRowError(f"block_ids holds {shown(word)}; must be whole numbers from 0 to 2**62 - 1")
            ids.append(int(word))
        if len(set(ids)) != len(ids):
            raise BadRowError("block_ids repeats an id; it stands for the whole prompt up to its block, so cannot")
        full, rest = divmod(prompt_tokens, self.block_tokens)
        if rest and len(ids) == full + 1:
            return ids[:-1], ids[-1]
        if len(ids) != full:
            wanted = f"{full} full blocks" + (" and a partial one" if rest else "")
            raise BadRowError(
                f"block_ids has {len(ids)} ids, but {prompt_tokens} prompt tokens make {wanted} of "
                f"{self.block_tokens} tokens; is another block_tokens meant?"
            )
        return ids, NO_ID


def _arrival_column(path: Path) -> tuple[str, float]:
    """Return the name of the column of arrivals and its unit [1/s]; raises TraceError where there is none or two."""
    names = column_names(read_head(path).first_line)
    found = [(name, 1.0) for name in _ARRIVED_S if name in names]
    found += [(name, 1000.0) for name in _ARRIVED_MS if name in names]
    if len(found) == 1:
        return found[0]
    wanted = ", ".join((*_ARRIVED_S, *_ARRIVED_MS))
    problem = f"has the columns {' and '.join(name for name, _ in found)}" if found else "has no column of arrivals"
    raise TraceError(str(path), f"the header {problem}; a trace has one of {wanted}")
