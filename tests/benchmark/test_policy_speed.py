"""How fast each eviction policy is on the Mooncake conversation trace: `pytest -m benchmark -s`.

The whole of a cache without time, prompt after prompt: look-up, victims, evictions, insertions. CPU seconds count, so
that a machine that others use says the same; figures are the best of the turns. Nothing here asserts a time.
"""

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.policies.base import EVICTION, PolicyContext
from sim.policies.future import KnownFuture
from sim.policies.making import make_policy
from sim.prefix_tree import PrefixTree
from sim.replay import prefix_hits
from sim.runs import Chain

pytestmark = pytest.mark.benchmark

TURNS = 3
CAPACITIES = (10_000, 50_000)


def test_accesses_per_second_of_every_policy(conversation_trace: Path) -> None:
    with gzip.open(conversation_trace, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    tree = PrefixTree()
    chains = [tree.chain(row["hash_ids"]) for row in rows]
    accesses = sum(map(len, chains))
    begun = 0

    def sent() -> Iterator[Chain]:
        nonlocal begun
        for begun, chain in enumerate(chains, start=1):  # noqa: B007 - policies read it
            yield chain

    def context(capacity: int) -> PolicyContext:
        return PolicyContext(
            capacity_chunks=capacity,
            now_s=lambda: rows[begun - 1]["timestamp"] / 1000,
            position=tree.position,
            generation=tree.generation,
            recompute_s=lambda position: 0.01 + 1e-6 * position,
            reload_s=0.005,
            future=KnownFuture((chain.runs for chain in chains), lambda: begun),
        )

    print(f"\n{accesses:,} accesses of {conversation_trace.name}, a second of CPU time, at {CAPACITIES} blocks")
    for name in EVICTION.names():
        rates, hits = [], 0
        for capacity in CAPACITIES:
            spent_s = []
            for _ in range(TURNS):
                policy = make_policy(name, context(capacity))
                begun = 0
                start_s = time.process_time()
                hits = sum(found for found, _ in prefix_hits(policy, capacity, sent()))
                spent_s.append(time.process_time() - start_s)
            rates.append(accesses / min(spent_s))
        print(f"  {name:<16}" + "".join(f"{rate:12,.0f}" for rate in rates) + f"  {hits / accesses:.4f} hit")
        assert 0 < hits < accesses
