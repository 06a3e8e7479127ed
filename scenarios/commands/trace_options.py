"""Opens the trace that a verb names, and reads `--set key=value` for the constructor of a format or a generator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from models.errors import InputError, LocatedError
from models.units import parse_quantity

if TYPE_CHECKING:
    from sim.traces import Trace
    from sim.traces.block_trace import BlockTrace

# Dimension of a parameter by how its name ends; the longer ends come first.
_DIMENSIONS = (
    ("_bytes_per_s", "bytes_per_s"),
    ("_per_s", "ops_per_s"),
    ("_s", "seconds"),
    ("_bytes", "bytes"),
    ("_tokens", "tokens"),
)
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}


class Source:
    """A trace file as a verb was given it.

    Parameters
    ----------
    file
        Its path, or `-` for standard input.
    format
        Name of its format; None to detect it.
    settings
        Options of the format, `key=value`.
    block_tokens
        The option of that name, where it is given by itself.
    skip_bad_lines
        Leave malformed lines out and count them.
    """

    def __init__(
        self,
        file: str,
        format: str | None,
        *,
        settings: Sequence[str] = (),
        block_tokens: int | None = None,
        skip_bad_lines: bool = False,
    ) -> None:
        from sim.traces import BadLines

        self.file = file
        self._format = format
        self._settings = [*settings, *([] if block_tokens is None else [f"block_tokens={block_tokens}"])]
        self.bad_lines = BadLines(skip=skip_bad_lines)

    def trace(self) -> Trace:
        """Return the trace; raises InputError where it cannot be opened or its format has no such option."""
        from sim.traces import READERS, open_trace
        from sim.traces.reading import detect_format

        options: dict[str, Any] = {}
        format = self._format
        if self._settings:
            format = format or detect_format(self.file)
            options = parameters(READERS.get(format), self._settings)
        return open_trace(self.file, format, bad_lines=self.bad_lines, **options)

    def block_trace(self) -> BlockTrace | None:
        """Return the block trace where the file is one; raises InputError where it cannot be read."""
        from sim.traces.block_trace import is_block_trace, open_block_trace
        from sim.traces.files import read_head
        from sim.traces.standard_input import spooled_input

        path = spooled_input() if self.file == "-" else Path(self.file)
        if self._format is not None or not is_block_trace(read_head(path)):
            return None
        if self._settings:
            raise InputError(f"{self.file}: is a block trace, which has no options; got {', '.join(self._settings)}")
        return open_block_trace(path, bad_lines=self.bad_lines)

    def warnings(self, trace: Trace | BlockTrace) -> list[str]:
        """Return what a user has to know of the trace, once it has been read, a sentence each."""
        said = [f"{trace.name}: {note}" for note in getattr(trace, "notes", ())]
        summary = self.bad_lines.summary()
        return said if summary is None else [*said, f"{trace.name}: {summary}"]


def parameters(cls: type[Any], settings: Sequence[str]) -> dict[str, Any]:
    """Return `key=value` texts as what the constructor of *cls* takes; values may have units (`4 h`, `512 tokens`).

    A key that the constructor does not have is returned as it is, for the registry to refuse. Raises InputError.
    """
    hints = get_type_hints(cls.__init__)
    found: dict[str, Any] = {}
    for setting in settings:
        key, separator, text = setting.partition("=")
        key, text = key.strip(), text.strip()
        if not separator or not key:
            raise InputError(f"--set '{setting}' is not of the form key=value")
        found[key] = _value(key, text, hints[key]) if key in hints else text
    return found


def quantity(text: str, dimension: str, where: str) -> float:
    """Return a quantity above 0 in SI units; raises InputError."""
    try:
        value = parse_quantity(text, dimension, where)
    except LocatedError as error:
        raise InputError(str(error)) from None
    if value <= 0:
        raise InputError(f"{where} is {text}; must be above 0")
    return value


def _value(key: str, text: str, hint: Any) -> Any:
    where = f"--set {key}"
    types = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
    if NoneType in types and text.lower() in ("null", "none"):
        return None
    if bool in types:
        if text.lower() not in _BOOLEANS:
            raise InputError(f"{where} is '{text}'; must be true or false")
        return _BOOLEANS[text.lower()]
    if types & {int, float}:
        dimension = next((dimension for end, dimension in _DIMENSIONS if key.endswith(end)), "number")
        try:
            number = parse_quantity(text, dimension, where)
        except LocatedError as error:
            raise InputError(str(error)) from None
        if float in types:
            return number
        if not number.is_integer():
            raise InputError(f"{where} is {text}; must be a whole number")
        return int(number)
    if types & {str, Path}:
        return text
    raise InputError(f"{where} cannot be given on the command line")
