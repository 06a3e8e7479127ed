"""The Mooncake trace format: one JSON object a line with chained block hashes.

Source of the format: kvcache-ai/Mooncake, FAST25-release/traces (Apache-2.0), and its FAST'25 paper. Keys that the
format does not name are ignored, exact duplicates are kept, blank lines are skipped. Malformed rows are errors: a
request left out quietly would change every result.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic_core import from_json

from sim.traces.bad_lines import BadLines
from sim.traces.files import Head, numbered_lines
from sim.traces.ordering import Row, in_time_order
from sim.traces.reading import READERS
from sim.traces.record import NO_ID, TraceRecord

BLOCK_TOKENS = 512
"""Tokens a block id of this format stands for (FAST25-release, description of the traces)."""

_KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
# Ids from here on are left to the simulator, for blocks that no other request shares.
_MAX_ID = 2**62 - 1
# Far above any context window, and sums over a billion requests still fit 64 bits.
_MAX_TOKENS = 2**31 - 1
# Up to 2**33 s (the year 2242) a float of seconds still tells microseconds apart; a larger stamp is in another unit.
_MAX_STAMP_MS = 2**33 * 1000
_SHOWN_CHARACTERS = 40


@READERS.register("mooncake")
class MooncakeReader:
    """JSON lines with timestamp (ms), input_length, output_length (tokens), hash_ids (blocks of 512 tokens)."""

    several_files: ClassVar[bool] = False

    def sniff(self, head: Head) -> bool:
        """Return whether the line names at least two keys of the format, and none of the Bailian format's own."""
        named = sum(f'"{key}"' in head.first_line for key in _KEYS)
        return named >= 2 and '"chat_id"' not in head.first_line

    def open(self, path: Path, bad_lines: BadLines) -> "MooncakeTrace":
        """Return the trace in *path*, without reading it yet."""
        return MooncakeTrace(path=path, bad_lines=bad_lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class MooncakeTrace:
    """A file in the Mooncake format; every call of `records` reads it afresh."""

    path: Path
    bad_lines: BadLines
    block_tokens: ClassVar[int] = BLOCK_TOKENS
    has_prefixes: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def records(self) -> Iterator[TraceRecord]:
        """Yield the requests by arrival; malformed rows go to `bad_lines`, all else that is wrong raises TraceError."""
        return in_time_order(_rows(self.path, self.bad_lines), self.path, self.bad_lines)


def _rows(path: Path, bad_lines: BadLines) -> Iterator[Row]:
    """Yield the rows of a file as they stand, checked."""
    for number, line in numbered_lines(path):
        # The hot path (0.1 s for 12,000 requests) only asks whether the row is sound; `_problems` says why not.
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
                and 1 <= prompt_tokens <= _MAX_TOKENS
                and 0 <= output_tokens <= _MAX_TOKENS
                and len(ids) == -(-prompt_tokens // BLOCK_TOKENS)
                and set(map(type, ids)) == {int}
                and min(ids) >= 0
                and max(ids) <= _MAX_ID
                and len(set(ids)) == len(ids)
            )
        except (ValueError, TypeError, KeyError):
            sound = False
        if sound:
            partial_id = ids.pop() if prompt_tokens % BLOCK_TOKENS else NO_ID
            arrived_at_s = stamp_ms / 1000
            yield arrived_at_s, number, TraceRecord(arrived_at_s, prompt_tokens, output_tokens, ids, NO_ID, partial_id)
        elif line.strip():
            bad_lines.report(f"{path}:{number}", next(_problems(line)))


def _problems(line: bytes) -> Iterator[str]:
    """Yield what is wrong with a malformed row, the most telling first."""
    try:
        row = from_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        yield f"not UTF-8 text (byte {error.start + 1} of the line is 0x{line[error.start]:02x})"
    except ValueError as error:
        yield f"not a JSON object ({str(error).replace(' at line 1', ' at')})"
    else:
        if not isinstance(row, dict):
            yield f"a request is a JSON object with {', '.join(_KEYS)}; this is {_shown(row)}"
            return
        for key in _KEYS:
            if key not in row:
                yield f"key '{key}' is missing; a request has {', '.join(_KEYS)}"
        yield from _stamp_problems(row["timestamp"])
        yield from _length_problems("input_length", row["input_length"], least=1)
        yield from _length_problems("output_length", row["output_length"], least=0)
        yield from _block_problems(row["hash_ids"], row["input_length"])


def _stamp_problems(stamp_ms: Any) -> Iterator[str]:
    if type(stamp_ms) not in (int, float):
        yield f"timestamp is {_shown(stamp_ms)}; must be a number of milliseconds"
    elif not 0 <= stamp_ms <= _MAX_STAMP_MS:  # also true for NaN
        yield f"timestamp is {_shown(stamp_ms)}; must be from 0 to {_MAX_STAMP_MS} milliseconds"


def _length_problems(key: str, length_tokens: Any, *, least: int) -> Iterator[str]:
    if type(length_tokens) is not int:
        yield f"{key} is {_shown(length_tokens)}; must be a whole number of tokens"
    elif length_tokens < least:
        yield f"{key} is {_shown(length_tokens)}; must be at least {least}"
    elif length_tokens > _MAX_TOKENS:
        yield f"{key} is {_shown(length_tokens)}; must be at most {_MAX_TOKENS}"


def _block_problems(ids: Any, prompt_tokens: int) -> Iterator[str]:
    if not isinstance(ids, list):
        yield f"hash_ids is {_shown(ids)}; must be a list of block ids"
        return
    for index, block_id in enumerate(ids):
        if type(block_id) is not int or not 0 <= block_id <= _MAX_ID:
            yield f"hash_ids[{index}] is {_shown(block_id)}; must be a whole number from 0 to 2**62 - 1"
    wanted = -(-prompt_tokens // BLOCK_TOKENS)
    if len(ids) != wanted:
        yield (
            f"hash_ids has {len(ids)} ids, but {prompt_tokens} prompt tokens make {wanted} blocks of {BLOCK_TOKENS} "
            "(the last may be partial)"
        )
    seen: set[int] = set()
    for index, block_id in enumerate(ids):
        if block_id in seen:
            yield f"hash_ids[{index}] repeats {block_id}; an id stands for the whole prompt up to its block, so cannot"
        seen.add(block_id)


def _shown(value: Any) -> str:
    """Return a value as it would stand in JSON, cut short."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
