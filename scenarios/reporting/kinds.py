"""The kinds of things that can be reported, and which of them lie in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from models.errors import InputError
from scenarios.reporting.comparison_section import SavedComparisonKind
from scenarios.reporting.gate_section import PrintedGate
from scenarios.reporting.plan_section import SavedPlan
from scenarios.reporting.run_section import SavedRun
from scenarios.reporting.section import Kind, Section
from scenarios.reporting.sweep_section import SavedSweep

KINDS: Final[tuple[Kind, ...]] = (
    SavedRun(),
    SavedComparisonKind(),
    SavedSweep(),
    SavedPlan(),
    PrintedGate(),
)
"""One that fits is not asked again: a folder that is a comparison holds runs too."""


def sections_of(path: Path) -> list[Section]:
    """Return a section on what *path* is, or one on each thing that lies in the folder, in order of name.

    Raises InputError where there is nothing to report, or it is damaged.
    """
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder")
    own = _kind_of(path)
    if own is not None:
        return [own.section(path)]
    inside = sorted(path.iterdir()) if path.is_dir() else []
    found = [(kind, item) for item in inside if (kind := _kind_of(item)) is not None]
    if not found:
        makers = "; ".join(f"{kind.name}: `{kind.saved_by}`" for kind in KINDS)
        raise InputError(f"{path}: holds nothing that can be reported ({makers})")
    return [kind.section(item) for kind, item in found]


def _kind_of(path: Path) -> Kind | None:
    return next((kind for kind in KINDS if kind.fits(path)), None)
