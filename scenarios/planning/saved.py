"""How a plan lies in a folder: ``plan.json``, and the result of a run with the answer, or what comes nearest to one.

``plan.json`` holds what ``kvtier plan --json`` prints, and beside it ``format``, ``format_version``, ``files`` and
``resolved``, the scenario with the answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from scenarios.loader import resolved
from scenarios.planning.answer import Plan
from scenarios.whole_folders import check_folder, read_manifest, whole_folder, write_manifest

MANIFEST: Final = "plan.json"
ANSWER: Final = "answer"
_FORMAT: Final = "kvtier plan"
_FORMAT_VERSION: Final = 1


def check_target(folder: Path) -> None:
    """Raise InputError unless a plan can go to *folder*; to be asked before the runs, not after them."""
    check_folder(folder, MANIFEST, _FORMAT)


def save_plan(plan: Plan, folder: Path) -> None:
    """Run the scenario of the answer once more, and write the plan and that run to *folder*, whole or not at all.

    Raises InputError where it cannot be written.
    """
    from scenarios.build import simulate

    check_target(folder)
    with whole_folder(folder) as fresh:
        simulate(plan.scenario).save(fresh / ANSWER)
        head = {"format": _FORMAT, "format_version": _FORMAT_VERSION, "files": [ANSWER]}
        write_manifest(fresh, MANIFEST, head | plan.to_dict() | {"resolved": resolved(plan.scenario)})


def load_plan(folder: Path) -> dict[str, Any]:
    """Return what ``plan.json`` in *folder* holds; InputError if it is missing, damaged or of another version."""
    return read_manifest(folder, MANIFEST, _FORMAT, version=_FORMAT_VERSION)
