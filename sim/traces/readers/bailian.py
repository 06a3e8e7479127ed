"""The Qwen-Bailian usage traces: one JSON object a line, with sessions and hashes of blocks of 16 tokens.

Source of the format: alibaba-edu/qwen-bailian-usagetraces-anon (Apache-2.0), README and docs; J. Wang et al., "KVCache
Cache in the Wild", USENIX ATC 2025. Blocks are hashed one by one, not chained, so the reader chains them: equal ids
then mean equal prompts up to the end of the block. There are ceil(input / 16) hashes; the last block of most prompts is
not full, holds padding and never matches the full one of a later turn, so it is a partial block. `<think>` parts of an
answer are not in the next prompt, which is therefore often no plain continuation.

A session is a chain of parents up to its root. Requests whose parent is not in the trace are roots, and those of one
missing parent are one session. Keys that the reader does not name are passed over.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sim.traces.bad_lines import BadLines
from sim.traces.chained_ids import ChainedIds
from sim.traces.fields import MAX_ID, BadRowError, json_object, seconds, shown, whole
from sim.traces.files import Head, numbered_lines
from sim.traces.ordering import Row, in_time_order
from sim.traces.reading import READERS
from sim.traces.record import NO_ID, TraceRecord

BLOCK_TOKENS = 16
"""Tokens a hash of this format stands for (README, "Data Specification of the Traces")."""

_KEYS = ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "hash_ids")


@READERS.register("bailian")
class BailianReader:
    """JSON lines with chat_id, parent_chat_id, timestamp (s), input_length, output_length, hash_ids (16 tokens)."""

    several_files: ClassVar[bool] = False

    def sniff(self, head: Head) -> bool:
        """Return whether the line names a chat_id and another key of the format."""
        return '"chat_id"' in head.first_line and sum(f'"{key}"' in head.first_line for key in _KEYS) >= 2

    def open(self, path: Path, bad_lines: BadLines) -> "BailianTrace":
        """Return the trace in *path*, without reading it yet."""
        return BailianTrace(path=path, bad_lines=bad_lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class BailianTrace:
    """A file in the Bailian format; every call of `records` reads it afresh and holds the ids of chats and blocks."""

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
        parents: dict[int, int] = {}
        sessions: dict[int, int] = {}  # by chat
        # Sessions are told in order of arrival, in which a parent comes before its children, whatever the file's order.
        for record in in_time_order(_rows(self.path, self.bad_lines, parents), self.path, self.bad_lines):
            chat = record.session_id
            parent = parents[chat]
            root = chat if parent == NO_ID else parent
            record.session_id = sessions[chat] = sessions.setdefault(root, len(sessions))
            yield record


def _rows(path: Path, bad_lines: BadLines, parents: dict[int, int]) -> Iterator[Row]:
    """Yield the rows as they stand, with the chat in place of the session; notes each chat's parent."""
    chained = ChainedIds()
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        try:
            row = json_object(line)
            chat = whole(row, "chat_id", most=MAX_ID)
            parent = whole(row, "parent_chat_id", least=NO_ID, most=MAX_ID)
            arrived_at_s = seconds(row, "timestamp")
            prompt_tokens = whole(row, "input_length", least=1)
            output_tokens = whole(row, "output_length")
            hashes = _hashes(row.get("hash_ids"), prompt_tokens)
        except BadRowError as error:
            bad_lines.report(f"{path}:{number}", str(error))
            continue
        parents[chat] = parent
        ids = chained.of(hashes)
        partial_id = ids.pop() if prompt_tokens % BLOCK_TOKENS else NO_ID
        yield arrived_at_s, number, TraceRecord(arrived_at_s, prompt_tokens, output_tokens, ids, chat, partial_id)


def _hashes(hashes: object, prompt_tokens: int) -> list[int]:
    """Return the hashes of a row, checked."""
    if not isinstance(hashes, list):
        raise BadRowError(f"hash_ids is {shown(hashes)}; must be a list of block hashes")
    for index, block_hash in enumerate(hashes):
        if type(block_hash) is not int or not 0 <= block_hash <= MAX_ID:
            raise BadRowError(f"hash_ids[{index}] is {shown(block_hash)}; must be a whole number from 0 to 2**62 - 1")
    wanted = -(-prompt_tokens // BLOCK_TOKENS)
    if len(hashes) != wanted:
        raise BadRowError(
            f"hash_ids has {len(hashes)} hashes, but {prompt_tokens} prompt tokens make {wanted} blocks of "
            f"{BLOCK_TOKENS} (the last may be partial)"
        )
    return hashes
