"""What a sweep has done so far, a line each as it ends: what a later call takes over if this one does not get through.

The first line says what wrote the journal: `{"format": "kvtier sweep journal", "format_version": 1, "code": ...}`. Each
other line is one run: `key`, `summary` (of `kvtier run --json`) or `error`, and `again` where the run ended by chance
and not by what it is. `{"complete": true}` is the last line of a sweep that got through. A line that was cut off, by
whatever ended its writer, is not there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Final

from models.errors import InputError
from scenarios.sweeping.identity import code_fingerprint

_FORMAT: Final = "kvtier sweep journal"
_FORMAT_VERSION: Final = 1
_BEGINNING: Final = json.dumps({"format": _FORMAT}).removesuffix("}").encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of a run: its summary as plain values, or the error that ended it.

    Parameters
    ----------
    summary : dict or None
        What ``kvtier run --json`` prints.
    error : str or None
        Why it failed.
    again : bool
        Whether it failed by chance (its process died, an error that nobody foresaw): another try may go well.
    """

    summary: dict[str, Any] | None = None
    error: str | None = None
    again: bool = False


class Journal:
    """The journal at *path*, held by this process alone until it is closed; made by :func:`open_journal`.

    Attributes
    ----------
    ran : dict
        Runs that can be taken over, by key.
    dropped : int
        Lines that were cut off or damaged.
    is_empty : bool
        Whether nothing has been put down that a later call could take over.
    """

    def __init__(self, path: Path, file: FileIO) -> None:
        self.ran: dict[str, Ran] = {}
        self.dropped = 0
        self.is_empty = False
        self._path = path
        self._file = file
        self._is_complete = False

    def begin(self, *, resume: bool) -> None:
        """Read what is there and make ready to write; raises InputError as :func:`open_journal` says."""
        head, *lines = self._whole_lines()
        if not head:
            self._start_afresh()
            return
        header = _parsed(head)
        if header is None or header.get("format") != _FORMAT:
            raise InputError(f"{self._path}: is no journal of a sweep; move it away, or choose another --out")
        for line in lines:
            self._take(_parsed(line))
        if not resume:
            if self.ran and not self._is_complete:
                raise InputError(
                    f"{self._path}: holds {len(self.ran)} runs of a sweep that did not get through; --resume takes "
                    "them over; delete the file to begin afresh"
                )
            self._start_afresh()
        elif (header.get("format_version"), header.get("code")) != (_FORMAT_VERSION, code_fingerprint()):
            raise InputError(
                f"{self._path}: was written by another version of kvtier or of what it rests on, so its runs cannot be "
                "taken over; delete the file to begin afresh"
            )

    def add(self, key: str, ran: Ran) -> None:
        """Put down what became of a run, in one write; raises OSError where there is no room for it."""
        self.is_empty = False
        line: dict[str, Any] = {"key": key}
        line |= {"summary": ran.summary} if ran.error is None else {"error": ran.error}
        self._write(line | ({"again": True} if ran.again else {}))

    def complete(self) -> None:
        """Put down that all points have been run."""
        self.is_empty = False
        self._write({"complete": True})

    def _whole_lines(self) -> list[bytes]:
        """Return the lines, the first one empty if there is none, and take away a last one that was cut off."""
        self._file.seek(0)
        content = self._file.readall() or b""
        *lines, rest = content.split(b"\n")
        # Not even the first line was written in full: that of a journal may go, another file must stay.
        if not lines and rest and not _BEGINNING.startswith(rest[: len(_BEGINNING)]):
            raise InputError(f"{self._path}: is no journal of a sweep; move it away, or choose another --out")
        if rest:
            self.dropped += 1
            self._file.truncate(len(content) - len(rest))
        return lines or [b""]

    def _take(self, line: dict[str, Any] | None) -> None:
        if line is None:
            self.dropped += 1
            return
        self._is_complete = "complete" in line
        if self._is_complete:
            return
        key, summary, error = line.get("key"), line.get("summary"), line.get("error")
        if not isinstance(key, str) or not (isinstance(summary, dict) or isinstance(error, str)):
            self.dropped += 1
        elif line.get("again"):
            self.ran.pop(key, None)
        else:
            self.ran[key] = Ran(summary=summary, error=error)

    def _start_afresh(self) -> None:
        self.ran, self.dropped, self.is_empty = {}, 0, True
        self._file.truncate(0)
        self._write({"format": _FORMAT, "format_version": _FORMAT_VERSION, "code": code_fingerprint()})

    def _write(self, line: dict[str, Any]) -> None:
        data = memoryview(json.dumps(line, allow_nan=False).encode() + b"\n")
        while data:  # nearly always once: a disk may take less than all when it is nearly full
            data = data[self._file.write(data) or 0 :]


@contextmanager
def open_journal(out: Path, *, resume: bool) -> Iterator[Journal]:
    """Open the journal beside the table *out*, and keep other sweeps from writing it; an empty one does not stay.

    Raises
    ------
    InputError
        If the file there is no journal, is of another version of kvtier, is being written by another process, holds
        runs and *resume* is false (unless its sweep got through, whose runs are in a table), or cannot be written.
    """
    path = out.with_name(f"{out.name}.journal")
    try:
        file = path.open("a+b", buffering=0)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    with file:
        _lock(file, path)
        journal = Journal(path, file)
        try:
            journal.begin(resume=resume)
            yield journal
        finally:
            if journal.is_empty:
                with suppress(OSError):  # Windows, where an open file stays
                    path.unlink()


def _lock(file: FileIO, path: Path) -> None:
    with suppress(ImportError):  # Windows, where two sweeps into one file are not noticed
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{path}: another sweep is writing it") from None
        except OSError:  # a file system without locks
            return
        if not os.fstat(file.fileno()).st_nlink:  # taken away by the one that held it
            raise InputError(f"{path}: another sweep is writing it")


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
