"""The BurstGPT traces: one CSV row a request, no prefix information.

Source of the format: HPMLL/BurstGPT (CC-BY-4.0), README, and releases v1.1 and v2.0; Y. Wang et al., "BurstGPT", 2024.
Timestamp counts seconds from midnight of the first day of recording; files after the first go on counting. BurstGPT_3
(v2.0) adds Session ID (blank for requests by API) and Elapsed time (of the answer; its values fit seconds), from
which the pauses inside sessions follow.

Failed requests have 0 response tokens and are kept: their prompts were sent. Many of them have 0 request tokens as
well, and a request without a prompt is none that an engine could run: those rows are left out, and counted as such.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from sim.traces.bad_lines import BadLines
from sim.traces.csv_rows import column_names, csv_rows, seconds, tokens
from sim.traces.fields import BadRowError
from sim.traces.file_trace import NO_PREFIX_BLOCK_TOKENS, FileTrace
from sim.traces.files import Head
from sim.traces.ordering import Row
from sim.traces.reading import READERS
from sim.traces.record import TraceRecord

_COLUMNS = (("timestamp",), ("request tokens",), ("response tokens",))
_OPTIONAL = (("session id", "sessionid"), ("elapsed time",))


@READERS.register("burstgpt")
class BurstGptReader:
    """CSV with Timestamp (s), Request tokens, Response tokens, and perhaps Session ID, Elapsed time (BurstGPT)."""

    several_files: ClassVar[bool] = False

    def sniff(self, head: Head) -> bool:
        """Return whether the header names both token columns."""
        return {"request tokens", "response tokens"} <= set(column_names(head.first_line))

    def open(self, path: Path, bad_lines: BadLines) -> FileTrace:
        """Return the trace in *path*, without reading it yet."""
        return FileTrace(
            path=path, bad_lines=bad_lines, block_tokens=NO_PREFIX_BLOCK_TOKENS, has_prefixes=False, rows=_rows
        )


def _rows(path: Path, bad_lines: BadLines) -> Iterator[Row]:
    sessions: dict[str, int] = {}
    answered_at_s: dict[int, float] = {}  # by session: the end of its last answer
    for number, (stamp, request, response, session, elapsed, _) in csv_rows(
        path, _COLUMNS, bad_lines, optional=_OPTIONAL
    ):
        try:
            arrived_at_s = seconds("Timestamp", stamp)
            prompt_tokens = tokens("Request tokens", request, least=0)
            output_tokens = tokens("Response tokens", response, least=0)
            elapsed_s = seconds("Elapsed time", elapsed) if elapsed.strip() else math.nan
        except BadRowError as error:
            bad_lines.report(f"{path}:{number}", str(error))
            continue
        if prompt_tokens == 0 and output_tokens > 0:
            bad_lines.report(f"{path}:{number}", f"Request tokens is 0, but Response tokens is {output_tokens}")
            continue
        if prompt_tokens == 0:
            bad_lines.leave_out(f"{path}:{number}", "failed requests without a prompt")
            continue
        record = TraceRecord(arrived_at_s, prompt_tokens, output_tokens, [])
        if session.strip():
            record.session_id = sessions.setdefault(session.strip(), len(sessions))
            # Of two numbers one of which is NaN, max returns the first.
            record.think_s = max(arrived_at_s - answered_at_s.get(record.session_id, math.nan), 0.0)
            answered_at_s[record.session_id] = arrived_at_s + elapsed_s
        yield arrived_at_s, number, record
