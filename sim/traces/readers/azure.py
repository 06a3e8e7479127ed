"""The Azure LLM inference traces of 2023 and 2024: one CSV row a request, no prefix information.

Source of the format: Azure/AzurePublicDataset (CC-BY-4.0), AzureLLMInferenceDataset2023.md and ...2024.md; P. Patel et
al., "Splitwise", ISCA 2024; J. Stojkovic et al., "DynamoLLM", 2024. Stamps have 100 ns digits in 2023 (`2023-11-16
18:17:03.9799600`) and an offset from UTC in 2024 (`2024-05-10 00:00:00.009930+00:00`); one without offset is taken for
UTC. Arrivals count from the first request: seconds since 1970 in a float would lose the last digits.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from sim.traces.bad_lines import BadLines
from sim.traces.csv_rows import column_names, csv_rows, shown, tokens
from sim.traces.fields import BadRowError
from sim.traces.file_trace import NO_PREFIX_BLOCK_TOKENS, FileTrace
from sim.traces.files import Head
from sim.traces.ordering import LOOK_AHEAD_ROWS, Row
from sim.traces.reading import READERS
from sim.traces.record import TraceRecord

_COLUMNS = (("timestamp",), ("contexttokens",), ("generatedtokens",))
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_TICKS_PER_S = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@READERS.register("azure")
class AzureReader:
    """CSV with TIMESTAMP (date and time), ContextTokens, GeneratedTokens (Azure LLM inference 2023, 2024)."""

    several_files: ClassVar[bool] = False

    def sniff(self, head: Head) -> bool:
        """Return whether the header names both token columns."""
        return {"contexttokens", "generatedtokens"} <= set(column_names(head.first_line))

    def open(self, path: Path, bad_lines: BadLines) -> FileTrace:
        """Return the trace in *path*, without reading it yet."""
        return FileTrace(
            path=path, bad_lines=bad_lines, block_tokens=NO_PREFIX_BLOCK_TOKENS, has_prefixes=False, rows=_rows
        )


def _rows(path: Path, bad_lines: BadLines) -> Iterator[Row]:
    """Yield the rows by their stamps less the earliest of the first ones, among which the first request must be."""
    rows = _stamped(path, bad_lines)
    begin = [row for _, row in zip(range(LOOK_AHEAD_ROWS), rows, strict=False)]
    if not begin:
        return
    origin = min(ticks for ticks, _, _, _ in begin)
    for some in (begin, rows):
        for ticks, number, prompt_tokens, output_tokens in some:
            arrived_at_s = (ticks - origin) / _TICKS_PER_S
            yield arrived_at_s, number, TraceRecord(arrived_at_s, prompt_tokens, output_tokens, [])


def _stamped(path: Path, bad_lines: BadLines) -> Iterator[tuple[int, int, int, int]]:
    """Yield (stamp [ns since 1970], line number, prompt, output [tokens]) of each sound row."""
    for number, (stamp, context, generated, _) in csv_rows(path, _COLUMNS, bad_lines):
        try:
            ticks = _ticks(stamp)
            prompt_tokens = tokens("ContextTokens", context, least=1)
            output_tokens = tokens("GeneratedTokens", generated, least=0)
        except BadRowError as error:
            bad_lines.report(f"{path}:{number}", str(error))
        else:
            yield ticks, number, prompt_tokens, output_tokens


def _ticks(stamp: str) -> int:
    """Return a stamp in nanoseconds since 1970, to the last digit."""
    problem = f"TIMESTAMP is {shown(stamp)}; must be a date and time such as 2023-11-16 18:17:03.9799600"
    match = _STAMP.fullmatch(stamp.strip())
    if match is None:
        raise BadRowError(problem)
    try:
        whole = datetime.fromisoformat(f"{match[1]}{match[3] or '+00:00'}") - _EPOCH
    except ValueError as error:  # such as the 30th of February
        raise BadRowError(problem) from error
    if whole.days < 0:
        raise BadRowError(f"TIMESTAMP is {shown(stamp)}; must be after 1970")
    fraction = int((match[2] or "0").ljust(9, "0"))
    return (whole.days * 86_400 + whole.seconds) * _TICKS_PER_S + fraction
