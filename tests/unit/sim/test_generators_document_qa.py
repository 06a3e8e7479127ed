import itertools

import numpy as np
import pytest
from cache_curves import hit_ratio, requests_of

from sim.generators import GENERATORS
from sim.generators.document_qa import BATCH_S, DocumentQaGenerator
from sim.traces.statistics import trace_statistics

# The trace: kvcache-ai/Mooncake, synthetic_trace.jsonl, 3,993 requests in 1,022 s.
LRU_AT, REAL_LRU = (3_000, 10_000, 20_000, 40_000), [0.191, 0.424, 0.572, 0.639]


def batch(seed: int) -> DocumentQaGenerator:
    return DocumentQaGenerator(seed=seed, duration_s=BATCH_S)


def test_a_batch_hits_what_the_trace_hits():
    infinite, lru, lfu, reuse_s = [], [], [], []
    for seed in range(6):
        requests = requests_of(batch(seed).trace())
        lru.append([hit_ratio(requests, capacity, "lru") for capacity in LRU_AT])
        lfu.append([hit_ratio(requests, capacity, "lfu") for capacity in LRU_AT[:2]])
        figures = trace_statistics(batch(seed).trace())
        infinite.append(figures["infinite_cache_hit_ratio_blocks"])
        reuse_s.append(figures["reuse_time_s"]["p50"])
    assert np.mean(infinite) == pytest.approx(0.640, abs=0.01)
    assert np.mean(lru, axis=0) == pytest.approx(REAL_LRU, abs=0.015)
    assert np.mean(lfu, axis=0) == pytest.approx([0.177, 0.421], abs=0.02)
    assert np.mean(reuse_s) == pytest.approx(59, rel=0.1)


def test_a_batch_looks_like_the_trace():
    figures = [trace_statistics(batch(seed).trace()) for seed in range(6)]

    def mean(*keys: str) -> float:
        values = figures
        for key in keys:
            values = [value[key] for value in values]
        return float(np.mean(values))

    assert mean("requests") == pytest.approx(3_993, rel=0.03)
    assert mean("sessions") == pytest.approx(2_211, rel=0.01)
    assert mean("unique_blocks") == pytest.approx(43_924, rel=0.04)
    assert mean("prompt_tokens", "mean") == pytest.approx(15_325, rel=0.05)
    assert mean("prompt_tokens", "p90") == pytest.approx(38_611, rel=0.08)
    assert mean("output_tokens", "mean") == pytest.approx(149, rel=0.08)
    assert mean("output_tokens", "p90") == pytest.approx(389, rel=0.1)
    assert mean("arrivals", "inter_arrival_cv") == pytest.approx(1.01, abs=0.03)
    assert mean("reuse_time_s", "p90") == pytest.approx(282, rel=0.15)


def test_a_batch_starts_with_new_documents_and_ends_with_asked_ones():
    starts_s = np.array([session.starts_at_s for session in batch(0).trace().sessions()])
    in_minutes = np.histogram(starts_s, np.arange(0, 1020 + 60, 60))[0]
    assert in_minutes[:3].min() > 150  # the trace: 198, 210, 195 at first, and 22, 4 at the end
    assert in_minutes[-2:].max() < 40
    gaps_s: dict[int, list[float]] = {2: [], 5: [], 7: []}
    for seed in range(4):
        for session in batch(seed).trace().sessions():
            for number, turn in enumerate(session.streams[0].turns(), start=1):
                if number in gaps_s:
                    gaps_s[number].append(turn.think_s)
    means_s = [np.mean(gaps) for gaps in gaps_s.values()]
    assert means_s == pytest.approx([191, 73.5, 42.5], rel=0.25)


def test_questions_share_their_document_and_nothing_else():
    owner: dict[int, int] = {}
    for record in DocumentQaGenerator(requests=4_000).trace().records():
        for block_id in record.block_ids:
            assert owner.setdefault(block_id, record.session_id) == record.session_id
    for session in itertools.islice(DocumentQaGenerator(requests=4_000).trace().sessions(), 500):
        (stream,) = session.streams
        prompts = [turn.block_ids for turn in stream.turns()]
        lengths = [turn.prompt_tokens for turn in stream.turns()]
        # Earlier answers are dropped, so prompts do not grow.
        assert max(lengths) - min(lengths) <= 2_001
        n_document = int(len(prompts[0]) * 0.45)
        assert all(prompt[:n_document] == prompts[0][:n_document] for prompt in prompts)


def test_sessions_and_records_are_the_same_requests():
    trace = batch(3).trace()
    by_session = [
        (session.starts_at_s + turn.arrived_at_s, turn.block_ids)
        for session in trace.sessions()
        for turn in session.streams[0].turns()
    ]
    assert sorted(by_session) == [(record.arrived_at_s, record.block_ids) for record in trace.records()]


def test_users_rate_and_length_scale():
    whole = list(DocumentQaGenerator(requests=2_000).trace().records())
    half = list(DocumentQaGenerator(requests=2_000, length_scale=0.5).trace().records())
    assert [r.session_id for r in whole] == [r.session_id for r in half]
    for long, short in zip(whole, half, strict=True):
        assert short.prompt_tokens == pytest.approx(long.prompt_tokens / 2, abs=1)
    slow, fast = (trace_statistics(DocumentQaGenerator(requests=2_000, rate_scale=x).trace()) for x in (1, 5))
    assert slow["infinite_cache_hit_ratio_blocks"] == fast["infinite_cache_hit_ratio_blocks"]
    assert slow["rate_requests_per_s"] == pytest.approx(fast["rate_requests_per_s"] / 5)
    few, many = (DocumentQaGenerator(duration_s=BATCH_S, session_rate_per_s=rate).trace() for rate in (1.0, 4.0))
    few_requests, many_requests = requests_of(few), requests_of(many)
    assert len(many_requests) == pytest.approx(4 * len(few_requests), rel=0.1)
    assert hit_ratio(few_requests, 10_000, "lru") > hit_ratio(many_requests, 10_000, "lru") + 0.05


def test_a_seed_is_a_stream():
    generator = GENERATORS.create("document-qa", requests=300, seed=1)
    first, again = (list(generator.trace().records()) for _ in range(2))
    assert first == again
    assert first != list(DocumentQaGenerator(requests=300, seed=2).trace().records())
