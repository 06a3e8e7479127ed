"""Opens a trace file in whichever of the registered formats it is written.

A format is one class in a file of its own under `sim/traces/readers`, registered by the decorator
`@READERS.register(name)`; nothing else has to change. The first line of its docstring says what such a file looks like.
"""

from os import PathLike
from pathlib import Path
from typing import ClassVar, Protocol

from models.errors import InputError, TraceError
from sim.registry import Registry
from sim.traces.bad_lines import BadLines
from sim.traces.block_trace import is_block_trace
from sim.traces.files import Head, read_head
from sim.traces.record import Trace
from sim.traces.standard_input import spooled_input


class TraceReader(Protocol):
    """Reads one trace format; what its constructor takes are the options of the format."""

    several_files: ClassVar[bool]
    """Whether a trace may be a folder or an archive of several files (`sim.traces.files.members`)."""

    def sniff(self, head: Head) -> bool:
        """Return whether a file that begins like this looks like this format; a broken one may still do."""
        ...

    def open(self, path: Path, bad_lines: BadLines) -> Trace:
        """Return the trace in a file, without reading it yet; every malformed line goes to *bad_lines*."""
        ...


READERS: Registry[TraceReader] = Registry(
    "trace format", package="sim.traces.readers", requires=("sniff", "open", "several_files")
)


def require_block_tokens(block_tokens: object) -> None:
    """Refuse a block size, the option of a format, that is no whole number of tokens from 1 up; raises InputError."""
    if type(block_tokens) is not int or block_tokens < 1:
        raise InputError(f"block_tokens is {block_tokens!r}; must be a whole number of at least 1")


def open_trace(
    path: str | PathLike[str], format: str | None = None, *, bad_lines: BadLines | None = None, **options: object
) -> Trace:
    """Return the trace in a file, its format told by how it begins unless it is given.

    Parameters
    ----------
    path
        A text file, plain, gzipped or in a tar archive; a folder for formats of several files; ``-`` for standard
        input, which is kept in a temporary file until the process ends.
    format
        Name of a format; None to detect it.
    bad_lines
        What to do with malformed lines; by default the first one raises TraceError.
    options
        Options of the format, such as ``block_tokens``.

    Raises
    ------
    TraceError
        If the file cannot be read or has no known format.
    UnknownNameError
        If there is no such *format*.
    InputError
        If the format has no such option.
    """
    file = spooled_input() if str(path) == "-" else Path(path)
    head = read_head(file)  # a missing or empty file is reported here rather than in the middle of a run
    name = format if format is not None else _detected(head, file)
    reader = READERS.create(name, **options)
    if file.is_dir() and not reader.several_files:
        raise TraceError(str(file), f"is a folder; a trace of the format '{name}' is one file")
    return reader.open(file, BadLines() if bad_lines is None else bad_lines)


def detect_format(path: str | PathLike[str]) -> str:
    """Return the name of the format in which a trace is written; raises what `open_trace` raises."""
    file = spooled_input() if str(path) == "-" else Path(path)
    return _detected(read_head(file), file)


def _detected(head: Head, file: Path) -> str:
    for name in READERS.names():
        if READERS.create(name).sniff(head):
            return name
    if is_block_trace(head):
        raise TraceError(
            str(file),
            "is a block trace, which holds accesses to a cache and no requests: "
            "`kvtier mrc` and `kvtier trace info` read it, nothing else does",
        )
    known = ", ".join(READERS.names())
    raise TraceError(
        f"{file}:1", f"not a trace format that kvtier knows; known are {known} ('kvtier list trace-formats' tells more)"
    )
