"""Reads one YAML mapping strictly: syntax errors and duplicate keys are refused with their line."""

from typing import Any, Final

import yaml

from models.errors import CatalogueError

# The C parser is ten times as fast; PyYAML builds without libyaml lack it.
LOADER: Final[type[yaml.SafeLoader] | type[yaml.CSafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_mapping(text: str, where: str) -> dict[str, Any]:
    """Return the mapping that a YAML text holds; raises CatalogueError naming file and line."""
    loader = LOADER(text)
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise CatalogueError(where, "must be a mapping with name, title and figures")
        _refuse_duplicates(node, where, set())
        raw: Any = loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise CatalogueError(f"{where}{line}", f"not YAML: {problem}") from None
    except (ValueError, RecursionError) as error:  # a date such as 2026-13-40, or a thousand brackets
        raise CatalogueError(where, f"not YAML: {error}") from None
    finally:
        loader.dispose()
    return dict(raw)


def _refuse_duplicates(node: yaml.Node, where: str, seen: set[int]) -> None:
    if id(node) in seen:  # an anchor may hold itself
        raise CatalogueError(f"{where}:{node.start_mark.line + 1}", "anchors and aliases are not supported")
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in keys:
                raise CatalogueError(f"{where}:{key.start_mark.line + 1}", f"key '{name}' stands twice")
            keys.add(name)
            _refuse_duplicates(value, where, seen)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_duplicates(item, where, seen)
