"""How a result lies in a directory: Parquet for tables, JSON for the rest. Reads and writes whole results only."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import numpy as np

from models.errors import InputError
from sim.recording.tables import Columns, Labels

if TYPE_CHECKING:
    from sim.results.result import SimulationResult

_MANIFEST: Final = "result.json"
REPORT: Final = "report.html"
"""A page that was made of the result: it goes when another result takes its place."""
_FORMAT: Final = "kvtier result"
_FORMAT_VERSION: Final = 1


def jsonable(value: Any) -> Any:
    """Return *value* with numpy scalars and arrays made plain and NaN and infinity made None, as JSON knows neither."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def save_result(result: SimulationResult, directory: Path) -> Path:
    """Write *result* to *directory* by way of a directory beside it, so that no reader sees half of one.

    Raises InputError as :meth:`SimulationResult.save` says.
    """
    # Resolved, so that "." and "runs/.." have a name to put the new directory beside, and links lead to what they mean.
    target = directory.resolve()
    try:
        refuse_foreign(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = beside(target)
        fresh.mkdir()
    except OSError as error:
        raise InputError(f"{directory}: cannot write a result here: {error.strerror or error}") from error
    try:
        _write(result, fresh)
        swap(fresh, target)
    except OSError as error:
        raise InputError(f"{directory}: cannot write a result here: {error.strerror or error}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def refuse_foreign(target: Path) -> None:
    """Raise InputError unless *target* is absent, empty, or an earlier result and nothing else."""
    if not target.exists():
        return
    if not target.is_dir():
        raise InputError(f"{target}: is a file; a result needs a directory")
    names = {path.name for path in target.iterdir()}
    if not names:
        return
    manifest = _read_manifest(target) if _MANIFEST in names else None
    if manifest is None:
        raise InputError(f"{target}: is not empty and holds no kvtier result; choose another directory")
    foreign = sorted(names - {_MANIFEST, REPORT, *manifest["files"]})
    if foreign:
        raise InputError(f"{target}: holds files that are not of a result ({foreign[0]}); choose another directory")


def _read_manifest(directory: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
    except ValueError:
        return None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        return None
    return manifest if isinstance(manifest.get("files"), list) else None


def _write(result: SimulationResult, directory: Path) -> None:
    files = ["scenario.json", "summary.json", *(f"{name}.parquet" for name in result.columns)]
    _write_json(directory / "scenario.json", result.scenario)
    _write_json(directory / "summary.json", result.summary_values)
    for name, columns in result.columns.items():
        _write_table(directory / f"{name}.parquet", columns, result.labels.get(name, {}))
    manifest = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "seed": result.seed,
        "provenance": result.provenance,
        "files": files,
        "labels": result.labels,
        "measured": result.measured,
    }
    _write_json(directory / _MANIFEST, manifest)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(jsonable(value), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _write_table(path: Path, columns: Columns, labels: Labels) -> None:
    """Write codes as words, dictionary-encoded: the files are read by other programs too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {}
    for name, column in columns.items():
        words = labels.get(name)
        if words:
            codes = pa.array(column.astype(np.int32))
            arrays[name] = pa.DictionaryArray.from_arrays(codes, pa.array(words, pa.string()))
        else:
            arrays[name] = pa.array(column)
    pq.write_table(pa.table(arrays), path)


def swap(fresh: Path, target: Path) -> None:
    """Put the directory *fresh* where *target* is, whatever is there; OSError where that cannot be."""
    if not target.exists():
        fresh.rename(target)
        return
    old = beside(target)
    # Two renames, each whole: between them there is no result, never half of one.
    target.rename(old)
    try:
        fresh.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def beside(target: Path) -> Path:
    """Return an unused hidden name in the same directory, hence on the same file system: a rename is then atomic."""
    return target.with_name(f".{target.name}.{uuid4().hex}")


def load_result(directory: Path) -> dict[str, Any]:
    """Return the fields of the result in *directory*. Raises InputError if it is missing, damaged or too new."""
    if not (directory / _MANIFEST).is_file():
        raise InputError(f"{directory}: no kvtier result here (there is no {_MANIFEST})")
    manifest = _read_manifest(directory)
    if manifest is None:
        raise InputError(f"{directory / _MANIFEST}: damaged, or not of a kvtier result")
    found = manifest.get("format_version")
    if found != _FORMAT_VERSION:
        raise InputError(f"{directory}: result format {found!r}; this kvtier reads {_FORMAT_VERSION}")
    try:
        labels: dict[str, Labels] = {
            table: {name: tuple(words) for name, words in inner.items()} for table, inner in manifest["labels"].items()
        }
        tables = [Path(name).stem for name in manifest["files"] if name.endswith(".parquet")]
        return {
            "scenario": _read_json(directory / "scenario.json"),
            "seed": manifest["seed"],
            "provenance": manifest["provenance"],
            "columns": {name: _read_table(directory / f"{name}.parquet", labels.get(name, {})) for name in tables},
            "summary_values": _read_json(directory / "summary.json"),
            "labels": labels,
            "measured": dict(manifest.get("measured", {})),  # results of before had none
        }
    # pyarrow's errors are ValueError or OSError, json's ValueError; a hand-edited manifest gives the other three.
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{directory}: damaged result: {detail}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    if not isinstance(value, dict):
        raise TypeError(f"{path.name}: must be a JSON object")
    return value


def _read_table(path: Path, labels: Labels) -> Columns:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path.name}: {error}") from error
    columns: Columns = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if name in labels:
            words = column.dictionary.to_pylist()
            order = np.array([labels[name].index(word) for word in words], dtype=np.int32)
            columns[name] = order[column.indices.to_numpy()]
        else:
            columns[name] = column.to_numpy()
    return columns
