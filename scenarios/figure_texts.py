"""Figures as people read them; a dash where there is none."""

from models.units import format_bytes, format_rate, format_seconds


def seconds(value: float | None) -> str:
    """Return a time for people; what is below a nanosecond is rounding."""
    return "-" if value is None else format_seconds(0.0 if abs(value) < 1e-9 else value)


def share(value: float | None) -> str:
    """Return a share for people."""
    return "-" if value is None else f"{value:.1%}"


def number(value: float | None) -> str:
    """Return a number for people."""
    return "-" if value is None else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Return bytes a second for people."""
    return "-" if value is None else format_rate(value)


def size(value: float | None) -> str:
    """Return bytes for people."""
    return "-" if value is None else format_bytes(value)


def on_drives(held_bytes: float, raw_bytes: float) -> str:
    """Return the room that bytes take with copies and parity, to stand behind them; nothing where that is no more."""
    return f" ({format_bytes(raw_bytes)} on drives)" if raw_bytes > held_bytes else ""
