"""How a comparison lies in a folder: ``comparison.json``, and for each variant the result of its middle run.

``comparison.json`` holds what ``kvtier compare --json`` prints, and beside it ``format``, ``format_version``, ``files``
(the folders of the runs), ``runs`` (by variant: its folder) and ``scenarios`` (by variant: the resolved scenario).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from models.errors import InputError, SimulationError
from scenarios.comparison.bounds import Distance
from scenarios.comparison.comparing import Compared, Comparison, run_folder
from scenarios.comparison.intervals import Difference
from scenarios.comparison.variants import Variant
from scenarios.loader import resolved
from scenarios.schema import Scenario
from scenarios.whole_folders import check_folder, read_manifest, write_manifest

MANIFEST: Final = "comparison.json"
_FORMAT: Final = "kvtier comparison"
_FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedComparison:
    """A comparison that was read back, and by variant the folder with the result of its middle run."""

    comparison: Comparison
    runs: Mapping[str, Path]


def check_target(folder: Path) -> None:
    """Raise InputError unless a comparison can go to *folder*; to be asked before the runs, not after them."""
    check_folder(folder, MANIFEST, _FORMAT)


def save_into(comparison: Comparison, folder: Path) -> None:
    """Complete *folder*, which holds the results of all runs (`compare(keep=folder)`): the middle ones stay."""
    runs: dict[str, str] = {}
    for at, found in enumerate(comparison.variants):
        for seed in found.seeds:
            ran = folder / run_folder(at, seed)
            if found.error is None and seed == found.middle_seed:
                runs[found.variant.name] = f"{at:02d}"
                ran.rename(folder / f"{at:02d}")
            else:
                shutil.rmtree(ran, ignore_errors=True)
    head = {"format": _FORMAT, "format_version": _FORMAT_VERSION, "files": list(runs.values()), "runs": runs}
    scenarios = {found.variant.name: resolved(found.variant.scenario) for found in comparison.variants}
    texts = {found.variant.name: dict(found.variant.settings) for found in comparison.variants}
    write_manifest(folder, MANIFEST, head | comparison.to_dict() | {"texts": texts, "scenarios": scenarios})


def load_comparison(folder: Path) -> SavedComparison:
    """Return the comparison that lies in *folder*; InputError if it is missing, damaged or of another version."""
    said = read_manifest(folder, MANIFEST, _FORMAT, version=_FORMAT_VERSION)
    try:
        differences: dict[str, dict[str, Difference]] = {}
        for row in said["differences"]:
            values = {key: row[key] for key in ("difference", "low", "high", "equal")}
            differences.setdefault(row["variant"], {})[row["metric"]] = Difference(**values)
        comparison = Comparison(
            name=said["scenario"],
            variants=tuple(_compared(variant, said) for variant in said["variants"]),
            differences=differences,
            distances=tuple(Distance(**row) for row in said["distances_to_bound"]),
            method=said["method"],
        )
        return SavedComparison(
            comparison=comparison, runs={name: folder / place for name, place in said["runs"].items()}
        )
    except (KeyError, TypeError, AttributeError, ValidationError) as error:
        detail = " ".join(str(error).split())
        raise InputError(f"{folder / MANIFEST}: damaged, or of another version of kvtier: {detail}") from error


def _compared(variant: Mapping[str, Any], said: Mapping[str, Any]) -> Compared:
    name = variant["name"]
    scenario = Scenario.model_validate(said["scenarios"][name])
    known = Variant(name=name, settings=said["texts"][name], scenario=scenario)
    if "error" in variant:
        return Compared(variant=known, seeds=(), error=SimulationError(variant["error"]))
    return Compared(
        variant=known,
        seeds=tuple(run["seed"] for run in variant["runs"]),
        runs=tuple(run["metrics"] for run in variant["runs"]),
        summary=variant["summary"],
    )
