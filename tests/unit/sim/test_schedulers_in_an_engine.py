"""Each scheduler against FCFS: a queue that it must serve sooner, and one that it must serve later, and why.

One engine that runs one request at a time unless it says otherwise; a step takes 2**-10 s a token.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from engine_kit import Row, Rows, made_up_cost, prepared, scenario, table

from sim.workload.phases import Phase

C = 2.0**-10
TOKENS = made_up_cost(dense_compute_s_per_token=C)
# Holds the engine for half a second while the others queue.
FIRST = Row(0.0, 512, 1)

Times = list[float]


def ttfts(
    scheduler: object,
    queue: Sequence[Row],
    *,
    warm: Sequence[Row] = (),
    priority: Callable[[int], int] | None = None,
    **setup: Any,
) -> Times:
    """TTFT of each row of a queue, in the order of the rows."""
    engine = {"max_num_seqs": 1, "max_num_batched_tokens": 8192} | setup.pop("engine", {}) | {"scheduling": scheduler}
    phases = [Phase(name="warm", driver=Rows(warm))] if warm else []
    phases.append(Phase(name="run", driver=Rows(queue)))
    simulation = prepared(scenario(engine=engine, **setup), phases, TOKENS)
    simulation.cluster._priority_of = priority
    found = table(simulation.run())
    last = found["phase"] == found["phase"].max()
    times = (found["first_token_at_s"] - found["arrived_at_s"])[last]
    sessions = found["session_id"][last].tolist()
    return [float(times[sessions.index(number)]) for number in range(len(queue))]


def mean(times: Times) -> float:
    return sum(times) / len(times)


# Shortest prefill first ----------------------------------------------------------------------------------------------

LONG_THEN_SHORT = [FIRST, Row(0.1, 2048, 1), *[Row(0.2, 64, 1) for _ in range(6)]]
# A short one comes as soon as the one before has ended, so that the long one is passed over again and again.
STREAM = [FIRST, Row(0.1, 2048, 1), *[Row(0.2 + 0.05 * n, 64, 1) for n in range(60)]]


def test_shortest_first_beats_fcfs_on_the_mean_and_loses_on_the_longest_wait() -> None:
    shortest, fcfs = (ttfts(name, LONG_THEN_SHORT) for name in ("shortest-prefill-first", "fcfs"))
    assert mean(shortest) < 0.5 * mean(fcfs)
    shortest, fcfs = (ttfts(name, STREAM) for name in ("shortest-prefill-first", "fcfs"))
    assert max(shortest) > 1.3 * max(fcfs)


def test_cached_tokens_are_no_work() -> None:
    prompt = list(range(64))
    queue = [FIRST, Row(0.1, 1024, 1), Row(0.2, 2049, 1, prompt)]
    times = ttfts("shortest-prefill-first", queue, warm=[Row(0.0, 2048, 1, prompt)])
    assert times[2] == pytest.approx(512 * C - 0.2 + C)  # before the one that is shorter but cached nowhere
    assert times[1] == pytest.approx(512 * C - 0.1 + (1 + 1024) * C)


def test_aging_lets_the_longest_wait_end() -> None:
    waits = [ttfts({"shortest-prefill-first": {"aging_tokens_per_s": aging}}, STREAM)[1] for aging in (0, 1000, 1e6)]
    assert waits[0] > waits[1] > waits[2]
    # 1984 tokens more are worth 1.984 s at 1000 tokens a second: it lets those pass that come by then, 38 of them.
    assert waits[1] == pytest.approx((512 + 38 * 64 + 2048) * C - 0.1)
    assert waits[2] == ttfts("fcfs", STREAM)[1]  # who came first has gained the most


# Cache-aware ---------------------------------------------------------------------------------------------------------

# HBM has room for 100 blocks: a cold prompt of 1280 tokens evicts what is cached.
TIGHT = {"hbm_blocks": 100}
CACHED = list(range(24))
COLD_THEN_HOT = [FIRST, Row(0.1, 1280, 1), Row(0.2, 769, 1, CACHED)]


def test_cache_aware_beats_fcfs_where_a_prefix_would_be_evicted_and_loses_where_much_else_is_to_compute() -> None:
    warm = [Row(0.0, 768, 1, CACHED)]
    aware, fcfs = (ttfts(name, COLD_THEN_HOT, warm=warm, **TIGHT) for name in ("cache-aware", "fcfs"))
    assert mean(aware) < 0.7 * mean(fcfs)
    assert aware[2] < 0.4  # what is left of the first, and one token
    # A long prompt with a short prefix cached holds up a short one with none.
    queue = [FIRST, Row(0.1, 32, 1), Row(0.2, 2048, 1, CACHED[:4])]
    aware, fcfs = (ttfts(name, queue, warm=[Row(0.0, 128, 1, CACHED[:4])]) for name in ("cache-aware", "fcfs"))
    assert mean(aware) > 1.5 * mean(fcfs)


HOT_STREAM = [FIRST, Row(0.1, 512, 1), *[Row(0.2 + 0.05 * n, 833, 1, CACHED) for n in range(60)]]


def test_aging_lets_the_wait_for_hot_prefixes_end() -> None:
    warm = [Row(0.0, 768, 1, CACHED)]
    cold = [ttfts({"cache-aware": {"aging_tokens_per_s": aging}}, HOT_STREAM, warm=warm)[1] for aging in (0, 500, 1e6)]
    assert cold[0] > cold[1] > cold[2]
    # 768 cached tokens are worth 1.536 s at 500 tokens a second: it lets those pass that come by then, 29 of them.
    assert cold[1] == pytest.approx((512 + 29 * 65 + 512) * C - 0.1)


def test_what_tiers_below_hold_counts_as_cached() -> None:
    tiers = {"dram": {"device": "ddr5", "capacity": "50 GB"}}
    queue = [FIRST, Row(0.1, 512, 1), Row(0.2, 769, 1, CACHED)]
    earlier = Phase(name="warm", driver=Rows([Row(0.0, 768, 1, CACHED)]))
    engine = {"max_num_seqs": 1, "scheduling": "cache-aware"}
    setup = scenario(tiers=tiers, engine=engine, transfer={"load": "sync"})
    simulation = prepared(setup, [earlier, Phase(name="run", driver=Rows(queue), clear=("hbm",))], TOKENS)
    found = table(simulation.run())
    assert found["admitted_at_s"][3] < found["admitted_at_s"][2]
    assert found["hit_tokens_dram"][3] == 768


def test_a_longer_queue_is_served_as_it_comes() -> None:
    warm = [Row(0.0, 768, 1, CACHED)]
    short, long = ({"cache-aware": {"longest_queue": most}} for most in (1, 2))
    assert ttfts(short, COLD_THEN_HOT, warm=warm, **TIGHT) == ttfts("fcfs", COLD_THEN_HOT, warm=warm, **TIGHT)
    assert mean(ttfts(long, COLD_THEN_HOT, warm=warm, **TIGHT)) < mean(ttfts(short, COLD_THEN_HOT, warm=warm, **TIGHT))


# Priority ------------------------------------------------------------------------------------------------------------


def second_is_batch(number: int) -> int:
    return 1 if number == 1 else 0


def test_priority_beats_fcfs_for_the_urgent_and_loses_for_the_others_and_on_the_mean() -> None:
    queue = [FIRST, *[Row(0.1, 256, 1) for _ in range(6)], Row(0.2, 2048, 1)]
    priority, fcfs = (ttfts(name, queue, priority=lambda n: 0 if n == 7 else 1) for name in ("priority", "fcfs"))
    assert priority[7] < 0.7 * fcfs[7]
    assert mean(priority) > 1.5 * mean(fcfs)


def test_of_equal_priority_the_first_comes_first() -> None:
    queue = [FIRST, *[Row(0.1 * n, 64 * n, 1) for n in range(1, 6)]]
    assert ttfts("priority", queue) == ttfts("fcfs", queue)


def test_aging_ends_the_wait_of_the_least_urgent() -> None:
    waits = [
        ttfts({"priority": {"aging_s": aging}}, STREAM, priority=second_is_batch)[1] for aging in (None, 2.0, 1.0, 1e-6)
    ]
    assert waits == sorted(waits, reverse=True)
    assert len(set(waits)) == 4
    # Worth one step of priority: after two seconds it comes before all that come from then on.
    assert waits[3] == ttfts("fcfs", STREAM)[1]
    assert waits[0] > ttfts("fcfs", STREAM)[1] + 3


def test_priority_preempts_the_least_urgent_and_fcfs_the_last_admitted() -> None:
    queue = [Row(0.0, 256, 300), Row(0.01, 256, 300), Row(0.02, 256, 300)]
    setup = {"hbm_blocks": 80, "engine": {"max_num_seqs": 4}}

    def preempted(scheduler: str) -> list[int]:
        engine = setup["engine"] | {"scheduling": scheduler}
        simulation = prepared(scenario(hbm_blocks=80, engine=engine), Rows(queue), TOKENS)
        simulation.cluster._priority_of = lambda n: [1, 2, 0][n]
        return [int(n > 0) for n in table(simulation.run())["preemptions"]]

    assert preempted("fcfs") == [0, 0, 1]
    assert preempted("priority") == [0, 1, 0]
