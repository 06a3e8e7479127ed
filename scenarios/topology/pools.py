"""The pools of a scenario's tiers: capacity, policy, who shares them, and whose chunks each replica sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from models.errors import ScenarioError
from scenarios.choices import create
from scenarios.schema import Scenario
from scenarios.tier_spec import TierSpec
from scenarios.topology.parts import Engines, Part, Places
from sim.policies.base import EVICTION, EvictionPolicy
from sim.policies.leaf import LeafConstrained, constrain_to_leaves
from sim.prefix_tree import KEY_BITS, PrefixTree
from sim.runs import Runs
from sim.tiers.tier import ParentOf, Tier
from sim.tiers.watermarks import WatermarkedTier
from sim.transfers.legs import WriteCache

_NO_BOUND: Final = 1 << 50
"""Chunks that no run can fill."""


class Pools:
    """One tier object for each place that the scope of a tier says.

    Parameters
    ----------
    scenario, engines, places, parts
        What they follow from.
    decode : Engines or None
        The replicas that only decode.

    Raises
    ------
    ScenarioError
        If a pool holds no chunk, or nobody knows its capacity.
    """

    def __init__(
        self,
        scenario: Scenario,
        engines: Engines,
        places: Places,
        parts: Sequence[Part],
        decode: Engines | None = None,
    ) -> None:
        self._scenario = scenario
        self._sizes = engines.sizes
        self._places = places
        self._parts = parts
        self.prefixes = PrefixTree()
        self.hbm = [self._hbm_pool(engines) for _ in range(places.replicas)]
        if decode is not None:
            self.hbm += [self._hbm_pool(decode) for _ in places.decoding]
        self._below: dict[str, dict[int, Tier]] = {}
        self._write_caches: dict[str, dict[int, WriteCache]] = {}
        for part in parts:
            instances = sorted({places.instance(part, replica) for replica in range(places.replicas)})
            self._below[part.name] = {instance: self._pool(part) for instance in instances}
            self._write_caches[part.name] = _write_caches(part, instances)
        self._wire_page_caches()

    def by_tier(self) -> dict[str, list[Tier]]:
        """Return all pools by tier, fastest first."""
        return {"hbm": self.hbm} | {name: list(pools.values()) for name, pools in self._below.items()}

    def of(self, part: Part, replica: int) -> Tier:
        """Return the pool that a replica uses."""
        return self._below[part.name][self._places.instance(part, replica)]

    def write_cache(self, part: Part, replica: int) -> WriteCache | None:
        """Return the fast write buffer of the drive that a replica uses, if the catalogue knows of one."""
        return self._write_caches[part.name].get(self._places.instance(part, replica))

    def page_cache(self, part: Part, replica: int) -> Tier | None:
        """Return the page cache in front of a tier."""
        for cache in self._parts:
            if cache.spec.page_cache_of == part.name:
                return self.of(cache, replica)
        return None

    # Whose chunks ----------------------------------------------------------------------------------------------------

    def key_offset(self, part: Part, replica: int) -> int:
        """Return what is added to a replica's chunk keys, so that replicas share a pool without sharing its index."""
        return replica << KEY_BITS if self.keeps_views(part) else 0

    def keeps_views(self, part: Part) -> bool:
        """Whether a tier's pools tell apart what different replicas wrote.

        An index in the engine's process is unseen by the others, also where they share the device. A page cache goes by
        the files of its tier, and both name them alike.
        """
        owner = next((p for p in self._parts if p.name == part.spec.page_cache_of), part)
        if owner.spec.index != "process":
            return False
        together = [owner, *(p for p in self._parts if p.spec.page_cache_of == owner.name)]
        pools = {
            (p.name, self._places.instance(p, replica)) for p in together for replica in range(self._places.replicas)
        }
        return len(pools) < len(together) * self._places.replicas

    def _wire_page_caches(self) -> None:
        for cache in self._parts:
            if not cache.is_page_cache:
                continue
            target = next(p for p in self._parts if p.name == cache.spec.page_cache_of)
            for instance, pool in self._below[target.name].items():
                fronts = {id(c): c for r in self._places.users(target, instance) for c in [self.of(cache, r)]}
                pool.on_removed = _drop_from(list(fronts.values()))

    # Making them -----------------------------------------------------------------------------------------------------

    def _policy(self, spec: TierSpec) -> EvictionPolicy:
        policy = create(EVICTION, spec.eviction)
        return constrain_to_leaves(policy) if spec.structure == "leaf_constrained" else policy

    def _parent_of(self, policy: EvictionPolicy) -> ParentOf | None:
        return self.prefixes.parent if isinstance(policy, LeafConstrained) else None

    def _hbm_pool(self, engines: Engines) -> Tier:
        spec, sizes = self._scenario.tiers["hbm"], engines.sizes
        blocks_per_chunk = sizes.chunk_tokens // sizes.block_tokens
        unit_bytes = sizes.chunk_bytes * sizes.replication / blocks_per_chunk
        policy = self._policy(spec)
        units = int(engines.hbm_bytes // unit_bytes)
        if getattr(policy, "unbounded", False):
            raise ScenarioError("tiers.hbm.eviction", "has no bound; hbm must have one, for requests run in it")
        if units < blocks_per_chunk:
            raise ScenarioError("tiers.hbm", f"holds {units} blocks of {sizes.block_tokens} tokens; not even one chunk")
        return Tier(
            name="hbm",
            index=0,
            capacity_units=units,
            units_per_chunk=blocks_per_chunk,
            unit_bytes=unit_bytes,
            policy=policy,
            parent_of=self._parent_of(policy),
        )

    def _pool(self, part: Part) -> Tier:
        sizes, spec = self._sizes, part.spec
        capacity: float | None = spec.capacity
        if capacity is None and part.device.capacity_bytes is not None:
            capacity = part.device.capacity_bytes / part.layout.overhead
        where = f"tiers.{part.name}.capacity"
        if capacity is None:
            raise ScenarioError(where, f"is missing, and the catalogue knows none for {part.device.name}")
        held_bytes = sizes.held_bytes(part)
        if part.scope == "worker":
            units = int(capacity // (held_bytes * sizes.replication / sizes.workers))
            chunk_bytes = held_bytes * sizes.replication
        else:
            units, chunk_bytes = int(capacity // held_bytes), float(held_bytes)
        if units < 1:
            raise ScenarioError(where, f"is {capacity:g} B; must hold at least one chunk of {chunk_bytes:g} B")
        tail_first = self._scenario.transfer.insertion == "tail-first"
        policy = self._policy(spec)
        if getattr(policy, "unbounded", False):
            units = _NO_BOUND
        marks = spec.watermarks
        make = Tier if marks is None else partial(WatermarkedTier, high=marks.high, low=marks.low)
        return make(
            name=part.name,
            index=part.index,
            capacity_units=units,
            units_per_chunk=1,
            unit_bytes=chunk_bytes,
            policy=policy,
            tail_first=tail_first,
            parent_of=self._parent_of(policy),
            evicts=spec.evicts,
        )


def _write_caches(part: Part, instances: Sequence[int]) -> dict[int, WriteCache]:
    device = part.device
    if device.write_cache_bytes is None or device.sustained_write_bytes_per_s is None:
        return {}
    return {i: WriteCache(device.write_cache_bytes, device.sustained_write_bytes_per_s) for i in instances}


def _drop_from(pools: Sequence[Tier]) -> Callable[[Runs], None]:
    def drop(keys: Runs) -> None:
        for pool in pools:
            pool.drop(keys)

    return drop
