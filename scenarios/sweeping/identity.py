"""When two runs must come out the same: the same resolved scenario, the same content of its files, the same code."""

from __future__ import annotations

import hashlib
import importlib
import json
import platform
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from scenarios.layers import is_path
from scenarios.loader import FILE_KEYS, resolved
from scenarios.schema import Scenario

S = TypeVar("S", bound=Scenario)

# The rooms that a run goes through; `calibration` only reads what they found.
_ROOMS: Final = ("models", "sim", "scenarios")
_PLUG_IN: Final = re.compile(r"(?P<module>[A-Za-z_][\w.]*):[A-Za-z_][\w.]*")
# The key of a catalogue file that names the file it is built on (models.catalogue).
_BASE: Final = re.compile(r"""^base:\s*["']?([^"'#\n]+?\.ya?ml)["']?\s*(?:#.*)?$""", re.MULTILINE)
_BUFFER_BYTES: Final = 1 << 20


@cache
def code_fingerprint() -> str:
    """Return a hash of everything of kvtier that a run goes through, and of the versions that it rests on."""
    # Read as installed, which takes a few hundredths of a second: a version number stays the same while code changes.
    found = hashlib.sha256()
    for room in _ROOMS:
        folder = Path(next(iter(importlib.import_module(room).__path__)))
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                found.update(f"{room}/{path.relative_to(folder).as_posix()}\0".encode())
                found.update(path.read_bytes())
    found.update(json.dumps(_versions()).encode())
    return found.hexdigest()[:16]


def _versions() -> dict[str, str]:
    import numpy as np
    import simpy

    python = f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
    return {"python": python, "numpy": np.__version__, "simpy": simpy.__version__}


class RunKeys:
    """Gives runs their keys; reads each file that scenarios name once."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    def key(self, scenario: Scenario) -> str:
        """Return what two runs share if they must come out the same; a file counts by its content, not its folder."""
        values = _walk(resolved(scenario), "", self._content)
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]

    def _content(self, text: str, key: str) -> Any:
        if names_file(text, key):
            return {"name": Path(text).name, "content": self._digest(Path(text))}
        plug_in = _PLUG_IN.fullmatch(text)
        source = plug_in and getattr(sys.modules.get(plug_in["module"]), "__file__", None)
        return {"name": text, "content": self._digest(Path(source))} if source else text

    def _digest(self, path: Path) -> str:
        name = str(path.resolve())
        if name not in self._digests:
            self._digests[name] = _digest(path)
        return self._digests[name]


def names_file(text: str, key: str) -> bool:
    """Whether the value of a key of a scenario is the name of a file that is there; a trace may be a folder."""
    return Path(text).exists() if key in FILE_KEYS else is_path(text) and Path(text).is_file()


def with_absolute_paths(scenario: S) -> S:
    """Return the scenario with files named from the root, for processes that run in another folder."""

    def absolute(text: str, key: str) -> str:
        return str(Path(text).absolute()) if names_file(text, key) else text

    found: S = _walk(scenario, "", absolute)
    return found


def _walk(value: Any, key: str, change: Callable[[str, str], Any]) -> Any:
    """Return *value* with each text in it changed by *change*, which also gets the key that it stands at."""
    if isinstance(value, str):
        return change(value, key)
    if isinstance(value, BaseModel):
        parts = {name: getattr(value, name) for name in type(value).model_fields}
        found = {name: _walk(part, name, change) for name, part in parts.items()}
        # What has not changed is not named: a key that nobody wrote must not count as written.
        return value.model_copy(update={name: part for name, part in found.items() if part is not parts[name]})
    if isinstance(value, Mapping):
        same = {name: _walk(part, str(name), change) for name, part in value.items()}
        return value if all(same[name] is part for name, part in value.items()) else same
    if isinstance(value, list | tuple):
        items = [_walk(part, key, change) for part in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else type(value)(items)
    return value


def _digest(path: Path) -> str:
    """Return a hash of a file, with the catalogue files that it is built on, or of all files of a folder."""
    found = hashlib.sha256()
    paths = sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else [path]
    for part in paths:
        found.update(f"{part.relative_to(path).as_posix() if part is not path else ''}\0".encode())
        with part.open("rb") as stream:
            while block := stream.read(_BUFFER_BYTES):
                found.update(block)
    if path.suffix in {".yaml", ".yml"} and path.is_file():
        base = _BASE.search(path.read_text(encoding="utf-8", errors="replace"))
        below = base and path.parent / base[1]
        if below and below.is_file() and below.resolve() != path.resolve():
            found.update(_digest(below).encode())
    return found.hexdigest()
