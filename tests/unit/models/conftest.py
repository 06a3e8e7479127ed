"""Finds the sourced tables that the catalogue is checked against."""

import csv
import os
from collections.abc import Callable
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("KVTIER_SHARED", Path(__file__).resolve().parents[3] / ".." / "shared"))


@pytest.fixture
def fact_rows() -> Callable[[str], list[dict[str, str]]]:
    """Return a reader of the tables of facts; it skips the test where they are not on this machine."""

    def read(name: str) -> list[dict[str, str]]:
        path = SHARED / "facts" / name
        if not path.is_file():
            pytest.skip(f"no {name}: set KVTIER_SHARED to the folder that holds facts/")
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    return read
