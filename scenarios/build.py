"""From a scenario to a run: looks the parts up, puts them together and starts the simulation."""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from random import Random
from typing import Final, NamedTuple, TypedDict

import numpy as np

from models.accelerator import Accelerator, load_accelerator
from models.errors import ScenarioError
from models.llm import Llm, hf_config_path, load_llm
from models.operator_tables import ENGINES, load_operator_tables
from models.prefill import prefill_step_s, prefill_time_s
from models.roofline import step_cost
from models.step_table import load_step_table
from models.step_times import StepTimes
from scenarios.checks import block_devices_shared
from scenarios.choices import create
from scenarios.hbm_room import beyond_room, kv_cache_bytes
from scenarios.loader import resolved
from scenarios.loads import Loads
from scenarios.schema import Engine, Scenario
from scenarios.timeline import timeline
from scenarios.topology import Engines, Geometry, Topology, geometry
from scenarios.topology.known import known_future, prepare_policies
from sim.clock import Clock
from sim.cluster import Cluster
from sim.disaggregation import DecodePool
from sim.engine.front_end import FrontEndSettings
from sim.engine.handover import Handovers
from sim.engine.replica import Replica
from sim.engine.settings import EngineSettings
from sim.engine.vllm_defaults import engine_defaults
from sim.policies.base import ROUTING, SCHEDULING
from sim.policies.loading import LOADING
from sim.policies.prefetch import PREFETCH, NoPrefetch
from sim.recording import OccupancyLog, RequestLog, TokenIntervals, TransferLog
from sim.results.result import SimulationResult
from sim.simulation import Measurement, Progress, Simulation
from sim.workload.phases import Phase

_ROUTER_STREAM: Final = 1 << 16
"""Random streams, by spawn key; those of the workload are counted from 0."""
_PRIORITY_STREAM: Final = _ROUTER_STREAM + 1
_DECODE_ROUTER_STREAM: Final = _ROUTER_STREAM + 2


def simulate(scenario: Scenario, *, progress: Progress | None = None, link_bin_s: float = 1.0) -> SimulationResult:
    """Simulate a scenario and return what was found; links are metered in bins of *link_bin_s*.

    Raises
    ------
    InputError
        If parts do not fit together, a file cannot be read, or no request can be served.
    SimulationError
        If the books do not balance.
    """
    assembly = assemble(scenario)
    result = run(build(scenario, assembly, link_bin_s=link_bin_s), progress=progress)
    add_economics(scenario, result, assembly)
    return result


def add_economics(scenario: Scenario, result: SimulationResult, assembly: Assembly) -> None:
    """Add money, energy and wear to the summary of a run, where its scenario says ``economics``."""
    if scenario.economics is not None:
        from scenarios.economics.evaluating import economics_of

        result.summary_values["economics"] = economics_of(scenario, result, assembly)


def run(simulation: Simulation, *, progress: Progress | None = None) -> SimulationResult:
    """Run what :func:`build` put together and return what was found; raises as :func:`simulate` does."""
    # The run makes millions of short-lived objects and no cycles worth collecting while it lasts.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return simulation.run(progress)
    finally:
        if collecting:
            gc.enable()


class Assembly(NamedTuple):
    """The parts of a run before there is a clock: what it is made of, and what each part costs."""

    llm: Llm
    accelerator: Accelerator
    loads: Loads
    engines: Engines
    settings: EngineSettings
    cost: StepTimes
    prefill_s: Callable[[int], float]
    """Returns the time to compute the first so many tokens of a prompt, nobody beside [s]."""
    decoding: _Decoding | None
    topology: Topology


def assemble(scenario: Scenario) -> Assembly:
    """Look a scenario's parts up and wire them; raises as :func:`simulate` does."""
    llm = load_llm(scenario.llm)
    accelerator = load_accelerator(scenario.cluster.accelerator, scenario.changes())
    loads = Loads(scenario)
    sizes = geometry(scenario, llm, loads.chunk_tokens)
    settings, hbm_bytes = _engine(scenario, llm, accelerator, sizes)
    cost = _step_times(scenario, llm, accelerator)
    prefill_s = partial(prefill_time_s, cost, budget=settings.max_num_batched_tokens, window_tokens=llm.window_tokens)
    engines = Engines(accelerator=accelerator, sizes=sizes, hbm_bytes=hbm_bytes)
    decoding = _decoding(scenario, llm, loads.chunk_tokens)
    return Assembly(
        llm=llm,
        accelerator=accelerator,
        loads=loads,
        engines=engines,
        settings=settings,
        cost=cost,
        prefill_s=prefill_s,
        decoding=decoding,
        topology=Topology(scenario, engines, prefill_s, decoding and decoding.engines),
    )


def build(scenario: Scenario, assembly: Assembly | None = None, *, link_bin_s: float = 1.0) -> Simulation:
    """Put a scenario's parts together without running them; otherwise as :func:`simulate`.

    *assembly* is that of the same scenario, where it has been made already; it serves one run.
    """
    llm, accelerator, loads, engines, settings, cost, _, decoding, topology = assembly or assemble(scenario)
    sizes = engines.sizes
    clock = Clock()
    network, meter = topology.network(clock, link_bin_s)
    pools = topology.pools()
    transfers, occupancy = TransferLog(list(pools)), OccupancyLog(list(pools))
    log = RequestLog(list(pools), disaggregated=decoding is not None)
    intervals = TokenIntervals()
    hierarchies = topology.hierarchies(clock, network, transfers)
    n_entries = scenario.cluster.replicas
    replicas = [
        Replica(
            index=index,
            clock=clock,
            settings=settings if decoding is None or index < n_entries else decoding.settings,
            cost=cost if decoding is None or index < n_entries else decoding.cost,
            hbm=pool,
            hierarchy=hierarchy,
            intervals=intervals,
            scheduling=create(SCHEDULING, scenario.engine.scheduling),
            loading=create(LOADING, scenario.transfer.load_or_recompute),
            prefetch=create(PREFETCH, scenario.transfer.prefetch) if index < n_entries else NoPrefetch(),
        )
        for index, (pool, hierarchy) in enumerate(zip(topology.hbm, hierarchies, strict=True))
    ]
    handovers = Handovers(clock=clock, network=network, log=transfers, legs=topology.handover_legs(network))
    cluster = Cluster(
        clock=clock,
        replicas=replicas[:n_entries],
        decode=_decode_pool(scenario, replicas[n_entries:], handovers),
        router=create(ROUTING, scenario.cluster.router, random=_random(scenario, _ROUTER_STREAM)),
        front_end=_front_end(scenario.engine),
        log=log,
        occupancy=occupancy,
        tiers=pools,
        prefixes=topology.prefixes,
        priority_of=_priorities(scenario),
    )
    phases = loads.phases()
    chunk_tokens = sizes.chunk_tokens
    prepare_policies(
        pools,
        hierarchies,
        topology.prefixes,
        now_s=lambda: clock.now_s,
        recompute_s=lambda position: prefill_step_s(
            cost, position * chunk_tokens, chunk_tokens, window_tokens=llm.window_tokens
        ),
        future=known_future(phases, lambda: cluster.submitted),
    )
    accelerators = [accelerator] if decoding is None else [accelerator, decoding.engines.accelerator]
    caveats = {llm.name: llm.caveats} | {gpu.name: gpu.caveats for gpu in accelerators} | topology.caveats
    loads.warnings.known += [*block_devices_shared(scenario), *beyond_room(scenario, llm, accelerators)]
    loads.warnings.known += _caveat_lines(caveats.items())
    events = timeline(scenario, topology, clock, network, cluster)
    return Simulation(
        clock=clock,
        network=network,
        cluster=cluster,
        phases=phases,
        meter=meter,
        transfers=transfers,
        occupancy=occupancy,
        intervals=intervals,
        process_tiers=topology.process_tiers(),
        loading_links=topology.loading_links(),
        handover_links=topology.handover_links(),
        neighbours=topology.neighbours(clock, network, [phase.name for phase in phases]),
        measurement=_measurement(scenario, phases),
        scenario=resolved(scenario),
        seed=scenario.run.seed,
        warnings=loads.warnings,
        timeline=events,
    )


class _Layout(TypedDict):
    tensor_parallel: int
    pipeline_parallel: int
    expert_parallel: bool
    weight_dtype: str | None
    kv_dtype: str


class _Decoding(NamedTuple):
    """The replicas that only decode."""

    engines: Engines
    settings: EngineSettings
    cost: StepTimes


def _decoding(scenario: Scenario, llm: Llm, chunk_tokens: int) -> _Decoding | None:
    """Return what the replicas are that only decode, if any do: as the others but for what the scenario says."""
    if scenario.cluster.decode is None:
        return None
    theirs = scenario.model_copy(update={"cluster": scenario.cluster.decoding()})
    accelerator = load_accelerator(theirs.cluster.accelerator, scenario.changes())
    sizes = geometry(theirs, llm, chunk_tokens)
    settings, hbm_bytes = _engine(theirs, llm, accelerator, sizes)
    engines = Engines(accelerator=accelerator, sizes=sizes, hbm_bytes=hbm_bytes)
    return _Decoding(engines, settings, _step_times(theirs, llm, accelerator))


def _decode_pool(scenario: Scenario, replicas: Sequence[Replica], handovers: Handovers) -> DecodePool | None:
    spec = scenario.cluster.decode
    if spec is None:
        return None
    router = create(ROUTING, spec.router, random=_random(scenario, _DECODE_ROUTER_STREAM))
    return DecodePool(replicas=replicas, router=router, handovers=handovers)


def _random(scenario: Scenario, *stream: int) -> Random:
    """Return a random stream of the run that has nothing to do with any other."""
    return Random(int(np.random.SeedSequence(scenario.run.seed, spawn_key=stream).generate_state(1, np.uint64)[0]))


def _priorities(scenario: Scenario) -> Callable[[int], int] | None:
    """Return what draws a session's priority: by its number, so that it is the same in every variant of a run."""
    shares = scenario.workload.priorities
    if shares is None:
        return None
    limits = list(accumulate(shares))
    last = len(shares) - 1

    def priority_of(session: int) -> int:
        drawn = _random(scenario, _PRIORITY_STREAM, session).random()
        return min(bisect_right(limits, drawn), last)

    return priority_of


def _front_end(engine: Engine) -> FrontEndSettings:
    return FrontEndSettings(
        latency_s=engine.request_latency,
        tokenize_tokens_per_s=engine.tokenize_tokens_per_s,
        batch_wait_s=engine.tokenize_batch_wait,
        max_model_len=engine.max_model_len,
    )


def _step_times(scenario: Scenario, llm: Llm, accelerator: Accelerator) -> StepTimes:
    engine, cluster = scenario.engine, scenario.cluster
    if engine.step_times is not None and engine.step_times not in ENGINES:
        return load_step_table(engine.step_times)
    layout = _Layout(
        tensor_parallel=cluster.tensor_parallel,
        pipeline_parallel=cluster.pipeline_parallel,
        expert_parallel=cluster.expert_parallel,
        weight_dtype=engine.weight_dtype,
        kv_dtype=engine.kv_dtype,
    )
    if engine.step_times is None:
        return step_cost(llm, accelerator, **layout)
    return load_operator_tables(engine.step_times, llm, accelerator, config=hf_config_path(scenario.llm), **layout)


def _engine(scenario: Scenario, llm: Llm, accelerator: Accelerator, sizes: Geometry) -> tuple[EngineSettings, int]:
    """Return the engine's settings and the KV cache of one replica in HBM [B]."""
    engine, transfer = scenario.engine, scenario.transfer
    defaults = engine_defaults(engine.version, accelerator.hbm_bytes, accelerator.name, "engine.version")
    budget = engine.max_num_batched_tokens or defaults.max_num_batched_tokens
    seqs = engine.max_num_seqs or min(defaults.max_num_seqs, budget)
    if budget < seqs:
        raise ScenarioError("engine.max_num_batched_tokens", f"is {budget}; must be at least max_num_seqs ({seqs})")
    capacity = kv_cache_bytes(scenario, llm, accelerator, default_utilization=defaults.gpu_memory_utilization)
    block_bytes = sizes.chunk_bytes * sizes.replication * sizes.block_tokens / sizes.chunk_tokens
    settings = EngineSettings(
        block_tokens=engine.block_tokens,
        chunk_tokens=sizes.chunk_tokens,
        max_num_batched_tokens=budget,
        max_num_seqs=seqs,
        prefix_caching=engine.prefix_caching,
        caches_answers=engine.prefix_caching and scenario.tiers["hbm"].stores == "prompt+output",
        synchronous_loads=transfer.load == "sync",
        synchronous_storage_loads=None if transfer.storage_load is None else transfer.storage_load == "sync",
        synchronous_stores=transfer.store == "sync",
        min_load_tokens=transfer.min_load_tokens,
        request_software_s=transfer.request_software,
        mixed_step_factor=engine.mixed_step_factor,
        mixed_steps=engine.mixed_steps,
        receive_interval=engine.receive_interval,
        window_tokens=llm.window_tokens,
        state_units=-(-llm.state_bytes() // int(block_bytes)),
        overlap_layers=llm.layers if transfer.layerwise else 0,
        recomputes_failed_loads=engine.kv_load_failure_policy == "recompute",
        decode_jumps=engine.decode_jumps,
    )
    return settings, capacity


def _measurement(scenario: Scenario, phases: list[Phase]) -> Measurement:
    names = [phase.name for phase in phases]
    run, slo = scenario.run, scenario.slo
    return Measurement(
        phase=None if run.measure is None else names.index(run.measure),
        warmup_s=run.warmup,
        rule=run.percentiles,
        slo={} if slo is None else {"ttft_s": slo.ttft, "tpot_s": slo.tpot, "itl_s": slo.itl},
    )


def _caveat_lines(parts: Iterable[tuple[str, tuple[str, ...]]]) -> list[str]:
    """Say which parts rest on figures that nobody has measured or published for them."""
    return [f"{name} rests on assumed, announced or unverified figures: {', '.join(c)}" for name, c in parts if c]
