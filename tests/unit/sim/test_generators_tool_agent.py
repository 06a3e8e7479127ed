from collections import Counter

import pytest

from sim.generators import GENERATORS
from sim.generators.tool_agent import ToolAgentGenerator
from sim.traces.convert import by_arrival
from sim.traces.record import TraceRecord
from sim.traces.statistics import trace_statistics


def families(records: list[TraceRecord]) -> Counter[int]:
    """Requests by the number of whole blocks that all requests with the same first block share."""
    return Counter({0: 1, 1: 12, 13: 5}[record.block_ids[0]] for record in records)


def test_requests_are_of_three_families_in_the_shares_that_were_seen():
    records = list(ToolAgentGenerator(duration_s=3600.0).trace().records())
    seen = families(records)
    assert len(records) == pytest.approx(23_608, rel=0.03)
    assert [seen[depth] / len(records) for depth in (12, 5, 1)] == pytest.approx([0.37, 0.14, 0.49], abs=0.01)
    for record in records:
        if record.block_ids[0] == 1:
            assert record.block_ids[:12] == list(range(1, 13))
            assert 6_200 <= record.prompt_tokens <= 8_200
            assert record.output_tokens == 3 or 25 <= record.output_tokens <= 80
        elif record.block_ids[0] == 13:
            assert record.block_ids[:5] == list(range(13, 18))
            assert 3_000 <= record.prompt_tokens <= 3_500


def test_one_shot_requests_share_their_prefix_only():
    uses = Counter[int]()
    records = [r for r in ToolAgentGenerator(requests=4_000).trace().records() if r.block_ids[0] != 0]
    for record in records:
        uses.update(record.block_ids)
    assert {block_id for block_id, n in uses.items() if n > 1} == set(range(1, 18))
    assert len({record.session_id for record in records}) == len(records)


def test_the_figures_of_the_description_hold():
    figures = trace_statistics(by_arrival(ToolAgentGenerator(duration_s=3600.0).trace()))
    assert figures["prompt_tokens"]["mean"] == pytest.approx(9_100, rel=0.05)
    assert figures["output_tokens"]["mean"] == pytest.approx(184, rel=0.03)
    assert figures["infinite_cache_hit_ratio_tokens"] == pytest.approx(0.53, abs=0.02)


def test_users_rate_and_length_scale():
    base, fast, short = (
        list(ToolAgentGenerator(requests=2_000, **scale).trace().records())
        for scale in ({}, {"rate_scale": 2.0}, {"length_scale": 0.5})
    )
    assert [r.block_ids for r in base] == [r.block_ids for r in fast]
    assert [r.arrived_at_s for r in base] == pytest.approx([2 * r.arrived_at_s for r in fast])
    assert [r.prompt_tokens / 2 for r in base] == pytest.approx([r.prompt_tokens for r in short], abs=1)
    few, many = (list(ToolAgentGenerator(duration_s=600.0, session_rate_per_s=x).trace().records()) for x in (2, 8))
    assert len(many) == pytest.approx(4 * len(few), rel=0.1)


def test_a_seed_is_a_stream():
    trace = GENERATORS.create("tool-agent", requests=300, seed=1).trace()
    assert list(trace.records()) == list(trace.records())
    assert list(trace.records()) != list(ToolAgentGenerator(requests=300, seed=2).trace().records())
