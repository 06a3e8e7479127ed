"""Links, pools and paths put together: what each replica sees of the tiers below HBM."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scenarios.choices import create
from scenarios.schema import Scenario
from scenarios.tier_spec import TierSpec
from scenarios.topology.health import health_of
from scenarios.topology.links import Links
from scenarios.topology.neighbours import neighbours_of
from scenarios.topology.parts import Engines, Part, Places, parts_of
from scenarios.topology.paths import Paths
from scenarios.topology.pools import Pools
from sim.clock import Clock
from sim.events.replicas import Memory
from sim.events.tier_health import LostChunks, TierHealth
from sim.policies.base import ADMISSION, PLACEMENT, AdmissionPolicy
from sim.prefix_tree import PrefixTree
from sim.recording import LinkMeter, TransferLog
from sim.runs import Runs
from sim.tiers.attached import AttachedTier, keys_below
from sim.tiers.faults import LoadFault, RandomFault
from sim.tiers.gate import Gate, SecondTouch
from sim.tiers.hierarchy import KvHierarchy
from sim.tiers.tier import Tier
from sim.tiers.turns import Turns
from sim.transfers.flows import FlowNetwork
from sim.transfers.legs import Leg
from sim.transfers.neighbours import Neighbours
from sim.transfers.varying import VaryingNetwork

_Rules = tuple[Callable[[Runs], Runs] | None, Gate | None, SecondTouch | None]


class Topology:
    """Links, pools and hierarchies of one scenario.

    Parameters
    ----------
    scenario : Scenario
        As loaded.
    engines : Engines
        GPUs, chunk sizes and HBM of the replicas.
    decode : Engines or None
        The same of those that only decode.
    prefill_s : callable or None
        Returns the time to compute the first so many tokens of a prompt [s], for filters that ask.

    Raises
    ------
    ScenarioError
        If a tier holds no chunk, or a link or scope does not fit the cluster.
    """

    def __init__(
        self,
        scenario: Scenario,
        engines: Engines,
        prefill_s: Callable[[int], float] | None = None,
        decode: Engines | None = None,
    ) -> None:
        self._transfer = scenario.transfer
        self._neighbours = scenario.neighbours
        self._seed = scenario.run.seed
        self._sizes = engines.sizes
        self._decode = decode
        self._prefill_s = prefill_s
        self._places = Places.of(scenario.cluster)
        self._parts = parts_of(scenario)
        self._pools = Pools(scenario, engines, self._places, self._parts, decode)
        self._links = Links(scenario, engines, self._places, self._parts, decode)
        self._paths = Paths(scenario.transfer, engines.sizes, self._links, self._parts)
        self._rules: dict[Tier, _Rules] = {}
        self._damaged = {event.tier for event in scenario.events or () if event.tier is not None}
        self._lost_chunks: dict[Tier, LostChunks] = {}
        staging = (position for position, part in enumerate(self._parts) if part.is_host_memory)
        self._staging = next(staging, None)

    @property
    def caveats(self) -> dict[str, tuple[str, ...]]:
        """Assumed, announced or unverified figures, by the part that they belong to."""
        return self._links.caveats

    @property
    def hbm(self) -> list[Tier]:
        """The HBM pool of each replica."""
        return self._pools.hbm

    @property
    def prefixes(self) -> PrefixTree:
        """What names the chunks of all prompts."""
        return self._pools.prefixes

    @property
    def parts(self) -> list[Part]:
        """The tiers below HBM, fastest first."""
        return list(self._parts)

    @property
    def links(self) -> Links:
        """All links."""
        return self._links

    def piece_bytes(self, part: Part) -> float:
        """Return the size of one I/O to a tier's medium [B]."""
        return self._paths.piece_bytes(part)

    def network(self, clock: Clock, bin_s: float = 1.0) -> tuple[FlowNetwork, LinkMeter]:
        """Return the network of all links, and what meters it in bins of *bin_s*."""
        links = list(self._links.by_name.values())
        meter = LinkMeter([link.name for link in links], bin_s=bin_s)
        make = VaryingNetwork if self._damaged else FlowNetwork
        return make(clock, links, meter), meter

    def pools(self) -> dict[str, list[Tier]]:
        """Return all pools by tier, fastest first."""
        return self._pools.by_tier()

    def process_tiers(self) -> frozenset[str]:
        """Return the tiers that an engine restart loses."""
        return frozenset({"hbm"} | {part.name for part in self._parts if part.spec.index == "process"})

    def loading_links(self) -> dict[str, list[str]]:
        """Return for each tier below HBM the links that its loads cross."""
        replicas = range(self._places.replicas)
        return {
            part.name: sorted(set().union(*(self._paths.loading_links(part, replica) for replica in replicas)))
            for part in self._parts
        }

    def handover_legs(self, network: FlowNetwork) -> dict[tuple[int, int], Leg]:
        """Return the paths from replicas that prefill to those that decode, by their indices."""
        places, decode = self._places, self._decode
        if decode is None or places.decode is None:
            return {}
        software_s, sizes, leg = places.decode.handover_software, decode.sizes, self._paths.handover_leg
        return {
            (source, target): leg(network, source, target, sizes, software_s)
            for source in range(places.replicas)
            for target in places.decoding
        }

    def handover_links(self) -> list[str]:
        """Return the links that handovers cross."""
        places = self._places
        pairs = ((source, target) for source in range(places.replicas) for target in places.decoding)
        return sorted({hop.link for pair in pairs for hop in self._links.between(*pair, 1.0)})

    def neighbours(self, clock: Clock, network: FlowNetwork, phases: Sequence[str]) -> Neighbours:
        """Return the traffic of others; raises ScenarioError if it is for a link that is not there."""
        return neighbours_of(
            self._neighbours,
            parts=self._parts,
            replicas=range(self._places.replicas),
            links=self._links,
            paths=self._paths,
            clock=clock,
            network=network,
            phases=phases,
        )

    def hierarchies(self, clock: Clock, network: FlowNetwork, log: TransferLog) -> list[KvHierarchy]:
        """Return what each replica sees of the tiers below HBM, write-backs wired up."""
        return [self._hierarchy(clock, network, log, replica) for replica in self._places.everyone]

    def _hierarchy(self, clock: Clock, network: FlowNetwork, log: TransferLog, replica: int) -> KvHierarchy:
        decodes = replica in self._places.decoding
        positions = () if decodes else range(len(self._parts))
        attached = [self._attach(clock, network, position, replica) for position in positions]
        self._make_turns(attached)
        for position, view in enumerate(attached):
            if self._parts[position].spec.inclusion == "exclusive":
                self._wire_exclusion(attached, position, view)
        hierarchy = KvHierarchy(
            clock=clock,
            network=network,
            tiers=attached,
            staging=None if decodes else self._staging,
            grouped_lookup=self._transfer.lookup == "grouped",
            serial_loads=self._transfer.load == "sync",
            staging_timeout_s=self._transfer.staging_timeout,
            replica=replica,
            log=log,
        )
        for position, view in enumerate(attached):
            if view.write_back:
                self._wire_write_back(hierarchy, position, view, replica)
        return hierarchy

    def _make_turns(self, attached: Sequence[AttachedTier]) -> None:
        """Let a replica's loads from all its memory, and from all its drives, wait for each other."""
        copies, loads = self._transfer.copies_in_flight, self._transfer.loads_in_flight
        copy_turns = None if copies is None else Turns(copies)
        load_turns = None if loads is None else Turns(loads)
        for view in attached:
            view.turns = copy_turns if view.is_host_memory else load_turns

    def _wire_write_back(self, hierarchy: KvHierarchy, position: int, view: AttachedTier, replica: int) -> None:
        above = self._above(position)
        pool = self.hbm[replica] if above is None else self._pools.of(self._parts[above], replica)
        if pool.spill is None:  # a pool that several replicas share is wired by the first of them
            keeps_views = self._both_keep_views(above, position)
            pool.spill = hierarchy.write_back(pool, view, keeps_views=keeps_views).spill

    def _wire_exclusion(self, attached: Sequence[AttachedTier], position: int, view: AttachedTier) -> None:
        """Let a tier give up what the next faster one has taken over."""
        above = self._above(position)
        if above is None:
            view.leaves_for_hbm = True
        else:
            keeps_views = self._both_keep_views(above, position)
            attached[above].on_kept = lambda keys: view.tier.drop(
                [keys_below(run, view, keeps_views=keeps_views) for run in keys]
            )

    def _both_keep_views(self, above: int | None, position: int) -> bool:
        """Whether a tier and one above it tell the chunks of different replicas apart (HBM need not)."""
        keeps_views, parts = self._pools.keeps_views, self._parts
        return above is not None and keeps_views(parts[above]) and keeps_views(parts[position])

    def _above(self, position: int) -> int | None:
        """Return the next faster tier that holds chunks of its own, None for HBM."""
        for above in range(position - 1, -1, -1):
            if not self._parts[above].is_page_cache:
                return above
        return None

    def _feeder(self, position: int) -> int | None:
        """Return the tier that a tier's writes come from, None for HBM."""
        part, staging = self._parts[position], self._staging
        if part.writes == "at-eviction":
            return self._above(position)
        if self._is_behind_staging(position) and staging is not None:
            return staging if self._parts[staging].writes == "at-use" else None
        return None

    def _is_behind_staging(self, position: int) -> bool:
        part = self._parts[position]
        return self._staging is not None and position > self._staging and not part.spec.gds

    def _attach(self, clock: Clock, network: FlowNetwork, position: int, replica: int) -> AttachedTier:
        part, pools = self._parts[position], self._pools
        spec = part.spec
        feeder = self._feeder(position)
        source = None if feeder is None else self._parts[feeder]
        write_leg = self._paths.write_leg(network, part, replica, source, pools.write_cache(part, replica))
        pool = pools.of(part, replica)
        attached = AttachedTier(
            tier=pool,
            key_offset=pools.key_offset(part, replica),
            read_legs=self._paths.read_legs(network, part, replica),
            write_leg=write_leg,
            fed_from_staging=feeder is not None and feeder == self._staging,
            # GPUs copy straight from memory, also from a second tier of it.
            stages=self._is_behind_staging(position) and not part.is_host_memory,
            write_through=part.writes == "at-use" and not part.is_page_cache,
            write_back=part.writes == "at-eviction",
            promote=part.promotes,
            waits_when_full=spec.on_full == "wait",
            page_cache=pools.page_cache(part, replica),
            everywhere=part.scope == "shared" and spec.index == "filesystem",
            is_memory=part.is_memory,
            prefetch_leg=self._prefetch_leg(network, position, replica),
            is_host_memory=part.is_host_memory,
            eviction_s=0.0 if part.is_memory else self._transfer.eviction_software,
            takes_answers=spec.stores == "prompt+output",
            fault=self._fault(part, pool),
        )
        # What several replicas share has one memory, that of the first of them.
        if pool not in self._rules:
            self._rules[pool] = self._make_rules(clock, part, attached)
        attached.selects, attached.gate, attached.touches = self._rules[pool]
        return attached

    def _fault(self, part: Part, pool: Tier) -> LoadFault | None:
        """Return what says which reads of a tier fail."""
        probability = part.spec.load_failure_probability
        at_random = RandomFault(probability, self._seed, part.name) if probability else None
        if part.name not in self._damaged:
            return at_random
        return self._lost_chunks.setdefault(pool, LostChunks(pool, at_random))

    def health(self, clock: Clock, network: FlowNetwork, name: str, instance: int) -> tuple[TierHealth, list[int]]:
        """Return the parts of a pool that events can take away, and the replicas that use it.

        Raises
        ------
        KeyError
            If no event of the scenario names that tier, or it has no such instance.
        """
        part = next(part for part in self._parts if part.name == name)
        users = self._places.users(part, instance)
        if not users or not isinstance(network, VaryingNetwork):
            raise KeyError(name, instance)
        pool = self._pools.of(part, users[0])
        health = health_of(
            part,
            users[0],
            clock=clock,
            network=network,
            links=self._links,
            paths=self._paths,
            tier=pool,
            faults=self._lost_chunks[pool],
        )
        return health, users

    def memory(self, replicas: Sequence[int], *, whole_node: bool) -> list[Memory]:
        """Return what is lost below HBM when replicas restart: what is in their processes, or in the memory of a node.

        An index in a process is lost with it, whatever it is an index of; other memory that is one replica's alone goes
        with that one, a node's with the node. Files on drives stay.
        """
        lost: dict[Memory, None] = {}
        for part in self._parts:
            if part.scope == "shared" and part.spec.index != "process":
                continue
            for replica in replicas:
                pool, views = self._pools.of(part, replica), self._pools.keeps_views(part)
                of_process = not part.is_page_cache and (
                    part.spec.index == "process" or (part.is_memory and part.scope in {"worker", "replica"})
                )
                if part.is_memory and whole_node:
                    lost[Memory(pool)] = None
                elif of_process:
                    lost[Memory(pool, replica if views else None)] = None
        return list(lost)

    def _prefetch_leg(self, network: FlowNetwork, position: int, replica: int) -> Leg | None:
        """Return how KV gets from a tier into memory ahead, where the scenario lets it."""
        part, prefetch = self._parts[position], self._transfer.prefetch
        if prefetch == "none" or not self._is_behind_staging(position) or part.is_host_memory:
            return None
        return self._paths.prefetch_leg(network, part, replica)

    def _make_rules(self, clock: Clock, part: Part, view: AttachedTier) -> _Rules:
        """Return what decides which chunks enter a pool."""
        spec, pool = part.spec, view.tier
        selects = getattr(create(PLACEMENT, spec.placement), "used", None) if view.write_through else None
        gate = None
        if spec.admission is not None or spec.max_store_backlog is not None:
            gate = Gate(pool, admission=self._admission(clock, spec, view), most_under_way_bytes=spec.max_store_backlog)
        return selects, gate, SecondTouch() if spec.promotion == "second-touch" else None

    def _admission(self, clock: Clock, spec: TierSpec, view: AttachedTier) -> AdmissionPolicy | None:
        if spec.admission is None:
            return None
        known: dict[str, object] = {
            "capacity_chunks": view.tier.capacity_units,
            "chunk_tokens": self._sizes.chunk_tokens,
            "load_s": view.load_s,
            "now_s": lambda: clock.now_s,
        }
        prefill_s, chunk_tokens = self._prefill_s, self._sizes.chunk_tokens
        if prefill_s is not None:
            known["recompute_s"] = lambda chunks: prefill_s(chunks * chunk_tokens)
        return create(ADMISSION, spec.admission, **known)
