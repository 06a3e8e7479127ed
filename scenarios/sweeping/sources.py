"""Where the points of a sweep come from: a grid, the rows of a list, samples. A point is what it sets, by key."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, get_args

from models.errors import InputError, ScenarioError
from scenarios.comparison.variants import varied
from scenarios.document import Node, read_list, read_text, read_value

Settings = Mapping[str, Node]
"""What a point sets: values by key, each with the place where it was written."""
Method = Literal["sobol", "lhs"]

_SCALES: Final = ("linear", "log")
_LISTS: Final = (".csv", ".json", ".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Between what values a key is sampled: SI numbers, whole ones where the key takes no others."""

    key: str
    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def at(self, share: float) -> float:
        """Return the value at a *share* of the range, 0 to 1; of whole numbers each is as likely as the others."""
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
            return min(max(round(value) if self.whole else value, self.low), self.high)
        if self.whole:
            return min(int(self.low) + math.floor(share * (self.high - self.low + 1)), self.high)
        return self.low + share * (self.high - self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Points drawn from ranges, spread more evenly than at random.

    Parameters
    ----------
    ranges : mapping
        By key: lowest value, highest value and, for steps of equal ratio, ``"log"``. Values as after ``--set``.
    points : int
        How many; of Sobol points a power of two is spread best.
    method : str
        ``"sobol"`` (scrambled Sobol sequence) or ``"lhs"`` (Latin hypercube: each key's range in equal slices, a point
        in each).
    seed : int
        Of the draw; another one than that of the runs.
    """

    ranges: Mapping[str, Sequence[Any]]
    points: int = 64
    method: Method = "sobol"
    seed: int = 0


def grid_points(grid: Sequence[str] | Mapping[str, Sequence[Any]]) -> list[Settings]:
    """Return all combinations of a grid, the last key's values going round first.

    *grid* has texts ``a.b=v1,v2`` or lists of values by key. Raises ScenarioError for what cannot be read.
    """
    if isinstance(grid, str):
        grid = [grid]
    if isinstance(grid, Mapping):
        by_key = [
            (key, [node_of(value, f"--grid {key}") for value in _values(key, values)]) for key, values in grid.items()
        ]
    else:
        texts = [varied(text, "--grid") for text in grid]
        by_key = [(key, [read_value(value, f"--grid {key}") for value in values]) for key, values in texts]
    keys = [key for key, _ in by_key]
    for key in keys:
        if keys.count(key) > 1:
            raise ScenarioError(f"--grid {key}", "stands twice; write all of its values after one --grid")
    return [dict(zip(keys, values, strict=True)) for values in product(*(values for _, values in by_key))]


def _values(key: str, values: Any) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ScenarioError(f"--grid {key}", f"is {values!r}; must be a list of values")
    found = list(values)
    if not found:
        raise ScenarioError(f"--grid {key}", "has no value")
    return found


def node_of(value: Any, where: str) -> Node:
    """Return a Python value as one that was written at *where*; text is read as after ``--set``."""
    if isinstance(value, str):
        return read_value(value, where)
    if isinstance(value, Mapping):
        return Node({str(key): node_of(part, where) for key, part in value.items()}, where)
    if isinstance(value, list | tuple):
        return Node([node_of(part, where) for part in value], where)
    plain = value.item() if hasattr(value, "item") else value  # numpy's numbers
    if plain is not None and not isinstance(plain, bool | int | float):
        raise ScenarioError(where, f"is a {type(value).__name__}; must be a text, a number, a list or a mapping")
    return Node(plain, where)


def listed_points(rows: str | Path | Sequence[Mapping[str, Any]]) -> list[Settings]:
    """Return a point for each row of a file, or of a list of mappings.

    A CSV file has keys in its first line and a point in each other one; an empty cell leaves its key as it is. A YAML
    or JSON file is a list of mappings. Raises ScenarioError (file:line) for what cannot be read.
    """
    if isinstance(rows, str | Path):
        path = Path(rows)
        if path.suffix.lower() not in _LISTS:
            raise InputError(f"--list {rows}: must end in {', '.join(_LISTS)}")
        found = _csv_rows(path) if path.suffix.lower() == ".csv" else [_row(node) for node in read_list(path).value]
        where = str(path)
    else:
        found = [{key: node_of(value, f"row {at}") for key, value in row.items()} for at, row in enumerate(rows)]
        where = "rows"
    if not found:
        raise ScenarioError(where, "holds no point")
    for key, node in ((key, node) for row in found for key, node in row.items()):
        if not all(key.split(".")):
            raise ScenarioError(node.where, f"'{key}' is no key; write it as tiers.dram.capacity")
        if "." not in key and isinstance(node.value, dict):
            raise ScenarioError(node.where, f"{key}: write single keys with dots, such as tiers.dram.capacity: 64 GB")
    return list(found)


def _row(node: Node) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise ScenarioError(node.where, "must be a mapping of keys, such as `tiers.dram.capacity: 64 GB`")
    return dict(node.value)


def _csv_rows(path: Path) -> list[dict[str, Node]]:
    text = read_text(path, str(path)).removeprefix("\ufeff")
    reader = csv.reader(StringIO(text, newline=""), strict=True, skipinitialspace=True)
    found = []
    try:
        keys = [key.strip() for key in next(reader, [])]
        for key in keys:
            if keys.count(key) > 1 or not key:
                raise ScenarioError(f"{path}:1", f"the key '{key}' stands twice" if key else "a column has no key")
        for cells in reader:
            where = f"{path}:{reader.line_num}"
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(keys):
                raise ScenarioError(where, f"has {len(cells)} cells; the first line names {len(keys)} keys")
            pairs = zip(keys, cells, strict=True)
            found.append({key: read_value(cell.strip(), where) for key, cell in pairs if cell.strip()})
    except csv.Error as error:
        raise ScenarioError(f"{path}:{reader.line_num}", f"is not valid CSV: {error}") from None
    return found


def asked_sample(method: str | None, ranges: Sequence[str], *, points: int, seed: int) -> Sample | None:
    """Return the sample that ``--sample``, ``--range a.b=low:high[:log]`` and the rest ask for; raises InputError."""
    if method is None:
        if ranges:
            raise InputError(f"--range {ranges[0]}: is for --sample; write --sample sobol or --sample lhs")
        return None
    if method not in get_args(Method):
        raise InputError(f"--sample {method}: must be one of: {', '.join(get_args(Method))}")
    found: dict[str, list[str]] = {}
    for text in ranges:
        key, separator, rest = (part.strip() for part in text.partition("="))
        ends = [end.strip() for end in rest.split(":")]
        if not separator or not all(key.split(".")) or len(ends) not in {2, 3} or not all(ends):
            raise ScenarioError(
                f"--range {text}", "must be KEY=LOW:HIGH or KEY=LOW:HIGH:log, such as tiers.dram.capacity=64GB:1TB:log"
            )
        if key in found:
            raise ScenarioError(f"--range {key}", "stands twice")
        found[key] = ends
    return Sample(ranges=found, points=points, method="sobol" if method == "sobol" else "lhs", seed=seed)


def range_ends(sample: Sample) -> dict[str, tuple[Node, Node, bool]]:
    """Return the ends of each range as they were written, and whether its steps are of equal ratio."""
    if not sample.ranges:
        raise InputError("--sample needs a --range KEY=LOW:HIGH, such as --range tiers.dram.capacity=64GB:1TB")
    if sample.points < 1:
        raise InputError(f"--points {sample.points}: must be at least 1")
    found = {}
    for key, ends in sample.ranges.items():
        where = f"--range {key}"
        scale = str(ends[2]) if len(ends) == 3 else "linear"
        if isinstance(ends, str) or len(ends) not in {2, 3} or scale not in _SCALES:
            raise ScenarioError(where, f"is {ends!r}; must be a low value, a high one and perhaps 'log'")
        found[key] = (node_of(ends[0], where), node_of(ends[1], where), scale == "log")
    return found


def draw(sample: Sample, ranges: Sequence[Range]) -> list[Settings]:
    """Return the points of a sample: the same for the same seed, method, number of points and order of keys."""
    from scipy.stats import qmc

    if sample.method == "sobol":
        sobol = qmc.Sobol(len(ranges), rng=sample.seed)
        # Drawn up to a power of two, since scipy warns of other numbers; the sequence is the same.
        shares = sobol.random_base2(max(sample.points - 1, 0).bit_length())[: sample.points]
    else:
        shares = qmc.LatinHypercube(len(ranges), rng=sample.seed).random(sample.points)
    return [
        {one.key: Node(one.at(float(share)), f"--range {one.key}") for one, share in zip(ranges, row, strict=True)}
        for row in shares
    ]
