"""Each router against another one: a load that it must serve sooner, and one that it must serve later, and why.

A step takes 2**-10 s a token. Two replicas on nodes of their own, each with a drive; some loads have an array too.
"""

from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from engine_kit import CHUNK, Row, Rows, made_up_cost, prepared, scenario, serve, table

from sim.workload.phases import Phase

C = 2.0**-10
TOKENS = made_up_cost(dense_compute_s_per_token=C)
# One chunk of the drive takes a second; the array reads 32 at once.
SLOW_DRIVE = {"reads_in_flight": 1, "read_software": "1 s", "staging": "pipelined"}
NVME = {"nvme": {"device": "nvme-gen4", "capacity": "50 GB"}}
FABRIC = {"fabric": {"device": "fx100", "capacity": "50 GB", "scope": "shared"}}

A, B, S = (list(range(start, start + 64)) for start in (1000, 2000, 3000))


def run(
    router: object, load: Sequence[Row], *earlier: Sequence[Row], clear: str | None = None, seed: int = 0, **setup: Any
) -> dict[str, Any]:
    """Return the requests of a load that is served after earlier ones; ``clear`` empties a tier after the first."""
    cluster = {"replicas": 2} | setup.pop("cluster", {}) | {"router": router}
    phases = [
        Phase(name=f"phase-{n}", driver=Rows(rows), clear=() if n != 1 or clear is None else (clear,))
        for n, rows in enumerate([*earlier, load])
    ]
    found = table(serve(scenario(cluster=cluster, run={"seed": seed}, **setup), phases, TOKENS))
    last = found["phase"] == found["phase"].max()
    return {name: values[last] for name, values in found.items()}


def ttft(*args: Any, **setup: Any) -> float:
    found = run(*args, **setup)
    return float((found["first_token_at_s"] - found["arrived_at_s"]).mean())


def replicas(*args: Any, **setup: Any) -> list[int]:
    return [int(n) for n in run(*args, **setup)["replica"]]


def seeds(router: object, load: Sequence[Row], **setup: Any) -> float:
    return float(np.mean([ttft(router, load, seed=seed, **setup) for seed in range(5)]))


def equal(requests: int) -> list[Row]:
    """Requests of one length, all at once."""
    return [Row(0.0, 320, 1) for _ in range(requests)]


def alternating(requests: int) -> list[Row]:
    """Long and short ones in turn; a long one takes 1.6 s and comes once a second."""
    return [Row(0.5 * n, 16 if n % 2 else 1600, 1) for n in range(requests)]


# Routers that look at load -------------------------------------------------------------------------------------------


def test_taking_turns_beats_chance_where_requests_are_alike_and_loses_where_their_lengths_take_turns_too() -> None:
    assert ttft("round-robin", equal(8)) < seeds("random", equal(8))
    assert seeds("random", alternating(16)) < ttft("round-robin", alternating(16))


def test_least_loaded_beats_turns_on_unlike_lengths_and_loses_where_the_prefix_is_on_the_busier_replica() -> None:
    assert ttft("least-loaded", alternating(16)) < ttft("round-robin", alternating(16))
    warm = [Row(0.0, 640, 1, A, replica=0)]
    load = [Row(0.0, 32, 200, replica=0), Row(0.1, 641, 1, A)]
    assert replicas("least-loaded", load, warm) == [0, 1]
    assert ttft("prefix-aware", load, warm) < 0.2 * ttft("least-loaded", load, warm)


FOUR = {"cluster": {"replicas": 4}}


def test_power_of_two_beats_chance_and_loses_to_least_loaded() -> None:
    two = seeds("power-of-two", equal(24), **FOUR)
    assert ttft("least-loaded", equal(24), **FOUR) < two < seeds("random", equal(24), **FOUR)


def test_the_power_of_all_is_least_loaded_and_of_one_is_chance() -> None:
    load = alternating(12)
    every, one = ({"power-of-two": {"choices": choices}} for choices in (4, 1))
    assert replicas(every, load, **FOUR) == replicas("least-loaded", load, **FOUR)
    assert seeds(every, load, **FOUR) < seeds(one, load, **FOUR)


# Sessions ------------------------------------------------------------------------------------------------------------


def hot_session() -> list[Row]:
    """One session that asks six long and different things at once, after its first turn."""
    return [Row(0.0, 32, 1, session=7), *[Row(1.0, 1600, 1, session=7) for _ in range(6)]]


# Its second turn comes when its replica has a short prompt that decodes for long, and the other has nothing.
SECOND_TURN = [Row(0.0, 640, 1, A, session=7), Row(1.0, 32, 200, session=8), Row(1.1, 641, 1, A, session=7)]


def test_affinity_beats_least_loaded_on_turns_and_loses_on_a_session_that_asks_much_at_once() -> None:
    assert replicas("session-affinity", SECOND_TURN) == [0, 0, 0]
    assert replicas("least-loaded", SECOND_TURN) == [0, 0, 1]
    assert ttft("session-affinity", SECOND_TURN) < 0.8 * ttft("least-loaded", SECOND_TURN)
    assert ttft("session-affinity", hot_session()) > 1.5 * ttft("least-loaded", hot_session())


def test_an_overloaded_replica_loses_its_session_if_a_parameter_says_when() -> None:
    patient, impatient = ({"session-affinity": {"overload_tokens": tokens}} for tokens in (100_000, 1600))
    assert replicas(patient, hot_session()) == [0] * 7
    # The first two long ones stay; the third finds 3200 tokens ahead of the other's none, and the session moves.
    assert replicas(impatient, hot_session()) == [0, 0, 0, 1, 1, 1, 1]
    assert ttft(impatient, hot_session()) < ttft(patient, hot_session())


def test_the_first_turn_goes_where_the_fallback_says() -> None:
    load = [Row(0.0, 320, 1, session=n) for n in range(3)] + [Row(5.0, 320, 1, session=n) for n in (2, 1, 0)]
    busy = [Row(0.0, 1600, 1, replica=0), *load]
    assert replicas("session-affinity", busy) == [0, 1, 1, 1, 1, 1, 1]  # least loaded
    assert replicas({"session-affinity": {"fallback": "round-robin"}}, busy) == [0, 0, 1, 0, 0, 1, 0]
    assert ttft("session-affinity", busy) < ttft({"session-affinity": {"fallback": "round-robin"}}, busy)


def test_requests_without_a_session_are_bound_to_nothing() -> None:
    load = [Row(0.0, 320, 1, session=-1) for _ in range(4)]
    assert replicas("session-affinity", load) == [0, 1, 0, 1]


# Prefixes ------------------------------------------------------------------------------------------------------------


def test_prefix_aware_beats_affinity_on_a_prefix_that_sessions_share_and_loses_where_drives_are_slow() -> None:
    # Three new sessions on long system prompts, which are cached where something short decodes.
    prompts = [A[:50], B[:50], S[:50]]
    warm = [Row(float(2 * n), 1600, 1, prompt, replica=0) for n, prompt in enumerate(prompts)]
    users = [Row(0.0, 32, 100, replica=0), *[Row(0.01, 1601, 1, prompt) for prompt in prompts]]
    assert ttft("prefix-aware", users, warm) < 0.5 * ttft("session-affinity", users, warm)
    # A prefix of 20 chunks on a drive that takes a second for each: computing it anew takes two thirds of one.
    left = [Row(0.0, 640, 1, B, replica=0)]
    late = [Row(0.0, 641, 1, B)]
    setup = {"clear": "hbm", "tiers": NVME, "transfer": SLOW_DRIVE}
    other = [Row(0.0, 16, 1, replica=1)]
    assert replicas("prefix-aware", late, left, other, **setup) == [0]
    assert ttft("round-robin", [Row(0.0, 16, 1), Row(5.0, 641, 1, B)], left, other, **setup) < 1.0
    assert ttft("prefix-aware", late, left, other, **setup) > 15


# Replica 0 has 20 chunks on its drive only, replica 1 the first 10 of them in HBM.
def drive_or_hbm(router: object, software: str) -> float:
    left, half = [Row(0.0, 640, 1, B, replica=0)], [Row(0.0, 320, 1, B, replica=1)]
    transfer = {"reads_in_flight": 1, "read_software": software}
    return ttft(router, [Row(0.0, 641, 1, B)], left, half, clear="hbm", tiers=NVME, transfer=transfer)


def test_dynamo_trusts_drives_a_quarter_which_pays_where_they_are_slow_and_not_where_they_are_quick() -> None:
    assert drive_or_hbm("dynamo", "1 s") < 0.1 * drive_or_hbm("prefix-aware", "1 s")
    assert drive_or_hbm("dynamo", "1 us") > 2 * drive_or_hbm("prefix-aware", "1 us")


@pytest.mark.parametrize(("weight", "sooner"), [(1.0, "1 us"), (0.25, "1 s")])
def test_the_weight_of_drives_decides_between_a_long_prefix_there_and_a_short_one_in_hbm(weight, sooner) -> None:
    weighed = {"prefix-aware": {"storage_weight": weight}}
    otherwise = {"prefix-aware": {"storage_weight": 1.25 - weight}}
    assert drive_or_hbm(weighed, sooner) < drive_or_hbm(otherwise, sooner)


def memory_or_hbm(weight: float) -> list[int]:
    left, half = [Row(0.0, 640, 1, B, replica=0)], [Row(0.0, 320, 1, B, replica=1)]
    router = {"prefix-aware": {"memory_weight": weight}}
    tiers = {"dram": {"device": "ddr5", "capacity": "50 GB"}}
    return replicas(router, [Row(0.0, 641, 1, B)], left, half, clear="hbm", tiers=tiers)


def test_the_weights_of_memory_hbm_and_shared_tiers() -> None:
    assert (memory_or_hbm(1.0), memory_or_hbm(0.25)) == ([0], [1])
    warm, load = [Row(0.0, 640, 1, A, replica=1)], [Row(0.0, 641, 1, A)]
    assert replicas("prefix-aware", load, warm) == [1]
    assert replicas({"prefix-aware": {"hbm_weight": 0}}, load, warm) == [0]
    # The array has all of it: where that counts, the short queue of the other replica is worth more than HBM's hit.
    busy = [Row(0.0, 320, 1, replica=1), *load]
    assert replicas("prefix-aware", busy, warm, tiers=FABRIC) == [1, 1]
    sees_array = {"prefix-aware": {"shared_weight": 1}}
    assert replicas(sees_array, busy, warm, tiers=FABRIC) == [1, 0]
    assert ttft(sees_array, busy, warm, tiers=FABRIC) < ttft("prefix-aware", busy, warm, tiers=FABRIC)


def test_the_weight_of_decoding_requests_trades_hits_for_idle_replicas() -> None:
    warm = [Row(0.0, 640, 1, A, replica=0)]
    load = [Row(0.0, 960, 5000, replica=0), Row(1.5, 641, 1, A)]  # the first has its prompt in, and decodes
    assert replicas("prefix-aware", load, warm) == [0, 0]
    assert replicas({"prefix-aware": {"decode_weight": 1}}, load, warm) == [0, 1]
    assert replicas({"prefix-aware": {"decode_weight": 1, "prefill_scale": 2}}, load, warm) == [0, 0]


def test_temperature_spreads_requests_away_from_the_cheapest_replica() -> None:
    warm = [Row(0.0, 640, 1, A, replica=1)]
    load = [Row(2.0 * n, 641, 1, [*A[:20], 5000 + n]) for n in range(40)]
    cheapest = [replicas({"prefix-aware": {"temperature": t}}, load, warm, seed=1).count(1) for t in (0.1, 1.0, 100.0)]
    assert cheapest[0] == 40  # exp(-1 / 0.1) is one in 22,000, and once both have it, both are equally cheap
    assert cheapest[0] > cheapest[1]
    assert 10 < cheapest[2] < 30  # by then it is chance


# Every tier ----------------------------------------------------------------------------------------------------------


def slow_drive(router: object) -> float:
    left, other = [Row(0.0, 640, 1, B, replica=0)], [Row(0.0, 16, 1, replica=1)]
    setup = {"clear": "hbm", "tiers": NVME, "transfer": SLOW_DRIVE}
    return ttft(router, [Row(0.0, 641, 1, B)], left, other, **setup)


def behind_a_queue(router: object) -> float:
    """HBM has the prefix behind a queue; the array has it too, and the other replica is idle."""
    warm, load = [Row(0.0, 1600, 1, A, replica=0)], [Row(0.0, 960, 1, replica=0), Row(0.001, 1601, 1, A)]
    return ttft(router, load, warm, tiers=FABRIC, engine={"max_num_batched_tokens": 256, "max_num_seqs": 64})


def crowd(router: object) -> float:
    """The same, but thirty others load from the array, each of which would be quick alone; TTFT of that one prompt."""
    prompts = [[100_000 * n + i for i in range(20)] for n in range(1, 31)]
    warm = [Row(float(n), 640, 1, chunks, replica=0) for n, chunks in enumerate(prompts)]
    others = [Row(0.0, 641, 1, chunks, replica=1) for chunks in prompts]
    load = [*others, Row(0.0, 768, 1, replica=0), Row(0.001, 1601, 1, A)]
    engine = {"max_num_batched_tokens": 256, "max_num_seqs": 64}
    links = {"fabric": {"bandwidth": "2 GB/s"}}
    found = run(router, load, [*warm, Row(40.0, 1600, 1, A, replica=0)], tiers=FABRIC, links=links, engine=engine)
    return float(found["first_token_at_s"][-1] - found["arrived_at_s"][-1])


def test_tier_aware_beats_prefix_aware_where_drives_are_slow_or_arrays_quick_and_loses_in_a_crowd() -> None:
    assert slow_drive("tier-aware") < 0.1 * slow_drive("prefix-aware")
    assert behind_a_queue("tier-aware") < 0.7 * behind_a_queue("prefix-aware")
    # Its estimate is that of a load alone.
    assert crowd("tier-aware") > 2 * crowd("prefix-aware")


def test_the_weight_of_loads() -> None:
    # Free loads: the slow drive looks as good as HBM. Dear ones: the crowd stays away from the array.
    assert slow_drive({"tier-aware": {"load_weight": 0}}) > 10 * slow_drive("tier-aware")
    assert crowd({"tier-aware": {"load_weight": 20}}) < crowd("tier-aware")


def test_hits_too_short_to_be_loaded_do_not_count() -> None:
    left, other = [Row(0.0, 640, 1, B, replica=1)], [Row(0.0, 16, 1, replica=0)]
    for least, chosen in ((0, 1), (700, 0)):
        setup = {"clear": "hbm", "tiers": NVME, "transfer": {"min_load_tokens": least}}
        assert replicas("tier-aware", [Row(0.0, 641, 1, B)], left, other, **setup) == [chosen]


@pytest.mark.parametrize("load", ["sync", "async"])
@pytest.mark.parametrize("way", ["pipelined", "store-and-forward", "two tiers"])
@pytest.mark.parametrize("request_software", ["0 s", "0.5 s"])
def test_the_estimate_of_a_load_is_what_it_takes_when_nobody_else_loads(load, way, request_software) -> None:
    """From the drive by way of DRAM, piped or in two stages; or 8 chunks straight from the drive and 12 from DRAM."""
    both = way == "two tiers"
    staging = {} if both else {"staging": way}
    transfer = {"load": load, "request_software": request_software, "read_software": "1 ms", "reads_in_flight": 1}
    dram = {"device": "ddr5", "capacity": (12 if both else 20) * CHUNK * 131072}
    setup = scenario(tiers={"dram": dram, "nvme": NVME["nvme"] | {"gds": both}}, transfer=transfer | staging)
    warm = [Row(0.0, 8 * CHUNK, 1, B), Row(10.0, 20 * CHUNK, 1, B)]
    run = Phase(name="run", driver=Rows([Row(0.0, 641, 1, B)]), clear=("hbm",) if both else ("hbm", "dram"))
    simulation = prepared(setup, [Phase(name="warm", driver=Rows(warm)), run], made_up_cost())
    seen = []
    router = mock.Mock(choose=lambda request, replicas: seen.append(replicas[0].cached_prefix(request.chunks)) or 0)
    simulation.cluster._router = router
    found = table(simulation.run())
    hits, load_s = seen[-1]
    drive_tokens = 8 * CHUNK if both else 20 * CHUNK
    assert [(hit.tier, hit.tokens) for hit in hits] == [("nvme", drive_tokens), ("dram", 12 * CHUNK)][: 1 + both]
    assert load_s == pytest.approx(found["first_token_at_s"][-1] - found["arrived_at_s"][-1], rel=1e-6)
