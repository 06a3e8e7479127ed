"""Formats of one JSON object a line beside Mooncake's: Qwen-Bailian and LLMServingSim."""

import json
import math
import os
from pathlib import Path

import pytest

from models.errors import InputError, TraceError
from sim.traces import NO_ID, open_trace
from sim.traces.bad_lines import BadLines
from sim.traces.chained_ids import ChainedIds
from sim.traces.statistics import trace_statistics

SHARED = (Path(__file__).parents[3] / os.environ.get("KVTIER_SHARED", "../shared")).resolve()


def chat(chat_id=0, parent=-1, *, hashes=(7, 8), **changes):
    row = {
        "chat_id": chat_id,
        "parent_chat_id": parent,
        "timestamp": float(chat_id),
        "input_length": 32,
        "output_length": 5,
        "type": "text",
        "turn": 1,
        "hash_ids": list(hashes),
    }
    return row | changes


def request(tokens=None, **changes):
    row = {"input_toks": 20, "output_toks": 5, "arrival_time_ns": 1_000_000_000}
    if tokens is not None:
        row |= {"input_toks": len(tokens), "input_tok_ids": list(tokens)}
    return row | changes


def write(tmp_path, *rows):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


def read(path, **options):
    return list(open_trace(path, **options).records())


def problem_of(path, **options):
    with pytest.raises(TraceError) as caught:
        read(path, **options)
    text = str(caught.value)
    assert text.startswith(f"{path}:2: ")
    assert "\n" not in text
    return text


def test_equal_ids_mean_equal_prompts_up_to_the_block():
    chained = ChainedIds()
    first = chained.of([5, 5, 5])
    assert len(set(first)) == 3
    assert chained.of([5, 5]) == first[:2]
    assert chained.of([6, 5])[1] not in first
    assert chained.of([]) == []
    assert chained.of([2**62 - 1, 0]) != chained.of([0, 2**62 - 1])
    assert max(chained.of([9, 9, 9])) < 20  # small numbers, whatever the contents


def test_a_bailian_row(tmp_path):
    path = write(tmp_path, chat(159, 55, hashes=(1089, 1090, 6326), timestamp=61.114, input_length=41))
    trace = open_trace(path)
    assert (trace.block_tokens, trace.has_prefixes) == (16, True)
    (record,) = trace.records()
    assert (record.arrived_at_s, record.prompt_tokens, record.output_tokens) == (61.114, 41, 5)
    assert (len(record.block_ids), record.partial_block_id != NO_ID) == (2, True)
    assert math.isnan(record.think_s)


def test_bailian_hashes_of_single_blocks_are_chained(tmp_path):
    first, second, third = read(write(tmp_path, chat(0), chat(1, hashes=(7, 7)), chat(2, hashes=(8, 8))))
    assert first.block_ids[0] == second.block_ids[0]
    assert len({*first.block_ids, *second.block_ids, *third.block_ids}) == 5


def test_bailian_sessions_follow_parents_to_the_root_in_any_order_of_rows(tmp_path):
    rows = [
        chat(2, 1, timestamp=20),
        chat(0, timestamp=0),
        chat(1, 0, timestamp=10),
        chat(3, timestamp=5),
        chat(4, 99, timestamp=30),
        chat(5, 99, timestamp=31),
        chat(6, 4, timestamp=32),
    ]
    records = read(write(tmp_path, *rows))
    assert [record.arrived_at_s for record in records] == [0, 5, 10, 20, 30, 31, 32]
    root, other, child, grandchild, orphan, sibling, nephew = (record.session_id for record in records)
    assert root == child == grandchild
    assert orphan == sibling == nephew
    assert len({root, other, orphan}) == 3
    assert NO_ID not in {root, other, orphan}


def test_bailian_parents_in_a_circle_end(tmp_path):
    records = read(write(tmp_path, chat(0, 1), chat(1, 0), chat(2, 2)))
    assert len(records) == 3
    assert records[0].session_id == records[1].session_id


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"timestamp": "0"}, 'timestamp is "0"; must be a number of seconds'),
        ({"timestamp": 1e12}, "timestamp is"),
        ({"chat_id": -1}, "chat_id is -1; must be at least 0"),
        ({"parent_chat_id": -2}, "parent_chat_id is -2; must be at least -1"),
        ({"parent_chat_id": None}, "parent_chat_id is null"),
        ({"input_length": 0}, "input_length is 0; must be at least 1"),
        ({"output_length": 1.5}, "output_length is 1.5"),
        ({"hash_ids": None}, "hash_ids is null; must be a list"),
        ({"hash_ids": [1, True]}, "hash_ids[1] is true"),
        ({"hash_ids": [1, 2**62]}, "hash_ids[1] is 4611686018427387904"),
        ({"hash_ids": [1]}, "hash_ids has 1 hashes, but 32 prompt tokens make 2 blocks of 16"),
        ({"hash_ids": [1, 2, 3]}, "hash_ids has 3 hashes"),
    ],
)
def test_malformed_bailian_rows(tmp_path, changes, problem):
    path = write(tmp_path, chat(0), chat(1) | changes, chat(2))
    assert problem in problem_of(path)
    bad_lines = BadLines(skip=True)
    assert len(read(path, bad_lines=bad_lines)) == 2
    assert bad_lines.count == 1


def test_llmservingsim_token_ids_make_chained_blocks_of_any_size(tmp_path):
    path = write(tmp_path, request(range(20)), request([*range(16), 99]), request([1, *range(1, 40)]))
    first, second, third = read(path)
    assert (first.arrived_at_s, first.prompt_tokens, first.output_tokens) == (1.0, 20, 5)
    assert (first.block_ids, second.block_ids, len(third.block_ids)) == ([0], [0], 2)
    assert set(third.block_ids).isdisjoint(first.block_ids)
    first, second, third = read(path, block_tokens=8)
    assert first.block_ids == second.block_ids == [0, 1]
    assert set(third.block_ids).isdisjoint(first.block_ids)  # an equal second block behind another first one
    assert [len(record.block_ids) for record in read(path, block_tokens=64)] == [0, 0, 0]
    assert open_trace(path, block_tokens=64).block_tokens == 64
    with pytest.raises(InputError, match="block_tokens is 0"):
        open_trace(path, block_tokens=0)


def test_llmservingsim_without_token_ids_has_no_prefixes(tmp_path):
    trace = open_trace(write(tmp_path, request(arrival_time_ns=2_500_000_000), request(output_toks=0)))
    assert not trace.has_prefixes
    assert [(record.arrived_at_s, record.block_ids) for record in trace.records()] == [(1.0, []), (2.5, [])]


def agent(start_ns, *tools_ns, session="task-0"):
    steps = [
        {"input_toks": 16 + index, "output_toks": 3, "tool_duration_ns": tool_ns}
        for index, tool_ns in enumerate(tools_ns)
    ]
    return {"session_id": session, "arrival_time_ns": start_ns, "sub_requests": steps}


def test_llmservingsim_sessions_keep_their_pauses_and_merge_by_arrival(tmp_path):
    second = 1_000_000_000
    path = write(tmp_path, agent(0, 4 * second, 3 * second, 0), request(arrival_time_ns=5 * second), agent(second, 0))
    records = read(path)
    assert [record.arrived_at_s for record in records] == [0, 1, 4, 5, 7]
    assert [record.session_id for record in records] == [0, 1, 0, NO_ID, 0]
    assert [record.think_s for record in records] == pytest.approx([math.nan, math.nan, 4, math.nan, 3], nan_ok=True)
    assert [record.prompt_tokens for record in records] == [16, 16, 17, 20, 18]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (request(), "key 'input_tok_ids' is missing; the first line has it"),
        (request([1, 2], input_toks=3), "input_tok_ids has 2 ids, but input_toks is 3"),
        (request([1, -2]), "input_tok_ids[1] is -2; must be a whole number of 0 or more"),
        (request([1, True]), "input_tok_ids[1] is true"),
        (request([1, "2"]), 'input_tok_ids[1] is "2"'),
        (request([1], input_tok_ids={}), "input_tok_ids is {}; must be a list"),
        (request([1], arrival_time_ns=-1), "arrival_time_ns is -1; must be at least 0"),
        (request([1], arrival_time_ns=1.5), "arrival_time_ns is 1.5; must be a whole number"),
        (request([1], arrival_time_ns=10**20), "arrival_time_ns is 100000000000000000000; must be at most"),
        (request([]), "input_toks is 0; must be at least 1"),
        ({"arrival_time_ns": 0, "sub_requests": []}, "sub_requests is []; must be a list of at least one request"),
        ({"arrival_time_ns": 0, "sub_requests": [5]}, "sub_requests[0] is 5; must be a JSON object"),
        ({"arrival_time_ns": 0, "sub_requests": [{}]}, "sub_requests[0]: key 'input_toks' is missing"),
        (
            {"arrival_time_ns": 0, "sub_requests": [request([1]), request([1])]},
            "sub_requests[0]: key 'tool_duration_ns' is missing",
        ),
        ("[1]\n", "is a JSON object; this is [1]"),
    ],
)
def test_malformed_llmservingsim_rows(tmp_path, row, problem):
    path = write(tmp_path, request([1, 2]), row, request([3]))
    assert problem in problem_of(path)
    bad_lines = BadLines(skip=True)
    assert len(read(path, bad_lines=bad_lines)) == 2
    assert bad_lines.count == 1


def test_token_ids_after_a_first_line_without_are_not_dropped_quietly(tmp_path):
    assert "has input_tok_ids, but the first line has none" in problem_of(write(tmp_path, request(), request([1])))


@pytest.mark.parametrize(
    ("name", "requests", "prompts", "outputs", "hit_ratio"),
    [
        ("sharegpt-llama-3.1-8b-300-sps10.jsonl.gz", 300, (857.46, 731.5, 2765.2), (652.51, 632, 784.12), 0.077),
        ("workload_me2_01_mixed.jsonl", 608, (9217.77, 2909.5, 28447.5), (3021.39, 873.5, 15038.74), None),
    ],
)
def test_the_llmservingsim_workloads_have_their_known_statistics(name, requests, prompts, outputs, hit_ratio):
    path = SHARED / "traces" / "llmservingsim" / name
    if not path.is_file():
        pytest.skip("no LLMServingSim workloads: set KVTIER_SHARED")
    trace = open_trace(path)
    assert trace.has_prefixes == (hit_ratio is not None)
    figures = trace_statistics(trace)
    assert figures["requests"] == requests
    for key, expected in (("prompt_tokens", prompts), ("output_tokens", outputs)):
        found = [figures[key][figure] for figure in ("mean", "p50", "p99")]
        assert found == pytest.approx(expected, abs=0.05)
    if hit_ratio is not None:
        assert figures["infinite_cache_hit_ratio_blocks"] == pytest.approx(hit_ratio, abs=0.0005)
