"""Agent traces whose text was hashed in blocks of 64 characters, each prompt as its difference from the one before.

Derived from LMCache/lmcache-agent-trace (Apache-2.0) and from the exgentic traces of inference-sim/inference-sim
(Apache-2.0). After a header come requests with `session`, `t` (s from the first request of the file), token counts,
`keep`, `new` and `nb` (as in `sim.traces.readers.kv_cache_tester_delta`). Ids are chained and global.

Quirks:

- A block is 64 characters. It is taken as 16 tokens, which is exact where the token counts are characters / 4
  (`in_tokens_est`). Real tokenizers make 14 to 19 tokens of it: where a prompt has fewer tokens than its blocks, the
  last blocks are left out; where it has more, the rest belongs to no block. The option `block_tokens` says otherwise.
- Rows of some files stand by length, not in the order in which `keep` counts back. A session whose ids make one chain
  is read all the same, since its first so many ids can only be those. In a session that branches they are malformed.
- Sessions overlap in time but stand one after another, so the file is held, without its block lists.
- What the stamps mean is not stated (the end of an answer in exgentic). Pauses are the gaps between them.
"""

import math
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from models.errors import TraceError
from sim.traces.bad_lines import BadLines
from sim.traces.fields import MAX_ID, BadRowError, block_runs, json_object, seconds, whole
from sim.traces.files import Head, numbered_lines
from sim.traces.reading import READERS
from sim.traces.record import TraceRecord
from sim.traces.sessions import Session, Stream, merged
from sim.traces.turns import Turn, difference, replayed

BLOCK_TOKENS = 16
"""Tokens in a block of 64 characters, at the 4 characters a token of the estimated counts."""

_PROMPT_KEYS = ("in_tokens_est", "in_tokens", "in")
_OUTPUT_KEYS = ("out_tokens_est", "out_tokens", "out")
_MAX_SESSION = 2**31 - 1
# A short line may claim any length, and a list of that many blocks is then made.
_MAX_PROMPT_TOKENS = 2**24


@READERS.register("hash64c")
class Hash64cReader:
    """JSON lines after a header with derived_from: session, t (s), in_tokens_est, out_tokens_est, keep, new, nb."""

    several_files: ClassVar[bool] = False

    def __init__(self, block_tokens: int = BLOCK_TOKENS) -> None:
        self._block_tokens = block_tokens

    def sniff(self, head: Head) -> bool:
        """Return whether the first line is the header, or a request without it."""
        line = head.first_line
        keys = ('"derived_from"', '"block"') if '"derived_from"' in line else ('"session"', '"keep"', '"new"', '"nb"')
        return all(key in line for key in keys)

    def open(self, path: Path, bad_lines: BadLines) -> "Hash64cTrace":
        """Return the trace in *path*, without reading it yet."""
        return Hash64cTrace(path=path, bad_lines=bad_lines, block_tokens=self._block_tokens)


@dataclass(slots=True)
class _Row:
    number: int
    sent_at_s: float
    prompt_tokens: int
    output_tokens: int
    keep: int
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hash64cTrace:
    """A file of text-free agent sessions; every call of `sessions` or `records` reads it afresh."""

    path: Path
    bad_lines: BadLines
    block_tokens: int
    has_prefixes: ClassVar[bool] = True
    starts_known: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def records(self) -> Iterator[TraceRecord]:
        """Yield the requests by arrival; raises what `sessions` raises."""
        return merged(self.sessions())

    def sessions(self) -> Iterator[Session]:
        """Yield the sessions by start; raises TraceError where the file cannot be read or holds none."""
        sessions = []
        malformed: list[int] = []
        for session_id, rows in self._rows(malformed).items():
            turns = self._turns(rows, malformed)
            if not turns:
                continue
            starts_at_s = turns[0].arrived_at_s
            for turn in turns:
                turn.arrived_at_s -= starts_at_s
            stream = Stream(session_id=session_id, turns=partial(replayed, turns, session_id, self.block_tokens))
            sessions.append(
                Session(session_id=session_id, starts_at_s=starts_at_s, streams=(stream,), requests=len(turns))
            )
        if not sessions:
            raise TraceError(str(self.path), self.bad_lines.none_left() or "the file holds no requests")
        sessions.sort(key=lambda session: session.starts_at_s or 0.0)
        return iter(sessions)

    def _rows(self, malformed: list[int]) -> dict[int, list[_Row]]:
        """Return the sound rows by session, in the order of the file, and add the numbers of other lines."""
        sessions: dict[int, list[_Row]] = {}
        for number, line in numbered_lines(self.path):
            if not line.strip():
                continue
            try:
                row = json_object(line)
                if "derived_from" in row:
                    continue
                session_id = whole(row, "session", most=_MAX_SESSION)
                sound = _row(number, row)
                sessions.setdefault(session_id, []).append(sound)
            except BadRowError as error:
                self.bad_lines.report(f"{self.path}:{number}", str(error))
                malformed.append(number)
        return sessions

    def _turns(self, rows: list[_Row], malformed: list[int]) -> list[Turn]:
        """Return the turns of a session by time, each as its difference from the one before it."""
        turns: list[Turn] = []
        before: list[int] = []
        for row, ids in sorted(self._block_lists(rows, malformed), key=lambda pair: pair[0].sent_at_s):
            keep, runs = difference(before, ids)
            think_s = row.sent_at_s - turns[-1].arrived_at_s if turns else math.nan
            turns.append(Turn(row.sent_at_s, row.prompt_tokens, row.output_tokens, think_s, keep, runs))
            before = ids
        return turns

    def _block_lists(self, rows: list[_Row], malformed: list[int]) -> Iterator[tuple[_Row, list[int]]]:
        chain = _chain(rows)
        held: list[int] = []
        broken, before = False, rows[0].number
        for row in rows:
            source = held if chain is None else chain
            broken = broken or row.keep > len(source)
            if row.keep > len(source):
                self._report(row, f"keep is {row.keep}, but the request before it has {len(source)} blocks")
            elif chain is None and (broken or bisect(malformed, before) < bisect(malformed, row.number)):
                broken = True
                self._report(row, "follows a malformed line, so its blocks cannot be known")
            else:
                held = source[: row.keep]
                for start, count in zip(row.runs[::2], row.runs[1::2], strict=True):
                    held.extend(range(start, start + count))
                yield row, held
            before = row.number

    def _report(self, row: _Row, problem: str) -> None:
        self.bad_lines.report(f"{self.path}:{row.number}", problem)


def _row(number: int, row: dict[str, Any]) -> _Row:
    keep, runs, blocks = block_runs(row, held=_MAX_PROMPT_TOKENS, max_id=MAX_ID)
    prompt_tokens = whole(row, _key(row, _PROMPT_KEYS), least=1, most=_MAX_PROMPT_TOKENS)
    if blocks > prompt_tokens:
        raise BadRowError(f"{blocks} blocks of 64 characters are more than the {prompt_tokens} tokens of the prompt")
    return _Row(number, seconds(row, "t"), prompt_tokens, whole(row, _key(row, _OUTPUT_KEYS)), keep, runs)


def _key(row: dict[str, Any], keys: tuple[str, ...]) -> str:
    return next((key for key in keys if key in row), keys[0])


def _chain(rows: list[_Row]) -> list[int] | None:
    """Return the ids of a session by their place, or None if two stand in one place (a branch) or none does."""
    at: dict[int, int] = {}
    for row in rows:
        place = row.keep
        for start, count in zip(row.runs[::2], row.runs[1::2], strict=True):
            for block_id in range(start, start + count):
                if at.setdefault(place, block_id) != block_id:
                    return None
                place += 1
    return [at[place] for place in range(len(at))] if len(at) == max(at, default=-1) + 1 else None
