"""What an installed kvtier must be: four import names of its own, its YAML files, a light start, no import cycles."""

import json
import subprocess
import sys
from importlib import resources
from importlib.metadata import PackageNotFoundError, files, packages_distributions, version
from pathlib import Path

import pytest

from models.catalogue import entries, load_entry
from models.figures import KINDS
from scenarios.layers import shipped
from scenarios.loader import load_scenario, stacks

ROOMS = ("models", "sim", "scenarios", "calibration")

REPORT_LOADED = """
before = set(sys.modules)
from scenarios.cli import main
code = main(sys.argv[1:])
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
sys.stderr.write("LOADED " + " ".join(sorted(loaded)))
sys.exit(code)
"""

IMPORT_EACH_FIRST = """
import importlib, pkgutil, traceback
rooms = sys.argv[1:]
names = list(rooms)
for room in rooms:
    names += [module.name for module in pkgutil.walk_packages(importlib.import_module(room).__path__, room + ".")]
failed = False
for name in names:
    for loaded in [module for module in sys.modules if module.partition(".")[0] in rooms]:
        del sys.modules[loaded]
    try:
        importlib.import_module(name)
    except BaseException:
        failed = True
        sys.stderr.write(f"{name}: {traceback.format_exc()}")
sys.stdout.write(str(len(names)))
sys.exit(failed)
"""


def run_python(code: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter of its own that finds kvtier where this one did, from whatever folder."""
    found = [str(path) for path in sys.path if path]
    code = f"import sys; sys.path[:] = {found!r}\n{code}"
    command = [sys.executable, "-P", "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def owners(import_name: str) -> set[str]:
    # As a set: an editable install may be listed twice.
    return set(packages_distributions().get(import_name, ()))


def is_installed_as_wheel() -> bool:
    try:
        return any(str(path) == "models/__init__.py" for path in files("kvtier") or ())
    except PackageNotFoundError:
        return False


@pytest.mark.parametrize("room", ROOMS)
def test_each_import_name_belongs_to_kvtier_alone(room: str) -> None:
    claimed_by = owners(room)
    assert claimed_by <= {"kvtier"}
    # An editable install is one line in a .pth file and claims no name.
    assert claimed_by or not is_installed_as_wheel()


def test_another_distribution_with_one_of_the_names_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "django_models-1.0.dist-info").mkdir()
    (tmp_path / "django_models-1.0.dist-info" / "METADATA").write_text("Name: django-models\nVersion: 1.0\n")
    (tmp_path / "django_models-1.0.dist-info" / "RECORD").write_text("models/__init__.py,,\n")
    # In an interpreter of its own: what other tests have imported may remember what was installed.
    code = "from importlib.metadata import packages_distributions\nprint(packages_distributions()['models'])"
    found = run_python(f"sys.path.insert(0, {str(tmp_path)!r})\n{code}")
    assert "django-models" in found.stdout, found.stderr


def test_the_rooms_lie_side_by_side() -> None:
    """A name that was overwritten by another distribution would be found elsewhere, or without its type marker."""
    homes = {room: Path(str(resources.files(room))) for room in ROOMS}
    assert len({home.parent for home in homes.values()}) == 1
    assert [room for room in ROOMS if not (homes[room] / "py.typed").is_file()] == []


def test_the_catalogue_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in KINDS:
        names = entries(kind)
        assert len(names) >= 20
        assert [load_entry(kind, name).name for name in names] == names


def test_every_scenario_and_stack_ships_and_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = shipped("library")
    assert {"quickstart", "mooncake-conversation"} <= set(names)
    assert [load_scenario(name).name for name in names] == list(names)
    assert {"lmcache", "lmcache-serial"} <= {name for name, _ in stacks()}


def test_run_imports_what_it_needs_and_nothing_else(tmp_path: Path) -> None:
    arguments = ("run", "quickstart", "--json", "--set", "workload.synthetic.requests=20")
    done = run_python(REPORT_LOADED, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["requests"]["completed"] == 20
    loaded = set(done.stderr.rpartition("LOADED ")[2].split())
    third_party = {name for name in loaded - set(ROOMS) - sys.stdlib_module_names if not name.startswith("_")}
    wanted = {"typer", "pydantic", "simpy", "numpy", "yaml", "quantiphy"}
    of_those = {"pydantic_core", "annotated_types", "typing_extensions", "typing_inspection", "annotated_doc"}
    optional_of_those = {"shellingham", "click", "colorama", "cython_runtime"}
    assert wanted <= third_party
    assert third_party <= wanted | of_those | optional_of_those


def test_every_module_can_be_imported_first(tmp_path: Path) -> None:
    """Import each module with none of the others loaded: it prints nothing, warns of nothing, and has no cycle."""
    done = run_python(IMPORT_EACH_FIRST, *ROOMS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert int(done.stdout) > 60
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_that_of_the_distribution(tmp_path: Path) -> None:
    try:
        expected = f"kvtier {version('kvtier')}"
    except PackageNotFoundError:
        expected = "kvtier (not installed: no version)"
    done = run_python("from scenarios.cli import main; sys.exit(main(['--version']))", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, expected)
