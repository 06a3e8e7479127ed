"""Lays scenario files over each other: `base` below a file, overrides above it."""

from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from models.errors import ScenarioError, UnknownNameError, did_you_mean
from scenarios.choices import CHOICE_KEYS
from scenarios.document import Node, read_file, read_value
from scenarios.run_spec import LinkSpec

# Replaced as a whole by a file that has them: half of one workload and half of another mean nothing.
_REPLACED_WHOLE = frozenset({"workload"})
# Of each file itself, and not inherited.
_OWN = frozenset({"name", "description"})


def shipped(folder: str, *, of: str = "scenarios", ending: str = ".yaml") -> dict[str, Traversable]:
    """Return the files that ship in a folder of a package ("library", "stacks"), by name in alphabetical order."""
    root = resources.files(of).joinpath(folder)
    if not root.is_dir():
        return {}
    found = {item.name.removesuffix(ending): item for item in root.iterdir() if item.name.endswith(ending)}
    return dict(sorted(found.items()))


def is_path(text: str) -> bool:
    """Whether a scenario, stack or catalogue entry is given as a path and not as a name."""
    return "/" in text or "\\" in text or text.endswith((".yaml", ".yml", ".json"))


def read_shipped(folder: str, kind: str, name: str) -> Node:
    """Return the mapping of a shipped file; UnknownNameError names the ones that exist."""
    files = shipped(folder)
    if name not in files:
        raise UnknownNameError(kind, name, files)
    with resources.as_file(files[name]) as path:
        return read_file(path, f"{name}.yaml")


def read_layers(name_or_path: str) -> Node:
    """Return a scenario with everything that its `base` files hold beneath it."""
    chain: list[Node] = []
    seen: list[Path | str] = []
    reference, folder = name_or_path, None
    while True:
        node, identity = _read_scenario(reference, folder)
        if identity in seen:
            raise ScenarioError(chain[-1].value["base"].where, f"base: '{reference}' is based on itself")
        seen.append(identity)
        chain.append(node)
        base = node.value.get("base")
        if base is None or base.value is None:
            break
        if not isinstance(base.value, str):
            raise ScenarioError(base.where, "base: must be the name or the path of a scenario")
        reference, folder = base.value, node.folder
    merged = _without(chain.pop(), _OWN if chain else frozenset())
    while chain:
        node = chain.pop()
        merged = merge(merged, _without(node, _OWN if chain else frozenset()))
    return _without(merged, frozenset({"base"}))


def _read_scenario(reference: str, folder: Path | None) -> tuple[Node, Path | str]:
    if not is_path(reference):
        node = read_shipped("library", "scenario", reference)
        return _named(node, reference), reference
    path = Path(reference) if folder is None else folder / reference
    node = read_file(path, str(path), folder=path.parent)
    return _named(node, path.stem), path.resolve()


def _named(node: Node, name: str) -> Node:
    if "name" in node.value:
        return node
    return Node({"name": Node(name, node.where), **node.value}, node.where, node.folder)


def _without(node: Node, keys: frozenset[str]) -> Node:
    return Node({key: child for key, child in node.value.items() if key not in keys}, node.where, node.folder)


def merge(under: Node, over: Node, *, path: tuple[str, ...] = ()) -> Node:
    """Return *over* laid on *under*: mappings merge, all else is replaced, null takes a tier or link away.

    Tiers keep the order of *under*, new ones last; where *over* names every tier of *under*, its order holds.
    """
    both_mappings = isinstance(under.value, dict) and isinstance(over.value, dict)
    if not both_mappings or (path and path[-1] in _REPLACED_WHOLE):
        return over
    if _is_choice(path) and set(under.value) != set(over.value):
        return over  # another policy, which knows nothing of the parameters of the first
    keys = list(under.value) + [key for key in over.value if key not in under.value]
    if path == ("tiers",) and set(over.value) >= set(under.value):
        keys = list(over.value)
    merged: dict[str, Node] = {}
    for key in keys:
        lower, upper = under.value.get(key), over.value.get(key)
        if upper is None:
            merged[key] = lower
        elif lower is None:
            merged[key] = upper
        elif upper.value is None and path in {("tiers",), ("links",)}:
            if key == "hbm":
                merged[key] = lower
        else:
            merged[key] = merge(lower, upper, path=(*path, key))
    return Node(merged, over.where, over.folder)


def _is_choice(path: Sequence[str]) -> bool:
    """Whether a policy stands here: a name, or a name over its parameters."""
    names_part = len(path) == 2 and path[0] in {"tiers", "links"}
    return bool(path) and path[-1] in CHOICE_KEYS and not names_part


def override(root: Node, text: str) -> Node:
    """Return *root* with one `a.b.c=VALUE` applied: VALUE is YAML, null takes a tier or link away."""
    key, separator, value = text.partition("=")
    key = key.strip()
    if not separator or not all(key.split(".")):
        raise ScenarioError(f"--set {text}", "must be KEY=VALUE, such as tiers.dram.capacity='64 GB'")
    return set_value(root, key, read_value(value, f"--set {key}"))


def set_value(root: Node, key: str, node: Node) -> Node:
    """Return *root* with *node* at `a.b.c`; ScenarioError at the place of *node* where that cannot be."""
    path = key.split(".")
    if path[0] == "links" and len(path) > 2:
        # Names of links hold dots ('fabric.drives', 'nic.0'); only a plain value belongs to a key below the name.
        names_link = node.value is None and path[-1] not in LinkSpec.model_fields
        split = len(path) if names_link or isinstance(node.value, dict) else len(path) - 1
        path = ["links", ".".join(path[1:split]), *path[split:]]
    if path[0] == "figures" and len(path) > 2:
        path = ["figures", ".".join(path[1:-1]), path[-1]]  # names of entries may hold dots: cxl-2.0-x8
    return _set(root, path, node, node.where, ())


def _set(node: Node, path: Sequence[str], value: Node, label: str, above: tuple[str, ...]) -> Node:
    head, rest = path[0], path[1:]
    if isinstance(node.value, list):
        items: list[Node] = list(node.value)
        names = _names(items)
        if head in names:
            index = names.index(head)
        elif head.isdigit() and int(head) < len(items):
            index = int(head)
        else:
            allowed = ", ".join([*filter(None, names), f"an index below {len(items)}"])
            raise ScenarioError(label, f"{'.'.join(above)} is a list; '{head}' must be one of: {allowed}")
        items[index] = _set(items[index], rest, value, label, (*above, head)) if rest else value
        return Node(items, node.where, node.folder)
    if _is_choice(above):
        node = _chosen(node, head)
    if node.value is not None and not isinstance(node.value, dict):
        raise ScenarioError(label, f"{'.'.join(above)} is {node.value!r} and has no keys below it")
    if node.value is None and head.isdigit():
        raise ScenarioError(label, f"there is no list {'.'.join(above)} to take '{head}' of")
    children: dict[str, Node] = dict(node.value or {})
    if rest:
        if above == ("tiers",) and head not in children:
            hint = did_you_mean(head, children)
            raise ScenarioError(label, f"there is no tier '{head}'{hint} (tiers: {', '.join(children)})")
        children[head] = _set(children.get(head, Node(None, label)), rest, value, label, (*above, head))
    elif value.value is None and above in {("tiers",), ("links",)} and head != "hbm":
        if children.pop(head, None) is None:
            raise ScenarioError(label, f"there is no '{head}' in {above[0]} to take away; it has {', '.join(children)}")
    else:
        children[head] = value
    return Node(children, node.where, node.folder)


def _chosen(node: Node, name: str) -> Node:
    """Return a policy as its name over the parameters it has so far; none where another one stands there."""
    same = isinstance(node.value, dict) and name in node.value
    return Node({name: node.value[name] if same else Node({}, node.where)}, node.where, node.folder)


def _names(items: Sequence[Node]) -> list[str | None]:
    """Return the `name` that each item of a list has, such as a phase; None where it has none."""
    named = [item.value.get("name") if isinstance(item.value, dict) else None for item in items]
    return [node.value if node is not None and isinstance(node.value, str) else None for node in named]
