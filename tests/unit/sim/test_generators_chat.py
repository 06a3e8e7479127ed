import itertools
import math
import time
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from cache_curves import Requests, all_ids, hit_ratio, requests_of

from models.errors import InputError
from sim.generators import GENERATORS
from sim.generators.arrivals import GeneratedTrace
from sim.generators.chat import ChatGenerator
from sim.traces import NO_ID, TraceRecord, open_trace
from sim.traces.convert import by_arrival
from sim.traces.statistics import trace_statistics

HOUR_S = 3537.0  # the length of the trace that the generator is fitted to


def hour(seed: int) -> ChatGenerator:
    return ChatGenerator(seed=seed, duration_s=HOUR_S, arrival_quantum_s=3.0)


LRU_AT, FIFO_AT, LFU_AT = (3_000, 10_000, 20_000, 40_000), (10_000,), (3_000, 20_000)  # blocks
# The trace: kvcache-ai/Mooncake, conversation_trace.jsonl; computed with the code of these tests.
REAL_LRU = [0.065, 0.212, 0.288, 0.351]
REAL_FIFO = [0.181]
REAL_LFU = [0.118, 0.249]


def curves(requests: Requests) -> tuple[list[float], list[float], list[float]]:
    lru = [hit_ratio(requests, capacity, "lru") for capacity in LRU_AT]
    fifo = [hit_ratio(requests, capacity, "fifo") for capacity in FIFO_AT]
    return lru, fifo, [hit_ratio(requests, capacity, "lfu") for capacity in LFU_AT]


def test_the_reference_figures_are_those_of_the_trace(conversation_trace):
    lru, fifo, lfu = curves(requests_of(open_trace(conversation_trace)))
    assert lru == pytest.approx(REAL_LRU, abs=0.0006)
    assert fifo == pytest.approx(REAL_FIFO, abs=0.0006)
    assert lfu == pytest.approx(REAL_LFU, abs=0.0006)


def test_the_hour_hits_what_the_trace_hits():
    infinite, lru, fifo, lfu, reuse_s = [], [], [], [], []
    for seed in range(3):
        for policy, ratios in zip((lru, fifo, lfu), curves(requests_of(hour(seed).trace())), strict=True):
            policy.append(ratios)
        figures = trace_statistics(by_arrival(hour(seed).trace()))
        infinite.append(figures["infinite_cache_hit_ratio_blocks"])
        reuse_s.append(figures["reuse_time_s"]["p50"])
    assert np.mean(infinite) == pytest.approx(0.366, abs=0.01)
    assert np.mean(lru, axis=0) == pytest.approx(REAL_LRU, abs=0.015)
    assert np.mean(fifo, axis=0) == pytest.approx(REAL_FIFO, abs=0.015)
    # What long sessions with long contexts add is not all there: see the generator's description.
    assert np.mean(lfu, axis=0) == pytest.approx(REAL_LFU, abs=0.02)
    assert np.mean(reuse_s) == pytest.approx(114, rel=0.1)


def test_few_blocks_are_used_very_often():
    shares = []
    for seed in range(4):
        uses = Counter(itertools.chain.from_iterable(requests_of(hour(seed).trace())))
        counts = np.array(list(uses.values()))
        shares.append([np.mean(counts == 1), np.mean(counts == 2), np.mean((counts > 10) & (counts <= 100))])
    once, twice, often = np.mean(shares, axis=0)
    assert (once, twice) == (pytest.approx(0.759, abs=0.02), pytest.approx(0.139, abs=0.01))
    # .50 % in the trace; .19 % where turns are drawn without memory of how the session went before.
    assert 0.0025 < often < 0.006


def test_the_hour_looks_like_the_trace():
    figures = trace_statistics(by_arrival(hour(0).trace()))
    assert figures["requests"] == pytest.approx(12_031, rel=0.03)
    assert figures["sessions"] == pytest.approx(7_373, rel=0.03)
    assert figures["unique_blocks"] == pytest.approx(182_790, rel=0.04)
    assert figures["prompt_tokens"]["p50"] == pytest.approx(6_909, rel=0.05)
    assert figures["prompt_tokens"]["mean"] == pytest.approx(12_035, rel=0.05)
    assert figures["prompt_tokens"]["p90"] == pytest.approx(27_367, rel=0.08)
    assert (figures["prompt_tokens"]["min"], figures["output_tokens"]["max"]) == (891, 2_000)
    assert figures["prompt_tokens"]["max"] <= 126_000
    assert figures["output_tokens"]["p50"] == pytest.approx(350, rel=0.06)
    assert figures["output_tokens"]["mean"] == pytest.approx(343, rel=0.06)
    assert figures["reuse_time_s"]["p50"] == pytest.approx(114, rel=0.15)
    assert figures["reuse_time_s"]["p90"] == pytest.approx(519, rel=0.15)
    assert figures["working_set_blocks"]["in_600_s"] == pytest.approx(36_071, rel=0.06)
    assert figures["requests_hitting_at_most_one_block"] / figures["requests"] == pytest.approx(0.613, abs=0.03)


def test_session_sizes_follow_the_trace():
    sizes = np.bincount([record.session_id for record in hour(0).trace().records()])
    shares = [np.mean(sizes[sizes > 0] == size) for size in (1, 2, 3, 4)]
    assert shares == pytest.approx([0.694, 0.178, 0.063, 0.027], abs=0.02)


def test_a_seed_is_a_stream():
    first, again, other = (list(ChatGenerator(seed=seed, requests=500).trace().records()) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    trace = ChatGenerator(seed=1, requests=500).trace()
    assert list(trace.records()) == list(trace.records()) == first
    assert (trace.name, trace.block_tokens, trace.has_prefixes) == ("chat-seed-1", 512, True)


def test_a_longer_run_starts_with_the_shorter_one():
    longer = list(ChatGenerator(requests=800).trace().records())
    assert list(ChatGenerator(requests=300).trace().records()) == longer[:300]
    until_s = longer[500].arrived_at_s
    assert list(ChatGenerator(duration_s=until_s).trace().records()) == longer[:500]


def first_sessions(generator: ChatGenerator, count: int = 300) -> list[list[tuple[int, int, list[int], float]]]:
    return [
        [(turn.prompt_tokens, turn.output_tokens, turn.block_ids, turn.arrived_at_s) for turn in stream.turns()]
        for session in itertools.islice(generator.trace().sessions(), count)
        for stream in session.streams
    ]


def test_more_users_are_more_of_the_same_sessions():
    slow = ChatGenerator(requests=20_000)
    fast = ChatGenerator(requests=20_000, session_rate_per_s=4 * 2.085)
    assert first_sessions(slow) == first_sessions(fast)
    starts_s = [[s.starts_at_s for s in itertools.islice(g.trace().sessions(), 50)] for g in (slow, fast)]
    assert starts_s[0] == pytest.approx([4 * start_s for start_s in starts_s[1]])
    # More sessions at once need more cache for the same hits.
    few, many = (requests_of(ChatGenerator(duration_s=900.0, session_rate_per_s=rate).trace()) for rate in (2, 6))
    assert hit_ratio(few, 10_000, "lru") > hit_ratio(many, 10_000, "lru") + 0.05


def test_a_faster_rate_is_the_same_stream_in_less_time():
    slow, fast = (ChatGenerator(requests=5_000, rate_scale=scale).trace() for scale in (1.0, 8.0))
    for late, early in zip(slow.records(), fast.records(), strict=True):
        assert early.arrived_at_s == pytest.approx(late.arrived_at_s / 8)
        assert (early.block_ids, early.output_tokens) == (late.block_ids, late.output_tokens)
    thinks_s = [[turn.think_s for turn in longest(trace)] for trace in (slow, fast)]
    assert thinks_s[0][1:] == pytest.approx([8 * think_s for think_s in thinks_s[1][1:]])
    before, after = (trace_statistics(trace) for trace in (slow, fast))
    assert before["infinite_cache_hit_ratio_blocks"] == after["infinite_cache_hit_ratio_blocks"]
    assert before["rate_requests_per_s"] == pytest.approx(after["rate_requests_per_s"] / 8)


def longest(trace: GeneratedTrace) -> list[TraceRecord]:
    return list(max(trace.sessions(), key=lambda session: session.requests).streams[0].turns())


def test_sessions_are_whole_and_have_the_pauses_that_set_their_arrivals():
    trace = ChatGenerator(requests=2_000).trace()
    sessions = list(trace.sessions())
    assert sum(session.requests for session in sessions[:-1]) < 2_000 <= sum(session.requests for session in sessions)
    assert trace.starts_known
    for session in sessions:
        (stream,) = session.streams
        turns = list(stream.turns())
        assert turns == list(stream.turns())
        assert len(turns) == session.requests
        assert math.isnan(turns[0].think_s)
        assert turns[0].arrived_at_s == 0.0
        at_s = np.cumsum([turn.think_s for turn in turns[1:]])
        assert [turn.arrived_at_s for turn in turns[1:]] == pytest.approx(at_s.tolist())
    in_ten_minutes = list(ChatGenerator(duration_s=600.0).trace().sessions())
    assert max(session.starts_at_s for session in in_ten_minutes) < 600.0
    # Whole sessions: some go on after the end.
    assert max(s.starts_at_s + t.arrived_at_s for s in in_ten_minutes for t in s.streams[0].turns()) > 700.0


def test_length_scale_scales_lengths_and_nothing_else():
    whole = list(ChatGenerator(requests=2_000).trace().records())
    half = list(ChatGenerator(requests=2_000, length_scale=0.5).trace().records())
    for full, scaled in zip(whole, half, strict=True):
        assert (full.arrived_at_s, full.session_id) == (scaled.arrived_at_s, scaled.session_id)
        assert scaled.prompt_tokens == pytest.approx(full.prompt_tokens / 2, abs=1)
        assert scaled.output_tokens == pytest.approx(full.output_tokens / 2, abs=1)


@pytest.mark.parametrize(("block_tokens", "length_scale"), [(512, 1.0), (16, 1.0), (64, 0.1), (2048, 0.01), (7, 3.0)])
def test_blocks_are_consistent_prefixes(block_tokens, length_scale):
    generator = ChatGenerator(requests=700, block_tokens=block_tokens, length_scale=length_scale)
    parent_of: dict[int, int] = {}
    root_blocks = int(512 * length_scale) // block_tokens
    for record in generator.trace().records():
        assert len(record.block_ids) == record.prompt_tokens // block_tokens
        assert (record.partial_block_id == NO_ID) == (record.prompt_tokens % block_tokens == 0)
        assert record.output_tokens >= 1
        ids = all_ids(record)
        assert len(set(ids)) == len(ids)
        n_shared = min(root_blocks, len(record.block_ids))
        assert ids[:n_shared] == list(range(n_shared))
        # Ids are chained: each has one parent, whichever request it is seen in.
        for parent, block_id in zip([NO_ID, *ids], ids, strict=False):
            assert parent_of.setdefault(block_id, parent) == parent


def test_turns_of_a_session_extend_branch_or_repeat():
    last: dict[int, TraceRecord] = {}
    kinds = {"extended": 0, "repeated": 0, "branched": 0}
    for record in ChatGenerator(requests=20_000).trace().records():
        parent = last.get(record.session_id)
        last[record.session_id] = record
        if parent is None:
            continue
        if all_ids(record) == all_ids(parent):
            assert record.prompt_tokens == parent.prompt_tokens
            kinds["repeated"] += 1
        elif record.block_ids[: len(parent.block_ids)] == parent.block_ids:
            kinds["extended"] += 1
        else:
            kinds["branched"] += 1
    n_turns = sum(kinds.values())
    # The trace: 5.8 of 38.7 % branch. 3.3 % of the continuations are sent again.
    assert kinds["branched"] / n_turns == pytest.approx(0.15, abs=0.03)
    assert kinds["repeated"] / (n_turns - kinds["branched"]) == pytest.approx(0.033, abs=0.01)


def test_records_come_in_order_and_are_their_readers_to_change():
    previous_s = 0.0
    for record in ChatGenerator(requests=5_000, arrival_quantum_s=3.0).trace().records():
        assert record.arrived_at_s >= previous_s
        assert record.arrived_at_s % 3.0 == 0.0
        previous_s = record.arrived_at_s
    untouched = list(ChatGenerator(requests=2_000).trace().records())
    for record, expected in zip(ChatGenerator(requests=2_000).trace().records(), untouched, strict=True):
        assert record == expected
        record.block_ids.clear()


def test_memory_grows_with_the_sessions_under_way_only():
    def peak_bytes(n_requests: int) -> int:
        tracemalloc.start()
        assert sum(1 for _ in ChatGenerator(requests=n_requests).trace().records()) == n_requests
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    # Past the first half hour, in which the sessions under way build up.
    assert peak_bytes(20_000) < 1.5 * peak_bytes(7_000)


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({}, "either requests or duration_s"),
        ({"requests": 1, "duration_s": 1.0}, "and not more than one"),
        ({"requests": 0}, "requests is 0; must be at least 1"),
        ({"requests": 1, "seed": -1}, "seed is -1"),
        ({"requests": 1, "block_tokens": 0}, "block_tokens is 0"),
        ({"duration_s": float("inf")}, "duration_s is inf; must be above 0 and finite"),
        ({"requests": 1, "session_rate_per_s": 0.0}, "session_rate_per_s is 0.0"),
        ({"requests": 1, "rate_scale": 0.0}, "rate_scale is 0.0"),
        ({"requests": 1, "length_scale": float("nan")}, "length_scale is nan"),
        ({"requests": 1, "arrival_quantum_s": -3.0}, "arrival_quantum_s is -3.0"),
    ],
)
def test_parameters_that_make_no_workload_are_refused(parameters, problem):
    with pytest.raises(InputError, match=problem):
        ChatGenerator(**parameters)


def test_generators_are_registered():
    generator = GENERATORS.create("chat", requests=3)
    assert len(list(generator.trace().records())) == 3


@pytest.mark.benchmark
def test_generation_speed():
    start_s = time.perf_counter()
    for _ in ChatGenerator(requests=200_000).trace().records():
        pass
    took_s = time.perf_counter() - start_s
    assert took_s < 4.0  # 0.9 s on the machine it was written on
