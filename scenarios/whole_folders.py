"""A folder that is written whole or not at all: under another name first, then by a rename."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from models.errors import InputError
from sim.results.files import REPORT, beside, jsonable, swap


def check_folder(target: Path, manifest: str, form: str) -> None:
    """Raise InputError unless *target* is absent, empty, or what was written here before and nothing else.

    The JSON file *manifest* in it says so: its ``format`` is *form*, and ``files`` are the names of all else.
    """
    if not target.exists():
        return
    if not target.is_dir():
        raise InputError(f"{target}: is a file; a {form.removeprefix('kvtier ')} needs a directory")
    names = {path.name for path in target.iterdir()}
    if not names:
        return
    try:
        found = read_manifest(target, manifest, form)
    except InputError:
        raise InputError(f"{target}: is not empty and holds no {form}; choose another directory") from None
    foreign = sorted(names - {manifest, REPORT, *found.get("files", [])})
    if foreign:
        problem = f"holds files that are not of a {form.removeprefix('kvtier ')} ({foreign[0]})"
        raise InputError(f"{target}: {problem}; choose another directory")


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Give an empty folder that becomes *target* where the context ends without an error; InputError if it cannot."""
    target = target.resolve()
    fresh = beside(target)
    try:
        fresh.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from error
    try:
        yield fresh
        swap(fresh, target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def write_manifest(folder: Path, manifest: str, value: dict[str, Any]) -> None:
    """Write *value* as JSON into *folder*; NaN and infinity become null."""
    text = json.dumps(jsonable(value), indent=2, allow_nan=False) + "\n"
    (folder / manifest).write_text(text, encoding="utf-8")


def read_manifest(folder: Path, manifest: str, form: str, *, version: int | None = None) -> dict[str, Any]:
    """Return what :func:`write_manifest` wrote; InputError where it is missing, damaged or of another format.

    Of another *version* of the format too, where that is given.
    """
    path = folder / manifest
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict) or found.get("format") != form:
        raise InputError(f"{path}: is not of a {form}")
    own = found.get("format_version")
    if version is not None and own != version:
        raise InputError(f"{folder}: {form.removeprefix('kvtier ')} format {own!r}; this kvtier reads {version}")
    return found
