"""LLMServingSim's workloads: JSON lines of requests or of whole agent sessions, with or without token ids.

Source of the format: casys-kaist/LLMServingSim (MIT), workloads/README.md. A line is a request (input_toks,
output_toks, arrival_time_ns, input_tok_ids) or a session: arrival_time_ns and sub_requests, each sent tool_duration_ns
after the answer to the one before. Real token ids allow blocks of any size: a prompt's full blocks are named here by
what they and all before them hold. Answers (output_tok_ids) are not used: what of them is reused stands in a later
prompt.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, ClassVar

from sim.traces.bad_lines import BadLines
from sim.traces.chained_ids import ChainedIds
from sim.traces.fields import MAX_ID, MAX_S, BadRowError, json_object, shown, whole
from sim.traces.files import Head, numbered_lines
from sim.traces.ordering import Row, in_time_order
from sim.traces.reading import READERS, require_block_tokens
from sim.traces.record import NO_ID, TraceRecord

_NS_PER_S = 10**9
_MAX_NS = int(MAX_S) * _NS_PER_S


@READERS.register("llmservingsim")
@dataclass(frozen=True, slots=True, kw_only=True)
class LlmServingSimReader:
    """JSON lines with input_toks, output_toks, arrival_time_ns, perhaps input_tok_ids, or with sub_requests.

    Parameters
    ----------
    block_tokens
        Size of the blocks that token ids are cut into [tokens].
    """

    several_files: ClassVar[bool] = False
    block_tokens: int = 16

    def __post_init__(self) -> None:
        """Refuse blocks of no tokens; raises InputError."""
        require_block_tokens(self.block_tokens)

    def sniff(self, head: Head) -> bool:
        """Return whether the line names keys of the format."""
        return '"input_toks"' in head.text and ('"output_toks"' in head.text or '"arrival_time_ns"' in head.text)

    def open(self, path: Path, bad_lines: BadLines) -> "LlmServingSimTrace":
        """Return the trace in *path*; only its first line is read, to see whether it holds token ids."""
        first_line = next((line for _, line in numbered_lines(path) if line.strip()), b"")
        return LlmServingSimTrace(
            path=path,
            bad_lines=bad_lines,
            block_tokens=self.block_tokens,
            has_prefixes=b'"input_tok_ids"' in first_line,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmServingSimTrace:
    """A file in LLMServingSim's format; every call of `records` reads it afresh and holds its distinct blocks."""

    path: Path
    bad_lines: BadLines
    block_tokens: int
    has_prefixes: bool

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def records(self) -> Iterator[TraceRecord]:
        """Yield the requests by arrival; those of a session as if answers took no time, `think_s` apart.

        Malformed rows go to `bad_lines`, all else that is wrong raises TraceError.
        """
        later: dict[int, list[TraceRecord]] = {}  # by session: what follows its first request
        waiting: list[tuple[float, int, int, TraceRecord]] = []
        for first in in_time_order(self._rows(later), self.path, self.bad_lines):
            while waiting and waiting[0][0] <= first.arrived_at_s:
                yield heappop(waiting)[-1]
            yield first
            for index, record in enumerate(later.pop(first.session_id, ())):
                heappush(waiting, (record.arrived_at_s, record.session_id, index, record))
        while waiting:
            yield heappop(waiting)[-1]

    def _rows(self, later: dict[int, list[TraceRecord]]) -> Iterator[Row]:
        """Yield the requests and the first ones of sessions as they stand; the rest of a session goes to *later*."""
        blocks = _Blocks(self.block_tokens)
        sessions = 0
        for number, line in numbered_lines(self.path):
            if not line.strip():
                continue
            try:
                row = json_object(line)
                arrived_at_s = whole(row, "arrival_time_ns", most=_MAX_NS) / _NS_PER_S
                if "sub_requests" in row:
                    first, *rest = self._session(row["sub_requests"], arrived_at_s, blocks)
                    for record in (first, *rest):
                        record.session_id = sessions
                    later[sessions] = rest
                    sessions += 1
                else:
                    first = self._request(row, arrived_at_s, blocks)
            except BadRowError as error:
                self.bad_lines.report(f"{self.path}:{number}", str(error))
                continue
            yield arrived_at_s, number, first

    def _session(self, steps: Any, arrived_at_s: float, blocks: "_Blocks") -> list[TraceRecord]:
        """Return the requests of a session, in order."""
        if not isinstance(steps, list) or not steps:
            raise BadRowError(f"sub_requests is {shown(steps)}; must be a list of at least one request")
        records = []
        think_s = math.nan
        for index, step in enumerate(steps):
            if not isinstance(step, dict):
                raise BadRowError(f"sub_requests[{index}] is {shown(step)}; must be a JSON object")
            try:
                record = self._request(step, arrived_at_s, blocks)
                record.think_s = think_s
                think_s = whole(step, "tool_duration_ns", most=_MAX_NS) / _NS_PER_S if index < len(steps) - 1 else 0.0
            except BadRowError as error:
                raise BadRowError(f"sub_requests[{index}]: {error}") from error
            records.append(record)
            arrived_at_s += think_s
        return records

    def _request(self, row: dict[str, Any], arrived_at_s: float, blocks: "_Blocks") -> TraceRecord:
        prompt_tokens, output_tokens = whole(row, "input_toks", least=1), whole(row, "output_toks")
        if ("input_tok_ids" in row) != self.has_prefixes:
            if self.has_prefixes:
                raise BadRowError("key 'input_tok_ids' is missing; the first line has it")
            raise BadRowError("has input_tok_ids, but the first line has none; all requests have them or none has")
        ids = blocks.of(row["input_tok_ids"], prompt_tokens) if self.has_prefixes else []
        return TraceRecord(arrived_at_s, prompt_tokens, output_tokens, ids, NO_ID)


class _Blocks:
    """Names the blocks of prompts of token ids."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._contents: dict[tuple[int, ...], int] = {}
        self._chained = ChainedIds()

    def of(self, token_ids: Any, prompt_tokens: int) -> list[int]:
        """Return the ids of the full blocks of a prompt; raises BadRowError for what is no list of its tokens."""
        if not isinstance(token_ids, list):
            raise BadRowError(f"input_tok_ids is {shown(token_ids)}; must be a list of token ids")
        if len(token_ids) != prompt_tokens:
            raise BadRowError(f"input_tok_ids has {len(token_ids)} ids, but input_toks is {prompt_tokens}")
        if not set(map(type, token_ids)) <= {int} or min(token_ids) < 0 or max(token_ids) > MAX_ID:
            index, token = next(
                (index, token)
                for index, token in enumerate(token_ids)
                if type(token) is not int or not 0 <= token <= MAX_ID
            )
            raise BadRowError(f"input_tok_ids[{index}] is {shown(token)}; must be a whole number of 0 or more")
        size, contents = self._block_tokens, self._contents
        return self._chained.of(
            contents.setdefault(tuple(token_ids[start : start + size]), len(contents))
            for start in range(0, prompt_tokens - size + 1, size)
        )
