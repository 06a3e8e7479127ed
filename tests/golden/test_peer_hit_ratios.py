"""The same policies as in the engine against what other tools count on the public Mooncake traces.

libcachesim 0.3.5 (every id an access) and kvcache-simulator 0.1.3 (prefixes); their figures lie beside the traces.
"""

import gzip
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sim.policies.base import EVICTION
from sim.policies.leaf import constrain_to_leaves
from sim.replay import block_hit_ratio, prefix_replay

SHARED = Path(__file__).parents[2] / os.environ.get("KVTIER_SHARED", "../shared")
PEERS = SHARED / "measured" / "peer_hit_ratios.json"
TRACES = {"conversation": "conv", "synthetic": "synth"}  # our name: kvcache-simulator's
LIBCACHESIM = {"lru": "LRU"}  # our name: libcachesim's
BLOCK_TOKENS = 512

pytestmark = pytest.mark.skipif(not PEERS.exists(), reason=f"no {PEERS.name}: set KVTIER_SHARED")


@dataclass(slots=True)
class Request:
    block_ids: list[int]
    prompt_tokens: int


@cache
def peers() -> Any:
    return json.loads(PEERS.read_text())


@cache
def requests(trace: str) -> list[Request]:
    """Return every row with all its ids: these peers count the partial last block as one more object."""
    with gzip.open(SHARED / "traces" / "mooncake" / f"{trace}_trace.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return [Request(row["hash_ids"], row["input_length"]) for row in rows]


@pytest.mark.parametrize("name", LIBCACHESIM)
@pytest.mark.parametrize("trace", TRACES)
def test_block_hits_equal_libcachesim(trace: str, name: str) -> None:
    ids = [key for request in requests(trace) for key in request.block_ids]
    points = [point for point in peers()["libcachesim"][trace] if point["policy"] == LIBCACHESIM[name]]
    assert len(points) == 4
    ours = {point["size"]: block_hit_ratio(EVICTION.create(name), point["size"], ids) for point in points}
    assert {size: round(ratio, 6) for size, ratio in ours.items()} == {p["size"]: p["hit_ratio"] for p in points}


@pytest.mark.parametrize("trace", TRACES)
def test_prefix_hits_equal_kvcache_simulator(trace: str) -> None:
    peer = peers()["kvcache_simulator"][TRACES[trace]]
    runs = [point["results"]["lru"] for point in peer["points"]] + [peer["ceiling"]]
    assert len(runs) >= 13
    for theirs in runs:
        ours = prefix_replay(
            constrain_to_leaves(EVICTION.create("lru")),
            theirs["cacheBlocks"],
            requests(trace),
            block_tokens=BLOCK_TOKENS,
            first_counted=theirs["measurementStartRequest"],
        )
        counted = (theirs["cacheBlocks"], ours.hit_tokens, ours.prompt_tokens)
        assert counted == (theirs["cacheBlocks"], theirs["hitTokens"], theirs["totalTokens"])
