"""The step loop against vLLM V1's rules, with costs that make every time a sum one can do by hand."""

import numpy as np
import pytest
from engine_kit import Row, Rows, made_up_cost, prepared, scenario, serve, table

from models.llm import load_llm
from sim.workload.phases import Phase

C = 2.0**-10
TOKENS = made_up_cost(dense_compute_s_per_token=C)  # a step takes C for every token that it schedules
STEPS = made_up_cost(fixed_s=1.0)  # every step takes a second
NVME = {"nvme": {"device": "nvme-gen4", "capacity": 4e9}}
# One chunk after another: a load or store of n chunks takes n times the software time (and a little for its bytes).
SLOW = {"reads_in_flight": 1, "writes_in_flight": 1, "read_software": 0.25, "write_software": 0.5}


def about(seconds):
    return pytest.approx(seconds, rel=0.01, abs=1e-9)


def run(load, cost=TOKENS, **setup):
    return table(serve(scenario(**setup), Rows(load) if isinstance(load[0], Row) else load, cost))


def warm(load, *earlier: Row, clear=("hbm",)):
    """Rows on a cluster whose lower tiers hold what earlier rows left."""
    return [Phase(name="warm", driver=Rows(earlier)), Phase(name="run", driver=Rows(load), clear=clear)]


def last_phase(result_table):
    picked = result_table["phase"] == result_table["phase"].max()
    return {name: values[picked] for name, values in result_table.items()}


# Steps ---------------------------------------------------------------------------------------------------------------


def test_a_prompt_then_one_step_a_token():
    done = run([Row(1.0, 100, 11)])
    assert done["first_token_at_s"][0] == 1.0 + 100 * C
    assert done["finished_at_s"][0] == 1.0 + 110 * C
    assert done["compute_s"][0] == 100 * C


@pytest.mark.parametrize("output_tokens", [0, 1])
def test_no_or_one_output_token_ends_with_the_prefill(output_tokens):
    done = run([Row(0.0, 64, output_tokens)])
    assert done["first_token_at_s"][0] == done["finished_at_s"][0] == 64 * C
    assert np.isnan(done["itl_max_s"][0])


def test_the_budget_cuts_a_prompt_into_steps_and_decodes_come_first():
    engine = {"max_num_batched_tokens": 40, "max_num_seqs": 4}
    assert run([Row(0.0, 100, 1)], STEPS, engine=engine)["first_token_at_s"][0] == 3.0  # 40 + 40 + 20
    # With one request decoding, 39 tokens are left for the other: 39 + 39 + 2 instead of 40 + 40.
    done = run([Row(0.0, 10, 20), Row(0.5, 80, 1)], STEPS, engine=engine)
    assert done["admitted_at_s"][1] == 1.0
    assert done["first_token_at_s"][1] == 4.0


def test_mixed_steps_take_longer_by_their_factor():
    done = run([Row(0.0, 10, 20), Row(0.5, 80, 1)], STEPS, engine={"mixed_step_factor": 1.5})
    assert done["compute_s"].tolist() == [1.0, 1.5]
    assert done["finished_at_s"][0] == 20.5


def test_no_more_than_max_num_seqs_run_at_once():
    done = run([Row(0.0, 16, 4)] * 5, STEPS, engine={"max_num_seqs": 2})
    assert done["admitted_at_s"].tolist() == [0.0, 0.0, 4.0, 4.0, 8.0]


def test_waiting_requests_are_admitted_in_order_once_the_whole_prompt_fits():
    # 20 blocks: the second prompt (12 blocks) waits for the first (10), and the third, which would fit, behind it.
    done = run([Row(0.0, 160, 3), Row(0.0, 192, 1), Row(0.0, 16, 1)], STEPS, hbm_blocks=20)
    assert done["admitted_at_s"].tolist() == [0.0, 3.0, 3.0]


def test_attention_windows_bound_what_a_prompt_pays():
    cost = made_up_cost(compute_s_per_window_pair=1e-3)
    done = run([Row(0.0, 300, 1)], cost, llm="gpt-oss-20b")
    pairs = sum(min(position, 128) for position in range(1, 301))
    assert done["compute_s"][0] == pytest.approx(pairs * 1e-3, rel=1e-12)


def test_chunked_prefill_pays_the_same_pairs():
    cost = made_up_cost(compute_s_per_pair=2.0**-12, compute_s_per_window_pair=2.0**-12)
    whole, cut = (
        run([Row(0.0, 300, 1)], cost, llm="gpt-oss-20b", engine={"max_num_batched_tokens": n, "max_num_seqs": 1})
        for n in (512, 70)
    )
    assert whole["compute_s"][0] == cut["compute_s"][0]


# Prefix cache --------------------------------------------------------------------------------------------------------


def test_the_last_block_is_computed_again_when_the_whole_prompt_hits():
    done = run([Row(0.0, 96, 1, range(3)), Row(1.0, 96, 1, range(3)), Row(2.0, 97, 1, range(3))])
    assert done["hit_tokens_hbm"].tolist() == [0, 80, 96]
    assert done["computed_prompt_tokens"].tolist() == [96, 16, 1]
    assert done["compute_s"].tolist() == [96 * C, 16 * C, C]


def test_the_block_that_is_computed_again_is_a_private_copy():
    simulation = prepared(scenario(hbm_blocks=8), Rows([Row(0.0, 96, 1, range(3)), Row(1.0, 96, 1, range(3))]), TOKENS)
    simulation.run()
    (hbm,) = simulation.cluster.tiers["hbm"]
    assert (hbm.peak_units, hbm.used_units) == (7, 6)


def test_requests_of_one_step_share_what_is_scheduled_before_them():
    done = run([Row(0.0, 96, 1, range(3)), Row(0.0, 128, 1, range(4))])
    assert done["hit_tokens_hbm"].tolist() == [0, 96]
    assert done["compute_s"][0] == (96 + 32) * C


def test_without_prefix_caching_nothing_hits_in_hbm():
    done = run([Row(0.0, 96, 1, range(3)), Row(1.0, 96, 1, range(3))], engine={"prefix_caching": False})
    assert done["hit_tokens_hbm"].tolist() == [0, 0]
    assert done["computed_prompt_tokens"].tolist() == [96, 96]


def test_ended_requests_leave_tail_first():
    # 12 blocks: 3 chunks stay of the first prompt; the other takes the room of its last two.
    done = run([Row(0.0, 96, 1, range(3)), Row(1.0, 160, 1), Row(2.0, 96, 1, range(3))], hbm_blocks=12)
    assert done["hit_tokens_hbm"].tolist() == [0, 0, 32]


def test_the_state_of_linear_layers_takes_blocks():
    llm = load_llm("qwen3-next-80b-a3b")
    block_bytes = 16 * llm.kv_bytes_per_token("bf16")
    state_blocks = -(-llm.state_bytes() // block_bytes)
    assert state_blocks > 0
    blocks = 2 * (2 + state_blocks) + 1  # two prompts of 16 tokens, each with a second block for its answer
    setup = {"llm": "qwen3-next-80b-a3b", "cluster": {"tensor_parallel": 2}}
    load = [Row(0.0, 16, 8), Row(0.0, 16, 8)]
    together, apart = (run(load, STEPS, hbm_blocks=n, **setup) for n in (blocks, blocks - state_blocks))
    assert together["admitted_at_s"].tolist() == [0.0, 0.0]
    assert apart["admitted_at_s"].tolist() == [0.0, 8.0]


# Preemption ----------------------------------------------------------------------------------------------------------


def test_the_last_admitted_is_preempted_and_comes_back_before_those_who_wait():
    # 8 blocks. Both take 2 for the prompt and grow: at 65 tokens each (4 + 4 full) the second one has to go.
    load = [Row(0.0, 32, 60), Row(0.0, 32, 60), Row(20.0, 32, 1)]
    simulation = prepared(scenario(hbm_blocks=8), Rows(load), STEPS)
    done = table(simulation.run())
    assert done["preemptions"].tolist() == [0, 1, 0]
    # Step 1 is the prefill, steps 2 to 33 decode tokens 33 to 64; the 34th step (at 33 s) needs ninth and tenth blocks.
    assert done["finished_at_s"][0] == 60.0
    assert done["admitted_at_s"].tolist() == [0.0, 0.0, 60.0]
    # It had 33 tokens at 33 s; the first one's end at 60 s lets it in, and token 34 comes a step later.
    assert done["itl_max_s"][1] == 28.0
    assert done["finished_at_s"][1] == 60.0 + 27
    assert done["finished_at_s"][2] == 61.0  # it waited behind the preempted one, and shared its step
    assert simulation.intervals.count == 59 + 59
    assert simulation.intervals.max_s == 28.0


def test_a_step_that_preempts_admits_nobody():
    # 15 blocks: two grow to 4 each by 33 s, and one that loads holds 7. Its load ends at 32.75 s, in the step before.
    load = [Row(0.0, 32, 60), Row(0.0, 32, 60), Row(31.9, 97, 1, [1, 2, 3])]
    transfer = SLOW | {"load": "async", "store": "async", "write_software": 0.0}
    phases = warm(load, Row(0.0, 96, 1, [1, 2, 3]))
    done = last_phase(run(phases, STEPS, hbm_blocks=15, tiers=NVME, transfer=transfer))
    begin_s = done["admitted_at_s"][0]
    assert done["preemptions"].tolist() == [0, 1, 0]
    assert done["load_s"][2] == about(0.75)
    assert done["first_token_at_s"][2] - begin_s == about(35.0)


def test_a_recomputed_prompt_hits_what_is_left_of_it():
    load = [Row(0.0, 32, 60, [1]), Row(0.0, 32, 60, [2])]
    done = run(load, TOKENS, hbm_blocks=9)
    assert done["preemptions"].tolist() == [0, 1]
    # Its one chunk was the first to go, as the other request grew: 32 tokens at first, then 32 + 33 or more again.
    assert done["computed_prompt_tokens"][1] > 32 + 32
    assert done["hit_tokens_hbm"].tolist() == [0, 0]


def test_a_preempted_prefill_adds_up():
    # The second prompt, 5 of 7 blocks, is at 64 of 80 tokens when the first one needs a third block at 8 s.
    engine = {"max_num_batched_tokens": 12, "max_num_seqs": 4}
    done = run([Row(0.0, 27, 40), Row(0.5, 80, 4)], STEPS, hbm_blocks=7, engine=engine)
    assert done["preemptions"].tolist() == [0, 1]
    assert done["finished_at_s"][0] == 42.0
    assert done["queue_s"][1] == 1.5 + (42.0 - 8.0)
    parts = done["queue_s"] + done["load_s"] + done["compute_s"] + done["other_s"]
    assert parts.tolist() == pytest.approx(done["ttft_s"].tolist())
    assert min(done["other_s"]) >= 0.0


def test_waiting_prefill_tokens_return_to_zero():
    load = [Row(0.1 * n, 32 + 16 * n, 60, [n % 3, 7 + n]) for n in range(8)]
    for prefix_caching in (True, False):
        setup = scenario(hbm_blocks=14, engine={"prefix_caching": prefix_caching, "max_num_batched_tokens": 48})
        simulation = prepared(setup.model_copy(), Rows(load), TOKENS)
        simulation.run()
        (replica,) = simulation.cluster.replicas
        assert replica.waiting_prefill_tokens == replica.outstanding_tokens == replica.outstanding_requests == 0


# Loads ---------------------------------------------------------------------------------------------------------------


def test_synchronous_loads_of_a_step_add_up_and_everybody_waits():
    earlier = [Row(0.0, 64, 1, [1, 2]), Row(0.0, 96, 1, [3, 4, 5])]
    load = [Row(0.0, 16, 10), Row(0.5, 65, 1, [1, 2]), Row(0.5, 97, 1, [3, 4, 5])]
    done = last_phase(run(warm(load, *earlier), STEPS, tiers=NVME, transfer=SLOW | {"load": "sync"}))
    first = done["admitted_at_s"][0]
    assert (done["admitted_at_s"][1:] - first).tolist() == [1.0, 1.0]
    assert done["load_s"].tolist() == about([0.0, 1.25, 1.25])  # two chunks, then three
    assert done["load_nvme_s"].tolist() == about([0.0, 0.5, 0.75])
    assert done["first_token_at_s"][1:] - first == about([3.25, 3.25])
    assert done["itl_max_s"][0] == about(2.25)  # the decode waited for both loads and its step
    assert done["hit_tokens_nvme"].tolist() == [0, 64, 96]


def test_request_software_adds_to_each_synchronous_load():
    earlier = [Row(0.0, 64, 1, [1, 2]), Row(0.0, 96, 1, [3, 4, 5])]
    load = [Row(0.0, 65, 1, [1, 2]), Row(0.0, 97, 1, [3, 4, 5])]
    transfer = SLOW | {"load": "sync", "request_software": 0.125}
    done = last_phase(run(warm(load, *earlier), STEPS, tiers=NVME, transfer=transfer))
    assert done["load_s"].tolist() == about([1.5, 1.5])


def test_request_software_adds_to_each_asynchronous_load_by_itself():
    earlier = [Row(0.0, 64, 1, [1, 2]), Row(0.0, 96, 1, [3, 4, 5])]
    load = [Row(0.0, 65, 1, [1, 2]), Row(0.0, 97, 1, [3, 4, 5])]
    transfer = SLOW | {"load": "async", "request_software": 0.125}
    done = last_phase(run(warm(load, *earlier), STEPS, tiers=NVME, transfer=transfer))
    assert done["load_s"].tolist() == about([0.625, 0.875])


def test_asynchronous_loads_let_others_run_and_join_at_the_next_step():
    load = [Row(0.0, 16, 10), Row(0.5, 65, 1, [1, 2])]
    done = last_phase(run(warm(load, Row(0.0, 64, 1, [1, 2])), STEPS, tiers=NVME, transfer=SLOW | {"load": "async"}))
    begin = done["admitted_at_s"][0]
    assert done["admitted_at_s"][1] - begin == 1.0  # the load begins with the step
    assert done["load_s"][1] == about(0.5)
    assert done["first_token_at_s"][1] - begin == about(3.0)  # loaded at 1.5, in the step from 2 to 3
    assert done["other_s"][1] == about(0.5)
    assert done["itl_max_s"][0] == about(1.0)


def test_a_loading_request_holds_its_blocks():
    # 10 blocks: 7 for the loading one, so the prompt of 5 behind it waits until it has ended.
    load = [Row(0.0, 97, 1, [1, 2, 3]), Row(0.1, 80, 1)]
    transfer = SLOW | {"load": "async", "store": "sync", "write_software": 0.0}
    done = last_phase(run(warm(load, Row(0.0, 96, 1, [1, 2, 3])), STEPS, tiers=NVME, transfer=transfer, hbm_blocks=10))
    assert done["admitted_at_s"][1] == done["finished_at_s"][0]


def test_short_hits_are_computed():
    load = [Row(0.0, 65, 1, [1, 2])]
    for least, hit in ((64, 64), (65, 0)):
        phases = warm(load, Row(0.0, 64, 1, [1, 2]))
        done = last_phase(run(phases, TOKENS, tiers=NVME, transfer={"min_load_tokens": least}))
        assert done["hit_tokens_nvme"].tolist() == [hit]
        assert done["computed_prompt_tokens"].tolist() == [65 - hit]


def test_a_load_after_the_first_token_is_no_part_of_the_ttft():
    load = [Row(0.0, 32, 80, [1]), Row(0.0, 32, 60, [2])]
    for mode in ("sync", "async"):
        done = run(load, STEPS, hbm_blocks=8, tiers=NVME, transfer=SLOW | {"load": mode, "write_software": 0.0})
        assert done["preemptions"][1] == 1
        assert done["finished_at_s"][1] > 80.0 + 27 + 0.2  # it did load, after the other had ended
        assert done["load_s"].tolist() == done["load_nvme_s"].tolist() == [0.0, 0.0]
        assert done["other_s"].tolist() == about([0.0, 0.0])


# Stores --------------------------------------------------------------------------------------------------------------


def test_synchronous_stores_make_the_step_longer():
    done = run([Row(0.0, 16, 10), Row(0.5, 64, 1, [1, 2])], STEPS, tiers=NVME, transfer=SLOW | {"store": "sync"})
    assert done["first_token_at_s"][1] == about(3.0)  # a step from 1 to 2, then two chunks of 0.5 s
    assert done["itl_max_s"][0] == about(2.0)
    assert done["other_s"][1] == about(1.0)


def test_asynchronous_stores_hold_the_blocks_until_the_bytes_have_left():
    # 10 blocks, 6 of them leaving until 1 + 3 x 0.5 s: the next prompt (5 blocks) has to wait so long.
    load = [Row(0.0, 96, 1, [1, 2, 3]), Row(0.5, 80, 1)]
    done = run(load, STEPS, hbm_blocks=10, tiers=NVME, transfer=SLOW | {"store": "async"})
    assert done["finished_at_s"][0] == 1.0
    assert done["admitted_at_s"][1] == about(2.5)


def test_a_step_that_needs_a_block_waits_for_those_that_leave():
    # 9 blocks: a decode wants its third one at 1 s, while 7 are leaving HBM for 3 x 10 s.
    load = [Row(0.0, 32, 30), Row(0.0, 112, 1, [1, 2, 3])]
    transfer = SLOW | {"store": "async", "write_software": 10.0}
    done = run(load, STEPS, hbm_blocks=9, tiers=NVME, transfer=transfer)
    assert done["preemptions"].tolist() == [0, 0]
    assert done["itl_max_s"][0] == about(31.0)


def test_a_prefix_tree_keeps_the_ancestors_of_what_is_in_use():
    """Two loads of one prefix: the longer request holds its tail, the head is unpinned, and still cannot be evicted."""
    earlier = Row(0.0, 96, 1, [1, 2, 3])
    load = [Row(0.0, 65, 1, [1, 2]), Row(0.0, 97, 143, [1, 2, 3])]
    transfer = SLOW | {"load": "async", "write_software": 0.0}
    setup = {"hbm_blocks": 16, "tiers": NVME, "transfer": transfer, "hbm": {"structure": "leaf_constrained"}}
    done = last_phase(run(warm(load, earlier), STEPS, **setup))
    assert done["preemptions"].tolist() == [0, 1]


# Rejections ----------------------------------------------------------------------------------------------------------


def test_what_can_never_fit_is_rejected_and_said():
    result = serve(scenario(hbm_blocks=8), Rows([Row(0.0, 64, 48), Row(0.0, 65, 48), Row(0.0, 10**12, 1, [])]), TOKENS)
    done = table(result)
    assert done["state"].tolist() == [0, 1, 1]
    assert any("2 of 3 requests rejected" in text for text in result.summary()["warnings"])


def test_waiting_for_room_in_hbm_is_told_from_waiting_for_a_step():
    """Blocks for 128 tokens: the second prompt waits from 1 s, the first edge, until the first request ends at 40 s."""
    load = [Row(0.0, 64, 40), Row(0.5, 96, 1)]
    for hbm_blocks, room_wait_s, bottleneck in ((8, 39.0, "queue: room for KV in HBM"), (100, 0.0, "compute: prefill")):
        simulation = prepared(scenario(hbm_blocks=hbm_blocks), Rows(load), STEPS)
        assert simulation.run().summary()["bottleneck"].startswith(bottleneck)
        assert simulation.cluster.replicas[0].room_wait_s == room_wait_s
