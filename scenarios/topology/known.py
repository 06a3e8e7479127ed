"""What eviction policies are told of the run they work in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from models.errors import InputError, ScenarioError
from sim.policies.base import Future, PolicyContext
from sim.policies.future import KnownFuture
from sim.policies.hooks import hooks
from sim.prefix_tree import PrefixTree
from sim.runs import Runs
from sim.tiers.hierarchy import KvHierarchy
from sim.tiers.tier import Tier
from sim.workload.open_loop import OpenLoop
from sim.workload.phases import Phase


def prepare_policies(
    pools: Mapping[str, Sequence[Tier]],
    hierarchies: Sequence[KvHierarchy],
    prefixes: PrefixTree,
    *,
    now_s: Callable[[], float],
    recompute_s: Callable[[int], float],
    future: Future | None,
) -> None:
    """Tell the policy of every pool what it may know.

    Raises
    ------
    ScenarioError
        Where one needs what is not known in this run.
    """
    reload_s = {id(view.tier): view.load_s(1) for hierarchy in reversed(hierarchies) for view in hierarchy.tiers}
    for name, tiers in pools.items():
        for tier in tiers:
            context = PolicyContext(
                capacity_chunks=tier.capacity_units // tier.units_per_chunk,
                now_s=now_s,
                position=prefixes.position,
                generation=prefixes.generation,
                recompute_s=recompute_s,
                reload_s=reload_s.get(id(tier), 0.0),  # what is in HBM need not be read
                future=future,
            )
            try:
                hooks(tier.policy).prepare(context)
            except InputError as error:
                raise ScenarioError(f"tiers.{name}.eviction", str(error)) from error


def known_future(phases: Sequence[Phase], submitted: Callable[[], int]) -> Future | None:
    """Return the future of a run whose requests come in an order that does not depend on it, else None."""
    loops = [phase.driver for phase in phases if isinstance(phase.driver, OpenLoop)]
    if len(loops) < len(phases):
        return None

    def uses() -> Iterator[Runs]:
        prefixes = PrefixTree()  # names the chunks as that of the run will, for it sees the same prompts
        for loop in loops:
            for ids in loop.chunk_ids():
                yield prefixes.chain(ids).runs

    return KnownFuture(uses(), submitted)
