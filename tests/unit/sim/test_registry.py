import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from models.errors import InputError, UnknownNameError
from sim.policies.base import EVICTION, ROUTING
from sim.registry import Registry


class Shape(Protocol):
    def area(self) -> float: ...


@pytest.fixture
def shapes() -> Registry[Shape]:
    registry = Registry[Shape]("shape", requires=("area",))

    @registry.register("square")
    @dataclass(kw_only=True)
    class Square:
        side: float = 1.0

        def area(self) -> float:
            return self.side**2

    @registry.register("disc")
    @dataclass(kw_only=True)
    class Disc:
        radius: float

        def area(self) -> float:
            return 3.0 * self.radius**2

    return registry


def test_names_are_sorted_and_classes_are_found(shapes: Registry[Shape]) -> None:
    assert shapes.names() == ["disc", "square"]
    assert shapes.get("square")().area() == 1.0
    assert shapes.create("square", side=3.0).area() == 9.0


def test_a_second_class_of_the_same_name_is_refused(shapes: Registry[Shape]) -> None:
    with pytest.raises(ValueError, match="shape 'disc' is registered twice"):
        shapes.register("disc")(shapes.get("square"))


def test_a_class_without_the_methods_is_refused(shapes: Registry[Shape]) -> None:
    with pytest.raises(TypeError, match=r"lacks area\(\)"):
        shapes.register("int")(int)


def test_an_unknown_name_is_answered_with_the_nearest(shapes: Registry[Shape]) -> None:
    with pytest.raises(
        UnknownNameError, match=r"unknown shape 'sqare'; did you mean 'square'\? \(allowed: disc, square\)"
    ):
        shapes.get("sqare")


def test_parameters_are_checked_by_name(shapes: Registry[Shape]) -> None:
    with pytest.raises(
        InputError, match=r"shape 'square' has no parameter 'sidde'; did you mean 'side'\? \(allowed: side\)"
    ):
        shapes.create("square", sidde=2)
    with pytest.raises(InputError, match="shape 'disc' needs the parameter 'radius'"):
        shapes.create("disc")
    with pytest.raises(InputError, match=r"no parameter 'capacity'.*allowed: none"):
        EVICTION.create("lru", capacity=3)


def test_a_class_elsewhere_is_loaded(shapes: Registry[Shape], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_shapes.py").write_text(
        "NUMBER = 3\nclass Flat:\n    def area(self):\n        return 0.0\nclass Empty:\n    pass\n"
    )
    (tmp_path / "broken_shapes.py").write_text("1 / 0\n")
    (tmp_path / "leaving_shapes.py").write_text("raise SystemExit(3)\n")
    assert shapes.create("my_shapes:Flat").area() == 0.0
    assert shapes.names() == ["disc", "square"]
    for reference, problem in {
        "my_shapes:Round": "my_shapes has no Round",
        "my_shapes:NUMBER": "NUMBER is not a class",
        "my_shapes:Empty": r"Empty lacks area\(\)",
        "broken_shapes:Any": "cannot import broken_shapes: ZeroDivisionError",
        "leaving_shapes:Any": "cannot import leaving_shapes: SystemExit",
        "no_such_module_here:Any": "cannot import no_such_module_here: ModuleNotFoundError",
        "my_shapes:": "not of the form package.module:Class",
        ":Flat": "not of the form package.module:Class",
        "../my_shapes.py:Flat": "not of the form package.module:Class",
    }.items():
        with pytest.raises(InputError, match=problem):
            shapes.get(reference)


def test_a_new_file_in_the_package_registers_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "shapes_to_find"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "kinds.py").write_text(
        "from sim.registry import Registry\nKINDS = Registry('shape', package='shapes_to_find')\n"
    )
    (package / "late.py").write_text(
        "from shapes_to_find.kinds import KINDS\n@KINDS.register('late')\nclass Late:\n    pass\n"
    )
    kinds = importlib.import_module("shapes_to_find.kinds")
    assert kinds.KINDS.names() == ["late"]


def test_a_package_that_cannot_be_imported_fails_at_every_look_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "shapes_that_fail"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "bad.py").write_text("1 / 0\n")
    registry = Registry[Shape]("shape", package="shapes_that_fail")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            registry.names()


def test_the_shipped_registries_find_their_own_files() -> None:
    assert "lru" in EVICTION.names()
    assert {"round-robin", "least-loaded", "prefix-aware"} <= set(ROUTING.names())
