"""Turns what pydantic reports into one line that a person can act on: place, key, what is wrong, what is allowed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from models.errors import ScenarioError, did_you_mean
from scenarios.document import Node

_LONGEST_VALUE = 60  # characters of a wrong value that are shown

# pydantic's error types (pydantic 2, errors/validation_errors) that say no more than which type was wanted.
_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text (in quotes, where it looks like a number)",
    "finite_number": "a finite number",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "dict_type": "a mapping of names",
    "tuple_type": "a list",
    "list_type": "a list",
}
_FIXED = {"missing": "is missing", "string_too_short": "must not be empty", "too_short": "must not be empty"}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "greater than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def scenario_error(error: ValidationError, root: Node, model: type[BaseModel]) -> ScenarioError:
    """Return the first problem of a failed validation as a ScenarioError at its file and line, and how many follow."""
    details = error.errors(include_url=False)
    # An unknown key explains the missing one that it was meant to be.
    first = min(details, key=lambda detail: detail["type"] != "extra_forbidden")
    path, problem = _describe(first, model)
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return located(root, path, problem + more)


def first_problem(error: ValidationError) -> str:
    """Return the first problem of a failed validation in pydantic's words, after its place where it has one."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    problem = first["msg"].removeprefix("Value error, ")
    return f"{place}: {problem}" if place else problem


def located(root: Node, path: Sequence[str | int], problem: str) -> ScenarioError:
    """Return a ScenarioError that begins with the place of the deepest key of *path* that was written."""
    node = root
    for key in path:
        if isinstance(node.value, dict) and str(key) in node.value:
            node = node.value[str(key)]
        elif isinstance(node.value, list) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
        else:
            break
    dotted = ".".join(str(key) for key in path)
    # An option's place names its key already, as in "--set a.b".
    named = not dotted or (node.where.startswith("--") and node.where.endswith(f" {dotted}"))
    return ScenarioError(node.where, problem if named else f"{dotted}: {problem}")


def _describe(detail: ErrorDetails, model: type[BaseModel]) -> tuple[list[str | int], str]:
    """Return the path of the key that is wrong, and what is wrong with it."""
    path = list(detail["loc"])
    context: Mapping[str, Any] = detail.get("ctx") or {}
    if detail["type"] == "cross_check":
        return [*path, *context["path"]], str(context["problem"])
    if detail["type"] == "extra_forbidden":
        allowed = _keys(model, path[:-1])
        return path, f"unknown key{did_you_mean(str(path[-1]), allowed)} (allowed: {', '.join(allowed)})"
    if detail["type"] == "literal_error":
        value = detail.get("input")
        allowed = [str(choice) for choice in _choices(model, path)]
        hint = did_you_mean(value, allowed) if isinstance(value, str) else ""
        return path, f"is {_shown(value)}{hint} (allowed: {', '.join(allowed)})"
    return path, plain_problem(detail)


def plain_problem(detail: ErrorDetails) -> str:
    """Return what is wrong with a value, without its place."""
    context: Mapping[str, Any] = detail.get("ctx") or {}
    kind, value = detail["type"], _shown(detail.get("input"))
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"is {value}; must be {words} {context[key]:g}"
    if kind == "value_error":
        return str(context["error"])
    if kind in _FIXED:
        return _FIXED[kind]
    return f"is {value}; must be {_WANTED[kind]}" if kind in _WANTED else f"is {value}; {detail['msg']}"


def _shown(value: Any) -> str:
    if isinstance(value, BaseModel | Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _annotation(model: type[BaseModel], path: Iterable[str | int]) -> Any:
    """Return the type of the field at *path*, where names of tiers and indexes of phases count as one step."""
    found: Any = model
    for key in path:
        parts = _flatten(found)
        models = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
        if models and key in models[0].model_fields:
            field = models[0].model_fields[str(key)]
            found = field.annotation
        elif not models:
            return None
    return found


def _flatten(annotation: Any) -> list[Any]:
    """Return the plain types inside unions, annotations and containers."""
    if get_origin(annotation) is Annotated:
        return _flatten(get_args(annotation)[0])
    inner = get_args(annotation)
    if not inner or not all(isinstance(part, type) or get_args(part) or part is ... for part in inner):
        return [annotation]
    return [plain for part in inner for plain in _flatten(part)]


def _keys(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    for part in _flatten(_annotation(model, path)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return list(part.model_fields)
    return []


def _choices(model: type[BaseModel], path: Sequence[str | int]) -> list[Any]:
    annotation = _annotation(model, path)
    choices = [choice for choice in get_args(annotation) if isinstance(choice, str)]
    nested = [choice for part in get_args(annotation) for choice in get_args(part) if isinstance(choice, str)]
    return choices or nested
