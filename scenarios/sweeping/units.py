"""In what unit the scenario holds the value of a key, as its schema says, and such values as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from models.errors import InputError
from models.units import format_bytes, format_rate, format_seconds, parse_quantity
from scenarios.schema import Scenario

_FORMATS: Final = {"bytes": format_bytes, "bytes_per_s": format_rate, "seconds": format_seconds}


@cache
def unit_of(key: str) -> str | None:
    """Return "bytes", "bytes_per_s" or "seconds", None for a key whose values have no unit."""
    for schema in _below(_schema(), key.split(".")):
        for example in schema.get("examples", ()):
            for unit in _FORMATS:
                if isinstance(example, str) and _is_of(unit, example):
                    return unit
    return None


def text_of(value: Any, unit: str | None) -> str:
    """Return a value of a scenario for people: '64 GB', '0.125', 'lru'."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if not isinstance(value, int | float):
        return str(value)
    if unit is not None:
        return _FORMATS[unit](value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _is_of(unit: str, text: str) -> bool:
    try:
        parse_quantity(text, unit)
    except InputError:
        return False
    return not text.replace(".", "").isdigit()  # a bare number would be of any unit


@cache
def _schema() -> dict[str, Any]:
    return Scenario.model_json_schema()


def _below(schema: dict[str, Any], path: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the schemas of what stands at *path*; the name of a tier, a link or a phase is any."""
    if "$ref" in schema:
        yield from _below(_schema()["$defs"][schema["$ref"].rpartition("/")[2]], path)
        return
    for choice in schema.get("anyOf", ()):
        yield from _below(choice, path)
    if not path:
        yield schema
        return
    properties = schema.get("properties", {})
    if path[0] in properties:
        yield from _below(properties[path[0]], path[1:])
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            # Names of links hold dots.
            for end in range(1, len(path) + 1):
                yield from _below(schema[key], path[end:])
