"""Writes a file whole or not at all: under another name first, then by a rename."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from models.errors import InputError


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let *write* fill a file that becomes *path* when it is complete; raises InputError where that cannot be."""
    fresh = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with fresh.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())  # before the rename: no power cut may leave the new name with no content
        fresh.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def write_whole_text(path: Path, text: str) -> None:
    """Write *text* in UTF-8 as :func:`write_whole` does."""
    write_whole(path, lambda file: file.write(text.encode("utf-8")))
