"""Reads YAML into a tree whose every value knows the file and line that it was written at.

Values are read by the YAML 1.2 core rules: `8e10` is a number, `no` and `12:30` are text, a key may not stand twice.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from models.errors import ScenarioError
from models.yaml_files import LOADER

# YAML 1.2.2, section 10.3.2 (core schema).
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_BASED_INT = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

# Aliases can make a small file unfold without end; the longest scenario has a few hundred values.
_MOST_VALUES = 100_000
_MOST_DIGITS = 200  # so that every whole number fits a float, in base 16 too
_MOST_LEVELS = 50  # the deepest scenario has six


@dataclass(frozen=True, slots=True)
class Node:
    """A value, or the nodes in it, and *where* it was written: "file:line" or the override that set it."""

    value: Any  # a scalar, dict[str, Node] or list[Node]
    where: str
    folder: Path | None = None  # of the user's file, for paths that are relative to it

    def plain(self) -> Any:
        """Return the value without its places."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value


def read_file(path: Path, label: str, *, folder: Path | None = None) -> Node:
    """Return the mapping in a YAML file, called *label* in messages; ScenarioError if it cannot be read or is none."""
    return read_mapping(read_text(path, label), label, folder=folder)


def read_text(path: Path, label: str) -> str:
    """Return the text of a file, called *label* in messages; ScenarioError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ScenarioError(label, f"is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ScenarioError(label, f"cannot be read: {error.strerror or error}") from None


def read_mapping(text: str, label: str, *, folder: Path | None = None) -> Node:
    """Return the mapping that a YAML text holds; ScenarioError(file:line, ...) if it is no YAML or no mapping."""
    node = _Reader(label, folder, lines=True).read(text)
    if not isinstance(node.value, dict):
        found = "is empty" if node.value is None else "holds no mapping"
        raise ScenarioError(label, f"{found}; a scenario is keys and values, such as `name: my-scenario`")
    return node


def read_list(path: Path) -> Node:
    """Return the list in a YAML or JSON file; ScenarioError(file:line, ...) if it cannot be read or holds none."""
    node = _Reader(str(path), path.parent, lines=True).read(read_text(path, str(path)))
    if not isinstance(node.value, list):
        raise ScenarioError(str(path), "holds no list")
    return node


def read_value(text: str, label: str) -> Node:
    """Return the YAML value of an override, called *label* in messages; ScenarioError if it is no YAML."""
    return _Reader(label, None, lines=False).read(text)


class _Reader:
    """Turns one YAML text into nodes."""

    def __init__(self, label: str, folder: Path | None, *, lines: bool) -> None:
        self._label = label
        self._folder = folder
        self._lines = lines
        self._values = 0

    def read(self, text: str) -> Node:
        try:
            root = LOADER(text).get_single_node()
            return (
                Node(None, self._label, self._folder)
                if root is None
                else self._node(root, self._place(root.start_mark))
            )
        except RecursionError:
            raise ScenarioError(self._label, "is nested too deeply") from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise ScenarioError(self._place(mark), f"is not valid YAML: {_syntax_problem(error)}") from None
        except yaml.YAMLError as error:
            raise ScenarioError(self._label, f"is not valid YAML: {' '.join(str(error).split())}") from None

    def _place(self, mark: yaml.Mark | None) -> str:
        return f"{self._label}:{mark.line + 1}" if mark is not None and self._lines else self._label

    def _node(self, node: yaml.Node, where: str, level: int = 0) -> Node:
        self._values += 1
        if self._values > _MOST_VALUES:
            raise ScenarioError(where, f"more than {_MOST_VALUES:,} values, aliases unfolded")
        if level > _MOST_LEVELS:
            raise ScenarioError(where, f"is nested more than {_MOST_LEVELS} levels deep, or an alias holds itself")
        if isinstance(node, yaml.MappingNode):
            return Node(self._mapping(node, level), where, self._folder)
        if isinstance(node, yaml.SequenceNode):
            items = [self._node(child, self._place(child.start_mark), level + 1) for child in node.value]
            return Node(items, where, self._folder)
        if not node.tag.startswith("tag:yaml.org,2002:") or "python/" in node.tag:
            raise ScenarioError(where, f"tag '{node.tag}' is not read; write plain values")
        plain = not getattr(node, "style", None)  # the C parser says '', the Python one None
        return Node(_scalar(node.value, where) if plain else node.value, where, self._folder)

    def _mapping(self, node: yaml.MappingNode, level: int) -> dict[str, Node]:
        mapping: dict[str, Node] = {}
        for key_node, value_node in node.value:
            where = self._place(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                raise ScenarioError(where, "a key must be text")
            key = key_node.value
            if key == "<<":
                raise ScenarioError(where, "merge keys (<<) are not read; `base: NAME` inherits from a scenario")
            if key in mapping:
                raise ScenarioError(where, f"key '{key}' stands twice (first at {mapping[key].where})")
            mapping[key] = self._node(value_node, where, level + 1)
        return mapping


def _syntax_problem(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    return " ".join(", ".join(parts).split()) or "syntax error"


def _scalar(text: str, where: str) -> Any:
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text[0] in "tT"
    if _INT.fullmatch(text) and len(text) <= _MOST_DIGITS:
        return int(text)
    if _BASED_INT.fullmatch(text) and len(text) <= _MOST_DIGITS:
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL_FLOAT.fullmatch(text):
        raise ScenarioError(where, f"'{text}' is not a finite number")
    return text
