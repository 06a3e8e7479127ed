"""Opens a trace file in whichever of the registered formats it is written.

A format is one class in a file of its own under `sim/traces/readers`, registered by the decorator
`@READERS.register(name)`; nothing else has to change. The first line of its docstring says what such a file looks like.
"""

from os import PathLike
from pathlib import Path
from typing import Protocol

from models.errors import TraceError
from sim.registry import Registry
from sim.traces.files import first_line
from sim.traces.record import Trace


class TraceReader(Protocol):
    """Reads one trace format."""

    def sniff(self, first_line: str) -> bool:
        """Return whether a file that starts with this line looks like this format; a broken line may still do."""
        ...

    def open(self, path: Path) -> Trace:
        """Return the trace in a file, without reading it yet."""
        ...


READERS: Registry[TraceReader] = Registry("trace format", package="sim.traces.readers", requires=("sniff", "open"))


def open_trace(path: str | PathLike[str], format: str | None = None) -> Trace:
    """Return the trace in a plain or gzipped file, its format told by its first line unless it is given.

    Raises TraceError where the file cannot be read or has no known format, UnknownNameError for an unknown *format*.
    """
    file = Path(path)
    if format is not None:
        reader = READERS.create(format)
        first_line(file)  # a missing or empty file is reported here rather than in the middle of a run
        return reader.open(file)
    line = first_line(file)
    for name in READERS.names():
        reader = READERS.create(name)
        if reader.sniff(line):
            return reader.open(file)
    known = "; ".join(f"{name}: {READERS.describe(name)}" for name in READERS.names())
    raise TraceError(f"{file}:1", f"not a trace format that kvtier knows; known are {known}")
