"""Quantities at the file boundary: text such as '100 Gbit/s' in, SI floats out, and back to text for people."""

import functools
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from quantiphy import QuantiPhyError, Quantity

from models.errors import ScenarioError

# Units by dimension, each with its factor to SI. Prefixes (k, M, G, T, P, m, u, n; Ki, Mi, Gi, Ti) come on top.
# Bits are spelled out: 'Gb' is read as gigabits by network people and as gigabytes by everybody else.
_UNITS: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        "bytes": {"B": 1.0, "byte": 1.0, "bytes": 1.0, "bit": 0.125, "bits": 0.125},
        "bytes_per_s": {"B/s": 1.0, "byte/s": 1.0, "bytes/s": 1.0, "bit/s": 0.125, "bits/s": 0.125},
        "seconds": {"s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0},
        "flops_per_s": {"FLOPS": 1.0, "FLOP/s": 1.0, "OPS": 1.0},
        "flops": {"FLOP": 1.0, "FLOPs": 1.0},
        "ops_per_s": {
            **{"IOPS": 1.0, "ops/s": 1.0, "op/s": 1.0, "Hz": 1.0},
            **{"token/s": 1.0, "tokens/s": 1.0, "tok/s": 1.0, "request/s": 1.0, "requests/s": 1.0, "req/s": 1.0},
        },
        "tokens": {"token": 1.0, "tokens": 1.0, "tok": 1.0},
        "watts": {"W": 1.0},
        "usd": {"USD": 1.0},
        "cny": {"CNY": 1.0},
        "usd_per_byte": {"USD/B": 1.0},
        "watts_per_byte": {"W/B": 1.0},
        "number": {"": 1.0, "%": 0.01, "x": 1.0},
    }
)
# Units that take no prefix: '1 Mmin' is a typing error, not a million minutes.
_PLAIN: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        "seconds": {
            **dict.fromkeys(("min", "minutes"), 60.0),
            **dict.fromkeys(("h", "hour", "hours"), 3600.0),
            **dict.fromkeys(("d", "day", "days"), 86400.0),
        },
        "ops_per_s": {"/s": 1.0, "1/s": 1.0},
        "usd_per_byte": {"USD/GB": 1e-9, "USD/TB": 1e-12},
        "watts_per_byte": {"W/GB": 1e-9, "W/TB": 1e-12},
    }
)
_EXAMPLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bytes": "B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB",
        "bytes_per_s": "B/s, MB/s, GB/s, TB/s, GiB/s, Mbit/s, Gbit/s, Tbit/s",
        "seconds": "ns, us, ms, s, min, h, d",
        "flops_per_s": "GFLOPS, TFLOPS, PFLOPS (or FLOP/s)",
        "flops": "GFLOP, TFLOP, PFLOP",
        "ops_per_s": "IOPS, kIOPS, MIOPS, ops/s, tokens/s, requests/s",
        "tokens": "tokens, ktokens",
        "watts": "W, kW, MW",
        "usd": "USD",
        "cny": "CNY",
        "usd_per_byte": "USD/GB, USD/TB",
        "watts_per_byte": "W/GB, W/TB",
        "number": "a plain number or a percentage",
    }
)
DIMENSIONS: Final = tuple(_UNITS)

_BARE_BITS: Final = re.compile(
    r"^(?P<number>.*?[0-9.])\s*(?P<prefix>(?:[kKMGTPE]i?)?)(?:b|bps|Bps|bE|be|Be|BE)(?:/s|ps)?$"
)
_NUMBER_AND_UNIT: Final = re.compile(
    # A comma groups three digits: in '1,5 GB' it would be a decimal point to half of the world.
    r"^(?P<number>[-+]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9][0-9_]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"\s*(?P<unit>[^0-9,.].*|)$"
)
# Only counts may have a prefix and no unit: '5 m' may mean minutes and '5 M' megabytes or mebibytes.
_COUNTS: Final = frozenset({"ops_per_s", "tokens", "number", "flops", "flops_per_s"})


def parse_quantity(value: str | float, dimension: str, where: str = "value") -> float:
    """Return *value* in SI units of *dimension* (one of `DIMENSIONS`); a bare number is SI already.

    Raises ScenarioError(where, ...) on text that is no finite quantity of that dimension, naming the units that are.
    GB is 1e9 and GiB 2**30 bytes (IEC 80000-13); a bit is spelled out ('200 Gbit/s'), since 'Gb' is read both ways.
    """
    if dimension not in _UNITS:
        raise ValueError(f"unknown dimension {dimension!r}; one of {', '.join(DIMENSIONS)}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ScenarioError(
            where, f"{value!r} is not a quantity; write a number, or a number with a unit ({_EXAMPLES[dimension]})"
        )
    number = float(value) if not isinstance(value, str) else _parse_text(value.strip(), dimension, where)
    if not math.isfinite(number):
        raise ScenarioError(where, f"{value!r} is not a finite number")
    return number


def _parse_text(text: str, dimension: str, where: str) -> float:
    bits = _BARE_BITS.match(text)
    if bits and dimension in {"bytes", "bytes_per_s"}:
        number, prefix, per_s = bits["number"], bits["prefix"], "/s" if dimension == "bytes_per_s" else ""
        raise ScenarioError(
            where,
            f"'{text}' may mean bits or bytes; write '{number} {prefix}bit{per_s}' or '{number} {prefix}B{per_s}'",
        )
    parts = _NUMBER_AND_UNIT.match(text)
    if parts is None:
        raise ScenarioError(
            where, f"'{text}' is not a quantity; write a number, or a number with a unit ({_EXAMPLES[dimension]})"
        )
    number = parts["number"].replace(",", "").replace("_", "")
    if not math.isfinite(float(number)):
        raise ScenarioError(where, f"'{text}' is not a finite number")
    factor = _unit_factor(parts["unit"], dimension)
    if factor is None:
        raise ScenarioError(where, f"'{text}' has an unknown or wrong unit; allowed: {_EXAMPLES[dimension]}")
    # Decimal, so that '80 us' is the float nearest to 80e-6 and resolved scenarios print as they were written.
    return float(Decimal(repr(float(number))) * Decimal(repr(factor)))


@functools.lru_cache(maxsize=512)
def _unit_factor(unit: str, dimension: str) -> float | None:
    """Return the factor of a unit with its prefix to SI, or None where it is no unit of the dimension."""
    if not unit:
        return 1.0
    # Looked up first: quantiphy would read 'requests/s' as ronto-'equests/s'.
    plain = {**_UNITS[dimension], **_PLAIN.get(dimension, {})}
    if unit in plain:
        return plain[unit]
    try:
        # quantiphy reads 'KB' as kilobytes, which is what data sheets mean by it.
        quantity = Quantity(f"1 {unit}", binary=True)
    except QuantiPhyError:
        return None
    if not quantity.units:
        return float(quantity.real) if dimension in _COUNTS else None
    base = _UNITS[dimension].get(quantity.units)
    # '100 mB' is a slip for MB, and nobody means megaseconds by '5 Ms'.
    if quantity.real != 1.0 and (quantity.real < 1.0) != (dimension == "seconds"):
        return None
    return None if base is None else float(quantity.real) * base


def _scaled(value: float, unit: str, steps: tuple[tuple[float, str], ...]) -> str:
    if not math.isfinite(value):
        return f"{value} {unit}"
    for factor, prefix in steps:
        # 0.9995 rounds to 1 of the next larger step in four significant digits.
        if abs(value) >= factor * 0.9995:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


_LARGE: Final = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SMALL: Final = ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))


def format_bytes(n_bytes: float) -> str:
    """Return bytes as text in decimal units, four significant digits: '7.671 GB'."""
    return _scaled(n_bytes, "B", _LARGE)


def format_rate(bytes_per_s: float) -> str:
    """Return bytes a second as text in decimal units, four significant digits: '10.66 GB/s'."""
    return _scaled(bytes_per_s, "B/s", _LARGE)


def format_seconds(duration_s: float) -> str:
    """Return seconds as text, four significant digits: '80 us', '1.25 s', '12.5 min', '3 h'."""
    if math.isfinite(duration_s):
        for factor, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
            # From two of a unit on: one and a half of it read better in the next smaller one.
            if abs(duration_s) >= 2.0 * factor:
                return f"{duration_s / factor:.4g} {unit}"
    return _scaled(duration_s, "s", _SMALL)
