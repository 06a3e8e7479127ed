"""Checks a scenario's names against the catalogue and the registries: a wrong one is reported at its line."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path as FilePath

from models.accelerator import load_accelerator
from models.catalogue import entries
from models.dtypes import weight_element_bytes
from models.errors import InputError, UnknownNameError
from models.link import load_link
from models.llm import load_llm
from models.storage import Device, load_device
from scenarios import choices
from scenarios.choices import Path, Problem
from scenarios.schema import Scenario
from scenarios.tier_spec import TierSpec
from scenarios.workload import Load


def check_names(scenario: Scenario) -> Iterator[Problem]:
    """Yield key path and problem of every name that does not exist and every device that cannot do what is asked."""
    cluster, changes = scenario.cluster, scenario.changes()
    yield from _figure_problems(scenario)
    yield from _tried(["llm"], partial(load_llm, scenario.llm))
    yield from _tried(["cluster", "accelerator"], partial(load_accelerator, cluster.accelerator, changes))
    for key, link in (("host_link", cluster.host_link), ("nic", cluster.nic), ("switch", cluster.switch)):
        if link is not None:
            yield from _tried(["cluster", key], partial(load_link, link, changes))
    if cluster.decode is not None and cluster.decode.accelerator is not None:
        path: Path = ["cluster", "decode", "accelerator"]
        yield from _tried(path, partial(load_accelerator, cluster.decode.accelerator, changes))
    yield from _registered_names(scenario)
    if scenario.events or any(tier.layout is not None for tier in scenario.tiers.values()):
        yield from _event_problems(scenario)
    for name, tier in scenario.tiers.items():
        if tier.transport is not None:
            yield from _tried(["tiers", name, "transport"], partial(load_link, tier.transport, changes))
        if tier.device is not None:
            problems = list(_tried(["tiers", name, "device"], partial(load_device, tier.device, changes)))
            yield from problems or _device_problems(scenario, name, tier, load_device(tier.device, changes))


def _event_problems(scenario: Scenario) -> Iterator[Problem]:
    # On use: what builds a run is not needed to read a scenario.
    from scenarios.timeline import event_problems

    try:
        yield from event_problems(scenario)
    except InputError:
        return  # of a device: that is said elsewhere


def _figure_problems(scenario: Scenario) -> Iterator[Problem]:
    """Yield figures of no entry; that an entry has no such figure is said where it is used."""
    if not scenario.figures:
        return
    cluster = scenario.cluster
    used = [cluster.accelerator, cluster.host_link, cluster.nic, cluster.switch]
    used += [part for tier in scenario.tiers.values() for part in (tier.device, tier.transport)]
    own = {FilePath(name).stem for name in used if name is not None and name.endswith((".yaml", ".yml"))}
    known = {name for kind in ("accelerator", "storage", "link") for name in entries(kind)} | own
    for name in scenario.figures:
        if name not in known:
            yield ["figures", name], str(UnknownNameError("catalogue entry", name, sorted(known)))


def _registered_names(scenario: Scenario) -> Iterator[Problem]:
    # On use: the registries import every policy and reader, which a schema does not need.
    from sim.policies.base import ADMISSION, EVICTION, PLACEMENT, ROUTING, SCHEDULING
    from sim.policies.placement import writes_of

    yield from choices.problems(ROUTING, scenario.cluster.router, ["cluster", "router"])
    if scenario.cluster.decode is not None:
        yield from choices.problems(ROUTING, scenario.cluster.decode.router, ["cluster", "decode", "router"])
    yield from choices.problems(SCHEDULING, scenario.engine.scheduling, ["engine", "scheduling"])
    yield from _transfer_problems(scenario)
    for name, tier in scenario.tiers.items():
        yield from choices.problems(EVICTION, tier.eviction, ["tiers", name, "eviction"])
        if tier.admission is not None:
            yield from choices.problems(ADMISSION, tier.admission, ["tiers", name, "admission"])
        problems = list(choices.problems(PLACEMENT, tier.placement, ["tiers", name, "placement"]))
        yield from problems
        if not problems:
            yield from _tried(["tiers", name, "placement"], partial(writes_of, choices.named(tier.placement)[0]))
            if tier.inclusion == "exclusive":
                yield from _exclusive_problems(scenario, name, tier)
    if scenario.engine.weight_dtype is not None:
        yield from _tried(["engine", "weight_dtype"], partial(weight_element_bytes, scenario.engine.weight_dtype))
    loads: list[tuple[Path, Load]] = [(["workload"], scenario.workload)]
    loads += [(["workload", "phases", index], phase) for index, phase in enumerate(scenario.workload.phases or ())]
    for path, load in loads:
        if load.format is not None:
            from sim.traces import READERS

            yield from _tried([*path, "format"], partial(READERS.get, load.format))
        if load.synthetic is not None:
            from sim.generators import GENERATORS

            yield from _tried([*path, "synthetic", "generator"], partial(GENERATORS.get, load.synthetic.generator))


def _exclusive_problems(scenario: Scenario, name: str, tier: TierSpec) -> Iterator[Problem]:
    """Yield what would keep an exclusive tier from getting back what it gave away."""
    from sim.policies.placement import writes_of

    path: Path = ["tiers", name, "inclusion"]
    if writes_of(choices.named(tier.placement)[0]) != "at-eviction":
        yield path, f"exclusive needs placement: write-back; tiers.{name}.placement is another"
    if tier.promotion not in {None, "never"}:
        yield path, f"exclusive needs promotion: never; tiers.{name}.promotion is {tier.promotion}"
    faster = [key for key, other in scenario.tiers.items() if other.page_cache_of is None]
    if faster.index(name) == 1 and not scenario.engine.prefix_caching:
        yield path, "exclusive needs engine.prefix_caching: without it HBM keeps nothing that it could give back"


def _transfer_problems(scenario: Scenario) -> Iterator[Problem]:
    from sim.policies.loading import LOADING
    from sim.policies.prefetch import PREFETCH

    yield from choices.problems(LOADING, scenario.transfer.load_or_recompute, ["transfer", "load_or_recompute"])
    name = choices.named(scenario.transfer.load_or_recompute)[0]
    if scenario.transfer.load == "sync" and _loads_from_both_ends(name):
        yield (
            ["transfer", "load_or_recompute"],
            f"is {name}, which is for load: async; synchronous loads stop the step",
        )
    yield from choices.problems(PREFETCH, scenario.transfer.prefetch, ["transfer", "prefetch"])
    devices = [tier.device for tier in scenario.tiers.values() if tier.device and tier.page_cache_of is None]
    if scenario.transfer.prefetch != "none" and not any(map(_may_be_memory, devices)):
        yield ["transfer", "prefetch"], "brings KV into memory, and no tier is memory"


def _loads_from_both_ends(name: str) -> bool:
    from sim.policies.loading import LOADING

    try:
        return bool(getattr(LOADING.get(name), "from_both_ends", False))
    except InputError:
        return False  # that there is none of this name is said elsewhere


def _may_be_memory(device: str) -> bool:
    try:
        return load_device(device).device_class == "memory"
    except InputError:
        return True  # that it is none at all is said elsewhere


def _tried(path: Path, look_up: Callable[[], object]) -> Iterator[Problem]:
    try:
        look_up()
    except InputError as error:
        yield path, str(error)


def _nodes(scenario: Scenario) -> int:
    return -(-scenario.cluster.replicas // scenario.cluster.replicas_per_node)


def block_devices_shared(scenario: Scenario) -> Iterator[str]:
    """Yield a warning for each tier of block storage that a stack would mount on several nodes.

    What an array gives out over NVMe-oF is a block device. Two nodes that mount the same file system on it, unless that
    is made for it, destroy it (XFS, ext4). Without a stack it is not known how the array is used.
    """
    nodes = _nodes(scenario)
    if scenario.stack is None or nodes == 1:
        return
    for name, tier in scenario.tiers.items():
        if tier.device is None or tier.scope not in {"shared", None}:
            continue
        device = load_device(tier.device)
        if "port_bandwidth" in device.entry.figures:
            yield (
                f"tier {name}: {device.name} gives out block devices, and {nodes} nodes share it: they need a cluster "
                "file system, or a part of it each (a local one such as XFS may be mounted by one node only)"
            )


def _device_problems(scenario: Scenario, name: str, tier: TierSpec, device: Device) -> Iterator[Problem]:
    """Yield what the tier asks of its device that a device of that class does not do."""
    figures, is_memory = device.entry.figures, device.device_class == "memory"
    path: Path = ["tiers", name]
    if tier.capacity is None and "capacity" not in figures:
        yield [*path, "capacity"], f"is missing, and {device.name} has none of its own; write one, such as 0.5 TB"
    if tier.scope == "worker" and not is_memory:
        yield [*path, "scope"], f"worker is for memory only; {device.name} can be replica, node or shared"
    if tier.scope == "shared" and device.device_class == "drive" and _nodes(scenario) > 1:
        problem = f"shared, but {device.name} is a drive of one node, and only one node may mount its file system"
        yield [*path, "scope"], f"{problem}; write node, or take an array or an object store"
    if tier.transport is not None and "port_bandwidth" not in figures:
        yield [*path, "transport"], f"is for devices with network ports; {device.name} has none"
    if tier.gds and is_memory:
        yield [*path, "gds"], f"is for storage; {device.name} is memory"
    if tier.page_cache_of is not None:
        cached = scenario.tiers[tier.page_cache_of].device
        if not is_memory:
            yield [*path, "page_cache_of"], f"a page cache is memory; {device.name} is not"
        elif cached is not None and load_device(cached).device_class == "memory":
            yield [*path, "page_cache_of"], f"is '{tier.page_cache_of}', which is memory; only storage has a page cache"
    if tier.ports is not None:
        yield from _tried([*path, "ports"], partial(device.configure, ports=tier.ports))
    if tier.drives is not None:
        yield from _tried([*path, "drives"], partial(device.configure, drives=tier.drives))
