"""Writes the lines of a trace to standard output, or whole to a file or not at all."""

import gzip
import os
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from models.errors import InputError


def write_lines(lines: Iterable[bytes], out: str) -> None:
    """Write *lines* to a file, gzipped where its name ends in .gz, or to standard output for `-`.

    A file is made beside its place and moved there when it is whole, so that nothing reads half of it, and a file that
    was there before stays if something fails. Raises InputError where it cannot be written.
    """
    if out == "-":
        for line in lines:
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    if path.is_dir():
        raise InputError(f"{out}: is a folder; -o names a file")
    if path.exists() and not path.is_file():  # a device or a pipe cannot be replaced
        with path.open("wb") as special:
            special.writelines(lines)
        return
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror or error})") from error
    try:
        with os.fdopen(handle, "wb") as plain:
            if path.suffix == ".gz":
                # No name and no time in the file: equal traces make equal files.
                with gzip.GzipFile(filename="", fileobj=plain, mode="wb", compresslevel=6, mtime=0) as packed:
                    packed.writelines(lines)
            else:
                plain.writelines(lines)
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


def _umask() -> int:
    """Return the permissions that new files do not get; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
