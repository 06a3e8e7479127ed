"""The catalogue: YAML files of sourced figures for LLMs, accelerators, storage and links; it holds no formula."""

import functools
import math
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.errors import CatalogueError, ScenarioError, UnknownNameError, did_you_mean
from models.figures import KINDS, KindSchema
from models.text_files import read_text
from models.units import parse_quantity
from models.yaml_files import read_mapping

Status = Literal["measured", "datasheet", "fitted", "derived", "announced", "assumed"]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Figure(_Strict):
    """One number and where it comes from; `spread` is a relative 1-sigma, `unverified`: no page was read for it."""

    value: float
    unit: str
    source: str = Field(min_length=1)
    status: Status
    spread: float | None = Field(default=None, ge=0.0)
    note: str | None = None
    unverified: bool = False

    @property
    def text(self) -> str:
        """The figure as a person writes it, such as '3350 GB/s'."""
        return f"{self.value:.15g} {self.unit}".strip()


_FIGURE_KEYS: Final = tuple(Figure.model_fields)


class Curve(_Strict):
    """A measured table: x values in bytes, y values in bytes per second, one source."""

    x_bytes: list[float] = Field(min_length=2)
    y_bytes_per_s: list[float]
    source: str = Field(min_length=1)
    status: Status
    spread: float | None = Field(default=None, ge=0.0)
    note: str | None = None


class Entry(_Strict):
    """One catalogue entry: a named part with its figures, traits (words instead of numbers) and curves."""

    kind: str
    name: str
    title: str
    aliases: list[str] = Field(default_factory=list)
    status: Status
    note: str | None = None
    figures: dict[str, Figure]
    traits: dict[str, str] = Field(default_factory=dict)
    curves: dict[str, Curve] = Field(default_factory=dict)

    def si(self, figure_name: str) -> float:
        """Return a figure in SI units; raises CatalogueError where the entry has none of that name."""
        figure = self.figures.get(figure_name)
        if figure is None:
            raise CatalogueError(
                f"{self.kind} {self.name}", f"has no figure '{figure_name}'; it has {', '.join(self.figures)}"
            )
        dimension = KINDS[self.kind].dimensions[figure_name]
        return parse_quantity(figure.text, dimension, f"{self.kind} {self.name}: {figure_name}")

    def optional_si(self, figure_name: str) -> float | None:
        """Return a figure in SI units, or None where the entry does not have it."""
        return self.si(figure_name) if figure_name in self.figures else None

    def count(self, figure_name: str, default: int = 0) -> int:
        """Return a figure that counts things as int; raises CatalogueError where it is no whole number."""
        value = self.optional_si(figure_name)
        if value is None:
            return default
        if value != int(value) or value < 0:
            raise CatalogueError(
                f"{self.kind} {self.name}: {figure_name}", f"is {value:g}; must be a whole number, at least 0"
            )
        return int(value)

    def yes(self, trait: str) -> bool:
        """Return whether a yes/no trait is 'yes'."""
        return self.traits.get(trait) == "yes"

    @property
    def used_figures(self) -> dict[str, Figure]:
        """The figures without those that others of the entry supersede."""
        superseded = KINDS[self.kind].superseded
        return {name: figure for name, figure in self.figures.items() if superseded.get(name) not in self.figures}

    @property
    def caveats(self) -> tuple[str, ...]:
        """Figures that time depends on and nobody has measured or published for this very part.

        They are announced, assumed or not verified; each is told with its spread, where one is known.
        """
        return self._unsure(economic=False)

    @property
    def economic_caveats(self) -> tuple[str, ...]:
        """The same of prices, power and wear."""
        return self._unsure(economic=True)

    def _unsure(self, *, economic: bool) -> tuple[str, ...]:
        return tuple(
            f"{name} ({_standing(figure)})"
            for name, figure in self.used_figures.items()
            if (name in KINDS[self.kind].economic) is economic
            and (figure.status in {"announced", "assumed"} or figure.unverified)
        )


def _standing(figure: Figure) -> str:
    """Return how much a figure is to be trusted, such as 'announced, unverified, ±10 %'."""
    words: list[str] = [figure.status]
    if figure.unverified and figure.status != "assumed":
        words.append("unverified")
    if figure.spread:
        words.append(f"±{100.0 * figure.spread:.2g} %")
    return ", ".join(words)


def kind_of(name: str) -> str:
    """Return the kind for its singular or plural name ('llm', 'llms', ...); raises UnknownNameError."""
    for kind, schema in KINDS.items():
        if name in {kind, schema.plural}:
            return kind
    raise UnknownNameError("catalogue kind", name, KINDS)


def entries(kind: str) -> list[str]:
    """Return the names of a kind's entries, sorted; raises UnknownNameError."""
    return sorted(path.name.removesuffix(".yaml") for path in _folder(kind).iterdir() if path.name.endswith(".yaml"))


def load_entry(kind: str, name: str) -> Entry:
    """Return an entry by name, by alias or, when *name* ends in .yaml, from that file.

    Raises UnknownNameError for a name that does not exist and CatalogueError for a file that is wrong.
    """
    return _load(kind_of(kind), name, ())


Changes = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Figures that replace those of the catalogue: entry, figure, and what a figure consists of (`Figure`)."""


def load_changed(kind: str, name: str, changes: Changes | None) -> Entry:
    """Return an entry as `load_entry` does, with the figures that *changes* has for it in place of its own.

    Raises CatalogueError for a figure that an entry of this kind does not have, or a value that is none.
    """
    entry = load_entry(kind, name)
    figures = (changes or {}).get(entry.name)
    if not figures:
        return entry
    _known(figures, list(KINDS[entry.kind].dimensions), f"figures.{entry.name}", "")
    own = {"name": entry.name, "title": entry.title, "aliases": entry.aliases, "note": entry.note}
    return _entry(entry.kind, {**own, "figures": dict(figures)}, f"figures.{entry.name}", entry)


def _load(kind: str, name: str, above: tuple[str, ...]) -> Entry:
    """Load an entry that the entries *above* build on, so that a circle among them is noticed."""
    if not name.endswith((".yaml", ".yml")):
        return _load_shipped(kind, name)
    path = Path(name)
    where = str(path)
    if str(path.resolve()) in above:
        raise CatalogueError(f"{where}: base", "is built on itself")
    raw = read_mapping(read_text(path, CatalogueError), where)
    raw.setdefault("name", path.name.rsplit(".", 1)[0])
    base = str(raw["base"]) if "base" in raw else None
    if base is not None and base.endswith((".yaml", ".yml")):
        base = str(path.parent / base)
    return _entry(kind, raw, where, None if base is None else _load(kind, base, (*above, str(path.resolve()))))


def _folder(kind: str) -> Traversable:
    return resources.files("models") / "catalogue" / KINDS[kind_of(kind)].plural


@functools.lru_cache(maxsize=256)
def _load_shipped(kind: str, name: str) -> Entry:
    # One look-up parses one file: only a name that is no file name costs a pass over all of them, for the aliases.
    canonical = name if name in entries(kind) else _aliases(kind).get(name.lower())
    if canonical is None:
        raise UnknownNameError(kind, name, entries(kind))
    raw = _read_shipped(kind, canonical)
    if raw.get("name") != canonical:
        raise CatalogueError(f"{canonical}.yaml", f"name is {raw.get('name')!r}; must be the file's name")
    return _entry(kind, raw, f"{canonical}.yaml", _load_shipped(kind, raw["base"]) if "base" in raw else None)


def _read_shipped(kind: str, name: str) -> dict[str, Any]:
    return read_mapping((_folder(kind) / f"{name}.yaml").read_text(encoding="utf-8"), f"{name}.yaml")


@functools.cache
def _aliases(kind: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in entries(kind):
        for alias in (name, *_read_shipped(kind, name).get("aliases", ())):
            if found.setdefault(str(alias).lower(), name) != name:
                raise CatalogueError(f"{name}.yaml", f"alias '{alias}' is also one of '{found[str(alias).lower()]}'")
    return found


def _entry(kind: str, raw: dict[str, Any], where: str, base: Entry | None) -> Entry:
    schema = KINDS[kind]
    if raw.get("kind", kind) != kind:
        raise CatalogueError(f"{where}: kind", f"is {raw['kind']!r}; must be '{kind}' here")
    status = raw.get("status", base.status if base else None)
    sources = _mapping(raw, "sources", where)
    defaults = {"source": raw.get("source"), "status": status}
    figures = {
        name: _figure(value, defaults, f"{where}: figures.{name}", plain=schema.dimensions.get(name) == "number")
        for name, value in _mapping(raw, "figures", where).items()
    }
    curves = {
        name: {**defaults, **_mapping({name: value}, name, f"{where}: curves")}
        for name, value in _mapping(raw, "curves", where).items()
    }
    for sourced in (*figures.values(), *curves.values()):
        if isinstance(sourced["source"], str):
            sourced["source"] = sources.get(sourced["source"], sourced["source"])
    merged = {
        **{key: value for key, value in raw.items() if key not in {"base", "source", "sources"}},
        "kind": kind,
        "status": status,
        "figures": {**(base.model_dump()["figures"] if base else {}), **figures},
        "traits": {**(base.traits if base else {}), **_mapping(raw, "traits", where)},
        "curves": {**(base.model_dump()["curves"] if base else {}), **curves},
    }
    merged.setdefault("title", base.title if base else raw.get("name"))
    _check_names(merged, schema, where)
    try:
        entry = Entry.model_validate(merged)
    except ValidationError as error:
        raise CatalogueError(where, _first(error)) from None
    for name in entry.figures:
        try:
            entry.si(name)
        except ScenarioError as error:
            raise CatalogueError(f"{where}: figures.{name}", error.problem) from None
    return entry


def _mapping(raw: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = raw.get(key, {})
    if not isinstance(value, dict):
        raise CatalogueError(f"{where}: {key}", f"is {value!r}; must be a mapping")
    return value


def _figure(value: object, defaults: Mapping[str, Any], where: str, *, plain: bool) -> dict[str, Any]:
    """Spell a figure out: '80 GiB' alone takes source and status of the entry; *plain* figures have no unit."""
    figure: dict[str, Any] = dict(defaults)
    if isinstance(value, dict):
        unknown = [key for key in value if key not in _FIGURE_KEYS]
        if unknown:
            hint = did_you_mean(str(unknown[0]), _FIGURE_KEYS)
            raise CatalogueError(f"{where}.{unknown[0]}", f"unknown key{hint} (allowed: {', '.join(_FIGURE_KEYS)})")
        figure |= value
    else:
        figure["value"] = value
    if isinstance(figure.get("value"), str):
        number, _, unit = figure["value"].strip().partition(" ")
        try:
            figure["value"] = float(number.replace("_", ""))
        except ValueError:
            raise CatalogueError(where, f"{figure['value']!r} must be a number, a space and a unit") from None
        figure.setdefault("unit", unit.strip())
    if plain:
        figure.setdefault("unit", "")
    elif figure.get("unit") == "":
        figure["unit"] = None
    if isinstance(figure.get("value"), int) and not isinstance(figure["value"], bool):
        figure["value"] = float(figure["value"])
    for key in ("source", "status", "unit"):
        if figure.get(key) is None:
            raise CatalogueError(where, f"has no {key}; every figure needs value, unit, source and status")
    return figure


def _check_names(raw: Mapping[str, Any], schema: KindSchema, where: str) -> None:
    allowed = ["name", "title", "aliases", "base", "status", "source", "sources", "note", "figures", "traits", "curves"]
    _known(raw, [*allowed, "kind"], where, "")
    _known(raw["figures"], list(schema.dimensions), where, "figures.")
    _known(raw["traits"], list(schema.traits), where, "traits.")
    _known(raw["curves"], list(schema.curves), where, "curves.")
    missing = [name for name in schema.required if name not in raw["figures"]]
    if missing:
        raise CatalogueError(f"{where}: figures", f"lacks {', '.join(missing)}")
    for name, word in raw["traits"].items():
        words = schema.traits[name]
        if word not in words:
            raise CatalogueError(
                f"{where}: traits.{name}", f"is {word!r}; allowed: {', '.join(words)} (quote yes and no)"
            )
    for name, figure in raw["figures"].items():
        value = figure.get("value")
        if isinstance(value, bool) or not isinstance(value, float) or not math.isfinite(value) or value < 0:
            raise CatalogueError(f"{where}: figures.{name}", f"value is {value!r}; must be a finite number, at least 0")


def _known(raw: Mapping[str, object], allowed: list[str], where: str, prefix: str) -> None:
    for key in raw:
        if key not in allowed:
            hint = did_you_mean(str(key), allowed)
            raise CatalogueError(
                f"{where}: {prefix}{key}", f"unknown key{hint} (allowed: {', '.join(allowed) or 'none'})"
            )


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
