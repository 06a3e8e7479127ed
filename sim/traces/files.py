"""Numbered lines of text files, plain, gzipped, in a tar archive or a folder; all that can fail is a TraceError.

Everything is streamed, so memory does not grow with the file. What stands in a line is for the readers to judge.
"""

import gzip
import io
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, cast

from models.errors import TraceError

# The first two bytes of every gzip file (RFC 1952, section 2.3.1).
_GZIP_MAGIC = b"\x1f\x8b"
# What else people may take for a trace, by how it begins.
_FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"\xfd7zXZ\x00": "compressed with xz",
    b"BZh": "compressed with bzip2",
    b"PAR1": "a Parquet file",
}
_UTF8_MARK = b"\xef\xbb\xbf"
# In the header of a tar archive (POSIX.1-2001, pax interchange format).
_TAR_MAGIC = b"ustar"
_TAR_MAGIC_AT = 257
_TAR_HEADER_BYTES = 512
_BUFFER_BYTES = 1 << 17
_HEAD_BYTES = 1 << 16
# A longer line is no request: a prompt of a million tokens in blocks of one token takes some 10 MB.
_MAX_LINE_BYTES = 64 * 2**20
# A session of a thousand prompts of a million tokens, in blocks of 64 tokens, takes some 100 MB.
_MAX_WHOLE_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """How a trace begins, for the readers to tell their format by.

    Parameters
    ----------
    name
        The file's name without ``.gz``; of an archive or a folder, the name of the first file in it.
    text
        The first 64 KiB as text, from the first line that is not blank; bytes that are not UTF-8 come out as
        replacement signs.
    """

    name: str
    text: str

    @property
    def first_line(self) -> str:
        """The first line that is not blank, or as much of it as there is in 64 KiB."""
        return self.text.partition("\n")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file of a trace, open until the next one is asked for.

    Parameters
    ----------
    name
        Its name in the archive or folder, without ``.gz``.
    where
        What to call it in messages: the path of the file, or ``archive.tar.gz/name``.
    stream
        Its content, unpacked.
    """

    name: str
    where: str
    stream: BinaryIO

    def numbered_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield (line number from 1, line as bytes); raises TraceError with file:line where reading fails."""
        number = 0
        with _failures(lambda: f"{self.where}:{number + 1}"):
            for line in iter(partial(self.stream.readline, _MAX_LINE_BYTES), b""):
                number += 1
                if len(line) == _MAX_LINE_BYTES:
                    raise TraceError(f"{self.where}:{number}", f"line is longer than {_MAX_LINE_BYTES} bytes")
                yield number, line.removeprefix(_UTF8_MARK) if number == 1 else line

    def some(self, n_bytes: int) -> bytes:
        """Return up to *n_bytes* more of the content; raises TraceError where reading fails."""
        with _failures(lambda: self.where):
            return self.stream.read(n_bytes)

    def whole(self) -> bytes:
        """Return the content; raises TraceError where reading fails or where it is longer than one session can be."""
        pieces: list[bytes] = []
        while piece := self.some(_BUFFER_BYTES):
            pieces.append(piece)
            if len(pieces) > _MAX_WHOLE_BYTES // _BUFFER_BYTES:
                raise TraceError(self.where, f"is longer than {_MAX_WHOLE_BYTES} bytes; it is read as one piece")
        return b"".join(pieces).removeprefix(_UTF8_MARK)


def members(path: Path) -> Iterator[Member]:
    """Yield the files of a trace: of a folder by name, of a tar archive in its order, else the file itself.

    Hidden files are left out (archives made on macOS carry some). Raises TraceError where there are none, or where
    something is missing, not a regular file, unreadable, damaged or truncated.
    """
    found = 0
    for member in _folder_members(path) if stat.S_ISDIR(_mode(path)) else _file_members(path):
        found += 1
        yield member
    if not found:
        raise TraceError(str(path), "holds no files; a trace is a text file, or an archive or folder of some")


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line as bytes) of a text file, unpacked where it is gzipped or in a tar archive.

    Raises TraceError with file:line where :func:`members` or reading fails, and where there is more than one file.
    """
    for index, member in enumerate(members(path)):
        if index:
            raise TraceError(str(path), f"holds several files, {member.name} among them; a trace of this format is one")
        yield from member.numbered_lines()


def read_head(path: Path) -> Head:
    """Return how a trace begins; raises TraceError where it is empty, no text, or cannot be read."""
    for member in members(path):
        lines = member.numbered_lines()
        begin = next((line for _, line in lines if line.strip()), None)
        if begin is None:
            raise TraceError(member.where, "the file is empty; a trace holds at least one request")
        begin = begin[:_HEAD_BYTES] + member.some(_HEAD_BYTES)
        _require_text(member.where, begin)
        return Head(name=member.name, text=begin[:_HEAD_BYTES].decode("utf-8", errors="replace"))
    raise AssertionError("members() yields one or raises")


@contextmanager
def _failures(where: Callable[[], str]) -> Iterator[None]:
    """Turn every way in which reading can fail into a TraceError at *where*."""
    try:
        yield
    except EOFError as error:
        raise TraceError(where(), "gzip data end too early; the file is truncated") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(where(), f"gzip data are damaged ({error})") from error
    except tarfile.TarError as error:
        raise TraceError(where(), f"the tar archive is damaged or truncated ({error})") from error
    except OSError as error:
        raise TraceError(where(), f"cannot be read ({error.strerror or error})") from error


def _mode(path: Path) -> int:
    """Return what kind of file it is, as `stat` tells."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        raise TraceError(str(path), "no such file") from None
    except ValueError as error:  # a zero byte in the name
        raise TraceError(repr(str(path)), f"not a file name ({error})") from error
    except OSError as error:
        raise TraceError(str(path), f"cannot be read ({error.strerror or error})") from error


def _folder_members(folder: Path) -> Iterator[Member]:
    with _failures(lambda: str(folder)):
        paths = sorted(path for path in folder.iterdir() if path.is_file() and not _is_hidden(path.name))
    for path in paths:
        yield from _file_members(path)


def _file_members(path: Path) -> Iterator[Member]:
    """Yield the files of a tar archive, or the one file, unpacked."""
    _require_regular_file(path)
    with _failures(lambda: str(path)), path.open("rb", buffering=_BUFFER_BYTES) as plain:
        stream = _unpacked(plain, str(path))
        begin = stream.read(_TAR_HEADER_BYTES)
        stream.seek(0)
        if not begin.startswith(_TAR_MAGIC, _TAR_MAGIC_AT):
            yield Member(name=_without_gz(path.name), where=str(path), stream=stream)
            return
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for entry in archive:
                content = archive.extractfile(entry) if entry.isreg() and not _is_hidden(entry.name) else None
                if content is not None:
                    where = f"{path}/{entry.name}"
                    yield Member(name=_without_gz(entry.name), where=where, stream=_unpacked(content, where))
            _require_end(stream, archive.offset)


def _unpacked(packed: IO[bytes], where: str) -> BinaryIO:
    """Return the stream, through gzip where its first bytes say so."""
    magic = packed.read(len(_GZIP_MAGIC))
    packed.seek(0)
    if magic == _GZIP_MAGIC:
        # The buffer around it makes readline run in C.
        return cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=packed, mode="rb"), _BUFFER_BYTES))
    # An empty file falls through: "empty" says more than "not gzipped".
    if where.endswith((".gz", ".tgz")) and magic:
        raise TraceError(where, f"the name ends in .{where.rpartition('.')[2]} but the file is not gzipped")
    return cast(BinaryIO, packed)


def _require_end(stream: BinaryIO, offset: int) -> None:
    """Refuse an archive that does not end in zeros: tarfile takes a damaged header for the end, without a word."""
    stream.seek(offset)
    if stream.read(_TAR_HEADER_BYTES).strip(b"\0"):
        raise tarfile.ReadError(f"bad header at byte {offset}")


def _require_text(where: str, begin: bytes) -> None:
    foreign = next((kind for magic, kind in _FOREIGN.items() if begin.startswith(magic)), None)
    if foreign is not None:
        raise TraceError(where, f"is {foreign}; a trace is text, plain or gzipped, or a tar archive of it")
    if b"\0" in begin:
        raise TraceError(where, "is a binary file; a trace is UTF-8 text, plain or gzipped, or a tar archive of it")


def _require_regular_file(path: Path) -> None:
    """Refuse what cannot be read twice: a trace is opened once to see its format and again for each run."""
    if not stat.S_ISREG(_mode(path)):
        raise TraceError(str(path), "is not a regular file; a trace is read more than once, so save the pipe to a file")


def _is_hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".")


def _without_gz(name: str) -> str:
    return name.removesuffix(".gz")
