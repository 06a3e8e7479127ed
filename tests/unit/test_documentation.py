"""What README.md, the guide and the notebooks show is run as it stands, so that they cannot drift from the code."""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from storage_samples import FIO_OF_A_RUN

from calibration.importers.device import import_device
from calibration.importers.reading import read_measurements
from scenarios import cli
from scenarios.cli import main
from scenarios.commands.discovery import GROUP

ROOT = Path(__file__).parents[2]
PAGES = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/guide.md"))
MEASURED = resources.files("calibration") / "measured" / "mingxin-r1-r3.csv"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES, flags=re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[str]:
    return [line for line in block.splitlines() if line.startswith("kvtier ")]


TOUR = [line for block in blocks("sh") for line in commands(block)]
SHOWN = {
    commands(block)[-1]: output.splitlines()
    for block, output in re.findall(r"^```sh\n(.*?)^```\n\n```\n(.*?)^```", PAGES, flags=re.MULTILINE | re.DOTALL)
}
"""By command, what the pages print below it: parts of what it says."""


def test_the_pages_show_something_of_each_kind() -> None:
    verbs = {"run", "compare", "mrc", "plan", "sweep", "calibrate", "validate", "gate", "report"}
    assert {word for line in SHOWN for word in line.split()} >= verbs
    assert len(blocks("python")) == len(blocks("yaml")) == 1
    assert NOTEBOOKS


@pytest.mark.parametrize("line", TOUR)
def test_a_command_of_the_pages_works_and_says_what_they_show(
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    verb = line.split()[1]
    if verb in {"import-device", "calibrate", "validate"} - {point.name for point in entry_points(group=GROUP)}:
        pytest.skip(f"kvtier is not installed here, so that there is no {verb}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(blocks("yaml")[0], encoding="utf-8")
    _bring_storage(tmp_path)
    (tmp_path / "mingxin-r1-r3.csv").write_bytes(MEASURED.read_bytes())
    if "conversation_trace" in line:
        trace: Path = request.getfixturevalue("conversation_trace")
        (tmp_path / trace.name).symlink_to(trace)
    if " | " not in line and " && " not in line:
        assert main(shlex.split(line)[1:]) == 0
        said = capsys.readouterr().out
    else:
        kvtier = f'kvtier() {{ {shlex.quote(sys.executable)} -m scenarios.cli "$@"; }}; set -o pipefail; '
        environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])}
        ran = subprocess.run(
            ["bash", "-c", kvtier + line], env=environment, check=True, stdout=subprocess.PIPE, encoding="utf-8"
        )
        said = ran.stdout
    printed = [text.rstrip() for text in said.splitlines()]
    assert [text for text in SHOWN.get(line, []) if text.rstrip() not in printed] == []


def _bring_storage(folder: Path) -> None:
    """Put what a benchmark wrote into the folder, and the device that comes of it."""
    (folder / "fio.json").write_bytes(FIO_OF_A_RUN.read_bytes())
    device = import_device([("fio.json", read_measurements(folder / "fio.json"))], name="drive")
    (folder / "drive.yaml").write_text(device.yaml(), encoding="utf-8")


def test_the_python_of_the_readme_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("python")[0], "README.md", "exec"), {})
    assert (tmp_path / "overview.png").stat().st_size > 10_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_output(path: Path) -> None:
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [cell for cell in cells if cell["outputs"] or cell["execution_count"]] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_plots(path: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="notebooks run with the tools of kvtier[dev]")
    import nbformat

    notebook: Any = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert [output for output in outputs if output.output_type == "stream" and output.name == "stderr"] == []
