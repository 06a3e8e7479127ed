"""From a scenario to a run: looks the parts up, puts them together and starts the simulation."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from models.accelerator import Accelerator, load_accelerator
from models.errors import ScenarioError
from models.llm import Llm, load_llm
from models.roofline import StepCost, kv_capacity_bytes, step_cost
from models.step_table import StepTable, load_step_table
from scenarios.loader import resolved
from scenarios.schema import Load, Scenario
from scenarios.topology import Geometry, Topology, geometry
from sim.clock import Clock
from sim.cluster import Cluster
from sim.engine_settings import EngineSettings
from sim.front_end import FrontEndSettings
from sim.policies.base import ROUTING
from sim.recording import OccupancyLog, RequestLog, TokenIntervals, TransferLog
from sim.replica import Replica
from sim.result import SimulationResult
from sim.simulation import Measurement, Progress, Simulation
from sim.synthetic import GENERATORS
from sim.traces import open_trace
from sim.traces.record import Trace
from sim.vllm_defaults import engine_defaults
from sim.workload import ClosedLoop, Contexts, Driver, OpenLoop, Phase, Wave, blocks_per_chunk

_STREAMS: Final = 2
"""Independent random streams of a run: the generator of requests, and the arrival of waves."""


def simulate(scenario: Scenario, *, progress: Progress | None = None) -> SimulationResult:
    """Simulate a scenario and return what was found.

    Raises
    ------
    InputError
        If parts do not fit together, a file cannot be read, or no request can be served.
    SimulationError
        If the books do not balance.
    """
    simulation = build(scenario)
    # The run makes millions of short-lived objects and no cycles worth collecting while it lasts.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return simulation.run(progress)
    finally:
        if collecting:
            gc.enable()


def build(scenario: Scenario) -> Simulation:
    """Put a scenario's parts together without running them; raises as :func:`simulate` does."""
    llm = load_llm(scenario.llm)
    accelerator = load_accelerator(scenario.cluster.accelerator)
    loads = _Loads(scenario)
    sizes = geometry(scenario, llm, loads.chunk_tokens)
    settings, hbm_bytes = _engine(scenario, llm, accelerator, sizes)
    topology = Topology(scenario, accelerator, sizes, hbm_bytes)
    clock = Clock()
    network, meter = topology.network(clock)
    pools = topology.pools()
    transfers, log, occupancy = TransferLog(list(pools)), RequestLog(list(pools)), OccupancyLog(list(pools))
    intervals = TokenIntervals()
    cost = _step_times(scenario, llm, accelerator)
    replicas = [
        Replica(
            index=index,
            clock=clock,
            settings=settings,
            cost=cost,
            hbm=pool,
            hierarchy=hierarchy,
            intervals=intervals,
        )
        for index, (pool, hierarchy) in enumerate(
            zip(topology.hbm, topology.hierarchies(clock, network, transfers), strict=True)
        )
    ]
    cluster = Cluster(
        clock=clock,
        replicas=replicas,
        router=ROUTING.create(scenario.cluster.router),
        front_end=FrontEndSettings(
            latency_s=scenario.engine.request_latency,
            tokenize_tokens_per_s=scenario.engine.tokenize_tokens_per_s,
            batch_wait_s=scenario.engine.tokenize_batch_wait,
            max_model_len=scenario.engine.max_model_len,
        ),
        log=log,
        occupancy=occupancy,
        tiers=pools,
        parents=topology.parents,
    )
    phases = loads.phases(scenario)
    caveats = {llm.name: llm.caveats, accelerator.name: accelerator.caveats} | topology.caveats
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
        measurement=_measurement(scenario, phases),
        scenario=resolved(scenario),
        seed=scenario.run.seed,
        warnings=[*loads.warnings, *_caveat_lines(caveats.items())],
    )


def _step_times(scenario: Scenario, llm: Llm, accelerator: Accelerator) -> StepCost | StepTable:
    if scenario.engine.step_times is not None:
        return load_step_table(scenario.engine.step_times)
    return step_cost(
        llm,
        accelerator,
        tensor_parallel=scenario.cluster.tensor_parallel,
        pipeline_parallel=scenario.cluster.pipeline_parallel,
        expert_parallel=scenario.cluster.expert_parallel,
        weight_dtype=scenario.engine.weight_dtype,
        kv_dtype=scenario.engine.kv_dtype,
    )


def _engine(scenario: Scenario, llm: Llm, accelerator: Accelerator, sizes: Geometry) -> tuple[EngineSettings, int]:
    """Return the engine's settings and the KV cache of one replica in HBM [B]."""
    engine, cluster, transfer = scenario.engine, scenario.cluster, scenario.transfer
    defaults = engine_defaults(engine.version, accelerator.hbm_bytes, accelerator.name, "engine.version")
    budget = engine.max_num_batched_tokens or defaults.max_num_batched_tokens
    seqs = engine.max_num_seqs or min(defaults.max_num_seqs, budget)
    if budget < seqs:
        raise ScenarioError("engine.max_num_batched_tokens", f"is {budget}; must be at least max_num_seqs ({seqs})")
    capacity = scenario.tiers["hbm"].capacity
    if capacity is None:
        utilization = engine.gpu_memory_utilization or defaults.gpu_memory_utilization
        capacity = kv_capacity_bytes(
            llm,
            accelerator,
            tensor_parallel=cluster.tensor_parallel,
            pipeline_parallel=cluster.pipeline_parallel,
            gpu_memory_utilization=utilization,
            weight_dtype=engine.weight_dtype,
        )
    block_bytes = sizes.chunk_bytes * sizes.replication * sizes.block_tokens / sizes.chunk_tokens
    settings = EngineSettings(
        block_tokens=engine.block_tokens,
        chunk_tokens=sizes.chunk_tokens,
        max_num_batched_tokens=budget,
        max_num_seqs=seqs,
        prefix_caching=engine.prefix_caching,
        synchronous_loads=transfer.load == "sync",
        synchronous_stores=transfer.store == "sync",
        min_load_tokens=transfer.min_load_tokens,
        request_software_s=transfer.request_software,
        mixed_step_factor=engine.mixed_step_factor,
        window_tokens=llm.window_tokens,
        state_units=-(-llm.state_bytes() // int(block_bytes)),
        decode_jumps=engine.decode_jumps,
    )
    return settings, int(capacity)


@dataclass(slots=True, init=False)
class _Loads:
    """The workload's parts: traces opened, and the chunk size that they share."""

    chunk_tokens: int
    warnings: list[str]

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._seeds = np.random.SeedSequence(scenario.run.seed).spawn(_STREAMS)
        self._traces: dict[int, Trace] = {}
        self._blocks: dict[int, int] = {}
        self.warnings = []
        workload = scenario.workload
        self._parts: list[Load] = list(workload.phases) if workload.phases is not None else [workload]
        stack_tokens = scenario.engine.chunk_tokens or scenario.transfer.chunk_tokens
        sizes: dict[int, str] = {}
        for index, load in enumerate(self._parts):
            trace = self._open(load)
            if trace is None:
                continue
            where = f"trace {trace.name}"
            count = blocks_per_chunk(trace.block_tokens, stack_tokens, scenario.engine.block_tokens, where)
            self._traces[index], self._blocks[index] = trace, count
            sizes[count * trace.block_tokens] = where
            if not trace.has_prefixes:
                self.warnings.append(f"{where} says nothing about shared prefixes: no request can hit")
        if len(sizes) > 1:
            listed = " and ".join(f"{tokens} ({where})" for tokens, where in sizes.items())
            raise ScenarioError("workload.phases", f"chunks would differ: {listed} tokens; set engine.chunk_tokens")
        self.chunk_tokens = next(iter(sizes), stack_tokens)

    _scenario: Scenario
    _seeds: list[np.random.SeedSequence]
    _traces: dict[int, Trace]
    _blocks: dict[int, int]
    _parts: list[Load]

    def _open(self, load: Load) -> Trace | None:
        if load.trace is not None:
            return open_trace(Path(load.trace), load.format)
        synthetic = load.synthetic
        if synthetic is None:
            return None
        if load.is_fallback:
            self.warnings.append(
                "no trace given (--trace FILE): running synthetic chat with the statistics of the Mooncake "
                "conversation trace instead"
            )
        optional = {} if synthetic.session_rate_per_s is None else {"session_rate_per_s": synthetic.session_rate_per_s}
        return GENERATORS.create(
            synthetic.generator,
            seed=int(self._seeds[0].generate_state(1)[0]),
            requests=synthetic.requests,
            duration_s=synthetic.duration,
            length_scale=synthetic.length_scale,
            block_tokens=synthetic.block_tokens,
            **optional,
        ).trace()

    def phases(self, scenario: Scenario) -> list[Phase]:
        """Return the phases of the run, one where the workload is a single load."""
        if scenario.workload.phases is None:
            return [Phase(name="run", driver=self._driver(0, scenario.workload))]
        return [
            Phase(name=phase.name, driver=self._driver(index, phase), clear=phase.clear, restart=phase.restart)
            for index, phase in enumerate(scenario.workload.phases)
        ]

    def _driver(self, index: int, load: Load) -> Driver:
        if index in self._traces:
            expected = load.synthetic.requests if load.trace is None and load.synthetic is not None else None
            return OpenLoop(
                trace=self._traces[index],
                chunk_blocks=self._blocks[index],
                rate_scale=load.rate_scale,
                limit=load.limit,
                expected=expected,
            )
        if load.closed_loop is not None:
            loop = load.closed_loop
            return ClosedLoop(
                contexts=self._contexts(loop.prompt_tokens, loop.output_tokens),
                concurrency=loop.concurrency,
                requests=loop.requests,
                sessions=loop.sessions,
                first_session=loop.first_session,
                think_s=loop.think_time,
                per_replica=loop.per_replica,
            )
        wave = load.wave
        assert wave is not None
        return Wave(
            contexts=self._contexts(wave.prompt_tokens, wave.output_tokens),
            requests=wave.requests,
            random=np.random.default_rng([*self._seeds[1].generate_state(4).tolist(), index]),
            first_session=wave.first_session,
            jitter_s=wave.arrival_jitter,
            shuffle=wave.shuffle,
            per_replica=wave.per_replica,
        )

    def _contexts(self, prompt_tokens: int, output_tokens: int) -> Contexts:
        return Contexts(prompt_tokens=prompt_tokens, output_tokens=output_tokens, chunk_tokens=self.chunk_tokens)


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
