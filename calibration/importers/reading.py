"""Opens a file of measurements in whichever of the registered formats it is written.

A format is one class in a file of its own under `calibration/importers/formats`, registered by the decorator
`@IMPORTERS.register(name)`; the first line of its docstring says what such a file is, the rest where that is
documented.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from calibration.importers.cells import MeasurementError, Measurements
from models.errors import InputError
from models.text_files import read_text
from sim.registry import Registry

_HEAD_CHARACTERS = 20_000
"""What a format is told by: the settings that some tools print first are a few thousand characters long."""


class Importer(Protocol):
    """Reads one format; what its constructor takes are options of the command line."""

    def sniff(self, head: str) -> bool:
        """Return whether a file that begins like this looks like this format; a broken one may still do."""
        ...

    def read(self, text: str, where: str) -> Measurements:
        """Return what a file holds; raises MeasurementError naming *where* and the line or key that is wrong."""
        ...


IMPORTERS: Registry[Importer] = Registry(
    "kind of measurement file", package="calibration.importers.formats", requires=("sniff", "read")
)


def read_measurements(path: str | Path, kind: str | None = None, **options: object) -> Measurements:
    """Return the measurements in a file, its format told by how it begins unless *kind* names it.

    Raises MeasurementError for a file that cannot be read or used, UnknownNameError for a kind that does not exist and
    InputError for an option that the kind does not have.
    """
    where = str(path)
    text = read_text(Path(path), MeasurementError, encoding="utf-8-sig", label=where)
    if not text.strip():
        raise MeasurementError(where, "is empty")
    name = kind if kind is not None else _detected(text[:_HEAD_CHARACTERS], where)
    found = IMPORTERS.create(name, **options).read(text, where)
    if not any(cell.bytes_per_s > 0 for cell in found.cells):
        raise MeasurementError(where, "holds no cell in which bytes were read or written")
    return found


def _detected(head: str, where: str) -> str:
    for name in IMPORTERS.names():
        importer = IMPORTERS.get(name)()
        if importer.sniff(head):
            return name
    raise InputError(f"{where}: no format that is known; say which with --kind ({', '.join(IMPORTERS.names())})")
