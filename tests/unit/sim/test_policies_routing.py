from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from engine_kit import Row, Rows, made_up_cost, scenario, serve, table

from scenarios.build import simulate
from scenarios.loader import load_scenario
from sim.policies.base import ROUTING, ReplicaView, RoutingPolicy


@dataclass
class Request:
    chunks: Sequence[int] = (1, 2, 3)
    prompt_tokens: int = 1000


@dataclass
class Replica:
    index: int
    outstanding_tokens: int = 0
    outstanding_requests: int = 0
    waiting_prefill_tokens: int = 0
    cached_tokens: int = 0

    def cached_prefix_tokens(self, chunks: Sequence[int]) -> int:
        assert list(chunks) == [1, 2, 3]
        return self.cached_tokens


def choices(name: str, replicas: Sequence[ReplicaView], times: int = 1) -> list[int]:
    router: RoutingPolicy = ROUTING.create(name)
    return [router.choose(Request(), replicas) for _ in range(times)]


def test_round_robin_takes_turns() -> None:
    assert choices("round-robin", [Replica(0, 9), Replica(1), Replica(2)], 5) == [0, 1, 2, 0, 1]


def test_least_loaded_takes_fewest_tokens_then_lowest_index() -> None:
    assert choices("least-loaded", [Replica(0, 9), Replica(1, 4), Replica(2, 4)]) == [1]


def test_prefix_aware_weighs_the_hit_against_the_queue() -> None:
    hit, idle = Replica(0, waiting_prefill_tokens=500, cached_tokens=768), Replica(1)
    assert choices("prefix-aware", [idle, hit]) == [0]
    hit.waiting_prefill_tokens = 800
    assert choices("prefix-aware", [idle, hit]) == [1]


def test_prefix_aware_ties_go_to_the_least_loaded_then_the_lowest_index() -> None:
    assert choices("prefix-aware", [Replica(0, 50), Replica(1, 20), Replica(2, 20)]) == [1]


# On a cluster --------------------------------------------------------------------------------------------------------

TWO = """\
name: two
llm: llama-3.1-8b
cluster: {accelerator: h100-sxm, replicas: 2, router: %s}
tiers:
  hbm: {capacity: 10 GB}
  dram: {device: ddr5, capacity: 50 GB}
  fabric: {device: fx100, capacity: 10 TB}
workload: {synthetic: {generator: chat, requests: 300, session_rate_per_s: 0.2}}
"""


def fabric_hits(tmp_path: Path, router: str) -> int:
    path = tmp_path / f"{router}.yaml"
    path.write_text(TWO % router)
    return int(simulate(load_scenario(str(path))).summary()["tiers"]["fabric"]["hit_tokens"])


def test_prefix_aware_routing_reads_less_from_the_shared_array(tmp_path: Path) -> None:
    # It sends a conversation back to where its KV is, although the array would serve it anywhere.
    assert fabric_hits(tmp_path, "prefix-aware") < 0.5 * fabric_hits(tmp_path, "round-robin")


@pytest.mark.parametrize("name", sorted({*ROUTING.names()} - {"random"}))
def test_requests_that_the_front_end_still_holds_count_as_load(name: str) -> None:
    cluster = {"replicas": 3, "replicas_per_node": 3, "router": name}
    setup = scenario(cluster=cluster, engine={"request_latency": "1 s", "tokenize_tokens_per_s": 1e3})
    burst = Rows([Row(0.0, 64, 1) for _ in range(6)])
    found = table(serve(setup, burst, made_up_cost(fixed_s=1.0)))
    assert sorted(found["replica"].tolist()) == [0, 0, 1, 1, 2, 2]
