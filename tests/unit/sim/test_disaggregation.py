"""Prefill and decode on different replicas: times by hand, who holds what for how long, and when it pays."""

import numpy as np
import pytest
from engine_kit import BLOCK, CHUNK, Row, Rows, made_up_cost, prepared, scenario, serve, table

from models.llm import load_llm
from scenarios.build import simulate
from scenarios.loader import load_scenario
from sim.workload.phases import Phase

C = 2.0**-10
TOKENS = made_up_cost(dense_compute_s_per_token=C)  # a step takes C for every token that it schedules
STEPS = made_up_cost(fixed_s=1.0)  # every step takes a second
TOKEN_BYTES = load_llm("llama-3.1-8b").kv_bytes_per_token("bf16")
BLOCK_BYTES = BLOCK * TOKEN_BYTES
# A card that is slower than all else on the way: one block takes a second.
ONE_BLOCK_A_SECOND = {"nic": {"bandwidth": float(BLOCK_BYTES), "latency": 0.0, "delivered_fraction": 1.0}}


def split(decode=None, **cluster):
    return {"decode": {"replicas": 1} | (decode or {})} | cluster


def run(load, cost=TOKENS, decode=None, cluster=None, **setup):
    setup.setdefault("links", ONE_BLOCK_A_SECOND)
    return serve(scenario(cluster=split(decode, **(cluster or {})), **setup), Rows(load), cost)


# By hand -------------------------------------------------------------------------------------------------------------


def test_the_first_token_comes_from_the_decoding_replica_after_the_handover():
    result = run([Row(1.0, 100, 11)])
    done = table(result)
    # 100 tokens are 7 blocks, the last one partial; the decoding replica computes the last token again.
    assert done["handover_s"][0] == 7.0
    assert done["first_token_at_s"][0] == 1.0 + 100 * C + 7.0 + C
    assert done["itl_max_s"][0] == C
    assert done["finished_at_s"][0] == done["first_token_at_s"][0] + 10 * C
    assert done["compute_s"][0] == 101 * C
    assert (done["queue_s"][0], done["load_s"][0], done["other_s"][0]) == (0.0, 0.0, 0.0)
    assert (done["replica"][0], done["decode_replica"][0]) == (0, 1)
    assert (done["handover_tokens"][0], done["handover_bytes"][0]) == (100, 7 * BLOCK_BYTES)
    parts = result.summary()["ttft_parts_s"]
    assert parts["handover"] == 7.0
    assert sum(parts.values()) == pytest.approx(result.summary()["ttft_s"]["mean"])


def test_the_decoding_replica_takes_and_joins_prompts_between_its_steps():
    # Steps of one second, prompts of one block. The second prompt is complete at 2.5, takes its blocks when the step
    # ends that the first one began at 2.25, is there at 4.5 and joins the step that begins at 5.25.
    load = [Row(0.0, 16, 20), Row(1.5, 16, 2)]
    links = {"nic": {"bandwidth": BLOCK_BYTES / 1.25, "latency": 0.0, "delivered_fraction": 1.0}}
    done = table(run(load, STEPS, links=links))
    assert done["first_token_at_s"].tolist() == [3.25, 6.25]
    parts = [done[f"{part}_s"][1] for part in ("queue", "decode_queue", "handover", "other", "compute")]
    assert parts == [0.75, 0.75, 1.25, 0.75, 2.0]
    assert done["admitted_at_s"].tolist() == [0.0, 1.5]


def test_no_output_needs_no_second_half_and_one_token_does():
    done = table(run([Row(0.0, 64, 0), Row(1.0, 64, 1)]))
    assert done["decode_replica"].tolist() == [-1, 1]
    assert done["first_token_at_s"].tolist() == [64 * C, 1.0 + 64 * C + 4.0 + C]
    assert done["finished_at_s"].tolist() == done["first_token_at_s"].tolist()


def test_a_slower_fabric_raises_the_ttft_and_not_the_itl():
    fast, slow = (
        table(run([Row(0.0, 1000, 20)], links={"nic": {"bandwidth": rate}})) for rate in ("400 Gbit/s", "1 Gbit/s")
    )
    assert slow["ttft_s"][0] - fast["ttft_s"][0] == pytest.approx(63 * BLOCK_BYTES * 8e-9, rel=0.02)
    assert slow["itl_max_s"][0] == pytest.approx(fast["itl_max_s"][0])


# Paths ---------------------------------------------------------------------------------------------------------------


def test_links_of_both_nodes_carry_the_prompt_once_each_way():
    links = run([Row(0.0, 100, 11)]).summary()["links"]
    sent = {name: (use["read_bytes"], use["write_bytes"]) for name, use in links.items()}
    out, into = (0.0, 7.0 * BLOCK_BYTES), (7.0 * BLOCK_BYTES, 0.0)
    assert sent == {"host-link.0": out, "nic.0": out, "host-link.1": into, "nic.1": into}


def test_on_one_node_the_fabric_between_its_gpus_carries_it():
    result = run([Row(0.0, 100, 11)], decode={"nodes": "shared"}, links={"scale-up": {"bandwidth": BLOCK_BYTES * 7.0}})
    assert table(result)["handover_s"][0] == 1.0
    links = result.summary()["links"]
    assert links["scale-up.0"]["write_bytes"] == links["scale-up.1"]["read_bytes"] == 7 * BLOCK_BYTES
    assert links["nic"]["read_bytes"] == links["nic"]["write_bytes"] == 0


def test_replicas_beyond_the_shared_nodes_are_reached_over_the_network():
    # Two replicas that decode, one a node; the only one that prefills is on the first of them.
    decode = {"replicas": 2, "nodes": "shared", "router": "round-robin"}
    result = run([Row(0.0, 100, 11), Row(9.0, 100, 11)], decode=decode)
    links = result.summary()["links"]
    assert table(result)["decode_replica"].tolist() == [1, 2]
    assert links["scale-up.1"]["read_bytes"] == links["nic.1"]["read_bytes"] == 7 * BLOCK_BYTES


def test_each_gpu_of_a_wider_replica_reads_what_it_holds():
    # Eight KV heads on sixteen GPUs: each piece is held twice, and read twice.
    done, links = [], []
    for width in (8, 16):
        result = run([Row(0.0, 160, 2)], decode={"tensor_parallel": width})
        done.append(table(result)["handover_s"][0])
        links.append(result.summary()["links"]["nic.1"]["read_bytes"])
    assert done == [10.0, 20.0]
    assert links == [10.0 * BLOCK_BYTES, 20.0 * BLOCK_BYTES]


def test_handovers_and_loads_share_the_card():
    tiers = {"fabric": {"device": "fx100", "capacity": 1e9}}
    chunks = range(32)
    alone = run([Row(0.0, 1024, 2)], tiers=tiers)

    # The stores of a prompt go the same way as its handover: out of the node that prefills.
    assert table(alone)["handover_s"][0] > 1.9 * 64
    # Loads come in there; they share a card with the handover only where they are of the node that decodes.
    for nodes, stores in (("own", 1), ("shared", 0)):
        phases = [
            Phase(name="warm", driver=Rows([Row(0.0, 1024, 0, chunks)])),
            Phase(name="run", driver=Rows([Row(0.0, 1024, 2, chunks)]), clear=("hbm",)),
        ]
        setup = scenario(cluster=split({"nodes": nodes}), tiers=tiers, links=ONE_BLOCK_A_SECOND)
        found = table(serve(setup, phases, TOKENS))
        assert found["load_s"][1] == pytest.approx(64.0, rel=0.05)
        assert (found["handover_s"][1] > 60.0) == stores


# Who holds what ------------------------------------------------------------------------------------------------------


def test_blocks_are_held_until_the_bytes_have_left():
    # 24 blocks: the second prompt (20) needs those of the first (10), which are on their way for 10 s.
    load = [Row(0.0, 160, 2), Row(0.0, 320, 2)]
    done = table(run(load, STEPS, hbm_blocks=24))
    assert done["admitted_at_s"].tolist() == [0.0, 1.0 + 10.0]


def test_a_full_decoding_replica_makes_prompts_wait_where_they_are():
    # 25 blocks a replica, 13 for each prompt. The second one decodes when the first has ended; until then its blocks
    # are held where it was computed, so that the third one waits there.
    result = run([Row(0.0, 208, 100)] * 3, STEPS, hbm_blocks=25, links={})
    done = table(result)
    assert (np.diff(done["first_token_at_s"]) > 99.0).all()
    assert done["decode_queue_s"].tolist() == pytest.approx([0.0, 98.0, 98.0], abs=1.0)
    assert done["admitted_at_s"][2] > 100.0
    assert done["preemptions"].sum() == 0
    assert result.summary()["bottleneck"].startswith("queue: room for KV in HBM")


def test_the_decoding_replica_computes_again_what_it_preempts():
    # Two requests of 4 blocks grow to 10 each; 14 blocks do for one of them.
    load = [Row(0.0, 60, 100), Row(0.0, 60, 100)]
    simulation = prepared(scenario(cluster=split(), hbm_blocks=14, links={}), Rows(load), STEPS)
    done = table(simulation.run())
    assert done["preemptions"].tolist() == [0, 1]
    assert done["handover_bytes"].tolist() == [4 * BLOCK_BYTES] * 2
    # The first 32 tokens are found in its prefix cache, unless they had to go; nothing crosses the fabric again.
    assert done["computed_prompt_tokens"][1] > 60
    assert simulation.cluster.decode.handovers.sent_bytes == 8 * BLOCK_BYTES


def test_what_the_decoding_replica_has_is_not_sent_again():
    chunks = range(3)
    done = table(run([Row(0.0, 100, 2, chunks), Row(20.0, 100, 2, chunks), Row(40.0, 96, 2, chunks)]))
    # The whole chunks hit; of a prompt that hits whole, the last block is sent, for its last token is computed again.
    assert done["handover_tokens"].tolist() == [100, 4, 16]
    assert done["handover_bytes"].tolist() == [7 * BLOCK_BYTES, BLOCK_BYTES, BLOCK_BYTES]
    assert done["hit_tokens_hbm"].tolist() == [0, 96, 80]
    off = table(run([Row(0.0, 100, 2, chunks), Row(20.0, 100, 2, chunks)], engine={"prefix_caching": False}))
    assert off["handover_tokens"].tolist() == [100, 100]


def test_the_least_loaded_replica_decodes():
    decode = {"replicas": 2}
    load = [Row(0.0, 320, 50), Row(0.0, 32, 2), Row(0.0, 32, 2)]
    done = table(run(load, decode=decode, links={}))
    assert done["decode_replica"].tolist() == [1, 2, 2]


@pytest.mark.parametrize("device", ["ddr5", "object-store", "fx100"])
def test_hits_below_hbm_serve_the_prefill_and_are_handed_over_whole(device):
    chunks = range(3)
    warm = Phase(name="warm", driver=Rows([Row(0.0, 96, 3, chunks)]))
    again = Phase(name="run", driver=Rows([Row(0.0, 112, 3, chunks)]), clear=("hbm",))
    setup = scenario(cluster=split(), tiers={"low": {"device": device, "capacity": 1e9}})
    result = serve(setup, [warm, again], TOKENS)
    done = table(result)
    assert done["hit_tokens_low"].tolist() == [0, 96]
    assert done["computed_prompt_tokens"].tolist() == [96, 16]
    assert done["load_low_s"][1] > 0.0
    assert done["handover_tokens"].tolist() == [96, 112]
    assert result.summary()["tiers"]["low"]["write_bytes"] == 3 * CHUNK * TOKEN_BYTES


def test_write_back_from_the_prefilling_replica_spills_no_decoded_kv():
    tiers = {"dram": {"device": "ddr5", "capacity": 1e9, "placement": "write-back"}}
    load = [Row(10.0 * n, 160, 40) for n in range(6)]
    result = run(load, tiers=tiers, hbm_blocks=24, links={})
    moved = result.summary()["tiers"]["dram"]["write_bytes"]
    assert 0 < moved <= 6 * 160 * TOKEN_BYTES


def test_a_request_too_long_for_either_pool_is_rejected():
    done = table(run([Row(0.0, 320, 100), Row(0.0, 32, 2)], hbm_blocks=24, links={}))
    assert done["state"].tolist() == [1, 0]
    assert np.isnan(done["ttft_s"][0])


def test_joining_a_decode_batch_makes_no_mixed_step():
    load = [Row(0.0, 60, 100), Row(2.5, 60, 100)]
    plain, mixed = (
        table(run(load, STEPS, links={}, engine={"mixed_step_factor": factor}, hbm_blocks=40)) for factor in (1.0, 3.0)
    )
    assert mixed["finished_at_s"].tolist() == plain["finished_at_s"].tolist()


def test_the_queue_of_a_decoding_replica_counts_one_token_a_prompt():
    load = [Row(0.0, 208, 500), Row(0.1, 400, 60), Row(0.2, 32, 60)]
    simulation = prepared(
        scenario(cluster=split(), hbm_blocks=50, links={}, engine={"scheduling": "shortest-prefill-first"}),
        Rows(load),
        TOKENS,
    )
    decoding = simulation.cluster.engines[1]
    seen = []
    simulation.cluster.clock.at(0.65, 0, lambda _: seen.append(decoding.waiting_prefill_tokens))
    done = table(simulation.run())
    # The second prompt waits for room and the third behind it: to the order of shortest prefills all are alike.
    assert seen == [2]
    assert done["decode_queue_s"][1] == done["decode_queue_s"][2] > 0.05
    assert [engine.waiting_prefill_tokens for engine in simulation.cluster.engines] == [0, 0]
    assert [engine.outstanding_tokens for engine in simulation.cluster.engines] == [0, 0]


def test_closed_loops_and_bound_clients_see_the_replicas_that_prefill():
    load = [Row(0.0, 64, 2, replica=1), Row(0.0, 64, 2, replica=0)]
    done = table(run(load, cluster={"replicas": 2}))
    assert done["replica"].tolist() == [1, 0]
    assert done["decode_replica"].tolist() == [2, 2]


# When it pays --------------------------------------------------------------------------------------------------------

COSTS = made_up_cost(fixed_s=0.05, dense_compute_s_per_token=2e-4)


def busy(cluster, every_s=0.97):
    """Prompts of 4,000 tokens (0.85 s of compute), and 50 tokens of output (2.5 s of it)."""
    load = [Row(every_s * n, 4000, 50) for n in range(40)]
    return serve(scenario(cluster=cluster), Rows(load), COSTS).summary()


def test_disaggregation_wins_on_inter_token_latency_where_prompts_are_long():
    mixed = busy({"replicas": 2})
    apart = busy(split(replicas=1))
    assert apart["itl_s"]["p99"] < 0.1 * mixed["itl_s"]["p99"]
    # One of two replicas is enough to compute the prompts: one every 0.97 s.
    assert apart["ttft_s"]["p50"] < 1.0


def test_it_loses_on_ttft_where_too_few_replicas_prefill():
    mixed = busy({"replicas": 4}, every_s=0.5)
    apart = busy(split({"replicas": 3}, replicas=1), every_s=0.5)
    assert apart["ttft_s"]["p50"] > 3 * mixed["ttft_s"]["p50"]
    assert apart["bottleneck"].startswith("queue: compute of the prefill replicas (busy 9")


def test_the_shipped_scenario_trades_ttft_for_inter_token_latency():
    mixed, apart = (
        simulate(load_scenario(name, overrides=["workload.limit=400"])).summary()
        for name in ("mooncake-conversation", "mooncake-disaggregated")
    )
    assert apart["itl_s"]["p99"] < 0.2 * mixed["itl_s"]["p99"]
    assert apart["ttft_s"]["mean"] > mixed["ttft_s"]["mean"]
    assert apart["ttft_parts_s"]["handover"] > 0.05


def test_the_bottleneck_names_the_link_of_the_handover():
    found = run([Row(100.0 * n, 160, 2) for n in range(3)]).summary()
    assert found["bottleneck"].startswith("handover of prompts: nic.0 link (write")
    assert found["handover"]["requests"] == 3
    assert found["handover"]["bytes"] == 30 * BLOCK_BYTES
    assert found["handover"]["s"]["max"] == 10.0


def test_a_mixed_cluster_has_no_handover():
    result = serve(scenario(cluster={"replicas": 2}), Rows([Row(0.0, 100, 5)]), TOKENS)
    assert "handover" not in result.summary()
    assert "handover" not in result.summary()["ttft_parts_s"]
    assert "handover_s" not in result.table("requests")


def test_transfers_show_handovers_by_the_replica_that_receives():
    result = run([Row(0.0, 100, 11)])
    moved = result.to_pandas("transfers")
    row = moved[moved["kind"] == "handover"].iloc[0]
    assert (row["replica"], row["n_bytes"], row["finished_at_s"] - row["started_at_s"]) == (1, 7 * BLOCK_BYTES, 7.0)
