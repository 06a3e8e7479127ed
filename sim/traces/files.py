"""Numbered lines of a plain or gzipped text file, with every way in which reading can fail as a TraceError.

Lines are streamed, so memory does not grow with the file. What stands in a line is for the readers to judge.
"""

import gzip
import io
import stat
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from models.errors import TraceError

# The first two bytes of every gzip file (RFC 1952, section 2.3.1).
_GZIP_MAGIC = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"
_BUFFER_BYTES = 1 << 17
# A longer line is no request: a prompt of a million tokens in blocks of one token takes some 10 MB.
_MAX_LINE_BYTES = 64 * 2**20


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line as bytes) of a text file, unpacked where it is gzipped.

    Raises TraceError with file:line where the file is missing, not a regular file, unreadable, damaged or truncated.
    """
    number = 0
    try:
        with _open_bytes(path) as stream:
            for line in iter(partial(stream.readline, _MAX_LINE_BYTES), b""):
                number += 1
                if len(line) == _MAX_LINE_BYTES:
                    raise TraceError(f"{path}:{number}", f"line is longer than {_MAX_LINE_BYTES} bytes")
                yield number, line.removeprefix(_UTF8_MARK) if number == 1 else line
    except EOFError as error:
        raise TraceError(f"{path}:{number + 1}", "gzip data end too early; the file is truncated") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path}:{number + 1}", f"gzip data are damaged ({error})") from error
    except OSError as error:
        raise TraceError(str(path), f"cannot be read ({error.strerror or error})") from error


def first_line(path: Path) -> str:
    """Return the first line of a file that is not blank; bytes that are not UTF-8 come out as replacement signs.

    Raises TraceError where there is none, or where the file cannot be read.
    """
    for _, line in numbered_lines(path):
        if line.strip():
            return line.decode("utf-8", errors="replace")
    raise TraceError(str(path), "the file is empty; a trace holds at least one request")


def _open_bytes(path: Path) -> BinaryIO:
    """Open a regular file, through gzip where its first bytes say so."""
    _require_regular_file(path)
    plain = path.open("rb", buffering=_BUFFER_BYTES)
    magic = plain.read(len(_GZIP_MAGIC))
    plain.seek(0)
    if magic != _GZIP_MAGIC:
        # An empty file falls through: "empty" says more than "not gzipped".
        if path.suffix == ".gz" and magic:
            plain.close()
            raise TraceError(str(path), "the name ends in .gz but the file is not gzipped")
        return plain
    # The buffer around it makes readline run in C.
    return cast(BinaryIO, io.BufferedReader(_ClosingGzip(plain), _BUFFER_BYTES))


class _ClosingGzip(gzip.GzipFile):
    """A gzip stream that closes the file beneath it, which GzipFile leaves open if it did not open it itself."""

    def __init__(self, packed: BinaryIO) -> None:
        super().__init__(fileobj=packed, mode="rb")
        self._packed = packed

    def close(self) -> None:
        """Close the stream and the file."""
        super().close()
        self._packed.close()


def _require_regular_file(path: Path) -> None:
    """Refuse what cannot be read twice: a trace is opened once to see its format and again for each run."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise TraceError(str(path), "no such file") from None
    except ValueError as error:  # a zero byte in the name
        raise TraceError(repr(str(path)), f"not a file name ({error})") from error
    if stat.S_ISDIR(mode):
        raise TraceError(str(path), "is a folder; a trace is one file")
    if not stat.S_ISREG(mode):
        raise TraceError(str(path), "is not a regular file; a trace is read more than once, so save the pipe to a file")
