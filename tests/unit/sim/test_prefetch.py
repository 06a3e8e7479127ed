"""Prefetch into memory: where it must win, where it must lose, and what limits it."""

import pytest
from engine_kit import CHUNK, Row, Rows, made_up_cost, prepared, scenario, serve, table

from models.errors import InvariantError
from models.llm import load_llm
from scenarios.checks import check_names
from sim.policies.prefetch import HiCache
from sim.workload.phases import Phase

CHUNK_BYTES = CHUNK * load_llm("llama-3.1-8b").kv_bytes_per_token("bf16")
STEPS = made_up_cost(fixed_s=1.0)
# Nothing is written to memory but what is read into it.
TIERS = {
    "dram": {"device": "ddr5", "capacity": 40.5 * CHUNK_BYTES, "placement": "none"},
    "nvme": {"device": "nvme-gen4", "capacity": 4e9},
}
# A quarter of a second a chunk from the drive; from memory it takes as good as no time.
SLOW = {"reads_in_flight": 1, "read_software": 0.25}
PROMPT = [1, 2, 3, 4]
EARLIER = [Row(0.0, 128, 1, PROMPT)]


def about(seconds):
    return pytest.approx(seconds, rel=0.01, abs=1e-9)


def tiers(**dram):
    return TIERS | {"dram": TIERS["dram"] | dram}


def run(load, earlier=EARLIER, cost=STEPS, *, below=TIERS, clear=("hbm", "dram"), transfer, **setup):
    """The load on a node whose drive holds what the earlier rows left."""
    phases = [Phase(name="warm", driver=Rows(earlier)), Phase(name="run", driver=Rows(load), clear=clear)]
    result = serve(scenario(tiers=below, transfer=SLOW | transfer, **setup), phases, cost)
    found = table(result)
    picked = found["phase"] == 1
    return {name: values[picked] for name, values in found.items()} | {"reads": reads(result)}


def reads(result):
    """Bytes read from the drive in all, in chunks."""
    return round(result.summary()["tiers"]["nvme"]["read_bytes"] / CHUNK_BYTES)


# A prompt of 8 blocks decodes until 40 s, and the prompt that loads has no room beside it.
FULL = [Row(0.0, 128, 40), Row(0.5, 129, 1, PROMPT)]


@pytest.mark.parametrize("prefetch", ["at-enqueue", "look-ahead"])
def test_it_wins_where_requests_wait_for_room_in_hbm(prefetch) -> None:
    waits, ahead = (
        run(FULL, transfer={"load": "async", "prefetch": policy}, hbm_blocks=16) for policy in ("none", prefetch)
    )
    assert waits["load_s"][1] == waits["load_nvme_s"][1] == about(1.0)
    assert waits["ttft_s"][1] == about(39.5 + 1.0 + 1.0)
    assert ahead["ttft_s"][1] == about(39.5 + 1.0)
    assert ahead["load_nvme_s"][1] == 0.0
    assert ahead["hit_tokens_dram"].tolist() == [0, 128]
    assert ahead["hit_tokens_nvme"].tolist() == [0, 0]
    assert ahead["reads"] == waits["reads"] == 4


def test_it_wins_the_itl_of_synchronous_loads() -> None:
    """The drive is read while the others decode; only the copy from memory stops them."""
    load = [Row(0.0, 16, 10), Row(0.5, 129, 1, PROMPT)]
    stalled, ahead = (run(load, transfer={"load": "sync", "prefetch": policy}) for policy in ("none", "at-enqueue"))
    assert stalled["itl_max_s"][0] == about(2.0)
    assert ahead["itl_max_s"][0] == about(1.0)
    assert ahead["queue_s"][1] == about(1.5)  # there at 1.5 s, and the step after that begins at 2 s


def test_it_loses_the_copy_from_memory_where_nobody_has_to_wait() -> None:
    """A lone prompt would stream through memory into HBM; now the copy follows the read, four chunks at 1 chunk/s."""
    links = {"host-link": {"bandwidth": 1.0 * CHUNK_BYTES, "latency": 0.0, "delivered_fraction": 1.0}}
    lone = [Row(0.0, 129, 1, PROMPT)]
    streamed, ahead = (
        run(lone, transfer={"load": "async", "prefetch": policy}, links=links) for policy in ("none", "at-enqueue")
    )
    assert streamed["ttft_s"][0] == about(0.25 + 4.0 + 1.0)
    assert ahead["ttft_s"][0] == about(1.0 + 4.0 + 1.0)
    assert ahead["queue_s"][0] == about(1.0)


def test_it_loses_where_memory_is_too_small_for_both() -> None:
    """Memory holds the prompt of the second request until the third one's takes its room, long before its turn."""
    others = [11, 12, 13, 14]
    earlier = [*EARLIER, Row(0.0, 128, 1, others)]
    found = {}
    for policy in ("none", "at-enqueue"):
        warmed = [
            Phase(name="warm", driver=Rows(earlier)),
            Phase(name="touch", driver=Rows([Row(0.0, 129, 1, PROMPT)]), clear=("hbm",)),
            Phase(
                name="run",
                driver=Rows([Row(0.0, 128, 40), Row(0.5, 129, 1, PROMPT), Row(0.6, 129, 1, others)]),
                clear=("hbm",),
            ),
        ]
        setup = scenario(
            tiers=tiers(capacity=6.5 * CHUNK_BYTES),
            transfer=SLOW | {"load": "async", "prefetch": {policy: {"under_way_bytes": 10**12}}},
            hbm_blocks=16,
        )
        done = table(serve(setup, warmed, STEPS))
        found[policy] = done["ttft_s"][done["phase"] == 2]
    assert found["at-enqueue"][1] > found["none"][1] + 0.4  # two of its chunks or more had gone
    assert found["at-enqueue"][2] < found["none"][2]


def test_look_ahead_brings_what_the_window_reaches_when_it_does() -> None:
    """One after another takes 8 of 18 blocks for 10 s; the third request is two places behind the first to wait."""
    prompts = [[10 * n + i for i in range(4)] for n in range(3)]
    earlier = [Row(0.0, 128, 1, prompt) for prompt in prompts]
    load = [Row(0.0, 128, 40), *(Row(0.5 + 0.01 * n, 129, 20, prompt) for n, prompt in enumerate(prompts))]
    result = {}
    for requests in (1, 2, 3):
        setup = scenario(
            tiers=TIERS,
            transfer=SLOW | {"load": "async", "prefetch": {"look-ahead": {"requests": requests}}},
            hbm_blocks=16,
        )
        phases = [
            Phase(name="warm", driver=Rows(earlier)),
            Phase(name="run", driver=Rows(load), clear=("hbm", "dram")),
        ]
        done = serve(setup, phases, STEPS)
        transfers = done.table("transfers")
        loads = (transfers["kind"] == 0) & (transfers["tier"] == 2)
        began = transfers["started_at_s"][loads] - table(done)["arrived_at_s"][3]
        result[requests] = [round(float(at), 1) for at in sorted(began)]
    assert result[3] == [0.5, 0.5, 0.5]
    assert result[2][:2] == [0.5, 0.5]
    assert result[2][2] == 40.0  # when the first of the three is admitted
    assert result[1][:2] == [0.5, 40.0]
    assert result[1][2] > 55.0


def test_at_enqueue_gives_up_what_look_ahead_tries_again() -> None:
    """Room for the bytes of one prompt under way: the second one comes too early for at-enqueue."""
    prompts = [[10 * n + i for i in range(4)] for n in range(2)]
    earlier = [Row(0.0, 128, 1, prompt) for prompt in prompts]
    load = [Row(0.0, 128, 40), *(Row(0.5, 129, 1, prompt) for prompt in prompts)]
    limit = {"under_way_bytes": 5 * CHUNK_BYTES}
    found = {
        policy: run(load, earlier, transfer={"load": "async", "prefetch": {policy: limit}}, hbm_blocks=16)
        for policy in ("at-enqueue", "look-ahead")
    }
    assert found["at-enqueue"]["hit_tokens_dram"].tolist() == [0, 128, 0]
    assert found["look-ahead"]["hit_tokens_dram"].tolist() == [0, 128, 128]
    assert found["look-ahead"]["ttft_s"][2] < found["at-enqueue"]["ttft_s"][2] - 0.5


def test_at_enqueue_beats_a_window_that_the_queue_is_longer_than() -> None:
    """The second to wait is brought when it comes; behind a window of one it is brought when it would be admitted."""
    prompts = [[10 * n + i for i in range(4)] for n in range(2)]
    earlier = [Row(0.0, 128, 1, prompt) for prompt in prompts]
    load = [Row(0.0, 128, 40), *(Row(0.5, 129, 1, prompt) for prompt in prompts)]
    found = {
        name: run(load, earlier, transfer={"load": "async", "read_software": 1.0, "prefetch": policy}, hbm_blocks=16)
        for name, policy in (("at-enqueue", "at-enqueue"), ("look-ahead", {"look-ahead": {"requests": 1}}))
    }
    assert found["at-enqueue"]["ttft_s"][2] < found["look-ahead"]["ttft_s"][2] - 2.0


@pytest.mark.parametrize(
    ("dram", "limit", "brought"),
    [
        ({}, None, True),
        ({}, 4 * CHUNK_BYTES, True),
        ({}, 4 * CHUNK_BYTES - 1, False),
        ({"capacity": 7.5 * CHUNK_BYTES}, None, False),  # half of memory is less than the prompt
        ({"capacity": 3.5 * CHUNK_BYTES}, 10**12, False),
    ],
)
def test_what_finds_no_room_is_not_brought(dram, limit, brought) -> None:
    parameters = {} if limit is None else {"under_way_bytes": limit}
    transfer = {"load": "async", "prefetch": {"at-enqueue": parameters}}
    done = run(FULL, transfer=transfer, below=tiers(**dram), hbm_blocks=16)
    assert done["hit_tokens_dram"].tolist() == [0, 128 if brought else 0]
    assert done["hit_tokens_nvme"].tolist() == [0, 0 if brought else 128]


@pytest.mark.parametrize(("clear", "brought"), [(("hbm",), False), (("hbm", "dram"), True)])
def test_memory_that_writes_back_gives_free_room_only(clear, brought) -> None:
    """Eight chunks of memory are full of what is nowhere else, or empty; the drive below holds the prompt."""
    below = tiers(capacity=8.5 * CHUNK_BYTES, placement="write-through")
    below["nvme"] = TIERS["nvme"] | {"placement": "write-back"}
    earlier = [*EARLIER, Row(10.0, 256, 1, range(50, 58))]
    transfer = {"load": "async", "prefetch": {"at-enqueue": {"under_way_bytes": 10**12}}}
    done = run(FULL, earlier, transfer=transfer, below=below, clear=clear, hbm_blocks=18, engine={"max_num_seqs": 1})
    assert done["hit_tokens_dram"][1] == (128 if brought else 0)
    assert done["hit_tokens_nvme"][1] == (0 if brought else 128)


def test_others_pass_a_request_whose_kv_is_on_its_way() -> None:
    load = [Row(0.0, 129, 1, PROMPT), Row(0.1, 16, 1)]
    done = run(load, transfer={"load": "sync", "prefetch": "at-enqueue"})
    assert done["queue_s"].tolist() == about([1.1, 0.0])  # the step of the other one ends at 1.1 s
    assert done["load_s"][0] < 0.01


def test_a_prefix_is_brought_once_for_all_who_wait_for_it() -> None:
    load = [Row(0.0, 129, 1, PROMPT), Row(0.25, 129, 1, PROMPT)]
    done = run(load, transfer={"load": "async", "prefetch": "at-enqueue"})
    assert done["queue_s"].tolist() == about([1.0, 0.75])
    assert done["reads"] == 4


# The next turn -------------------------------------------------------------------------------------------------------

# Two conversations in memory for six chunks: the second turn of one finds that the other has taken its place.
TURNS = [
    Row(0.0, 128, 1, PROMPT, session=1),
    Row(10.0, 128, 1, [11, 12, 13, 14], session=2),
    Row(60.0, 129, 1, PROMPT, session=1),
]


def turns(policy, sessions=(1, 2, 1)):
    rows = [row._replace(session=session) for row, session in zip(TURNS, sessions, strict=True)]
    below = tiers(capacity=6.5 * CHUNK_BYTES, placement="write-through")
    transfer = SLOW | {"load": "async", "prefetch": policy}
    return table(serve(scenario(tiers=below, transfer=transfer, hbm_blocks=10), Rows(rows), STEPS))


@pytest.mark.parametrize(("after_s", "brought"), [(50.0, True), (5.0, False)])
def test_the_next_turn_finds_in_memory_what_was_brought_back_in_time(after_s, brought) -> None:
    """Fifty seconds after the first turn is in time; five are too early: the other conversation comes after that."""
    policy = {"next-turn": {"after_s": after_s, "under_way_bytes": 10**12}}
    done = turns(policy)
    without = turns("none")
    assert without["ttft_s"][2] > 1.4
    assert without["hit_tokens_nvme"][2] == 64
    if brought:
        assert done["hit_tokens_nvme"][2] == 0
        assert done["ttft_s"][2] == about(1.0)
    else:
        assert done["ttft_s"][2] == pytest.approx(without["ttft_s"][2])


def test_requests_of_no_conversation_have_no_next_turn() -> None:
    policy = {"next-turn": {"after_s": 50.0, "under_way_bytes": 10**12}}
    assert turns(policy, (-1, -1, -1))["ttft_s"][2] == turns("none")["ttft_s"][2]


def test_bringing_back_for_nobody_costs_the_others() -> None:
    """The first conversation does not go on: what is brought back for it takes the place of the other one's."""
    rows = [TURNS[0], TURNS[1], Row(60.0, 129, 1, [11, 12, 13, 14], session=2)]
    below = tiers(capacity=6.5 * CHUNK_BYTES, placement="write-through")
    found = {}
    for name, policy in (("none", "none"), ("next-turn", {"next-turn": {"after_s": 50.0, "under_way_bytes": 10**12}})):
        transfer = SLOW | {"load": "async", "prefetch": policy}
        rows_now = [*rows[:2], Row(20.0, 128, 1), rows[2]]
        setup = scenario(tiers=below, transfer=transfer, hbm_blocks=10)
        found[name] = table(serve(setup, Rows(rows_now), STEPS))
    assert found["next-turn"]["load_nvme_s"][3] > found["none"]["load_nvme_s"][3] + 0.2
    assert found["next-turn"]["ttft_s"][3] > found["none"]["ttft_s"][3] + 0.2


# Refusals ------------------------------------------------------------------------------------------------------------


def test_it_needs_memory_to_bring_kv_to() -> None:
    setup = scenario(tiers={"nvme": TIERS["nvme"]}, transfer={"prefetch": "at-enqueue"})
    assert (["transfer", "prefetch"], "brings KV into memory, and no tier is memory") in list(check_names(setup))


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ({"look-ahead": {"requests": 0}}, "is 0; must be at least 1"),
        ({"next-turn": {"after_s": -1.0}}, "is -1; must be at least 0"),
        ({"at-enqueue": {"under_way_bytes": 0}}, "is 0; must be above 0"),
        ("next-turn", "needs the parameter 'after_s'"),
    ],
)
def test_wrong_parameters_are_refused(policy, problem) -> None:
    setup = scenario(tiers=TIERS, transfer={"prefetch": policy})
    assert any(problem in text for _, text in check_names(setup))


def test_a_policy_that_wants_what_is_no_request_is_named(tmp_path, monkeypatch) -> None:
    text = "from sim.policies.prefetch import NoPrefetch\nclass Odd(NoPrefetch):\n"
    text += "    def wanted(self, waiting, arrived):\n        return [1]\n"
    (tmp_path / "odd_prefetch.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    setup = scenario(tiers=TIERS, transfer={"prefetch": "odd_prefetch:Odd"})
    with pytest.raises(InvariantError, match=r"prefetch policy Odd: wanted\(\) must return requests that wait"):
        prepared(setup, Rows([Row(0.0, 16, 1)]), STEPS).run()


# HiCache --------------------------------------------------------------------------------------------------------------

T = 2.0**-6
SLOW_STEPS = made_up_cost(dense_compute_s_per_token=T)  # half a second a chunk, of which the drive takes a quarter
QUICK_STEPS = made_up_cost(dense_compute_s_per_token=T / 16)
ALONE = [Row(0.0, 129, 1, PROMPT)]


def hicache(policy, **more):
    one_thread = {"load": "sync", "loads_in_flight": 1}
    return one_thread | {"prefetch": {"hicache": {"policy": policy, "min_tokens": 0, "batch_tokens": 32} | more}}


@pytest.mark.parametrize(
    ("policy", "hit", "read", "ttft_s"),
    [
        ("wait_complete", 128, 4, 1.0 + T),
        ("best_effort", 0, 1, 129 * T),  # the engine is idle: it begins with nothing, and one batch is on its way
        ("timeout", 64, 3, 0.6 + 65 * T),  # after 0.6 s two chunks are there, and the third is on its way
    ],
)
def test_hicache_goes_on_with_what_has_come(policy, hit, read, ttft_s) -> None:
    patience = {"timeout_s": 0.6, "timeout_per_1024_tokens_s": 0.0}
    done = run(ALONE, cost=SLOW_STEPS, transfer=hicache(policy, **patience))
    assert done["ttft_s"][0] == about(ttft_s)
    assert (done["hit_tokens_dram"].tolist(), done["reads"]) == ([hit], read)
    assert done["hit_tokens_nvme"].tolist() == [0]
    assert done["computed_prompt_tokens"].tolist() == [129 - hit]


def test_hicache_waits_where_computing_is_slow_and_starts_where_it_is_quick() -> None:
    def ttft_s(policy, cost):
        return run(ALONE, cost=cost, transfer=hicache(policy, timeout_s=0.6))["ttft_s"][0]

    slow, quick = (
        [ttft_s(policy, cost) for policy in ("wait_complete", "timeout", "best_effort")]
        for cost in (SLOW_STEPS, QUICK_STEPS)
    )
    assert slow == sorted(slow)
    assert quick == sorted(quick, reverse=True)
    assert len({*slow}) == len({*quick}) == 3


def test_best_effort_takes_what_came_while_others_were_served() -> None:
    busy = Row(0.0, 38, 1)  # 0.59 s
    done = run([busy, Row(0.01, 129, 1, PROMPT)], cost=SLOW_STEPS, transfer=hicache("best_effort"))
    assert (done["hit_tokens_dram"].tolist(), done["reads"]) == ([0, 64], 3)
    assert done["queue_s"][1] == about(38 * T - 0.01)


def test_hicache_has_one_thread_and_a_patience_by_length() -> None:
    second = [11, 12, 13, 14]
    earlier = [*EARLIER, Row(0.0, 128, 1, second)]
    done = run([*ALONE, Row(0.0, 129, 1, second)], earlier, SLOW_STEPS, transfer=hicache("wait_complete"))
    assert done["ttft_s"].tolist() == about([1.0 + T, 2.0 + T])
    assert HiCache().patience_s(4096) == 2.0
    # Half a second and a bit for 128 tokens: the first waits for two chunks, the second's turn has not come by then.
    transfer = hicache("timeout", timeout_s=0.0, timeout_per_1024_tokens_s=4.4)
    done = run([*ALONE, Row(0.0, 129, 1, second)], earlier, SLOW_STEPS, transfer=transfer)
    assert (done["hit_tokens_dram"].tolist(), done["reads"]) == ([64, 0], 3)


def test_hicache_leaves_short_hits_alone_and_others_prefetches_going() -> None:
    done = run(ALONE, cost=SLOW_STEPS, transfer=hicache("wait_complete", min_tokens=129))
    assert (done["ttft_s"][0], done["reads"]) == (about(129 * T), 0)
    # Two ask for the same prompt: what the first has called for is not called for again, and goes on for both.
    done = run([*ALONE, Row(0.1, 129, 1, PROMPT)], cost=SLOW_STEPS, transfer=hicache("wait_complete"))
    assert (done["hit_tokens_dram"].tolist(), done["reads"]) == ([128, 0], 4)
    assert done["ttft_s"].tolist() == about([1.0 + 2 * T, 0.9 + 2 * T])


def test_a_request_that_shares_a_prefetch_does_not_end_it() -> None:
    """A short prompt passes a long one whose head it shares, and decodes; what the long one called for goes on."""
    load = [Row(0.0, 38, 1), Row(0.01, 129, 1, PROMPT), Row(0.02, 33, 80, PROMPT[:1])]
    engine = {"max_num_seqs": 1, "scheduling": "shortest-prefill-first"}
    done = run(load, cost=SLOW_STEPS, transfer=hicache("best_effort"), engine=engine)
    assert done["admitted_at_s"][1] > done["finished_at_s"][2] - 0.01
    assert (done["hit_tokens_hbm"] + done["hit_tokens_dram"]).tolist() == [0, 128, 32]
    assert done["reads"] == 4


def test_hicache_refuses_what_it_does_not_know() -> None:
    setup = scenario(tiers=TIERS, transfer={"prefetch": {"hicache": {"policy": "patient"}}})
    assert any("must be one of timeout, wait_complete, best_effort" in problem for _, problem in check_names(setup))
