import pytest

from models.errors import ScenarioError
from scenarios.document import read_file, read_mapping, read_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8e10", 8e10),
        ("1.5E-3", 1.5e-3),
        (".5", 0.5),
        ("-7", -7),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("0.5 TB", "0.5 TB"),
        ("200 Gbit/s", "200 Gbit/s"),
        ("'8e10'", "8e10"),
        ('"true"', "true"),
        ("[1, a]", [1, "a"]),
        ("{a: 1}", {"a": 1}),
    ],
)
def test_scalars_follow_the_core_rules(text: str, value: object) -> None:
    found = read_value(text, "x").plain()
    assert found == value
    assert type(found) is type(value)


def test_every_value_knows_its_line() -> None:
    root = read_mapping("a: 1\nb:\n  - x\n  -\n    c: 2\n", "f.yaml")
    assert root.value["a"].where == "f.yaml:1"
    assert root.value["b"].where == "f.yaml:2"
    assert root.value["b"].value[1].value["c"].where == "f.yaml:5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: key 'a' stands twice (first at f.yaml:1)"),
        ("a: {b: 1,\nb: 2}", "f.yaml:2: key 'b' stands twice (first at f.yaml:1)"),
        ("a: [1\nb: 2\n", "f.yaml:2: is not valid YAML: "),
        ("a: b: c", "f.yaml:1: is not valid YAML: mapping values are not allowed in this context"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: is not valid YAML: expected a single document"),
        ("a: \x07", "f.yaml: is not valid YAML: "),
        ("a: *b", "f.yaml:1: is not valid YAML: "),
        ("a: &a [*a]", "f.yaml:1: is nested more than 50 levels deep, or an alias holds itself"),
        ("a: !!python/object:os.system x", "f.yaml:1: tag "),
        ("a: !mine x", "f.yaml:1: tag '!mine' is not read"),
        ("a: " + "[" * 60 + "]" * 60, "f.yaml:1: is nested more than 50 levels deep"),
        ("x: &x {a: 1}\ny: {<<: *x}", "f.yaml:2: merge keys (<<) are not read"),
        ("? [a]\n: 1", "f.yaml:1: a key must be text"),
        ("a: .inf", "f.yaml:1: '.inf' is not a finite number"),
        ("", "f.yaml: is empty"),
        ("- a", "f.yaml: holds no mapping"),
        ("word", "f.yaml: holds no mapping"),
    ],
)
def test_what_is_no_scenario_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        read_mapping(text, "f.yaml")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_aliases_cannot_unfold_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ScenarioError, match="more than 100,000 values"):
        read_mapping("\n".join(lines), "f.yaml")


def test_files_that_cannot_be_read(tmp_path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read: No such file"):
        read_file(tmp_path / "none.yaml", "none.yaml")
    with pytest.raises(ScenarioError, match="cannot be read: Is a directory"):
        read_file(tmp_path, "folder.yaml")
    (tmp_path / "b.yaml").write_bytes(b"name: \xff\xfe")
    with pytest.raises(ScenarioError, match=r"b.yaml: is not UTF-8 text \(byte 6\)"):
        read_file(tmp_path / "b.yaml", "b.yaml")
