"""Block traces: accesses to objects of a cache, for work on eviction policies. They hold no requests.

Source of the format: libCacheSim's CSV (1a1a11a/libCacheSim, data/cloudPhysicsIO.csv and doc/quickstart_plugin.md):
columns for a time, an object id and its size [bytes], here with the names that its traces use.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from models.errors import TraceError
from sim.traces.bad_lines import BadLines
from sim.traces.csv_rows import column_names, csv_rows, seconds, shown
from sim.traces.fields import BadRowError
from sim.traces.files import Head, read_head

_TIME = ("time", "timestamp")
_SIZE = ("size", "obj_size")
_KEY = ("lbn", "obj_id", "object_id", "key", "id")
_OP = ("op",)
# Keys and sizes are held in 64 bits.
_MAX_VALUE = 2**63 - 1


class BlockAccess(NamedTuple):
    """One access to a cached object.

    Parameters
    ----------
    at_s
        When [s]; traces are in order of access, whatever their clock says.
    key
        Number of the object.
    size_bytes
        Its size [bytes].
    op
        What the trace calls the operation (in cloudPhysicsIO a SCSI code, 28 for a read and 2a for a write), or "".
    """

    at_s: float
    key: int
    size_bytes: int
    op: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTrace:
    """A file of accesses; every call of `accesses` reads it afresh."""

    path: Path
    bad_lines: BadLines

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def accesses(self) -> Iterator[BlockAccess]:
        """Yield the accesses in order; malformed rows go to `bad_lines`, all else that is wrong raises TraceError."""
        found = False
        for number, (time, key, size, op, _) in csv_rows(
            self.path, (_TIME, _KEY, _SIZE), self.bad_lines, optional=(_OP,)
        ):
            try:
                access = BlockAccess(seconds("time", time), _whole("key", key), _whole("size", size), op.strip())
            except BadRowError as error:
                self.bad_lines.report(f"{self.path}:{number}", str(error))
                continue
            found = True
            yield access
        if not found:
            raise TraceError(str(self.path), self.bad_lines.none_left() or "the file holds no accesses")


def is_block_trace(head: Head) -> bool:
    """Return whether a file that begins like this is a block trace."""
    names = column_names(head.first_line)
    return all(any(name in names for name in column) for column in (_TIME, _KEY, _SIZE))


def open_block_trace(path: str | PathLike[str], *, bad_lines: BadLines | None = None) -> BlockTrace:
    """Return the block trace in a file, without reading it yet; raises TraceError where it is none."""
    file = Path(path)
    if not is_block_trace(read_head(file)):
        columns = "; ".join(" or ".join(column) for column in (_TIME, _KEY, _SIZE))
        raise TraceError(f"{file}:1", f"not a block trace; it is a CSV with a header and columns for {columns}")
    return BlockTrace(path=file, bad_lines=BadLines() if bad_lines is None else bad_lines)


def _whole(name: str, text: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_MAX_VALUE)) and int(text) <= _MAX_VALUE):
        raise BadRowError(f"{name} is {shown(text)}; must be a whole number from 0 to 2**63 - 1")
    return int(text)
