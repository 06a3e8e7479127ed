"""Reads files as text; what keeps one from being read is one line."""

from pathlib import Path

from models.errors import LocatedError


def read_text(path: Path, error: type[LocatedError], *, encoding: str = "utf-8", label: str | None = None) -> str:
    """Return the text of a file, called *label* in messages; raises *error* where it cannot be read or is no UTF-8."""
    try:
        return path.read_text(encoding=encoding)
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "not UTF-8 text"
        raise error(label or str(path), f"cannot be read: {reason}") from None
