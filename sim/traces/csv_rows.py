"""Rows of CSV files with a header, by column name and line number.

A row is one line: a quoted field has to end on its line, as in every trace format that kvtier reads. Names of columns
are compared without regard to case; columns that a format does not name are passed over.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path

from models.errors import TraceError
from sim.traces.bad_lines import BadLines
from sim.traces.fields import MAX_S, MAX_TOKENS, BadRowError
from sim.traces.files import numbered_lines

_SHOWN_CHARACTERS = 40

Column = tuple[str, ...]
"""The names that a column may have, the first one being its proper name."""


def column_names(first_line: str) -> list[str]:
    """Return the names in a header line, in lower case; none where it is not a line of CSV."""
    try:
        return [name.strip().lower() for name in _fields(first_line)]
    except BadRowError:
        return []


def csv_rows(
    path: Path, columns: Sequence[Column], bad_lines: BadLines, *, optional: Sequence[Column] = ()
) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield (line number, values of *columns* and then of *optional*) of each row; "" where an optional one is absent.

    Rows with too few or too many fields go to *bad_lines*; a header without the columns raises TraceError.
    """
    lines = numbered_lines(path)
    header = next(((number, line) for number, line in lines if line.strip()), None)
    if header is None:
        raise TraceError(str(path), "the file is empty; a trace holds at least one request")
    where = f"{path}:{header[0]}"
    try:
        names = [name.strip().lower() for name in _fields(_text(header[1]))]
        places = [_place(names, column, required=True) for column in columns]
        places += [_place(names, column, required=False) for column in optional]
    except BadRowError as error:
        raise TraceError(where, str(error)) from error
    pick = itemgetter(*places, len(names))  # the field past the last one is "", for what is absent
    for number, line in lines:
        if not line.strip():
            continue
        try:
            fields = _fields(_text(line))
        except BadRowError as error:
            bad_lines.report(f"{path}:{number}", str(error))
            continue
        if len(fields) != len(names):
            problem = f"has {len(fields)} fields, but the header names {len(names)} columns"
            bad_lines.report(f"{path}:{number}", problem)
            continue
        fields.append("")
        yield number, pick(fields)


def tokens(name: str, text: str, *, least: int) -> int:
    """Return a length in whole tokens; "12.0" is taken for 12, as some tools write it. Raises BadRowError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value.is_integer():  # NaN and infinities are not either
        raise BadRowError(f"{name} is {shown(text)}; must be a whole number of tokens")
    if value < least:
        raise BadRowError(f"{name} is {shown(text)}; must be at least {least}")
    if value > MAX_TOKENS:
        raise BadRowError(f"{name} is {shown(text)}; must be at most {MAX_TOKENS}")
    return int(value)


def seconds(name: str, text: str, *, per_s: float = 1.0) -> float:
    """Return a time [s] from 0 on, given in 1 / *per_s* seconds; raises BadRowError."""
    try:
        value = float(text) / per_s
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAX_S:
        unit = "seconds" if per_s == 1 else "milliseconds"
        raise BadRowError(f"{name} is {shown(text)}; must be a number of {unit} from 0 to {MAX_S * per_s:.0f}")
    return value


def shown(text: str) -> str:
    """Return the text of a field in quotes, cut short."""
    return f"'{text}'" if len(text) <= _SHOWN_CHARACTERS else f"'{text[:_SHOWN_CHARACTERS]}...'"


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 text (byte {error.start + 1} of the line is 0x{line[error.start]:02x})"
        raise BadRowError(problem) from error


def _fields(line: str) -> list[str]:
    line = line.rstrip("\r\n")
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise BadRowError(f"not a row of CSV ({error}); a quoted field ends on its line") from error


def _place(names: list[str], column: Column, *, required: bool) -> int:
    """Return where a column stands in the header, or the place past its end."""
    found = [name for name in column if name in names]
    if len(found) > 1:
        raise BadRowError(f"the header names both {found[0]} and {found[1]}; they are the same column")
    if not found:
        if required:
            alternatives = f" (or {', '.join(column[1:])})" if len(column) > 1 else ""
            raise BadRowError(f"column {column[0]}{alternatives} is missing; the header is {shown(','.join(names))}")
        return len(names)
    if names.count(found[0]) > 1:
        raise BadRowError(f"the header names {found[0]} twice")
    return names.index(found[0])
