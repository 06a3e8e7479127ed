"""The Mooncake trace format: one JSON object a line with chained block hashes, and its variants with sessions.

Sources of the format: kvcache-ai/Mooncake, FAST25-release/traces (Apache-2.0), and its FAST'25 paper. Keys that the
format does not name are ignored, exact duplicates are kept, blank lines are skipped.

Of the variants, as "Mocker Trace Replay" of ai-dynamo/dynamo (docs/benchmarks/mocker-trace-replay.md) and "Trace Replay
with Mooncake Traces" of ai-dynamo/aiperf (docs/benchmark-modes/trace-replay.md) describe them:

- `created_time`, `input_tokens`, `output_tokens` and `delay_ms` are other names of `timestamp`, `input_length`,
  `output_length` and `delay`.
- `session_id` names the session of a turn. A later turn may give `delay`, the pause (ms) after the answer before it, in
  place of its time. It then arrives, when it is replayed at its own times, as if that answer had taken no time.
- The rows of a file may have no `hash_ids`: then no request can hit. Texts (`text_input`, `messages`, `payload`) are
  not counted in tokens: a row needs its length.
- Blocks may be of other sizes than 512 tokens. The size is told by the number of ids, or given as `block_tokens`.
- A row is the whole prompt, as in Dynamo. AIPerf itself sends the turns before it along; such files look the same.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from pydantic_core import from_json

from models.errors import InputError, TraceError
from sim.traces.bad_lines import BadLines
from sim.traces.fields import MAX_ID, MAX_S, MAX_TOKENS, BadRowError, json_object, shown
from sim.traces.files import Head, numbered_lines
from sim.traces.ordering import Row, in_time_order
from sim.traces.reading import READERS
from sim.traces.record import NO_ID, TraceRecord

BLOCK_TOKENS = 512
"""Tokens a block id of this format stands for (FAST25-release, description of the traces)."""

_KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
_OTHER_NAMES = {
    "created_time": "timestamp",
    "input_tokens": "input_length",
    "output_tokens": "output_length",
    "delay_ms": "delay",
}
_SESSION_KEYS = frozenset(("session_id", "delay", *_OTHER_NAMES))
_TEXT_KEYS = ("text_input", "messages", "payload")
# Keys of formats that look alike: Bailian counts in seconds and blocks of 16 tokens.
_FOREIGN_KEYS = ("chat_id", "parent_chat_id")
_MAX_STAMP_MS = int(MAX_S) * 1000
# Sizes of blocks that are told apart: those of inference engines and caches, powers of two.
_BLOCK_SIZES = tuple(2**exponent for exponent in range(14))
_ROWS_LOOKED_AT = 1000


@READERS.register("mooncake")
class MooncakeReader:
    """JSON lines with timestamp (ms), input_length, output_length (tokens), hash_ids (blocks of 512 tokens)."""

    several_files: ClassVar[bool] = False

    def __init__(self, block_tokens: int | None = None) -> None:
        if block_tokens is not None and block_tokens < 1:
            raise InputError(f"trace format 'mooncake': block_tokens is {block_tokens}; must be at least 1")
        self._block_tokens = block_tokens

    def sniff(self, head: Head) -> bool:
        """Return whether the line names at least two keys of the format, and none of the Bailian format's own."""
        named = sum(f'"{key}"' in head.first_line for key in (*_KEYS, *_OTHER_NAMES))
        is_json = "{" in head.first_line  # the header of a CSV may have names in quotes as well
        return is_json and named >= 2 and not any(f'"{key}"' in head.first_line for key in _FOREIGN_KEYS)

    def open(self, path: Path, bad_lines: BadLines) -> "MooncakeTrace":
        """Return the trace in *path*, after a look at its first rows; raises TraceError where blocks have no size."""
        block_tokens, has_prefixes = _blocks(path)
        if self._block_tokens is None and block_tokens is None:
            raise TraceError(str(path), "hash_ids fit blocks of several sizes; say which with --block-tokens")
        return MooncakeTrace(
            path=path,
            bad_lines=bad_lines,
            block_tokens=self._block_tokens or block_tokens or BLOCK_TOKENS,
            has_prefixes=has_prefixes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MooncakeTrace:
    """A file in the Mooncake format; every call of `records` reads it afresh."""

    path: Path
    bad_lines: BadLines
    block_tokens: int = BLOCK_TOKENS
    has_prefixes: bool = True

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def records(self) -> Iterator[TraceRecord]:
        """Yield the requests by arrival; malformed rows go to `bad_lines`, all else that is wrong raises TraceError."""
        return in_time_order(self._rows(), self.path, self.bad_lines)

    def _rows(self) -> Iterator[Row]:
        """Yield the rows of the file as they stand, checked."""
        block_tokens = self.block_tokens
        sessions = _Sessions()
        for number, line in numbered_lines(self.path):
            # The hot path (0.1 s for 12,000 requests) only asks whether the row is sound and of the plain format;
            # `_checked` says why it is not, or reads the variant.
            try:
                row = from_json(line)
                stamp_ms, prompt_tokens, output_tokens, ids = (
                    row["timestamp"],
                    row["input_length"],
                    row["output_length"],
                    row["hash_ids"],
                )
                sound = (
                    type(stamp_ms) in (int, float)
                    and type(prompt_tokens) is int
                    and type(output_tokens) is int
                    and type(ids) is list
                    and 0 <= stamp_ms <= _MAX_STAMP_MS
                    and 1 <= prompt_tokens <= MAX_TOKENS
                    and 0 <= output_tokens <= MAX_TOKENS
                    and len(ids) == -(-prompt_tokens // block_tokens)
                    and set(map(type, ids)) == {int}
                    and min(ids) >= 0
                    and max(ids) <= MAX_ID
                    and len(set(ids)) == len(ids)
                    and _SESSION_KEYS.isdisjoint(row)
                )
            except (ValueError, TypeError, KeyError):
                sound = False
            if sound:
                session_id, think_s = NO_ID, math.nan
            elif line.strip():
                try:
                    row = _checked(line, block_tokens, self.has_prefixes)
                    stamp_ms, session_id, think_s = sessions.place(row)
                except BadRowError as error:
                    self.bad_lines.report(f"{self.path}:{number}", str(error))
                    continue
                prompt_tokens, output_tokens, ids = row["input_length"], row["output_length"], row["hash_ids"] or []
            else:
                continue
            partial_id = ids.pop() if ids and prompt_tokens % block_tokens else NO_ID
            arrived_at_s = stamp_ms / 1000
            yield (
                arrived_at_s,
                number,
                TraceRecord(arrived_at_s, prompt_tokens, output_tokens, ids, session_id, partial_id, think_s),
            )


class _Sessions:
    """Numbers sessions as they appear, and knows when the last turn of each arrived [ms]."""

    def __init__(self) -> None:
        self._last: dict[str | int, tuple[int, float]] = {}

    def place(self, row: dict[str, Any]) -> tuple[float, int, float]:
        """Return arrival [ms], number of the session and pause before the turn [s]; raises BadRowError for lone delays.

        As Dynamo does, a later turn with neither time nor delay follows at once.
        """
        name, stamp_ms, delay_ms = row.get("session_id"), row.get("timestamp"), row.get("delay")
        session_id, last_ms = self._last.get(name, (len(self._last), None)) if name is not None else (NO_ID, None)
        if last_ms is None:
            if stamp_ms is None:
                raise BadRowError("key 'timestamp' is missing; the first turn of a session needs it")
            if delay_ms:
                raise BadRowError(f"delay is {shown(delay_ms)}, but there is no turn of its session before it")
            think_s = math.nan
        else:
            if stamp_ms is None:
                delay_ms = delay_ms or 0.0
                stamp_ms = min(last_ms + delay_ms, _MAX_STAMP_MS)
            think_s = math.nan if delay_ms is None else delay_ms / 1000
        if name is not None:
            self._last[name] = session_id, stamp_ms
        return stamp_ms, session_id, think_s


def _blocks(path: Path) -> tuple[int | None, bool]:
    """Return the size of blocks by the number of ids in the first rows, None if unclear, and whether there are ids."""
    sizes = list(_BLOCK_SIZES)
    rows = with_ids = 0
    for _, line in islice(numbered_lines(path), _ROWS_LOOKED_AT):
        try:
            row = _named(json_object(line))
        except BadRowError:
            continue
        rows += 1
        ids, prompt_tokens = row.get("hash_ids"), row.get("input_length")
        if type(ids) is list and type(prompt_tokens) is int:
            with_ids += 1
            # A row that fits none is malformed, and reported when it is read.
            sizes = [size for size in sizes if -(-prompt_tokens // size) == len(ids)] or sizes
            if len(sizes) == 1:
                break
    # Short prompts fit many sizes; then the one that the format states holds.
    size = BLOCK_TOKENS if BLOCK_TOKENS in sizes else sizes[0] if len(sizes) == 1 else None
    return size, with_ids > 0 or rows == 0


def _named(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with the names of the format for those of its variants."""
    return {_OTHER_NAMES.get(key, key): value for key, value in row.items()}


def _checked(line: bytes, block_tokens: int, has_prefixes: bool) -> dict[str, Any]:
    """Return the row in a line with all that it needs under the names of the format; raises BadRowError if malformed.

    Of `timestamp`, `delay`, `session_id` and `hash_ids`, those that it does not need may be None.
    """
    row = _named(json_object(line))
    for problem in _problems(row, block_tokens, has_prefixes):
        raise BadRowError(problem)
    return {"hash_ids": None, **row}


def _problems(row: dict[str, Any], block_tokens: int, has_prefixes: bool) -> Iterator[str]:
    """Yield what is wrong with a row, the most telling first."""
    optional = {"timestamp": row.get("session_id") is not None, "hash_ids": not has_prefixes}
    for key in _KEYS:
        if key not in row and not optional.get(key, False):
            text = next((text for text in _TEXT_KEYS if text in row), None)
            told = f"; the tokens of {text} are not counted" if text and key == "input_length" else ""
            yield f"key '{key}' is missing; a request has {', '.join(_KEYS)}{told}"
            return
    if row.get("timestamp") is not None or row.get("session_id") is None:
        yield from _time_problems("timestamp", row["timestamp"])
    if row.get("delay") is not None:
        yield from _time_problems("delay", row["delay"])
    if type(row.get("session_id")) not in (str, int, type(None)):
        yield f"session_id is {shown(row['session_id'])}; must be text or a whole number"
    yield from _length_problems("input_length", row["input_length"], least=1)
    yield from _length_problems("output_length", row["output_length"], least=0)
    if "hash_ids" in row:
        yield from _block_problems(row["hash_ids"], row["input_length"], block_tokens)


def _time_problems(key: str, time_ms: Any) -> Iterator[str]:
    if type(time_ms) not in (int, float):
        yield f"{key} is {shown(time_ms)}; must be a number of milliseconds"
    elif not 0 <= time_ms <= _MAX_STAMP_MS:  # also true for NaN
        yield f"{key} is {shown(time_ms)}; must be from 0 to {_MAX_STAMP_MS} milliseconds"


def _length_problems(key: str, length_tokens: Any, *, least: int) -> Iterator[str]:
    if type(length_tokens) is not int:
        yield f"{key} is {shown(length_tokens)}; must be a whole number of tokens"
    elif length_tokens < least:
        yield f"{key} is {shown(length_tokens)}; must be at least {least}"
    elif length_tokens > MAX_TOKENS:
        yield f"{key} is {shown(length_tokens)}; must be at most {MAX_TOKENS}"


def _block_problems(ids: Any, prompt_tokens: int, block_tokens: int) -> Iterator[str]:
    if not isinstance(ids, list):
        yield f"hash_ids is {shown(ids)}; must be a list of block ids"
        return
    for index, block_id in enumerate(ids):
        if type(block_id) is not int or not 0 <= block_id <= MAX_ID:
            yield f"hash_ids[{index}] is {shown(block_id)}; must be a whole number from 0 to 2**62 - 1"
    wanted = -(-prompt_tokens // block_tokens)
    if len(ids) != wanted:
        yield (
            f"hash_ids has {len(ids)} ids, but {prompt_tokens} prompt tokens make {wanted} blocks of {block_tokens} "
            "(the last may be partial)"
        )
    seen: set[int] = set()
    for index, block_id in enumerate(ids):
        if block_id in seen:
            yield f"hash_ids[{index}] repeats {block_id}; an id stands for the whole prompt up to its block, so cannot"
        seen.add(block_id)
