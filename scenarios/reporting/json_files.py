"""What verbs printed with `--json`, kept in a file."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any


def printed(path: Path, keys: Collection[str]) -> dict[str, Any] | None:
    """Return the JSON object in a .json file if it has all *keys*; None where it is no such file."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.keys() >= set(keys) else None
