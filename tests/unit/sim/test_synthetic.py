import itertools
import time
import tracemalloc
from collections import OrderedDict

import numpy as np
import pytest

from models.errors import InputError
from sim.synthetic import GENERATORS, ChatGenerator
from sim.traces import NO_ID, TraceRecord
from sim.traces.statistics import trace_statistics

HOUR_S = 3537.0  # the length of the trace that the generator is fitted to


def hour(seed: int) -> ChatGenerator:
    return ChatGenerator(seed=seed, duration_s=HOUR_S, arrival_quantum_s=3.0)


def all_ids(record: TraceRecord) -> list[int]:
    return record.block_ids + [record.partial_block_id] * (record.partial_block_id != NO_ID)


def lru_hit_ratio(records: list[TraceRecord], capacity_blocks: int) -> float:
    """Full-prefix replay, the tail of a prompt evicted before its head."""
    cache: OrderedDict[int, None] = OrderedDict()
    n_hits = n_references = 0
    for record in records:
        ids = all_ids(record)
        n_references += len(ids)
        n_hits += sum(1 for _ in itertools.takewhile(cache.__contains__, ids))
        for block_id in reversed(ids):
            cache[block_id] = None
            cache.move_to_end(block_id)
        while len(cache) > capacity_blocks:
            cache.popitem(last=False)
    return n_hits / n_references


def test_the_hour_has_the_published_hit_ratios():
    # The generator's own published column (one seed, gaps LN(4.97, 1.03)); the real trace: .366, .065/.212/.288/.351.
    ours = []
    for seed in range(3):
        records = list(hour(seed).records())
        lru = [lru_hit_ratio(records, capacity) for capacity in (3_000, 10_000, 20_000, 40_000)]
        ours.append([trace_statistics(hour(seed).trace())["infinite_cache_hit_ratio_blocks"], *lru])
    assert np.mean(ours, axis=0).tolist() == pytest.approx([0.361, 0.081, 0.206, 0.298, 0.346], abs=0.02)


def test_the_hour_looks_like_the_trace():
    figures = trace_statistics(hour(0).trace())
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
    assert figures["reuse_time_s"]["p50"] == pytest.approx(111, rel=0.1)
    assert figures["reuse_time_s"]["p90"] == pytest.approx(414, rel=0.15)
    assert figures["working_set_blocks"]["in_600_s"] == pytest.approx(36_005, rel=0.06)
    assert figures["requests_hitting_at_most_one_block"] / figures["requests"] == pytest.approx(0.613, abs=0.03)


def test_session_sizes_follow_the_trace():
    sizes = np.bincount([record.session_id for record in hour(0).records()])
    shares = [np.mean(sizes[sizes > 0] == size) for size in (1, 2, 3, 4)]
    assert shares == pytest.approx([0.694, 0.178, 0.063, 0.027], abs=0.02)


def test_a_seed_is_a_stream():
    first, again, other = (list(ChatGenerator(seed=seed, requests=500).records()) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    trace = ChatGenerator(seed=1, requests=500).trace()
    assert list(trace.records()) == list(trace.records()) == first
    assert (trace.name, trace.block_tokens, trace.has_prefixes) == ("chat-seed-1", 512, True)


def test_a_longer_run_starts_with_the_shorter_one():
    longer = list(ChatGenerator(requests=800).records())
    assert list(ChatGenerator(requests=300).records()) == longer[:300]
    until_s = longer[500].arrived_at_s
    assert list(ChatGenerator(duration_s=until_s).records()) == longer[:500]


def sessions(generator: ChatGenerator, below: int = 100) -> dict[int, list[tuple[int, int]]]:
    turns: dict[int, list[tuple[int, int]]] = {}
    for record in generator.records():
        if record.session_id < below:
            turns.setdefault(record.session_id, []).append((record.prompt_tokens, record.output_tokens))
    return turns


def test_another_rate_brings_the_same_sessions():
    # Long enough for all turns of the first hundred sessions.
    slow = ChatGenerator(requests=20_000)
    fast = ChatGenerator(requests=80_000, session_rate_per_s=4 * 2.085)
    assert sessions(slow) == sessions(fast)
    starts_s = [
        [record.arrived_at_s for record in itertools.islice(generator.records(), 5)] for generator in (slow, fast)
    ]
    assert starts_s[0][0] == pytest.approx(4 * starts_s[1][0])


def test_length_scale_scales_lengths_and_nothing_else():
    whole = list(ChatGenerator(requests=2_000).records())
    half = list(ChatGenerator(requests=2_000, length_scale=0.5).records())
    for full, scaled in zip(whole, half, strict=True):
        assert (full.arrived_at_s, full.session_id) == (scaled.arrived_at_s, scaled.session_id)
        assert scaled.prompt_tokens == pytest.approx(full.prompt_tokens / 2, abs=1)
        assert scaled.output_tokens == pytest.approx(full.output_tokens / 2, abs=1)


@pytest.mark.parametrize(("block_tokens", "length_scale"), [(512, 1.0), (16, 1.0), (64, 0.1), (2048, 0.01), (7, 3.0)])
def test_blocks_are_consistent_prefixes(block_tokens, length_scale):
    generator = ChatGenerator(requests=1_500, block_tokens=block_tokens, length_scale=length_scale)
    parent_of: dict[int, int] = {}
    root_blocks = int(512 * length_scale) // block_tokens
    for record in generator.records():
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
    for record in ChatGenerator(requests=20_000).records():
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
    for record in ChatGenerator(requests=5_000, arrival_quantum_s=3.0).records():
        assert record.arrived_at_s >= previous_s
        assert record.arrived_at_s % 3.0 == 0.0
        previous_s = record.arrived_at_s
    untouched = list(ChatGenerator(requests=2_000).records())
    for record, expected in zip(ChatGenerator(requests=2_000).records(), untouched, strict=True):
        assert record == expected
        record.block_ids.clear()


def test_memory_grows_with_the_sessions_under_way_only():
    def peak_bytes(n_requests: int) -> int:
        tracemalloc.start()
        assert sum(1 for _ in ChatGenerator(requests=n_requests).records()) == n_requests
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    # Past the first ten minutes, in which the sessions under way build up.
    assert peak_bytes(20_000) < 1.25 * peak_bytes(5_000)


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({}, "either requests or duration_s"),
        ({"requests": 1, "duration_s": 1.0}, "and not both"),
        ({"requests": 0}, "requests is 0; must be at least 1"),
        ({"requests": 1, "seed": -1}, "seed is -1"),
        ({"requests": 1, "block_tokens": 0}, "block_tokens is 0"),
        ({"duration_s": float("inf")}, "duration_s is inf; must be above 0 and finite"),
        ({"requests": 1, "session_rate_per_s": 0.0}, "session_rate_per_s is 0.0"),
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
    for _ in ChatGenerator(requests=200_000).records():
        pass
    took_s = time.perf_counter() - start_s
    assert took_s < 4.0  # 0.9 s on the machine it was written on
