"""Measured step times in place of the roofline: a grid over scheduled tokens and context, interpolated.

The file is CSV with the columns ``tokens,context_tokens,step_s``; lines that begin with ``#`` are comments (say there
where the figures come from). ``tokens`` are those that a step schedules, prefill and decode together;
``context_tokens`` the KV tokens that it reads, summed over its sequences, its own tokens included; ``step_s`` is its
time in seconds. The rows form a full grid with at least two values on either axis. Between grid lines the time is
bilinear; outside the grid there is no figure, and a step that falls there is refused.
"""

import csv
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from models.errors import ScenarioError

_COLUMNS = ("tokens", "context_tokens", "step_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """Step times on a grid; takes the place of a `StepCost`.

    *tokens* and *context_tokens* are the rising grid lines; *times_s* has a row for each value of *tokens*, never
    falling along it (more context is never read faster, and decode jumps rely on that); *where* names the file.
    """

    where: str
    tokens: tuple[int, ...]
    context_tokens: tuple[int, ...]
    times_s: tuple[tuple[float, ...], ...]

    def step_s(
        self,
        *,
        tokens: int,
        sequences: int = 0,
        prompts: int = 0,
        pairs: float,
        window_pairs: float,
        context_tokens: float,
        window_context_tokens: float,
    ) -> float:
        """Return the time of one step [s]; raises ScenarioError for a step outside the grid.

        The arguments are those of `StepCost.step_s`; a table knows tokens and context only.
        """
        del sequences, prompts, pairs, window_pairs, window_context_tokens
        return self.decode_line(tokens, context_tokens)[0]

    def decode_line(self, tokens: int, context_tokens: float) -> tuple[float, float, int]:
        """Return how steps of *tokens* tokens go from *context_tokens* on.

        That is the time of the step [s], its increase for each further token of context [s], and the grid line up to
        which both hold [tokens]. Raises ScenarioError for a step outside the grid.
        """
        row = self._cell(self.tokens, tokens, "tokens")
        column = self._cell(self.context_tokens, context_tokens, "context tokens")
        low, high = self.tokens[row], self.tokens[row + 1]
        share = (tokens - low) / (high - low)
        less, more = self.times_s[row], self.times_s[row + 1]
        left_s, right_s = (less[i] * (1.0 - share) + more[i] * share for i in (column, column + 1))
        begin, end = self.context_tokens[column], self.context_tokens[column + 1]
        slope_s = (right_s - left_s) / (end - begin)
        return left_s + slope_s * (context_tokens - begin), slope_s, end

    def _cell(self, lines: tuple[int, ...], value: float, what: str) -> int:
        if not lines[0] <= value <= lines[-1]:
            problem = f"has steps of {lines[0]} to {lines[-1]} {what}; this run has one of {value:g}: measure that far"
            raise ScenarioError(self.where, problem)
        return min(bisect_right(lines, value), len(lines) - 1) - 1


def load_step_table(path: str) -> StepTable:
    """Read a table of step times; raises ScenarioError with file, line and what is allowed."""
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            cells = _cells(_numbered(file), path)
    except OSError as error:
        raise ScenarioError(path, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ScenarioError(path, "is not UTF-8 text") from None
    return _grid(cells, path)


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _cells(lines: Iterator[tuple[int, str]], path: str) -> dict[tuple[int, int], tuple[float, int]]:
    """Return (step_s, line number) by (tokens, context_tokens)."""
    number, header = next(lines, (1, ""))
    names = [name.strip() for name in next(csv.reader([header]), [])]
    if sorted(names) != sorted(_COLUMNS):
        problem = f"the first line must name the columns {','.join(_COLUMNS)}; got {','.join(names) or 'nothing'}"
        raise ScenarioError(f"{path}:{number}", problem)
    cells: dict[tuple[int, int], tuple[float, int]] = {}
    for number, line in lines:
        where = f"{path}:{number}"
        values = next(csv.reader([line]))
        if len(values) != len(_COLUMNS):
            raise ScenarioError(where, f"has {len(values)} values; must have {len(_COLUMNS)}")
        row = dict(zip(names, values, strict=True))
        key = _whole(row, "tokens", 1, where), _whole(row, "context_tokens", 0, where)
        if key in cells:
            raise ScenarioError(where, f"repeats tokens {key[0]}, context_tokens {key[1]} of line {cells[key][1]}")
        cells[key] = _seconds(row["step_s"], where), number
    return cells


def _whole(row: dict[str, str], name: str, least: int, where: str) -> int:
    try:
        value = int(row[name])
    except ValueError:
        raise ScenarioError(where, f"{name} is '{row[name]}'; must be a whole number") from None
    if value < least:
        raise ScenarioError(where, f"{name} is {value}; must be at least {least}")
    return value


def _seconds(text: str, where: str) -> float:
    try:
        value_s = float(text)
    except ValueError:
        raise ScenarioError(where, f"step_s is '{text}'; must be a number of seconds") from None
    if not 0.0 < value_s < math.inf:
        raise ScenarioError(where, f"step_s is {text}; must be above 0 and finite")
    return value_s


def _grid(cells: dict[tuple[int, int], tuple[float, int]], path: str) -> StepTable:
    tokens = tuple(sorted({key[0] for key in cells}))
    contexts = tuple(sorted({key[1] for key in cells}))
    for name, lines in (("tokens", tokens), ("context_tokens", contexts)):
        if len(lines) < 2:
            raise ScenarioError(path, f"has {len(lines)} values of {name}; must have at least 2")
    for count in tokens:
        before_s = 0.0
        for context in contexts:
            if (count, context) not in cells:
                raise ScenarioError(path, f"lacks tokens {count}, context_tokens {context}; the grid must be full")
            step_s, number = cells[count, context]
            if step_s < before_s:
                problem = (
                    f"step_s is {step_s:g}, less than {before_s:g} at less context; more context must not be faster"
                )
                raise ScenarioError(f"{path}:{number}", problem)
            before_s = step_s
    times_s = tuple(tuple(cells[count, context][0] for context in contexts) for count in tokens)
    return StepTable(where=path, tokens=tokens, context_tokens=contexts, times_s=times_s)
