"""A small sound file of each trace format, to be read, damaged and converted by the tests that hold for all formats."""

import json
from collections.abc import Iterable

from row_trace_samples import ROW_SAMPLES


def lines(rows: Iterable[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


KV_CACHE_TESTER_DELTA = [
    {"trace": "trace_0001", "block_size": 64, "scope": "local", "tool_tokens": 60, "system_tokens": 4},
    {"t": 0.0, "in": 200, "out": 20, "keep": 0, "new": [[1, 3]], "nb": 3, "api_time": 2.0, "think_time": 0.0},
    {"t": 70.0, "in": 130, "out": 5, "keep": 0, "new": [[9, 2]], "nb": 2, "agent": "a", "api_time": 3.0},
    {"t": 75.0, "in": 150, "out": 0, "keep": 2, "new": [], "nb": 2, "agent": "a", "api_time": 1.0, "think_time": 2.0},
    {"t": 80.0, "in": 330, "out": 9, "keep": 3, "new": [[4, 1], [7, 1]], "nb": 5, "api_time": None, "think_time": 78.0},
    {"trace": "trace_0002", "block_size": 64, "scope": "local"},
    {"t": 0.0, "in": 64, "out": 1, "keep": 0, "new": [[1, 1]], "nb": 1},
]
KV_CACHE_TESTER = {
    "id": "trace_0001",
    "block_size": 64,
    "hash_id_scope": "local",
    "requests": [
        {"t": 0.0, "type": "n", "in": 200, "out": 20, "hash_ids": [1, 2, 3], "api_time": 2.0, "think_time": 0.0},
        {
            "t": 70.0,
            "type": "subagent",
            "agent_id": "a",
            "requests": [
                {"t": 0.0, "type": "n", "in": 130, "out": 5, "hash_ids": [9, 10], "api_time": 3.0},
                {"t": 5.0, "type": "s", "in": 150, "out": 0, "hash_ids": [9, 10], "api_time": 1.0, "think_time": 2.0},
            ],
        },
        {"t": 80.0, "type": "s", "in": 330, "out": 9, "hash_ids": [1, 2, 3, 4, 7], "think_time": 78.0},
    ],
}
HASH64C = [
    {"derived_from": "somewhere", "block": "64 characters", "time_unit": "s since first request of the file"},
    {"session": 0, "t": 20.0, "in_tokens_est": 40, "out_tokens_est": 7, "new": [[0, 2]], "keep": 0, "nb": 2},
    {"session": 0, "t": 22.5, "in_tokens_est": 64, "out_tokens_est": 0, "new": [[2, 2]], "keep": 2, "nb": 4},
    {"session": 1, "t": 0.0, "in_tokens_est": 20, "out_tokens_est": 3, "new": [[0, 1]], "keep": 0, "nb": 1},
]
MOONCAKE = [
    {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]},
    {"timestamp": 3000, "input_length": 1100, "output_length": 0, "hash_ids": [0, 2, 3]},
    {"session_id": "a", "timestamp": 3000, "input_length": 1100, "output_length": 4, "hash_ids": [0, 2, 4]},
    {"session_id": "a", "delay": 500, "input_length": 1100, "output_length": 4, "hash_ids": [0, 2, 4]},
]

SAMPLES = {
    "hash64c": lines(HASH64C),
    "kv-cache-tester": json.dumps(KV_CACHE_TESTER),
    "kv-cache-tester-delta": lines(KV_CACHE_TESTER_DELTA),
    "mooncake": lines(MOONCAKE),
    **ROW_SAMPLES,
}
"""By the name of the format."""
