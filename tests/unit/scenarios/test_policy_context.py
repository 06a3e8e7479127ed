"""What a run tells its eviction policies: they decide by it, and a run that cannot tell says so."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.errors import ScenarioError
from scenarios.build import build, simulate
from scenarios.loader import load_scenario
from scenarios.topology.known import known_future
from sim.policies.base import NEVER

BLOCK = 512


def trace_of(folder: Path, *prompts: tuple[float, list[int]]) -> str:
    path = folder / "trace.jsonl"
    rows = [
        {
            "timestamp": 1000 * at_s,
            "input_length": BLOCK * len(ids) + 1,
            "output_length": 1,
            "hash_ids": [*ids, 10**6 + n],
        }
        for n, (at_s, ids) in enumerate(prompts)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def run(trace: str, *overrides: str) -> dict[str, Any]:
    """One replica; HBM holds one prompt, DRAM what the test says, and there is nothing below."""
    scenario = load_scenario(
        "mooncake-conversation",
        trace=trace,
        overrides=[
            "cluster.replicas=1",
            "tiers.nvme=null",
            "tiers.fabric=null",
            "tiers.hbm.capacity=1.1 GB",
            *overrides,
        ],
    )
    return simulate(scenario).summary()["tiers"]


@pytest.fixture
def loop(tmp_path: Path) -> str:
    """Three prompts of three blocks in turn, ten seconds apart."""
    prompts = [(10.0 * n, list(range(10 * (n % 3), 10 * (n % 3) + 3))) for n in range(15)]
    return trace_of(tmp_path, *prompts)


def test_belady_looks_ahead_in_the_trace(loop: str) -> None:
    # DRAM holds two of the three prompts: LRU always gives up the one that comes next.
    capacity = "tiers.dram.capacity=1.1 GB"
    lru, belady = (run(loop, capacity, f"tiers.dram.eviction={name}")["dram"] for name in ("lru", "belady"))
    infinite = run(loop, capacity, "tiers.dram.eviction=infinite")["dram"]
    assert lru["hit_tokens"] == 0 < belady["hit_tokens"] < infinite["hit_tokens"]
    assert infinite["evicted_bytes"] == 0


def test_a_time_to_live_runs_on_the_clock_of_the_run(loop: str) -> None:
    # Each prompt comes back after 30 s, and stays 30 s after its last use or store at most.
    room = "tiers.dram.capacity=100 GB"
    hits = {
        (name, ttl_s): run(loop, room, f"tiers.dram.eviction={{{name}: {{ttl_s: {ttl_s}}}}}")["dram"]["hit_tokens"]
        for name in ("ttl", "ttl-sliding")
        for ttl_s in (20.0, 40.0, 1000.0)
    }
    assert hits["ttl", 20.0] == hits["ttl-sliding", 20.0] == 0
    assert 0 < hits["ttl", 40.0] < hits["ttl-sliding", 40.0]
    assert hits["ttl", 1000.0] == hits["ttl-sliding", 1000.0] == hits["ttl-sliding", 40.0]


def test_hbm_can_expire_too(loop: str) -> None:
    hits = {
        ttl_s: run(loop, "tiers.hbm.capacity=100 GB", f"tiers.hbm.eviction={{ttl: {{ttl_s: {ttl_s}}}}}")["hbm"]
        for ttl_s in (20.0, 1000.0)
    }
    assert hits[20.0]["hit_tokens"] == 0 < hits[1000.0]["hit_tokens"]


@pytest.mark.parametrize("name", ["arc", "2q", "lirs", "s3fifo", "w-tinylfu", "lineage", "belady-prefix", "slru"])
@pytest.mark.parametrize("structure", ["hashmap", "leaf_constrained"])
def test_policies_run_in_tiers(loop: str, name: str, structure: str) -> None:
    tiers = run(loop, "tiers.dram.capacity=1.1 GB", f"tiers.dram.eviction={name}", f"tiers.dram.structure={structure}")
    assert tiers["dram"]["evicted_bytes"] > 0


def test_costs_are_those_of_the_model_and_of_the_path(loop: str) -> None:
    scenario = load_scenario("mooncake-conversation", trace=loop, overrides=["tiers.dram.eviction=gdsf-kv-net"])
    simulation = build(scenario)
    policies = {name: pools[0].policy for name, pools in simulation.cluster.tiers.items()}
    dram = policies["dram"]
    recompute_s, reload_s = dram._recompute_s, dram._reload_s  # type: ignore[attr-defined]
    # Later chunks attend to more; a chunk of 512 tokens of a 70B model takes some 10 ms on 8 H200, 168 MB of KV less.
    assert 0.002 < recompute_s(0) < recompute_s(100) < 0.2
    assert 0.0001 < reload_s < recompute_s(0)


def test_the_future_is_that_of_the_trace(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, (0.0, [1, 2]), (1.0, [1, 2, 3]), (2.0, [1, 9]), (3.0, [1, 2]))
    simulation = build(load_scenario("mooncake-conversation", trace=trace))
    sent = 0
    future = known_future(simulation.phases, lambda: sent)
    assert future is not None
    strand = range(3)  # 1 2 3: one chain that the second prompt continued
    assert future.next_uses(strand) == [(range(2), 0), (range(2, 3), 1)]
    sent = 2
    assert future.next_uses(strand) == [(range(1), 2), (range(1, 2), 3), (range(2, 3), NEVER)]
    assert future.next_uses(range(1, 2)) == [(range(1, 2), 3)]


def test_a_closed_loop_has_no_known_future() -> None:
    overrides = ["tiers.dram.eviction=belady"]
    problem = r"^tiers.dram.eviction: eviction policy 'belady' needs the future: .* which is not known here$"
    with pytest.raises(ScenarioError, match=problem):
        build(load_scenario("r2-fx100-c16", overrides=overrides))


def test_hbm_needs_a_bound(loop: str) -> None:
    with pytest.raises(ScenarioError, match=r"^tiers.hbm.eviction: has no bound"):
        build(load_scenario("mooncake-conversation", trace=loop, overrides=["tiers.hbm.eviction=infinite"]))
