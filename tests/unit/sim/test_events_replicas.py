"""Replicas that restart, are added or drained: who serves what, what is lost, and when caches are warm again."""

from math import isnan
from types import SimpleNamespace

import numpy as np
import pytest
from engine_kit import CHUNK, Row, Rows, made_up_cost, prepared, scenario, table

from scenarios.events import Event
from sim.events.windows import WARM_REQUESTS, warmup_s

CHUNK_BYTES = CHUNK * 131_072
TOKEN_S = 2.0**-10
PER_TOKEN = made_up_cost(dense_compute_s_per_token=TOKEN_S)
PER_STEP = made_up_cost(dense_compute_s_per_token=TOKEN_S, fixed_s=0.125)
PROMPT = [1, 2, 3]
LONG = 2048  # 2 s of compute
DRAM = {"device": "ddr5", "capacity": 1e9}
NVME = {"device": "nvme-gen4", "capacity": 1e9}


def about(value, rel=0.01):
    return pytest.approx(value, rel=rel)


def run(events, rows, *, replicas=2, policy="recompute", cost=PER_TOKEN, tiers=None, cluster=None, **setup):
    engine = {"kv_load_failure_policy": policy} | setup.pop("engine", {})
    setup = scenario(tiers=tiers or {}, engine=engine, cluster={"replicas": replicas} | (cluster or {}), **setup)
    setup = setup.model_copy(update={"events": tuple(Event.model_validate(event) for event in events)})
    simulation = prepared(setup, Rows(rows), cost)
    result = simulation.run()
    for replica in simulation.cluster.engines:
        assert replica.waiting_prefill_tokens == replica.outstanding_tokens == replica.outstanding_requests == 0
    return result.summary(), table(result)


def restart(at, lasts=10.0, **which):
    return {"at": at, "kind": "restart", "lasts": lasts} | (which or {"replica": 0})


# Requests in hand -----------------------------------------------------------------------------------------------------


def test_requests_in_hand_fail_or_start_again_elsewhere() -> None:
    rows = [Row(0.0, LONG, 4, replica=0), Row(0.5, LONG, 4, replica=0), Row(5.0, 64, 4, replica=0)]
    summary, done = run([restart(1.0)], rows, policy="fail")
    assert summary["events"][0]["requests_in_hand"] == 2
    assert done["state"].tolist() == [2, 2, 0]
    assert all(isnan(value) for value in done["ttft_s"][:2])
    assert done["replica"].tolist() == [0, 0, 1]  # it is down: the client's wish cannot be met
    summary, done = run([restart(1.0)], rows)
    assert summary["requests"] == {"submitted": 3, "completed": 3, "rejected": 0, "failed": 0}
    assert done["replica"].tolist()[:2] == [1, 1]
    # It goes down when its step ends, at 2 s: the first one has a token by then, and both are computed from then on.
    assert done["first_token_at_s"][:2].tolist() == about([2.0, 2.0 + (2 * LONG + 1) * TOKEN_S])
    assert done["preemptions"].tolist() == [1, 0, 0]


def test_what_the_client_has_is_not_sent_again_but_computed_again() -> None:
    rows = [Row(0.0, 64, 100, replica=0)]
    calm, before = run([], rows, cost=PER_STEP, cluster={"router": "least-loaded"})
    assert "events" not in calm
    summary, done = run([restart(5.0)], rows, cost=PER_STEP)
    assert summary["events"][0]["requests_in_hand"] == 1
    assert done["ttft_s"][0] == before["ttft_s"][0]
    # The lost time is that of its prompt and of the 39 tokens so far, once more.
    assert done["replica"].tolist() == [1]
    assert 0.0 < done["e2e_s"][0] - before["e2e_s"][0] < 1.0
    assert done["itl_max_s"][0] > before["itl_max_s"][0]


def test_while_nobody_serves_requests_wait() -> None:
    summary, done = run([restart(10.0, lasts=30.0)], [Row(12.0, 64, 1), Row(50.0, 64, 1)], replicas=1)
    assert done["ttft_s"][0] == about(28.0 + 64 * TOKEN_S)
    assert done["ttft_s"][1] == about(64 * TOKEN_S)
    assert summary["events"][0]["over_s"] == 40.0
    longer, _ = run([restart(10.0, lasts=60.0)], [Row(12.0, 64, 1)], replicas=1)
    assert longer["ttft_s"]["max"] == about(58.0 + 64 * TOKEN_S)


@pytest.mark.parametrize("policy", ["fail", "recompute"])
def test_requests_that_load_or_wait_at_the_front_end_are_lost_too(policy) -> None:
    transfer = {"reads_in_flight": 1, "read_software": 1.0, "load": "async"}
    rows = [
        Row(0.0, 97, 1, PROMPT, replica=0),
        Row(20.0, 97, 1, PROMPT, replica=0),
        Row(21.5, 64, 1, replica=0),
    ]
    events = [restart(10.0, lasts=1.0), restart(22.0)]
    setup = {"tiers": {"nvme": NVME}, "transfer": transfer, "policy": policy}
    _, done = run(events, rows, engine={"request_latency": 1.0}, **setup)
    assert done["state"].tolist() == ([0, 2, 2] if policy == "fail" else [0, 0, 0])
    # The third one reaches a replica that is down, the second one loads from 21 s on until 24 s.
    assert done["replica"].tolist() == ([0, 0, 0] if policy == "fail" else [0, 1, 1])


# What is lost ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tiers", "which", "hits"),
    [
        ({}, {"replica": 0}, {"hbm": 0}),
        ({"nvme": NVME}, {"replica": 0}, {"nvme": 3}),
        ({"nvme": NVME | {"index": "process"}}, {"replica": 0}, {"nvme": 0}),
        ({"dram": DRAM}, {"replica": 0}, {"dram": 3}),
        ({"dram": DRAM | {"index": "process"}}, {"replica": 0}, {"dram": 0}),
        ({"dram": DRAM | {"scope": "replica"}}, {"replica": 0}, {"dram": 0}),
        ({"dram": DRAM}, {"node": 0}, {"dram": 0}),
        ({"dram": DRAM}, {"node": 1}, {"hbm": 3}),
        ({"dram": DRAM, "nvme": NVME}, {"node": 0}, {"dram": 0, "nvme": 3}),
        ({"array": NVME | {"device": "fx100", "scope": "shared"}}, {"node": 0}, {"array": 3}),
        ({"array": NVME | {"device": "fx100", "index": "process"}}, {"replica": 0}, {"array": 0}),
    ],
)
def test_what_survives_goes_by_where_it_lies_and_who_knows_of_it(tiers, which, hits) -> None:
    rows = [Row(0.0, 97, 1, PROMPT, replica=0), Row(50.0, 97, 1, PROMPT, replica=0)]
    _, done = run([restart(10.0, **which)], rows, tiers=tiers)
    assert {tier: done[f"hit_tokens_{tier}"][1] // CHUNK for tier in hits} == hits


def test_another_replica_keeps_its_own_entries_of_a_pool_that_both_use() -> None:
    tiers = {"dram": DRAM | {"index": "process"}}
    rows = [Row(0.1 * r, 97, 1, PROMPT, replica=r) for r in (0, 1)]
    rows += [Row(50.0 + r, 97, 1, PROMPT, replica=r) for r in (0, 1)]
    events = [restart(10.0), restart(20.0, replica=1)]
    both, _ = run(events, rows, tiers=tiers, cluster={"replicas_per_node": 2})
    assert [event["lost_bytes"] for event in both["events"]] == [6 * CHUNK_BYTES] * 2
    _, done = run(events[:1], rows, tiers=tiers, cluster={"replicas_per_node": 2})
    assert (done["hit_tokens_hbm"][2], done["hit_tokens_dram"][2]) == (0, 0)
    assert done["hit_tokens_hbm"][3] == 96
    node, done = run([restart(10.0, node=0)], rows, tiers=tiers, cluster={"replicas_per_node": 2})
    assert done["computed_prompt_tokens"].tolist() == [97] * 4
    assert node["events"][0]["lost_bytes"] == 12 * CHUNK_BYTES


# Drained and added ----------------------------------------------------------------------------------------------------


def test_a_drained_replica_finishes_and_takes_no_more() -> None:
    rows = [Row(0.0, LONG, 1, replica=1), *(Row(0.5 + i, 64, 1) for i in range(4))]
    summary, done = run([{"at": 0.25, "kind": "drain", "replica": 1}], rows)
    assert done["replica"].tolist() == [1, 0, 0, 0, 0]
    assert summary["events"][0]["drained_s"] == about(1.75)
    assert summary["requests"]["completed"] == 5


def test_an_added_replica_serves_from_its_start_on_and_is_cold() -> None:
    rows = [Row(float(i), 97, 1, PROMPT) for i in range(12)]
    summary, done = run([{"at": 3.0, "kind": "add", "replica": 1, "lasts": 2.5}], rows)
    served = [0 if i < 6 else int(replica) for i, replica in enumerate(done["replica"])]
    assert done["replica"].tolist() == served
    assert served.count(1) == summary["events"][0]["served_requests"] == 3
    first = served.index(1)
    assert done["hit_tokens_hbm"][first] == 0
    assert done["hit_tokens_hbm"][first - 1] == 96
    slower, _ = run([{"at": 3.0, "kind": "add", "replica": 1, "lasts": 5.5}], rows)
    assert slower["events"][0]["served_requests"] < 3


def test_a_second_replica_shortens_queues_and_a_lost_one_makes_them_longer() -> None:
    rows = [Row(float(i), 1536, 1) for i in range(20)]  # one and a half times what one replica computes
    one, _ = run([], rows, replicas=1)
    added, _ = run([{"at": 5.0, "kind": "add", "replica": 1, "lasts": 0.0}], rows)
    both, _ = run([], rows)
    drained, _ = run([{"at": 5.0, "kind": "drain", "replica": 1}], rows)
    assert both["ttft_s"]["p99"] < added["ttft_s"]["p99"] < one["ttft_s"]["p99"]
    assert both["ttft_s"]["p99"] < drained["ttft_s"]["p99"] < one["ttft_s"]["p99"]


def test_a_replica_serves_again_when_all_that_kept_it_away_is_over() -> None:
    rows = [Row(float(i), 64, 1) for i in range(40)]
    events = [restart(5.0), restart(8.0, lasts=20.0), {"at": 30.0, "kind": "drain", "replica": 1}]
    _, done = run(events, rows)
    away = [i for i in range(40) if done["replica"][i] != 0]
    assert set(range(5, 28)) <= set(away)
    assert not set(range(31, 40)) & set(away)
    _, done = run([{"at": 1.5, "kind": "drain", "replica": 0}, restart(5.0)], rows)
    assert set(done["replica"][2:].tolist()) == {1}


# Windows and warm-up --------------------------------------------------------------------------------------------------


def hits(ratios, replicas=None):
    """A table of requests, one a second, of 100 tokens with these hit ratios."""
    n = len(ratios)
    return {
        "state": np.zeros(n, dtype=np.int32),
        "arrived_at_s": np.arange(n, dtype=float),
        "prompt_tokens": np.full(n, 100),
        "hit_tokens_hbm": np.array([round(100 * ratio) for ratio in ratios]),
        "replica": np.array(replicas if replicas is not None else [0] * n),
    }


def test_warm_up_ends_with_the_first_window_that_hits_as_before() -> None:
    n = WARM_REQUESTS
    event = SimpleNamespace(at_s=float(n), replicas=None)
    # Before: 0.5. After: nothing for 10 requests, then 0.5: the window is at 0.45 with three and a fifth zeros in it.
    requests = hits([0.5] * n + [0.0] * 10 + [0.5] * 2 * n)
    zeros = int(0.1 * n)
    assert warmup_s(event, requests) == 10 + n - 1 - zeros
    assert warmup_s(event, hits([0.5] * 3 * n)) == n - 1
    assert warmup_s(event, hits([0.5] * n + [0.4] * 2 * n)) is None
    assert warmup_s(SimpleNamespace(at_s=0.0, replicas=None), requests) is None
    assert warmup_s(event, hits([0.5] * n + [0.5] * (n - 1))) is None


def test_warm_up_looks_at_the_replicas_of_the_event() -> None:
    n = WARM_REQUESTS
    event = SimpleNamespace(at_s=float(2 * n), replicas=[1])
    ratios = [0.2, 0.8] * n + [0.9, 0.0] * n + [0.9, 0.8] * n
    found = warmup_s(event, hits(ratios, [0, 1] * 3 * n))
    assert found == about(2 * n + 2 * (n - int(0.1 * n)) - 1, 1e-9)


def test_windows_split_requests_by_arrival() -> None:
    rows = [Row(float(i), 97, 1, PROMPT) for i in range(30)]
    summary, done = run([restart(9.5, lasts=5.0)], rows, replicas=1)
    windows = summary["events"][0]["windows"]
    assert {name: part["requests"] for name, part in windows.items()} == {"before": 10, "during": 5, "after": 15}
    assert windows["during"]["ttft_s"]["max"] == max(done["ttft_s"])
    assert windows["before"]["hit_ratio_tokens"] == about(9 * 96 / (10 * 97), 1e-9)
    assert windows["after"]["hit_ratio_tokens"] == about(96 / 97, 1e-9)
