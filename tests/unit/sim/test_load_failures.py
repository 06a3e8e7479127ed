"""Loads that fail: the request fails or computes what is missing, at times that one can work out by hand."""

from math import isnan, sqrt

import pytest
from engine_kit import CHUNK, Row, Rows, made_up_cost, prepared, scenario, serve, table

from sim.tiers.faults import RandomFault, Read
from sim.workload.phases import Phase

TOKEN_S = 2.0**-6
PER_TOKEN = made_up_cost(dense_compute_s_per_token=TOKEN_S)
# A quarter of a second a chunk, one after another, whatever else is on the way.
SLOW = {"reads_in_flight": 1, "read_software": 0.25}
PROMPT = [1, 2, 3]
LONE, EARLIER = [Row(0.0, 97, 1, PROMPT)], [Row(0.0, 96, 1, PROMPT)]
RECOMPUTE, FAIL = "recompute", "fail"


def about(seconds):
    return pytest.approx(seconds, rel=0.01, abs=1e-9)


def drive(probability=1.0, **more):
    return {"nvme": {"device": "nvme-gen4", "capacity": 40e9, "load_failure_probability": probability} | more}


def result_of(load, policy, *, earlier=EARLIER, tiers=None, clear=("hbm",), transfer=None, **setup):
    """The load on a node whose lower tiers hold what the earlier rows left."""
    phases = [Phase(name="warm", driver=Rows(earlier)), Phase(name="run", driver=Rows(load), clear=clear)]
    engine = {"kv_load_failure_policy": policy} | setup.pop("engine", {})
    setup = scenario(tiers=tiers or drive(), transfer=SLOW | (transfer or {}), engine=engine, **setup)
    simulation = prepared(setup, phases, PER_TOKEN)
    result = simulation.run()
    for replica in simulation.cluster.engines:
        assert replica.waiting_prefill_tokens == replica.outstanding_tokens == replica.outstanding_requests == 0
    return result


def run(load, policy, **setup):
    found = table(result_of(load, policy, **setup))
    picked = found["phase"] == 1
    return {name: values[picked] for name, values in found.items()}


# What becomes of one request ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "computed_tokens"),
    # A synchronous load fails unseen: its step computes the last token for nothing.
    [({"load": "sync"}, 98), ({"load": "async"}, 97), ({"load": "sync", "staging": "store-and-forward"}, 98)],
)
def test_what_did_not_arrive_is_computed_after_the_time_of_the_load(load, computed_tokens) -> None:
    done = run(LONE, RECOMPUTE, transfer=load)
    assert done["load_s"][0] == done["load_nvme_s"][0] == about(0.75)
    assert done["compute_s"][0] == about(computed_tokens * TOKEN_S)
    assert done["ttft_s"][0] == about(0.75 + computed_tokens * TOKEN_S)
    assert (done["hit_tokens_nvme"].tolist(), done["computed_prompt_tokens"].tolist()) == ([0], [97])
    sound = run(LONE, RECOMPUTE, tiers=drive(0.0), transfer=load)
    assert sound["ttft_s"][0] == about(0.75 + TOKEN_S)
    assert sound["hit_tokens_nvme"].tolist() == [96]


@pytest.mark.parametrize("load", ["sync", "async"])
def test_a_failed_request_has_no_ttft_and_gives_all_back(load) -> None:
    # Two prompts fit into HBM at once, so the third is served only if the first two give back what they hold.
    rows = [Row(0.0, 97, 1, PROMPT), Row(0.0, 97, 1, [4, 5, 6]), Row(0.1, 97, 1), Row(50.0, 97, 1, PROMPT)]
    earlier = [Row(0.0, 96, 1, PROMPT), Row(0.0, 96, 1, [4, 5, 6])]
    result = result_of(rows, FAIL, earlier=earlier, hbm_blocks=15, transfer={"load": load})
    summary = result.summary()
    assert summary["requests"] == {"submitted": 6, "completed": 3, "rejected": 0, "failed": 3}
    assert summary["tiers"]["nvme"]["failed_loads"] == 3
    assert any("3 of 6 requests failed" in warning for warning in summary["warnings"])
    done = table(result)
    assert done["state"].tolist() == [0, 0, 2, 2, 0, 2]
    failed = done["state"] == 2
    for name in ("ttft_s", "queue_s", "load_s", "compute_s", "finished_at_s"):
        assert all(map(isnan, done[name][failed])), name
    # The last one comes when nobody else is there: what had failed to load is not taken for a hit in HBM.
    assert done["hit_tokens_hbm"][5] == 0
    assert summary["ttft_s"]["max"] == max(done["ttft_s"][~failed])


def test_fail_is_the_default_and_a_run_of_failures_only_has_a_summary() -> None:
    setup = scenario(tiers=drive(), transfer=SLOW)
    phases = [Phase(name="warm", driver=Rows(EARLIER)), Phase(name="run", driver=Rows(LONE), clear=("hbm",))]
    summary = serve(setup.model_copy(update={"run": setup.run.model_copy(update={"measure": None})}), phases).summary()
    assert summary["requests"]["failed"] == 1


@pytest.mark.parametrize("load", ["sync", "async"])
def test_what_came_from_other_tiers_before_it_is_kept(load) -> None:
    """Memory has room for the head of the prompt only, the drive has all of it."""
    tiers = {"dram": {"device": "ddr5", "capacity": 1.5 * CHUNK * 131_072}} | drive(gds=True)
    done = run(LONE, RECOMPUTE, tiers=tiers, transfer={"load": load})
    assert (done["hit_tokens_dram"].tolist(), done["hit_tokens_nvme"].tolist()) == ([32], [0])
    assert done["computed_prompt_tokens"].tolist() == [65]
    wasted = 1 if load == "sync" else 0
    assert done["load_s"][0] == about(0.5)
    assert done["ttft_s"][0] == about(0.5 + (65 + wasted) * TOKEN_S)


def test_others_of_the_step_that_found_the_missing_chunks_in_hbm_fail_too() -> None:
    """The second request hits what the first one is loading; the third has nothing to do with it."""
    rows = [Row(0.0, 97, 1, PROMPT), Row(0.0, 97, 1, PROMPT), Row(0.0, 10, 1)]
    failed = run(rows, FAIL, transfer={"load": "sync"})
    assert failed["state"].tolist() == [2, 2, 0]
    done = run(rows, RECOMPUTE, transfer={"load": "sync"})
    step_s = (1 + 1 + 10) * TOKEN_S
    again_s = (97 + 1) * TOKEN_S
    assert done["ttft_s"].tolist() == about([0.75 + step_s + again_s, 0.75 + step_s + again_s, 0.75 + step_s])
    assert done["computed_prompt_tokens"].tolist() == [97, 1, 10]
    assert done["hit_tokens_hbm"].tolist() == [0, 96, 0]


def test_layer_by_layer_a_failed_load_takes_its_time_too() -> None:
    done = run(LONE, RECOMPUTE, transfer={"load": "sync", "layerwise": True})
    assert done["ttft_s"][0] == about(0.75 + TOKEN_S / 32 + 97 * TOKEN_S)


@pytest.mark.parametrize("policy", [FAIL, RECOMPUTE])
def test_two_ended_computes_all_before_the_part_that_failed(policy) -> None:
    """Two chunks are computed in the second in which four are loaded; then the other four are computed too."""
    six = range(6)
    transfer = {"load": "async", "load_or_recompute": "two-ended"}
    done = run([Row(0.0, 193, 1, six)], policy, earlier=[Row(0.0, 192, 1, six)], transfer=transfer)
    if policy == FAIL:
        assert done["state"].tolist() == [2]
        return
    assert done["ttft_s"][0] == about(193 * TOKEN_S)
    assert (done["hit_tokens_nvme"].tolist(), done["computed_prompt_tokens"].tolist()) == ([0], [193])


def test_what_was_computed_is_stored_where_it_is_lacking() -> None:
    """Memory takes a prompt that was loaded at its next load only, but one that was computed at once."""
    memory = {"dram": {"device": "ddr5", "capacity": 4e9, "promotion": "never"}}
    rows = [*LONE, Row(20.0, 97, 1, PROMPT)]
    for probability, hit in ((0.0, 0), (1.0, 96)):
        setup = {"tiers": memory | drive(probability), "clear": ("hbm", "dram"), "engine": {"prefix_caching": False}}
        assert run(rows, RECOMPUTE, **setup)["hit_tokens_dram"].tolist() == [0, hit]


def test_an_exclusive_tier_keeps_what_failed_to_leave_it() -> None:
    """The drive gives a prompt up once HBM has it: the second request finds it there no more, unless that failed."""
    fill, again = Row(9.0, 200, 1, range(50, 56)), Row(9.0, 200, 1, range(60, 66))
    earlier, rows = [*EARLIER, fill], [*LONE, again, Row(19.0, 97, 1, PROMPT)]
    result = result_of(
        rows,
        FAIL,
        earlier=earlier,
        tiers=drive(placement="write-back", inclusion="exclusive"),
        clear=(),
        hbm_blocks=14,
    )
    assert result.summary()["tiers"]["nvme"]["failed_loads"] == 2
    assert result.summary()["requests"]["failed"] == 2


def test_a_prefetch_that_fails_brings_nothing() -> None:
    tiers = {"dram": {"device": "ddr5", "capacity": 4e9, "placement": "none"}} | drive()
    result = result_of(LONE, RECOMPUTE, tiers=tiers, transfer={"prefetch": "at-enqueue"})
    done = table(result)
    assert done["ttft_s"][1] == about(0.75 + 0.75 + 97 * TOKEN_S)  # it is tried once more when it is admitted
    assert (done["hit_tokens_dram"][1], result.summary()["tiers"]["nvme"]["failed_loads"]) == (0, 2)
    assert result.summary()["tiers"]["dram"]["write_bytes"] == 0.0


@pytest.mark.parametrize("policy", [FAIL, RECOMPUTE])
def test_nobody_decodes_what_failed_to_load(policy) -> None:
    rows = [Row(0.0, 97, 4, PROMPT), Row(0.0, 97, 4, [7, 8, 9])]
    done = run(rows, policy, cluster={"decode": {"replicas": 1}})
    assert done["state"].tolist() == ([2, 0] if policy == FAIL else [0, 0])
    assert (done["decode_replica"] >= 0).tolist() == [policy == RECOMPUTE, True]


# Many -----------------------------------------------------------------------------------------------------------------


def many(probability, policy=RECOMPUTE, n=400):
    """Requests of one chunk each, one after another."""
    earlier = [Row(0.01 * i, 32, 1, [1000 + i]) for i in range(n)]
    rows = [Row(3.0 * i, 33, 1, [1000 + i]) for i in range(n)]
    return run(rows, policy, earlier=earlier, tiers=drive(probability), transfer={"load": "async"})


def test_recomputations_are_as_many_as_expected() -> None:
    n, p = 400, 0.3
    done = many(p)
    recomputed = done["computed_prompt_tokens"] == 33
    assert abs(recomputed.sum() - n * p) < 4 * sqrt(n * p * (1 - p))
    assert done["compute_s"].mean() == about((1 + 32 * recomputed.mean()) * TOKEN_S)
    assert done["ttft_s"].mean() == about(0.25 + (1 + 32 * recomputed.mean()) * TOKEN_S)
    # The same reads fail under the other policy; and those that failed at a lower probability are among them.
    assert ((many(p, FAIL)["state"] == 2) == recomputed).all()
    fewer = many(0.1)["computed_prompt_tokens"] == 33
    assert 0 < fewer.sum() < recomputed.sum()
    assert not (fewer & ~recomputed).any()


def test_a_probability_of_next_to_nothing_changes_nothing() -> None:
    never, hardly = many(0.0, n=40), many(1e-18, FAIL, n=40)
    for name, values in never.items():
        assert values.tobytes() == hardly[name].tobytes(), name


def test_luck_follows_from_seed_tier_request_and_read() -> None:
    reads = [Read(request, attempt, 0, 0.0, 1.0) for request in range(200) for attempt in (1, 2)]

    def luck(*arguments):
        fault = RandomFault(*arguments)
        return [fault.fails(read) for read in reads]

    assert luck(0.5, 0, "nvme") == luck(0.5, 0, "nvme")
    assert len({tuple(luck(0.5, seed, tier)) for seed in (0, 1) for tier in ("nvme", "fabric")}) == 4
    first, second = luck(0.5, 0, "nvme")[::2], luck(0.5, 0, "nvme")[1::2]
    assert first != second
    assert all(luck(1.0, 0, "nvme"))
    assert not any(luck(0.0, 0, "nvme"))


@pytest.mark.parametrize(
    ("tiers", "problem"),
    [
        (drive(1.5), "less than or equal to 1"),
        (
            {"cache": {"device": "ddr5", "capacity": 1e9, "page_cache_of": "nvme", "load_failure_probability": 0.1}}
            | drive(),
            "is not for a page cache",
        ),
    ],
)
def test_what_cannot_fail_is_refused(tiers, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        scenario(tiers=tiers)
    with pytest.raises(ValueError, match="hbm takes only"):
        scenario(hbm={"load_failure_probability": 0.1})


# No room to be staged in ----------------------------------------------------------------------------------------------

ROOM_FOR_FOUR = {"dram": {"device": "ddr5", "capacity": 4.5 * CHUNK * 131_072, "placement": "none"}} | drive(0.0)


@pytest.mark.parametrize(("timeout", "failed"), [(None, 0), (2.0, 0), (0.5, 1)])
def test_a_load_waits_for_room_as_long_as_it_may(timeout, failed) -> None:
    """Memory has room for one of two prompts; the second load waits 0.75 s for the first, or gives up before."""
    rows = [*LONE, Row(0.0, 97, 1, [4, 5, 6])]
    earlier = [*EARLIER, Row(0.0, 96, 1, [4, 5, 6])]
    transfer = {"load": "async", "staging_timeout": timeout, "reads_in_flight": 1}
    setup = {"tiers": ROOM_FOR_FOUR, "earlier": earlier, "transfer": transfer, "clear": ("hbm", "dram")}
    result = result_of(rows, RECOMPUTE, **setup)
    done = table(result)
    # After the first one's load its own; or at 0.5 s a step that computes all, which the first one waits for.
    expected_s = [0.75, 1.5] if not failed else [0.5 + 97 * TOKEN_S, 0.5 + 96 * TOKEN_S]
    assert done["ttft_s"][2:].tolist() == about([s + TOKEN_S for s in expected_s])
    assert result.summary()["tiers"]["nvme"]["failed_loads"] == failed
    assert (done["hit_tokens_nvme"][2:].tolist(), failed) in [([96, 96], 0), ([96, 0], 1)]
