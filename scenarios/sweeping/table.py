"""The table of a sweep, a row a point, and how it lies in a Parquet file.

Columns, in this order:

- ``point``: number of the point, from 0 (int64).
- One for each swept key, named as the key (``tiers.dram.capacity``): the value that was run, in SI units (bytes,
  seconds, bytes a second) as int64, float64, bool or text. A policy with parameters is JSON text; null: the point's
  scenario has no such key.
- ``seed`` (int64); ``status``: ``ok`` or ``failed``; ``error``: why it failed, else null; ``run_key``: equal for two
  runs that must come out the same (text).
- One for each figure of ``kvtier run --json``, named by its path there (``ttft_s.p99``, ``tiers.dram.read_bytes``):
  int64, float64, bool or text, null where a run has no such figure. Lists of texts are one text, a line each. How long
  the run took (``engine.wall_s``, ``engine.requests_per_wall_s``) is left out.

Nothing in the file depends on the machine's speed, on the executor, or on what was taken over: two sweeps of the same
points by the same versions write the same bytes. The schema's metadata holds a JSON object under ``kvtier``:
``format``, ``format_version``, ``scenario``, ``keys`` (the swept ones), ``units`` (of those that have one), ``code`` (a
hash of kvtier's source), ``base`` (the resolved scenario of the first point) and ``versions``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from models.errors import InputError
from scenarios.loader import resolved
from scenarios.sweeping.identity import code_fingerprint
from scenarios.sweeping.journal import Ran
from scenarios.sweeping.points import Point
from scenarios.sweeping.units import unit_of
from scenarios.whole_files import write_whole
from sim.results.result import versions

FORMAT: Final = "kvtier sweep"
_FORMAT_VERSION: Final = 1
_WALL_CLOCK: Final = frozenset({"engine.wall_s", "engine.requests_per_wall_s"})
_METADATA: Final = b"kvtier"
_LARGEST: Final = 2**63 - 1

Rows = Sequence[tuple[Point, Ran]]


def to_table(name: str, rows: Rows) -> Any:
    """Return the points of the scenario called *name*, with what became of each, as an Arrow table."""
    import pyarrow as pa

    keys = list(rows[0][0].values)
    columns: dict[str, Any] = {"point": pa.array(range(len(rows)), pa.int64())}
    for key in keys:
        columns[key] = _array([point.values[key] for point, _ in rows])
    columns["seed"] = pa.array([point.seed for point, _ in rows], pa.int64())
    columns["status"] = pa.array(["ok" if ran.error is None else "failed" for _, ran in rows], pa.string())
    columns["error"] = pa.array([ran.error for _, ran in rows], pa.string())
    columns["run_key"] = pa.array([point.key for point, _ in rows], pa.string())
    figures = [dict(_flat(ran.summary or {})) for _, ran in rows]
    for figure in dict.fromkeys(figure for row in figures for figure in row):
        if figure not in _WALL_CLOCK:
            columns.setdefault(figure, _array([row.get(figure) for row in figures]))
    about = {
        "format": FORMAT,
        "format_version": _FORMAT_VERSION,
        "scenario": name,
        "keys": keys,
        "units": {key: unit for key in keys if (unit := unit_of(key)) is not None},
        "code": code_fingerprint(),
        "base": resolved(rows[0][0].scenario),
        "versions": {part: version for part, version in versions().items() if part != "platform"},
    }
    return pa.table(columns).replace_schema_metadata({_METADATA: json.dumps(about)})


def _flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        elif isinstance(value, list):
            yield f"{path}{key}", "\n".join(part if isinstance(part, str) else json.dumps(part) for part in value)
        else:
            yield f"{path}{key}", value


def _array(values: Sequence[Any]) -> Any:
    """Return values as the narrowest type that holds them all; where there is none at all, a number is missing."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds == {int} and all(value is None or abs(value) <= _LARGEST for value in values):
        return pa.array(values, pa.int64())
    if kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pa.array(texts, pa.string())


def refuse_foreign(path: Path) -> None:
    """Raise InputError unless a table can go to *path*: nothing is there yet, or an earlier sweep."""
    if path.suffix != ".parquet":
        raise InputError(f"--out {path}: must end in .parquet")
    if not path.parent.is_dir():
        raise InputError(f"--out {path}: there is no folder {path.parent}")
    if path.exists():
        try:
            read_table(path)
        except InputError as error:
            raise InputError(f"{error}; choose another --out") from None


def write_table(table: Any, path: Path) -> None:
    """Write a table to *path*, whole or not at all; raises InputError where that cannot be."""
    import pyarrow.parquet as pq

    write_whole(path, lambda file: pq.write_table(table, file))


def read_table(path: Path) -> Any:
    """Return the table that :func:`write_table` wrote; raises InputError if there is none at *path*."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"{path}: cannot be read as a table of a sweep: {str(error).splitlines()[0]}") from None
    about = about_table(table)
    if about.get("format") != FORMAT:
        raise InputError(f"{path}: is no table of a sweep")
    if about["format_version"] != _FORMAT_VERSION:
        raise InputError(f"{path}: sweep format {about['format_version']!r}; this kvtier reads {_FORMAT_VERSION}")
    return table


def about_table(table: Any) -> dict[str, Any]:
    """Return what the metadata of a table says about it; empty for one that is not of a sweep."""
    try:
        found = json.loads((table.schema.metadata or {})[_METADATA])
    except (KeyError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
