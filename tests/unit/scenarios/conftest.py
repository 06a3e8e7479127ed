"""A small scenario that loads, to be bent by each test."""

from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

SMALL = """\
name: small
description: for tests
llm: llama-3.1-8b
cluster: {accelerator: h200-sxm, replicas: 2}
tiers:
  hbm:
  dram: {device: ddr5, capacity: 0.5 TB, scope: node}
  fabric:
    device: fx100
    capacity: 8e10
    scope: shared
workload:
  synthetic: {requests: 100}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write a scenario and return its path; pairs of texts are replaced in the small one."""

    def write_file(*changes: tuple[str, str], text: str = SMALL, name: str = "small.yaml") -> str:
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write_file


@pytest.fixture
def small(write: Callable[..., str]) -> str:
    return write()


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Make files ship: ship("library/x.yaml", text) puts one where the package's own would be."""
    real = resources.files
    root = tmp_path / "shipped"
    (root / "library").mkdir(parents=True)
    (root / "stacks").mkdir()
    monkeypatch.setattr(resources, "files", lambda package: root if package == "scenarios" else real(package))
    return lambda path, text: (root / path).write_text(text, encoding="utf-8") and None
