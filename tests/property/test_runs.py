"""Whole runs: the same bits every time, every request once, clients that do what they say, and hits that move time."""

import multiprocessing
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from engine_kit import Row, Rows, columns_of, made_up_cost, prepared, scenario, serve, table
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.build import build, simulate
from scenarios.loader import load_scenario
from sim.traces.record import TraceRecord
from sim.workload.contexts import ClosedLoop, Contexts, Wave
from sim.workload.open_loop import OpenLoop
from sim.workload.phases import Phase

SHORT = ["workload.synthetic.requests=250", "tiers.hbm.capacity=6 GB", "tiers.dram.capacity=12 GB"]
WAVE = "r2-fx100-c16"  # phases, a wave with jitter, and a shared array
COST = made_up_cost(fixed_s=2.0**-7)


# The same bits -------------------------------------------------------------------------------------------------------


def test_same_seed_same_bits_in_one_process_and_in_two():
    cases = [("quickstart", SHORT, 3), (WAVE, [], 3)]
    here = [columns_of(*case) for case in cases]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        there = pool.starmap(columns_of, cases, chunksize=1)
    assert here == there
    assert here == [columns_of(*case) for case in cases]


@pytest.mark.parametrize(("name", "overrides"), [("quickstart", SHORT), (WAVE, [])])
def test_seeds_differ(name, overrides):
    first, second = columns_of(name, overrides, 0), columns_of(name, overrides, 1)
    assert first["requests.first_token_at_s"] != second["requests.first_token_at_s"]


# The books -----------------------------------------------------------------------------------------------------------

TIERS = """tiers={hbm: {capacity: 25 GB}, dram: {device: ddr5, capacity: 8 GB, scope: %s},
    cache: {device: ddr5, capacity: 9 GB, page_cache_of: nvme}, nvme: {device: nvme-gen4, capacity: 24 GB}}"""


LONGER = "workload.synthetic.requests=400"  # so that each tier is read from, the page cache too


@pytest.mark.parametrize("scope", ["node", "worker"])
def test_what_was_written_to_a_tier_is_there_or_was_evicted(scope):
    """Promotions and the page cache count too, and each worker's copy where the pool is the workers'."""
    model = ["llm=deepseek-v3", "cluster.accelerator=h200-sxm", "cluster.tensor_parallel=8"]
    simulation = build(load_scenario("quickstart", overrides=[LONGER, *model, TIERS % scope]))
    simulation.run()
    for name in ("dram", "cache", "nvme"):
        (pool,) = simulation.cluster.tiers[name]
        gone = pool.evicted_chunks + pool.dropped_chunks
        assert pool.evicted_chunks
        assert pool.read_bytes
        assert pool.write_bytes == pytest.approx(pool.used_bytes + gone * pool.chunk_bytes)


# Every request once --------------------------------------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=40)
def test_every_request_ends_exactly_once(data):
    many = st.integers(1, 25)
    rows = [
        Row(
            data.draw(st.floats(0.0, 2.0)),
            data.draw(st.integers(1, 500)),
            data.draw(st.integers(0, 80)),
            data.draw(st.sampled_from([range(20), range(50, 70), None])),
        )
        for _ in range(data.draw(many))
    ]
    rows.append(Row(0.0, 10, 1))  # one at least can be served
    setup = scenario(
        hbm_blocks=data.draw(st.integers(36, 60)),  # room for max_model_len
        cluster={"replicas": 2, "router": data.draw(st.sampled_from(["round-robin", "least-loaded", "prefix-aware"]))},
        tiers={"dram": {"device": "ddr5", "capacity": 2e8}, "nvme": {"device": "nvme-gen4", "capacity": 1e9}},
        engine={"max_model_len": 520},
    )
    driver = Rows(rows)
    simulation = prepared(setup, driver, COST)
    done = table(simulation.run())  # and the books balance, or it would raise
    assert Counter(driver.ended) == Counter(range(len(rows)))
    assert done["request_id"].tolist() == list(range(len(rows)))
    assert (done["state"] == 1).tolist() == [row.prompt_tokens + row.output_tokens > 520 for row in in_order(rows)]
    for replica in simulation.cluster.replicas:
        assert replica.outstanding_requests == replica.outstanding_tokens == replica.waiting_prefill_tokens == 0
    served = done["state"] == 0
    parts = done["queue_s"] + done["load_s"] + done["compute_s"] + done["other_s"]
    np.testing.assert_allclose(parts[served], done["ttft_s"][served], rtol=1e-9, atol=1e-12)
    assert simulation.intervals.count == np.maximum(done["output_tokens"][served] - 1, 0).sum()


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.at_s)  # stable, as the clock is


# Clients -------------------------------------------------------------------------------------------------------------


def contexts(prompt_tokens: int = 64, output_tokens: int = 20) -> Contexts:
    return Contexts(prompt_tokens=prompt_tokens, output_tokens=output_tokens, chunk_tokens=32)


def in_system(done, at_s: float, replica: int | None = None) -> int:
    """How many requests are there just after an instant."""
    mine = np.ones(len(done["replica"]), bool) if replica is None else done["replica"] == replica
    return int((mine & (done["arrived_at_s"] <= at_s) & (done["finished_at_s"] > at_s)).sum())


@pytest.mark.parametrize("per_replica", [False, True])
def test_a_closed_loop_keeps_its_concurrency(per_replica):
    loop = ClosedLoop(contexts=contexts(), concurrency=3, requests=24, sessions=4, per_replica=per_replica)
    done = table(serve(scenario(cluster={"replicas": 2}), loop, COST))
    assert len(done["state"]) == (48 if per_replica else 24)
    for replica in (0, 1) if per_replica else (None,):
        mine = slice(None) if replica is None else done["replica"] == replica
        starts = np.sort(done["arrived_at_s"][mine])
        assert {in_system(done, at_s, replica) for at_s in starts} == {3}
        # Each start but the first three is the end of another, to the bit.
        assert set(starts[3:]) <= set(done["finished_at_s"][mine])
    sessions = Counter(done["session_id"].tolist())
    assert set(sessions.values()) == {6}
    assert len(sessions) == (8 if per_replica else 4)


def test_clients_think():
    loop = ClosedLoop(contexts=contexts(), concurrency=1, requests=5, think_s=2.0)
    done = table(serve(scenario(), loop, COST))
    assert (done["arrived_at_s"][1:] - done["finished_at_s"][:-1]).tolist() == [2.0] * 4
    assert len(set(done["session_id"])) == 5  # a new context each, where sessions are not given


def test_a_wave_spreads_over_its_jitter_in_random_order():
    def wave(**changes):
        settings = {"contexts": contexts(), "requests": 40, "random": np.random.default_rng(1)} | changes
        return table(serve(scenario(), Wave(**settings), COST))

    assert set(wave(shuffle=False)["arrived_at_s"]) == {0.0}
    assert wave(shuffle=False)["session_id"].tolist() == list(range(40))
    spread = wave(jitter_s=0.5, first_session=7)
    assert 0.4 < np.ptp(spread["arrived_at_s"]) <= 0.5
    assert sorted(spread["session_id"]) == list(range(7, 47)) != spread["session_id"].tolist()
    assert len(wave(per_replica=True)["state"]) == 40


@pytest.mark.parametrize(
    ("change", "hits"),
    [({}, (64, 0)), ({"clear": ("hbm",)}, (0, 64)), ({"clear": ("hbm", "nvme")}, (0, 0)), ({"restart": True}, (0, 64))],
)
def test_phases_run_on_one_warm_cluster(change, hits):
    phases = [
        Phase(name="warm", driver=Rows([Row(0.0, 65, 4, [1, 2])])),
        Phase(name="again", driver=Rows([Row(0.0, 65, 4, [1, 2])]), **change),
    ]
    setup = scenario(tiers={"nvme": {"device": "nvme-gen4", "capacity": 1e9}})
    done = table(serve(setup, phases, COST))
    assert done["phase"].tolist() == [0, 1]
    assert done["arrived_at_s"][1] >= done["finished_at_s"][0]
    assert (done["hit_tokens_hbm"][1], done["hit_tokens_nvme"][1]) == hits


def test_a_restart_empties_indexes_that_live_in_the_process():
    phases = [
        Phase(name="warm", driver=Rows([Row(0.0, 65, 4, [1, 2])])),
        Phase(name="again", driver=Rows([Row(0.0, 65, 4, [1, 2])]), restart=True),
    ]
    setup = scenario(tiers={"nvme": {"device": "nvme-gen4", "capacity": 1e9, "index": "process"}})
    assert table(serve(setup, phases, COST))["hit_tokens_nvme"].tolist() == [0, 0]


class Listed:
    """A trace in memory."""

    name, block_tokens, has_prefixes = "listed", 32, True

    def __init__(self, rows: list[TraceRecord]) -> None:
        self._rows = rows

    def records(self):
        return iter(self._rows)


@pytest.mark.parametrize("rate_scale", [0.5, 1.0, 3.0])
def test_the_rate_scales_arrivals_and_keeps_the_order_of_reuse(rate_scale):
    random = np.random.default_rng(0)
    at_s = 1e9 + np.cumsum(random.exponential(0.1, 60))  # traces may count from the epoch
    rows = [TraceRecord(float(t), 64, 2, [2 * (i % 7), 2 * (i % 7) + 1]) for i, t in enumerate(at_s)]
    done = table(serve(scenario(), OpenLoop(trace=Listed(rows), chunk_blocks=1, rate_scale=rate_scale), COST))
    np.testing.assert_allclose(done["arrived_at_s"], (at_s - at_s[0]) / rate_scale, rtol=1e-12, atol=1e-9)
    assert done["hit_tokens_hbm"].tolist() == [0] * 7 + [48] * 53


def test_a_limit_ends_the_replay():
    rows = [TraceRecord(float(i), 64, 2, []) for i in range(10)]
    done = table(serve(scenario(), OpenLoop(trace=Listed(rows), chunk_blocks=1, limit=4), COST))
    assert len(done["state"]) == 4


# Routers -------------------------------------------------------------------------------------------------------------


def test_round_robin_takes_turns():
    done = table(serve(scenario(cluster={"replicas": 3}), Rows([Row(i, 64, 2) for i in range(7)]), COST))
    assert done["replica"].tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_least_loaded_takes_who_holds_the_fewest_tokens():
    rows = [Row(0.0, 640, 900), Row(0.1, 64, 900), Row(0.2, 64, 900), Row(0.3, 64, 900)]
    done = table(serve(scenario(cluster={"replicas": 2, "router": "least-loaded"}), Rows(rows), COST))
    assert done["replica"].tolist() == [0, 1, 1, 1]


def test_prefix_aware_follows_the_prefix_until_the_queue_is_longer():
    prefix = range(10)
    rows = [Row(0.0, 320, 900, prefix, replica=1), Row(1.0, 330, 2, prefix), Row(1.0, 330, 2, None)]
    router = {"replicas": 2, "router": "prefix-aware"}
    done = table(serve(scenario(cluster=router), Rows(rows), COST))
    assert done["replica"].tolist() == [1, 1, 0]
    busy = [Row(0.0, 320, 2, prefix, replica=1), Row(1.0, 2000, 2, None, replica=1), Row(1.0, 330, 2, prefix)]
    assert table(serve(scenario(cluster=router), Rows(busy), COST))["replica"].tolist() == [1, 1, 0]


# Hits move time ------------------------------------------------------------------------------------------------------

# The quickstart's hardware under sessions so rare that requests seldom meet. Then a request's TTFT is its loads plus
# the computing of the rest, every chunk of this hardware loads faster than it computes, and LRU keeps in a larger tier
# all that it keeps in a smaller one: so faster or larger cannot be worse. Under load it can (a hit that comes sooner
# may put the request into a fuller step), and that is no defect.
RARE = [
    "workload.synthetic.requests=300",
    "workload.synthetic.session_rate_per_s=0.03",
    "workload.synthetic.length_scale=0.1",
    "tiers.hbm.capacity=2 GB",
    "tiers.dram.capacity=2 GB",
    "tiers.nvme.capacity=20 GB",
]


def mean_ttft_s(*overrides: str) -> float:
    summary = simulate(load_scenario("quickstart", overrides=[*RARE, *overrides])).summary()
    assert summary["requests"] == {"submitted": 300, "completed": 300, "rejected": 0, "failed": 0}
    return summary["ttft_s"]["mean"]


@pytest.mark.parametrize(
    ("key", "rising"),
    [
        ("tiers.hbm.capacity", ["2 GB", "4 GB", "8 GB", "16 GB"]),
        ("tiers.dram.capacity", ["0.5 GB", "1 GB", "2 GB", "4 GB"]),
        ("tiers.nvme.capacity", ["1 GB", "2 GB", "4 GB", "20 GB"]),
        ("tiers.nvme.count", ["1", "2", "4"]),
        ("links.dram.bandwidth", ["20 GB/s", "50 GB/s", "400 GB/s"]),
        ("links.nvme.bandwidth", ["3 GB/s", "6 GB/s", "12 GB/s"]),
        ("links.host-link.bandwidth", ["4 GB/s", "16 GB/s", "64 GB/s"]),
    ],
)
def test_faster_or_larger_is_never_worse(key, rising):
    means_s = [mean_ttft_s(f"{key}={value}") for value in rising]
    assert all(better <= worse + 1e-9 for worse, better in pairwise(means_s)), means_s
    assert means_s[-1] < means_s[0], "the tier moves nothing"


def test_slower_reads_raise_the_ttft_and_hits_are_not_free():
    fast, slow = (mean_ttft_s(f"links.nvme.bandwidth={rate}") for rate in ("7 GB/s", "0.7 GB/s"))
    assert slow > fast * 1.02
    simulated = simulate(load_scenario("quickstart", overrides=RARE)).table("requests")
    for tier in ("dram", "nvme"):
        hit = simulated[f"hit_tokens_{tier}"] > 0
        assert hit.any()
        assert (simulated[f"load_{tier}_s"][hit] > 0.0).all()
        assert (simulated["load_s"][hit] > 0.0).all()


def test_writes_compete_with_reads():
    tiers = {"nvme": {"device": "nvme-gen4", "capacity": 1e12}}
    warm = Phase(name="warm", driver=Rows([Row(0.0, 3201, 1, range(100))]))

    def load_s(chunks) -> float:
        # A prompt is stored (or, having no whole chunk that anybody names, is not) while another one loads.
        rows = [Row(0.0, 3201, 1, chunks), Row(2.0**-6, 3201, 1, range(100))]
        phases = [warm, Phase(name="run", driver=Rows(rows), clear=("hbm",))]
        return float(table(serve(scenario(tiers=tiers), phases, COST))["load_nvme_s"][-1])

    assert load_s(range(500, 600)) > load_s([]) * 1.1
