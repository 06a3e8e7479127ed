"""How a scenario names a policy: `eviction: lru`, or with parameters `router: {prefix-aware: {temperature: 0.5}}`.

Every key that takes a policy takes both forms. The parameters are the keyword arguments of the registered class.
"""

import inspect
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import ConfigDict, PlainValidator, TypeAdapter, ValidationError, WithJsonSchema
from pydantic.errors import PydanticUserError

from models.errors import InputError, LocatedError, did_you_mean
from models.units import parse_quantity
from scenarios.problems import plain_problem
from scenarios.quantity import refuse
from sim.registry import Registry

T = TypeVar("T")

Path = list[str | int]
Problem = tuple[Path, str]

CHOICE_KEYS: Final = frozenset(
    {"admission", "eviction", "load_or_recompute", "placement", "prefetch", "router", "scheduling"}
)
"""The keys of a scenario that hold a policy."""

_EXAMPLE: Final = "{prefix-aware: {temperature: 0.5}}"
# By the unit that ends a parameter's name; the first that fits.
_QUANTITIES: Final = (("_bytes_per_s", "bytes_per_s"), ("_per_s", None), ("_bytes", "bytes"), ("_s", "seconds"))
_STRICT: Final = ConfigDict(strict=True, allow_inf_nan=False)


def _choice(value: Any) -> Any:
    """Return a name, or a name over its parameters, quantities in SI units."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        raise refuse((), f"is {_shown(value)}; must be a name, or a name over its parameters, such as {_EXAMPLE}")
    if len(value) != 1:
        found = ", ".join(str(key) for key in value) or "none"
        raise refuse((), f"must hold one name over its parameters, such as {_EXAMPLE}; got {found}")
    name, parameters = next(iter(value.items()))
    if parameters is None or parameters == {}:
        return name
    if not isinstance(parameters, Mapping):
        raise refuse((name,), f"is {_shown(parameters)}; must be a mapping of parameters")
    return {name: {key: _in_si(name, key, parameter) for key, parameter in parameters.items()}}


def _in_si(name: str, key: str, value: Any) -> Any:
    dimension = dimension_of(key)
    if dimension is None or not isinstance(value, str):
        return value
    try:
        number = parse_quantity(value, dimension)
    except LocatedError as error:
        raise refuse((name, key), error.problem) from None
    return round(number) if dimension == "bytes" else number


def dimension_of(parameter: str) -> str | None:
    """Return the dimension of `models.units` that the name of a policy's parameter says; None: a plain value."""
    return next((dimension for ending, dimension in _QUANTITIES if parameter.endswith(ending)), None)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return "a list" if isinstance(value, list) else repr(value)


Choice = Annotated[
    str | dict[str, dict[str, Any]],
    PlainValidator(_choice),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": {"type": ["object", "null"]},
                },
            ],
            "examples": ["lru", {"prefix-aware": {"temperature": 0.5}}],
        }
    ),
]


def named(choice: str | dict[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Return the name of a policy and its parameters."""
    return (choice, {}) if isinstance(choice, str) else next(iter(choice.items()))


def create(registry: Registry[T], choice: str | dict[str, dict[str, Any]], **supplied: object) -> T:
    """Return a new instance of the policy; of what the run supplies, it gets the arguments that its class has.

    Raises what :meth:`sim.registry.Registry.create` raises.
    """
    name, parameters = named(choice)
    accepted = inspect.signature(registry.get(name)).parameters
    return registry.create(name, **parameters, **{key: value for key, value in supplied.items() if key in accepted})


def problems(registry: Registry[Any], choice: str | dict[str, dict[str, Any]], path: Path) -> Iterator[Problem]:
    """Yield key path and problem of a name that is not registered, and of parameters that its class does not take."""
    name, parameters = named(choice)
    try:
        arguments = inspect.signature(registry.get(name)).parameters
    except InputError as error:
        yield path, str(error)
        return
    path = [*path, name]
    allowed = {key: argument for key, argument in arguments.items() if key not in registry.supplied}
    listed = f"(allowed: {', '.join(allowed) or 'none'})"
    found: list[Problem] = []
    for key, value in parameters.items():
        if key not in allowed:
            found.append(([*path, key], f"unknown parameter{did_you_mean(key, allowed)} {listed}"))
        else:
            found += [([*path, key], problem) for problem in _value_problems(allowed[key].annotation, value)]
    required = [key for key, argument in arguments.items() if argument.default is argument.empty]
    found += [
        (path, f"needs the parameter '{key}' {listed}") for key in required if key in allowed and key not in parameters
    ]
    if not found and not registry.supplied & set(required):
        found += _refusals(registry, name, parameters, path)
    yield from found


def _value_problems(annotation: Any, value: Any) -> list[str]:
    """Return what keeps a value from being of the type that an argument is annotated with."""
    if annotation is inspect.Parameter.empty or isinstance(annotation, str):
        return []
    try:
        TypeAdapter(annotation, config=_STRICT).validate_python(value)
    except ValidationError as error:
        return [plain_problem(detail) for detail in error.errors(include_url=False)[:1]]
    except PydanticUserError:
        return []  # a type that only its class can judge
    return []


def _refusals(registry: Registry[Any], name: str, parameters: dict[str, Any], path: Path) -> Iterator[Problem]:
    """Make the policy once, so that what its class refuses is said at the key, before the run."""
    try:
        registry.create(name, **parameters)
    except LocatedError as error:
        yield [*path, error.where], error.problem
    except InputError as error:
        yield path, str(error)
    except (TypeError, ValueError) as error:
        yield path, f"cannot be made: {type(error).__name__}: {error}"
