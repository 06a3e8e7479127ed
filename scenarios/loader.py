"""From the name or the path of a scenario to a checked `Scenario`; also back to plain values, and what ships."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from models.errors import ScenarioError
from scenarios.checks import check_names
from scenarios.document import Node
from scenarios.layers import is_path, override, read_layers, read_shipped, shipped
from scenarios.parameters import with_parameters
from scenarios.problems import located, scenario_error
from scenarios.profiles import with_stack
from scenarios.schema import Scenario

# Values that may name a file beside the scenario.
_PATH_KEYS = frozenset({"llm", "accelerator", "host_link", "nic", "switch", "transport", "device", "parameters"})
_SECTIONS = frozenset({"engine", "transfer", "links", "run"})
FILE_KEYS = frozenset({"trace", "step_times"})


def load_scenario(
    name_or_path: str,
    *,
    overrides: Sequence[str] = (),
    trace: str | None = None,
    skip_bad_lines: bool = False,
    seed: int | None = None,
) -> Scenario:
    """Return a scenario by shipped name or path, with `key=value` overrides, a trace and a seed laid over it.

    *skip_bad_lines* leaves malformed lines of the trace out.
    Files that a scenario names are looked for beside it, then in the current folder. Raises ScenarioError (one line:
    file:line or override, key, problem, what is allowed) and UnknownNameError for a name that does not ship.
    """
    return checked(laid_out(name_or_path, overrides=overrides, trace=trace, skip_bad_lines=skip_bad_lines, seed=seed))


def lasting_trace(trace: str | None) -> str | None:
    """Return a trace that can be read again, by other processes too: what comes over standard input is kept in a file.

    Raises TraceError where that cannot be.
    """
    if trace != "-":
        return trace
    from sim.traces.standard_input import spooled_input

    return str(spooled_input())


def laid_out(
    name_or_path: str,
    *,
    overrides: Sequence[str] = (),
    trace: str | None = None,
    skip_bad_lines: bool = False,
    seed: int | None = None,
) -> Node:
    """Return what :func:`checked` makes the scenario of; more can be set in it before."""
    root = read_layers(name_or_path)
    for text in overrides:
        root = override(root, text)
    if trace is not None:
        root = _with_trace(root, trace)
    if skip_bad_lines:
        root = _with_value(root, ("workload", "skip_bad_lines"), Node(True, "--skip-bad-lines"))
    if seed is not None:
        root = _with_value(root, ("run", "seed"), Node(seed, f"--seed {seed}"))
    return root


def checked(root: Node) -> Scenario:
    """Return the scenario of what is laid out; raises as :func:`load_scenario` does."""
    root = _beside(with_stack(with_parameters(_without_empty(root))), "")
    try:
        scenario = Scenario.model_validate(root.plain())
    except ValidationError as error:
        raise scenario_error(error, root, Scenario) from None
    for path, problem in check_names(scenario):
        raise located(root, path, problem)
    return scenario


def _without_empty(root: Node) -> Node:
    """Return *root* without the sections that have a key and nothing below it; `hbm:` alone is the usual first tier."""
    parts = {key: part for key, part in root.value.items() if part.value is not None or key not in _SECTIONS}
    tiers = parts.get("tiers")
    if tiers is not None and isinstance(tiers.value, dict):
        hbm = tiers.value.get("hbm")
        if hbm is not None and hbm.value is None:
            parts["tiers"] = Node({**tiers.value, "hbm": Node({}, hbm.where, hbm.folder)}, tiers.where, tiers.folder)
    return Node(parts, root.where, root.folder)


def _with_trace(root: Node, trace: str) -> Node:
    workload = root.value.get("workload")
    keys = workload.value if workload is not None and isinstance(workload.value, dict) else {}
    for kind in ("closed_loop", "wave", "poisson", "phases"):
        if kind in keys:
            problem = f"the workload of this scenario is {kind}; only trace and synthetic can be replaced by a trace"
            raise ScenarioError(f"--trace {trace}", problem)
    return _with_value(root, ("workload", "trace"), Node(trace, f"--trace {trace}"))


def _with_value(root: Node, path: tuple[str, str], value: Node) -> Node:
    part = root.value.get(path[0], Node({}, value.where))
    keys = part.value if isinstance(part.value, dict) else {}
    inner = Node({**keys, path[1]: value}, part.where, part.folder)
    return Node({**root.value, path[0]: inner}, root.where, root.folder)


def _beside(node: Node, key: str) -> Node:
    """Return *node* with the files that it names found in the folder of the scenario, where they are there."""
    if isinstance(node.value, dict):
        return Node({name: _beside(child, name) for name, child in node.value.items()}, node.where, node.folder)
    if isinstance(node.value, list):
        return Node([_beside(child, key) for child in node.value], node.where, node.folder)
    names_file = key in FILE_KEYS or (key in _PATH_KEYS and isinstance(node.value, str) and is_path(node.value))
    if names_file and node.folder is not None and isinstance(node.value, str):
        beside = node.folder / node.value
        if beside.is_file():
            return Node(str(beside), node.where, node.folder)
    return node


def resolved(scenario: Scenario) -> dict[str, Any]:
    """Return the whole scenario as JSON-able values: bases, stack and defaults filled in, quantities in SI units."""
    return scenario.model_dump(mode="json")


def library() -> list[tuple[str, str]]:
    """Return name and description of every shipped scenario, in alphabetical order."""
    return [(name, _description("library", "scenario", name)) for name in shipped("library")]


def stacks() -> list[tuple[str, str]]:
    """Return name and description of every shipped stack profile, in alphabetical order."""
    return [(name, _description("stacks", "stack", name)) for name in shipped("stacks")]


def _description(folder: str, kind: str, name: str) -> str:
    """Return the description that a shipped file gives of itself, on one line."""
    description = read_shipped(folder, kind, name).value.get("description")
    return "" if description is None else " ".join(str(description.value).split())


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a scenario *file*, for editors: with a `base` it may leave out the rest."""
    schema = Scenario.model_json_schema()
    required = schema.pop("required")
    # A file with a base may hold any part of a scenario, and its name is the file's unless it says otherwise.
    schema["anyOf"] = [{"required": ["base"]}, {"required": [key for key in required if key != "name"]}]
    schema["$defs"]["Cluster"].pop("required")
    base = {"type": "string", "description": "Shipped name or path of a scenario that this one changes."}
    schema["properties"] = {"base": base, **schema["properties"]}
    for key in ("tiers", "links"):
        # null takes away what the base has.
        values = schema["properties"][key]["additionalProperties"]
        schema["properties"][key]["additionalProperties"] = {"anyOf": [values, {"type": "null"}]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
