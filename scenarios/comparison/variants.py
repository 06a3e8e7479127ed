"""Variants of a scenario: what `--vary` and `--variant` say, taken apart, named, and loaded before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from models.errors import InputError, ScenarioError
from scenarios.document import read_value
from scenarios.loader import lasting_trace, load_scenario
from scenarios.schema import Scenario

_SEED_KEY: Final = "run.seed"
_OPENING, _CLOSING, _QUOTES = "[{", "]}", "'\""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One variant: its name, what it sets (key: text of the value), and the scenario that comes of it."""

    name: str
    settings: Mapping[str, str]
    scenario: Scenario

    def values(self) -> dict[str, Any]:
        """Return what it sets, the values as YAML reads them."""
        return {key: read_value(text, key).plain() for key, text in self.settings.items()}


def load_variants(
    name_or_path: str,
    *,
    vary: Sequence[str] = (),
    variants: Sequence[str] = (),
    overrides: Sequence[str] = (),
    trace: str | None = None,
    seed: int | None = None,
) -> list[Variant]:
    """Return all variants of a scenario, loaded and checked: the product of *vary*, then each of *variants*.

    Parameters
    ----------
    name_or_path, overrides, trace, seed
        As for :func:`scenarios.loader.load_scenario`; they hold for all variants.
    vary : sequence of str
        ``a.b=v1,v2``: a key and its values. Values are YAML, as in ``--set``; a comma inside brackets or quotes belongs
        to the value, and spaces around a value do not.
    variants : sequence of str
        ``name:a.b=c,d.e=f``: one variant by name, with what it sets; nothing after the colon is the scenario as it is.

    Raises
    ------
    InputError
        For less than two variants, two of one name, a seed that is both varied and given, and all that a scenario may
        be refused for; the message names the key and value of the variant.
    """
    settings = _product([varied(text, "--vary") for text in vary]) if vary else []
    options = ["--vary"] * len(settings)
    settings += [_one_variant(text) for text in variants]
    options += ["--variant"] * len(variants)
    _check(settings, seed)
    trace = lasting_trace(trace)
    found = []
    for option, (name, keys) in zip(options, settings, strict=True):
        own = [f"{key}={value}" for key, value in keys.items()]
        try:
            scenario = load_scenario(name_or_path, overrides=[*overrides, *own], trace=trace, seed=seed)
        except ScenarioError as error:
            raise _as_written(error, option, name, keys) from None
        found.append(Variant(name=name, settings=keys, scenario=scenario))
    return found


def _check(settings: Sequence[tuple[str, Mapping[str, str]]], seed: int | None) -> None:
    if len(settings) < 2:
        raise InputError(
            "needs two variants or more to compare; write --vary KEY=VALUE,VALUE, such as "
            "--vary tiers.dram.capacity='64 GB,128 GB'"
        )
    names = [name for name, _ in settings]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two variants are called '{name}'")
    if seed is not None and any(_SEED_KEY in keys for _, keys in settings):
        raise InputError(f"{_SEED_KEY} is varied, so there is no one --seed for all variants")


def _as_written(error: ScenarioError, option: str, name: str, keys: Iterable[str]) -> ScenarioError:
    """Return an error about a variant's key with the option that the user wrote it after."""
    written = error.where.removeprefix("--set ")
    if written not in keys:
        return error
    where = f"{option} {written}" if option == "--vary" else f"{option} {name}: {written}"
    return ScenarioError(where, error.problem)


def split_values(text: str, where: str) -> list[str]:
    """Return the parts of *text* between commas, those inside brackets and quotes left alone, spaces around removed.

    Raises ScenarioError(where, ...) for an empty part, and for brackets or quotes that do not close.
    """
    parts, depth, quote, start = [], 0, "", 0
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES and text[start:at].rstrip()[-1:] in {"", ",", ":", *_OPENING}:
            quote = character  # one in the middle of a word is an apostrophe, as YAML has it
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == "," and depth <= 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    if quote or depth:
        raise ScenarioError(where, f"'{text}' has a bracket or a quote without its other end")
    if not all(parts):
        raise ScenarioError(where, f"'{text}' has an empty value; null takes a tier or a link away")
    return parts


def varied(text: str, option: str) -> tuple[str, list[str]]:
    """Return the key and the values of one ``a.b=v1,v2``, written after *option*; ScenarioError where it is none."""
    key, separator, values = text.partition("=")
    key = key.strip()
    if not separator or not all(key.split(".")):
        raise ScenarioError(f"{option} {text}", "must be KEY=VALUE,VALUE, such as tiers.dram.capacity='64 GB,128 GB'")
    return key, split_values(values, f"{option} {key}")


def _one_variant(text: str) -> tuple[str, dict[str, str]]:
    """Return the name and the settings of one ``name:a.b=c,d.e=f``."""
    name, separator, rest = text.partition(":")
    name = name.strip()
    where = f"--variant {text}"
    # Without a name in front, the colon is one of a value.
    if not separator or not name or "=" in name:
        raise ScenarioError(where, "must be NAME:KEY=VALUE,KEY=VALUE, such as big:tiers.dram.capacity=1 TB")
    settings: dict[str, str] = {}
    for part in split_values(rest, f"--variant {name}") if rest.strip() else ():
        key, separator, value = part.partition("=")
        key = key.strip()
        if not separator or not all(key.split(".")):
            raise ScenarioError(where, f"'{part}' must be KEY=VALUE; a value with a comma goes in quotes or brackets")
        if key in settings:
            raise ScenarioError(where, f"sets {key} twice")
        settings[key] = value.strip()
    return name, settings


def _product(varied: Sequence[tuple[str, list[str]]]) -> list[tuple[str, dict[str, str]]]:
    """Return name and settings of every combination, the last key's values going round first."""
    keys = [key for key, _ in varied]
    for key in keys:
        if keys.count(key) > 1:
            raise ScenarioError(f"--vary {key}", "is varied twice; write all of its values after one --vary")
    combinations = [dict(zip(keys, values, strict=True)) for values in product(*(values for _, values in varied))]
    if len(keys) == 1:
        return [(settings[keys[0]], settings) for settings in combinations]
    short = short_names(keys)
    return [(", ".join(f"{short[key]}={value}" for key, value in keys_.items()), keys_) for keys_ in combinations]


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return for each key the fewest of its last parts that no other of *keys* ends in."""
    short = {}
    for key in keys:
        parts = key.split(".")
        ends = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        others = [f".{other}" for other in keys if other != key]
        short[key] = next((end for end in ends if not any(other.endswith(f".{end}") for other in others)), key)
    return short
