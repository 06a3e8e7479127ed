"""Values of a JSON row, checked: what is wrong with one becomes a short sentence for the user."""

import json
from typing import Any

from pydantic_core import from_json

MAX_TOKENS = 2**31 - 1
"""Far above any context window, and sums over a billion requests still fit 64 bits."""
MAX_ID = 2**62 - 1
"""Ids from here on are left to the simulator, for blocks that no other request shares."""
MAX_S = 2.0**33
"""Up to here (the year 2242) a float of seconds still tells microseconds apart; a larger stamp is in another unit."""
_SHOWN_CHARACTERS = 40


class BadRowError(ValueError):
    """A row is malformed; the text says how."""


def json_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line; raises BadRowError where there is none."""
    try:
        row = from_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        at = f"byte {error.start + 1} of the line is 0x{line[error.start]:02x}"
        raise BadRowError(f"not UTF-8 text ({at})") from error
    except ValueError as error:
        raise BadRowError(f"not a JSON object ({str(error).replace(' at line 1', ' at')})") from error
    if not isinstance(row, dict):
        raise BadRowError(f"a row of this format is a JSON object; this is {shown(row)}")
    return row


def whole(row: dict[str, Any], key: str, *, least: int = 0, most: int = MAX_TOKENS) -> int:
    """Return a whole number; raises BadRowError where it is missing, of another type or out of range."""
    value = row.get(key)
    if type(value) is int and least <= value <= most:
        return value
    if key not in row:
        raise BadRowError(f"key '{key}' is missing")
    if type(value) is not int:
        raise BadRowError(f"{key} is {shown(value)}; must be a whole number")
    bound = f"at least {least}" if value < least else f"at most {most}"
    raise BadRowError(f"{key} is {shown(value)}; must be {bound}")


def seconds(row: dict[str, Any], key: str) -> float:
    """Return a time from 0 s up; raises BadRowError where it is missing, no number or out of range."""
    value: Any = row.get(key)
    if type(value) in (int, float) and 0 <= value <= MAX_S:
        return float(value)
    if key not in row:
        raise BadRowError(f"key '{key}' is missing")
    if type(value) not in (int, float):
        raise BadRowError(f"{key} is {shown(value)}; must be a number of seconds")
    raise BadRowError(f"{key} is {shown(value)}; must be from 0 to {MAX_S:g} s")


def seconds_or_none(row: dict[str, Any], key: str) -> float | None:
    """Return a time from 0 s up, or None where it is missing or null; raises what `seconds` raises."""
    return None if row.get(key) is None else seconds(row, key)


def block_runs(row: dict[str, Any], *, held: int, max_id: int) -> tuple[int, tuple[int, ...], int]:
    """Return (blocks kept, new runs as in `sim.traces.turns.Turn`, blocks in all) of a prompt written as a difference.

    Raises BadRowError where `keep`, `new` or `nb` is malformed or more is kept than the *held* blocks before it.
    """
    keep = whole(row, "keep")
    if keep > held:
        raise BadRowError(f"keep is {keep}, but the request before it has {held} blocks")
    new = row.get("new")
    if type(new) is not list:
        raise BadRowError(f"new is {shown(new)}; must be a list of [first id, number of ids]")
    runs: list[int] = []
    blocks = keep
    for run in new:
        if type(run) is not list or [type(number) for number in run] != [int, int]:
            raise BadRowError(f"new has {shown(run)}; must hold pairs [first id, number of ids]")
        start, count = run
        if start < 0 or count < 1 or start + count - 1 > max_id:
            raise BadRowError(f"new has {shown(run)}; must hold at least one id, from 0 to {max_id}")
        runs += run
        blocks += count
    if row.get("nb", blocks) != blocks:
        raise BadRowError(f"nb is {shown(row['nb'])}, but keep and new make {blocks} blocks")
    return keep, tuple(runs), blocks


def text(row: dict[str, Any], key: str) -> str:
    """Return a text; raises BadRowError where it is missing or something else."""
    value = row.get(key)
    if type(value) is str:
        return value
    if key not in row:
        raise BadRowError(f"key '{key}' is missing")
    raise BadRowError(f"{key} is {shown(value)}; must be text")


def shown(value: Any) -> str:
    """Return a value as it would stand in JSON, cut short."""
    shown_text = json.dumps(value)
    return shown_text if len(shown_text) <= _SHOWN_CHARACTERS else f"{shown_text[:_SHOWN_CHARACTERS]}..."
