"""The processed traces of Vidur and of the Splitwise simulator: one CSV row a request, no prefix information.

Source of the format: microsoft/vidur (MIT), data/processed_traces and vidur/request_generator: num_prefill_tokens,
num_decode_tokens and, in some files, arrived_at [s]; Mutinifni/splitwise-sim (MIT): arrival_timestamp [s], prompt_size,
token_size. Vidur draws the arrivals of files without times; so does the option `rate_per_s`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from models.errors import InputError
from sim.traces.bad_lines import BadLines
from sim.traces.csv_rows import column_names, csv_rows, seconds, tokens
from sim.traces.fields import BadRowError
from sim.traces.file_trace import NO_PREFIX_BLOCK_TOKENS, FileTrace
from sim.traces.files import Head, read_head
from sim.traces.ordering import Row
from sim.traces.reading import READERS
from sim.traces.record import TraceRecord

_ARRIVED = ("arrived_at", "arrival_timestamp")
_COLUMNS = (("num_prefill_tokens", "prompt_size"), ("num_decode_tokens", "token_size"))
_NO_TIMES = (
    "the file has no arrival times: all requests arrive at once, at 0 s; "
    "rate_per_s gives them a rate (Poisson), in the order of the file"
)


@READERS.register("vidur")
@dataclass(frozen=True, slots=True, kw_only=True)
class VidurReader:
    """CSV with num_prefill_tokens, num_decode_tokens (Vidur) or prompt_size, token_size (Splitwise); times optional.

    Parameters
    ----------
    rate_per_s
        Rate of a Poisson process that gives a file without times its arrivals [1/s]; without it all arrive at 0 s.
    seed
        Equal seeds give equal arrivals.
    """

    several_files: ClassVar[bool] = False
    rate_per_s: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse options that describe no process; raises InputError."""
        rate_per_s = self.rate_per_s
        if rate_per_s is not None and not (type(rate_per_s) in (int, float) and 0 < rate_per_s < math.inf):
            raise InputError(f"rate_per_s is {rate_per_s!r}; must be a number above 0, and finite")
        if type(self.seed) is not int or self.seed < 0:
            raise InputError(f"seed is {self.seed!r}; must be a whole number of 0 or more")

    def sniff(self, head: Head) -> bool:
        """Return whether the header names both token columns of either."""
        names = set(column_names(head.first_line))
        return any({prompt, output} <= names for prompt, output in zip(*_COLUMNS, strict=True))

    def open(self, path: Path, bad_lines: BadLines) -> FileTrace:
        """Return the trace in *path*, without reading it yet; raises InputError for a rate where there are times."""
        has_times = not set(_ARRIVED).isdisjoint(column_names(read_head(path).first_line))
        if has_times and self.rate_per_s is not None:
            raise InputError(f"{path} has arrival times, so rate_per_s is of no use; rate_scale scales their rate")
        return FileTrace(
            path=path,
            bad_lines=bad_lines,
            block_tokens=NO_PREFIX_BLOCK_TOKENS,
            has_prefixes=False,
            rows=_timed_rows if has_times else self._drawn_rows,
            notes=() if has_times or self.rate_per_s is not None else (_NO_TIMES,),
        )

    def _drawn_rows(self, path: Path, bad_lines: BadLines) -> Iterator[Row]:
        random = np.random.default_rng(self.seed)
        now_s = 0.0
        for number, (prompt, output, _) in csv_rows(path, _COLUMNS, bad_lines):
            record = _record(f"{path}:{number}", prompt, output, now_s, bad_lines)
            if record is not None:
                yield now_s, number, record
                now_s += 0.0 if self.rate_per_s is None else float(random.exponential(1 / self.rate_per_s))


def _timed_rows(path: Path, bad_lines: BadLines) -> Iterator[Row]:
    for number, (prompt, output, arrived, _) in csv_rows(path, (*_COLUMNS, _ARRIVED), bad_lines):
        try:
            arrived_at_s = seconds("arrival time", arrived)
        except BadRowError as error:
            bad_lines.report(f"{path}:{number}", str(error))
            continue
        record = _record(f"{path}:{number}", prompt, output, arrived_at_s, bad_lines)
        if record is not None:
            yield arrived_at_s, number, record


def _record(where: str, prompt: str, output: str, arrived_at_s: float, bad_lines: BadLines) -> TraceRecord | None:
    try:
        prompt_tokens = tokens("prefill tokens", prompt, least=1)
        output_tokens = tokens("decode tokens", output, least=0)
    except BadRowError as error:
        bad_lines.report(where, str(error))
        return None
    return TraceRecord(arrived_at_s, prompt_tokens, output_tokens, [])
