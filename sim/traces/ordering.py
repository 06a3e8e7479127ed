"""Puts the rows of a trace file in order of arrival without holding the file."""

import math
from collections.abc import Iterator
from heapq import heapify, heappushpop
from itertools import islice
from pathlib import Path

from models.errors import TraceError
from sim.traces.bad_lines import BadLines
from sim.traces.record import TraceRecord

LOOK_AHEAD_ROWS = 10_000
"""Rows held back to be sorted: 49 minutes of a trace of 3.4 requests/s, about 10 MB of records of 24 blocks."""

Row = tuple[float, int, TraceRecord]
"""Arrival [s], line number, record. The line number breaks ties, so equal stamps keep the order of the file."""


def in_time_order(rows: Iterator[Row], path: Path, bad_lines: BadLines) -> Iterator[TraceRecord]:
    """Yield the records of *rows* by arrival; rows may stand up to `LOOK_AHEAD_ROWS` places too late.

    A row that is further out of place goes to *bad_lines*. Raises TraceError where there is no sound row at all.
    """
    window = list(islice(rows, LOOK_AHEAD_ROWS))
    if not window:
        raise TraceError(str(path), bad_lines.none_left() or "the file holds no requests")
    heapify(window)
    released_at_s = -math.inf
    for row in rows:
        if row[0] < released_at_s:
            bad_lines.report(
                f"{path}:{row[1]}",
                f"arrival at {row[0]:g} s stands more than {LOOK_AHEAD_ROWS} rows too late "
                f"(requests up to {released_at_s:g} s are already passed on); sort the file by time",
            )
            continue
        released_at_s, _, record = heappushpop(window, row)
        yield record
    window.sort()
    for _, _, record in window:
        yield record
