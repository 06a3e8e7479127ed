"""Checks a scenario's names against the catalogue and the registries: a wrong one is reported at its line."""

from collections.abc import Callable, Iterator
from functools import partial

from models.catalogue import Entry, load_entry
from models.dtypes import weight_element_bytes
from models.errors import InputError
from scenarios.layers import is_path
from scenarios.schema import Load, Scenario, TierSpec

Path = list[str | int]
Problem = tuple[Path, str]


def check_names(scenario: Scenario) -> Iterator[Problem]:
    """Yield key path and problem of every name that does not exist and every device that cannot do what is asked."""
    cluster = scenario.cluster
    yield from _catalogue_name("llm", scenario.llm, ["llm"])
    yield from _catalogue_name("accelerator", cluster.accelerator, ["cluster", "accelerator"])
    for key, link in (("host_link", cluster.host_link), ("nic", cluster.nic), ("switch", cluster.switch)):
        if link is not None:
            yield from _catalogue_name("link", link, ["cluster", key])
    yield from _registered_names(scenario)
    for name, tier in scenario.tiers.items():
        if tier.transport is not None:
            yield from _catalogue_name("link", tier.transport, ["tiers", name, "transport"])
        if tier.device is not None:
            problems = list(_catalogue_name("storage", tier.device, ["tiers", name, "device"]))
            yield from problems or _device_problems(scenario, name, tier, tier.device)


def _catalogue_name(kind: str, name: str, path: Path) -> Iterator[Problem]:
    # The path of an LLM is a Hugging Face configuration, which is no entry.
    if kind != "llm" or not is_path(name):
        yield from _tried(path, partial(load_entry, kind, name))


def _registered_names(scenario: Scenario) -> Iterator[Problem]:
    # On use: the registries import every policy and reader, which a schema does not need.
    from sim.policies.base import EVICTION, ROUTING

    yield from _tried(["cluster", "router"], partial(ROUTING.get, scenario.cluster.router))
    for name, tier in scenario.tiers.items():
        yield from _tried(["tiers", name, "eviction"], partial(EVICTION.get, tier.eviction))
    if scenario.engine.weight_dtype is not None:
        yield from _tried(["engine", "weight_dtype"], partial(weight_element_bytes, scenario.engine.weight_dtype))
    loads: list[tuple[Path, Load]] = [(["workload"], scenario.workload)]
    loads += [(["workload", "phases", index], phase) for index, phase in enumerate(scenario.workload.phases or ())]
    for path, load in loads:
        if load.format is not None:
            from sim.traces import READERS

            yield from _tried([*path, "format"], partial(READERS.get, load.format))
        if load.synthetic is not None:
            from sim.synthetic import GENERATORS

            yield from _tried([*path, "synthetic", "generator"], partial(GENERATORS.get, load.synthetic.generator))


def _tried(path: Path, look_up: Callable[[], object]) -> Iterator[Problem]:
    try:
        look_up()
    except InputError as error:
        yield path, str(error)


def _device_problems(scenario: Scenario, name: str, tier: TierSpec, device: str) -> Iterator[Problem]:
    """Yield what the tier asks of its device that a device of that class does not do."""
    entry = load_entry("storage", device)
    path: Path = ["tiers", name]
    if tier.capacity is None and "capacity" not in entry.figures:
        yield [*path, "capacity"], f"is missing, and {entry.name} has none of its own; write one, such as 0.5 TB"
    if tier.scope == "worker" and not _is_memory(entry):
        yield [*path, "scope"], f"worker is for memory only; {entry.name} can be replica, node or shared"
    if tier.transport is not None and "port_bandwidth" not in entry.figures:
        yield [*path, "transport"], f"is for devices with network ports; {entry.name} has none"
    if tier.gds and _is_memory(entry):
        yield [*path, "gds"], f"is for storage; {entry.name} is memory"
    if tier.page_cache_of is not None:
        cached = scenario.tiers[tier.page_cache_of].device
        if not _is_memory(entry):
            yield [*path, "page_cache_of"], f"a page cache is memory; {entry.name} is not"
        elif cached is not None and _is_memory(load_entry("storage", cached)):
            yield [*path, "page_cache_of"], f"is '{tier.page_cache_of}', which is memory; only storage has a page cache"
    for key, wanted in (("ports", tier.ports), ("drives", tier.drives)):
        most = entry.optional_si(f"max_{key}")
        if wanted is not None and most is None:
            yield [*path, key], f"{entry.name} has no {key} to choose"
        elif wanted is not None and most is not None and wanted > most:
            yield [*path, key], f"is {wanted}; {entry.name} has at most {most:.0f}"


def _is_memory(entry: Entry) -> bool:
    return entry.traits.get("device_class") == "memory"
