"""ServeGen's client files: how often each client of a service sent requests, and how long they were.

They are no request trace but the statistics of one, from which `sim.generators` draws requests. A model is a folder or
a (gzipped) tar archive with two files a client. `chunk-N-trace.csv` has no header and one row per window of 600 s: its
start [s], rate [1/s], coefficient of variation of the gaps, family of the gaps (`Gamma`, `Weibull`, or empty where the
client was idle), shape and scale [s]. `chunk-N-dataset.json` maps the start of each window of 6 h [s] to a distribution
per field (`input_tokens`, `output_tokens`, ...), written as the text of a Python dict {value: probability}.

Source of the format: alibaba/ServeGen (Apache-2.0), data/ and servegen/clientpool.py; Y. Xiang et al., "ServeGen:
Workload Characterization and Generation of Large Language Model Serving in Production", NSDI 2026. Large dataset files
are absent from some copies of the repository, so a client may have rates and no lengths.
"""

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from models.errors import TraceError
from sim.arrays import Floats
from sim.traces.files import members

_FILE_NAME = re.compile(r"chunk-([0-9]{1,9})-(trace\.csv|dataset\.json)")
_FAMILIES = ("Gamma", "Weibull")
_COLUMNS = ("window start", "rate", "CV", "family", "shape", "scale")
# The tolerance of ServeGen's own loader.
_SUM_TOLERANCE = 1e-6
# Far above any context window.
_MAX_VALUE = 2**31 - 1
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalWindow:
    """How a client sent requests for a while.

    Parameters
    ----------
    starts_at_s, ends_at_s
        The window on the service's clock [s]; 0 is the start of the recording.
    rate_per_s
        Mean rate of requests [1/s], above 0.
    cv
        Coefficient of variation of the gaps between requests.
    family
        Distribution of the gaps, `Gamma` or `Weibull`.
    shape, scale_s
        Its parameters as fitted to the gaps. Their mean gap is near 1 / rate, not equal to it.
    """

    starts_at_s: float
    ends_at_s: float
    rate_per_s: float
    cv: float
    family: str
    shape: float
    scale_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A discrete distribution: ascending *values*, tokens for most fields, with *probabilities* that add up to 1."""

    values: Floats
    probabilities: Floats

    @property
    def mean(self) -> float:
        """The expected value."""
        return float(self.values @ self.probabilities)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthWindow:
    """The distributions of a client's requests from *starts_at_s* [s] on, by field; none where it had no request."""

    starts_at_s: float
    fields: Mapping[str, Distribution]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeGenClient:
    """One client: its windows of arrival (idle ones left out) and of lengths (empty ones left out), by time."""

    client_id: int
    arrivals: tuple[ArrivalWindow, ...]
    lengths: tuple[LengthWindow, ...]

    def lengths_at(self, at_s: float) -> Mapping[str, Distribution] | None:
        """Return the distributions that hold at a time [s], or None if the client has no lengths at all.

        They are those of the last window that starts by then, as in ServeGen; before the first, those of the first.
        """
        if not self.lengths:
            return None
        begun = [window for window in self.lengths if window.starts_at_s <= at_s]
        return (begun[-1] if begun else self.lengths[0]).fields


def read_clients(path: str | PathLike[str], *, from_s: float = 0.0, until_s: float = math.inf) -> list[ServeGenClient]:
    """Return the clients in a folder or (gzipped) tar archive by their number.

    Only what concerns the time from *from_s* to *until_s* is kept, which saves most of the reading time: the texts of
    the distributions are long. Files of other names are passed over.

    Raises TraceError with file and line or key where something is missing or malformed.
    """
    folder = Path(path)
    rates: dict[int, tuple[ArrivalWindow, ...]] = {}
    lengths: dict[int, tuple[LengthWindow, ...]] = {}
    for where, client_id, kind, content in _files(folder):
        parsed: dict[int, Any] = rates if kind == "trace.csv" else lengths
        if client_id in parsed:
            raise TraceError(where, f"a second {kind} of client {client_id}")
        if kind == "trace.csv":
            rates[client_id] = tuple(
                window
                for window in _arrivals(where, content)
                if window.starts_at_s < until_s and window.ends_at_s > from_s
            )
        else:
            lengths[client_id] = tuple(_lengths(where, content, from_s, until_s))
    if not rates:
        raise TraceError(
            str(folder), "holds no ServeGen client; a client is chunk-N-trace.csv with chunk-N-dataset.json"
        )
    for client_id in lengths.keys() - rates.keys():
        raise TraceError(str(folder), f"chunk-{client_id}-dataset.json has no chunk-{client_id}-trace.csv beside it")
    return [
        ServeGenClient(client_id=client_id, arrivals=rates[client_id], lengths=lengths.get(client_id, ()))
        for client_id in sorted(rates)
    ]


def _files(path: Path) -> Iterator[tuple[str, int, str, bytes]]:
    """Yield (where, client, kind, content) of each client file; raises TraceError for what cannot be read."""
    for member in members(path):
        if match := _FILE_NAME.fullmatch(PurePosixPath(member.name).name):
            yield member.where, int(match[1]), match[2], member.whole()


def _arrivals(where: str, content: bytes) -> Iterator[ArrivalWindow]:
    """Yield the windows of a rates file in which the client sent anything."""
    rows: list[tuple[str, list[str], float]] = []
    for number, line in enumerate(_text(where, content).splitlines(), start=1):
        at = f"{where}:{number}"
        values = line.split(",")
        if len(values) != len(_COLUMNS):
            raise TraceError(at, f"has {len(values)} values; a row has {len(_COLUMNS)}: {', '.join(_COLUMNS)}")
        starts_at_s = _number(at, _COLUMNS[0], values[0])
        if rows and starts_at_s <= rows[-1][2]:
            raise TraceError(at, f"window start is {starts_at_s:g}; must be after the one before, {rows[-1][2]:g}")
        rows.append((at, values, starts_at_s))
    if not rows:
        raise TraceError(where, "the file is empty; it holds one row per window")
    if len(rows) == 1:
        raise TraceError(where, "has one row only, so that the length of its window is unknown")
    # A window lasts until the next one starts, the last one as long as the one before it.
    ends_s = [row[2] for row in rows[1:]]
    ends_s.append(2 * rows[-1][2] - rows[-2][2])
    for (at, values, starts_at_s), ends_at_s in zip(rows, ends_s, strict=True):
        rate_per_s, cv = _number(at, "rate", values[1]), _number(at, "CV", values[2])
        family, shape, scale_s = values[3].strip(), _number(at, "shape", values[4]), _number(at, "scale", values[5])
        if family == "":  # idle, as ServeGen reads it, whatever the other columns say
            continue
        if family not in _FAMILIES:
            raise TraceError(
                at, f"family is {_shown(family)}; must be {' or '.join(_FAMILIES)}, or empty for an idle window"
            )
        if rate_per_s == 0:
            continue
        if shape == 0 or scale_s == 0:
            raise TraceError(at, f"shape is {shape:g} and scale {scale_s:g}; both must be above 0")
        yield ArrivalWindow(
            starts_at_s=starts_at_s,
            ends_at_s=ends_at_s,
            rate_per_s=rate_per_s,
            cv=cv,
            family=family,
            shape=shape,
            scale_s=scale_s,
        )


def _lengths(where: str, content: bytes, from_s: float, until_s: float) -> Iterator[LengthWindow]:
    """Yield the length windows that matter between two times; see `read_clients`."""
    try:
        windows = json.loads(_text(where, content))
    except (ValueError, RecursionError) as error:
        raise TraceError(where, f"not a JSON object ({error})") from error
    if not isinstance(windows, dict):
        raise TraceError(where, f"is {_shown(windows)}; must be a JSON object of window starts")
    starts_s = sorted((_number(where, "window start", start), start) for start in windows)
    for (earlier_s, earlier), (later_s, later) in pairwise(starts_s):
        if earlier_s == later_s:
            raise TraceError(where, f"windows '{earlier}' and '{later}' start at the same time")
    kept: list[LengthWindow] = []
    # Backwards, because the window in force at from_s is the last before it that is not empty.
    for starts_at_s, key in reversed(starts_s):
        if starts_at_s >= until_s:
            continue
        fields = _fields(f"{where}: window '{key}'", windows[key])
        if fields:
            kept.append(LengthWindow(starts_at_s=starts_at_s, fields=fields))
            if starts_at_s <= from_s:
                break
    yield from reversed(kept)


def _fields(where: str, texts: Any) -> dict[str, Distribution]:
    """Return the distributions of one window, or none if any is empty: the client had no request in it."""
    if not isinstance(texts, dict) or not texts:
        raise TraceError(where, f"is {_shown(texts)}; must be a JSON object of fields")
    parsed = {name: _probabilities(f"{where}, {name}", text) for name, text in texts.items()}
    if not all(parsed.values()):
        return {}
    fields = {}
    for name, probability_of in parsed.items():
        values = np.array(sorted(probability_of), dtype=np.float64)
        probabilities = np.array([probability_of[value] for value in sorted(probability_of)], dtype=np.float64)
        total = float(probabilities.sum())
        if abs(total - 1) > _SUM_TOLERANCE:
            raise TraceError(f"{where}, {name}", f"probabilities add up to {total:.7g}; must be 1")
        fields[name] = Distribution(values=values, probabilities=probabilities / total)
    return fields


def _probabilities(where: str, text: Any) -> dict[float, float]:
    """Return {value: probability} from the text of a Python dict; evaluates literals only, never code."""
    problem = f"must be the text of a Python dict {{value: probability}} of numbers from 0 to {_MAX_VALUE}"
    if not isinstance(text, str):
        raise TraceError(where, f"is {_shown(text)}; {problem}")
    try:
        literal = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise TraceError(where, f"is {_shown(text)}; {problem}") from error
    if not isinstance(literal, dict):
        raise TraceError(where, f"is {_shown(text)}; {problem}")
    for value, probability in literal.items():
        for number in (value, probability):
            if type(number) not in (int, float) or not 0 <= number <= _MAX_VALUE:
                raise TraceError(where, f"holds {_shown(number)}; {problem}")
    return literal


def _text(where: str, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TraceError(where, f"not UTF-8 text (byte {error.start + 1} is 0x{content[error.start]:02x})") from error


def _number(where: str, name: str, text: str) -> float:
    """Return a finite number of 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise TraceError(where, f"{name} is {_shown(text)}; must be a number of 0 or more")
    return number


def _shown(value: Any) -> str:
    """Return a value in short."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
