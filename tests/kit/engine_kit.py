"""Small engines for tests: a scenario in a few words, made-up step costs, requests at exact times."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple
from unittest import mock

from models.llm import load_llm
from models.roofline import ExpertShare, StepCost
from models.step_times import StepTimes
from scenarios import build as builder
from scenarios.loader import load_scenario
from scenarios.schema import Scenario
from sim.clock import ARRIVAL
from sim.results.result import SimulationResult
from sim.simulation import Simulation
from sim.workload.phases import Driver, Phase

BLOCK = 16
CHUNK = 32
INSTANTS = ("arrived_at_s", "admitted_at_s", "first_token_at_s", "finished_at_s", "queue_s", "load_s", "compute_s")


class Row(NamedTuple):
    """One request: when, how long, the chunks of its prompt (None: its own, shared with nobody), and its session."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    chunks: Sequence[int] | None = None
    replica: int | None = None
    session: int | None = None  # None: the number of the row


@dataclass(slots=True)
class Rows:
    """A driver that sends rows at their times, counted from ``begin_s`` on the clock (None: from when it starts)."""

    rows: Sequence[Row]
    begin_s: float | None = None
    ended: list[int] = field(default_factory=list)

    def start(self, cluster, phase, on_done) -> None:
        def send(index: int, row: Row):
            own = range((index + 1) << 20, ((index + 1) << 20) + row.prompt_tokens // CHUNK)
            chunks = list(own if row.chunks is None else row.chunks)[: row.prompt_tokens // CHUNK]

            def ended(_) -> None:
                self.ended.append(index)
                if len(self.ended) == len(self.rows):
                    on_done()

            return lambda _: cluster.submit(
                session_id=index if row.session is None else row.session,
                phase=phase,
                prompt_tokens=row.prompt_tokens,
                output_tokens=row.output_tokens,
                chunks=chunks,
                replica=row.replica,
                on_end=ended,
            )

        begin_s = cluster.clock.now_s if self.begin_s is None else self.begin_s
        for index, row in enumerate(self.rows):
            cluster.clock.at(begin_s + row.at_s, ARRIVAL, send(index, row))

    def fraction_done(self) -> float:
        return len(self.ended) / len(self.rows)


def made_up_cost(**coefficients: float) -> StepCost:
    """Step costs that nothing has: what is not given costs nothing."""
    share_or_count = {"expert_share", "microbatches"}
    names = [part.name for part in fields(StepCost) if part.init and part.name not in share_or_count]
    share = ExpertShare(experts=0, experts_per_token=0, spread_over=1)
    return StepCost(**(dict.fromkeys(names, 0.0) | coefficients), expert_share=share)


class Formula:
    """Passes by a formula [ms]: 5 and 0.01 a token in the layers, attention by context; decodes start 0.5 lower."""

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int) -> float:
        new = isl - prefix
        return 5.0 + 0.01 * bs * new + 1e-6 * bs * new * (prefix + new / 2)

    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        return 4.5 + 0.01 * gen_tokens + 2e-5 * gen_tokens * isl

    def mixed_step_breakdown(self, ctx_tokens: int, gen_tokens: int, isl: int, osl: int) -> tuple[float, ...]:
        layers = 5.0 + 0.01 * (ctx_tokens + gen_tokens)
        return layers + 100.0, layers, 100.0, 0.0


def scenario(
    *, llm: str = "llama-3.1-8b", hbm_blocks: int | None = None, tiers: dict[str, Any] | None = None, **sections: Any
) -> Scenario:
    """One H100 with blocks of 16 and chunks of 32 tokens; sections are merged into it."""
    hbm: dict[str, Any] = {}
    if hbm_blocks is not None:
        hbm["capacity"] = hbm_blocks * BLOCK * load_llm(llm).kv_bytes_per_token("bf16")
    document: dict[str, Any] = {
        "name": "kit",
        "llm": llm,
        "cluster": {"accelerator": "h100-sxm"} | sections.pop("cluster", {}),
        "engine": {"block_tokens": BLOCK, "chunk_tokens": CHUNK} | sections.pop("engine", {}),
        "transfer": {"chunk_tokens": CHUNK} | sections.pop("transfer", {}),
        "tiers": {"hbm": hbm | sections.pop("hbm", {})} | (tiers or {}),
        "workload": {"closed_loop": {"concurrency": 1, "requests": 1, "prompt_tokens": 1, "output_tokens": 1}},
    }
    return Scenario.model_validate(document | sections)


def prepared(
    setup: Scenario, load: Driver | Sequence[Phase] | None = None, cost: StepTimes | None = None
) -> Simulation:
    """A simulation of the scenario's hardware, with the given load and step costs in place of its own."""
    if cost is None:
        simulation = builder.build(setup)
    else:
        with mock.patch.object(builder, "_step_times", return_value=cost):
            simulation = builder.build(setup)
    if load is not None:
        simulation.phases = load if isinstance(load, list) else [Phase(name="run", driver=load)]
    return simulation


def serve(
    setup: Scenario, load: Driver | Sequence[Phase] | None = None, cost: StepTimes | None = None
) -> SimulationResult:
    """Run it and return the result."""
    return prepared(setup, load, cost).run()


def table(result: SimulationResult) -> dict[str, Any]:
    """The requests in order of their number."""
    columns = result.table("requests")
    order = columns["request_id"].argsort()
    return {name: values[order] for name, values in columns.items()}


def columns_of(name: str, overrides: Sequence[str], seed: int) -> dict[str, bytes]:
    """All columns of a shipped scenario's result as bytes; importable, so that another process can run it."""
    result = builder.simulate(load_scenario(name, overrides=overrides, seed=seed))
    return {
        f"{part}.{column}": values.tobytes()
        for part, found in result.columns.items()
        for column, values in found.items()
    }
