"""The same policies as in the engine against what other tools count, on the public Mooncake traces and at random.

libcachesim 0.3.5 (every id an access) and kvcache-simulator 0.1.3 (prefixes); their figures lie beside the traces, and
libcachesim also runs here.

Equal to 6 digits: LRU, FIFO, LFU, SIEVE, Belady, CLOCK, ARC, S3-FIFO, 2Q (both traces, all sizes; at random, any size).

The others differ by rules that libcachesim adds, each named and proven in the kit (`libcachesim_rules.py`,
`w_tinylfu_of_libcachesim.py`): a plain cache without them counts what ours counts, with all of them what libcachesim
counts, and with one of them left out something else.

LIRS: a hit on a cold block that has left the stack cools a hot one, though none becomes hot. The paper (SIGMETRICS
2002, section 3.3, case 2) only moves the block to the end of the queue.

W-TinyLFU: what is counted and in what, when counts are halved, where blocks enter, and how sizes are rounded. Its
sketch is so small for these traces that the count goes with the hashes: with ids 0, 1, 2, ... libcachesim hits 0.028529
of the synthetic trace in 1,000 blocks, with 1, 2, 3, ... 0.037251. The figures beside the traces are of the latter.

SLRU, where four segments do not divide the capacity: libcachesim evicts before the cache is full.

S3-FIFO below 20 blocks: libcachesim compares the size of a block with that of a small queue of one and stores nothing.
"""

import gzip
import json
import os
import random
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import libcachesim_rules
import pytest
import w_tinylfu_of_libcachesim
from libcachesim_rules import LirsReference, SlruReference
from w_tinylfu_of_libcachesim import WTinyLfuReference

from sim.policies.base import EVICTION, EvictionPolicy, PolicyContext
from sim.policies.future import KnownFuture
from sim.policies.hooks import hooks
from sim.policies.leaf import constrain_to_leaves
from sim.policies.making import make_policy
from sim.replay import block_hit_ratio, prefix_replay
from sim.runs import STRAND_BITS

SHARED = Path(__file__).parents[2] / os.environ.get("KVTIER_SHARED", "../shared")
PEERS = SHARED / "measured" / "peer_hit_ratios.json"
TRACES = {"conversation": "conv", "synthetic": "synth"}  # our name: kvcache-simulator's
# Our name: that of libcachesim's figures, that of its Python class, its parameters. Live only where there is no figure.
LIBCACHESIM: dict[str, tuple[str | None, str, dict[str, Any]]] = {
    "lru": ("LRU", "LRU", {}),
    "fifo": ("FIFO", "FIFO", {}),
    "lfu": ("LFU", "LFU", {}),
    "sieve": ("SIEVE", "Sieve", {}),
    "belady": ("Belady", "Belady", {}),
    "clock": ("CLOCK", "Clock", {}),
    "arc": ("ARC", "ARC", {}),
    "s3fifo": ("S3FIFO", "S3FIFO", {}),
    "2q": ("TwoQ", "TwoQ", {}),
    "slru": (None, "SLRU", {}),
}
BLOCK_TOKENS = 512

needs_figures = pytest.mark.skipif(not PEERS.exists(), reason=f"no {PEERS.name}: set KVTIER_SHARED")


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


@cache
def accesses(trace: str) -> list[int]:
    return [key for request in requests(trace) for key in request.block_ids]


def hit_ratio(policy: str | EvictionPolicy, capacity: int, ids: list[int]) -> float:
    """Return our ratio, to 6 digits; time is counted in accesses."""
    begun = 0

    def counted() -> Any:
        nonlocal begun
        for key in ids:
            begun += 1
            yield key

    uses = ([range(key << STRAND_BITS, (key << STRAND_BITS) + 1)] for key in ids)
    context = PolicyContext(capacity_chunks=capacity, future=KnownFuture(uses, lambda: begun))
    if isinstance(policy, str):
        policy = make_policy(policy, context)
    else:
        hooks(policy).prepare(context)
    return round(block_hit_ratio(policy, capacity, counted()), 6)


def libcachesim_hits(name: str, capacity: int, ids: list[int], **parameters: Any) -> list[bool]:
    """Return what hits in libcachesim here and now."""
    libcachesim = pytest.importorskip("libcachesim")
    cache = getattr(libcachesim, name)(cache_size=capacity, hashpower=16, **parameters)
    next_use: dict[int, int] = {}
    following = [0] * len(ids)
    for at in range(len(ids) - 1, -1, -1):
        following[at] = next_use.get(ids[at], (1 << 63) - 1)
        next_use[ids[at]] = at
    hits = []
    for at, key in enumerate(ids):
        request = libcachesim.Request(obj_id=key, obj_size=1)
        request.next_access_vtime = following[at]
        hits.append(cache.get(request))
    return hits


def figures(name: str, trace: str) -> dict[int, float]:
    """Return libcachesim's ratio by size."""
    points = {p["size"]: p["hit_ratio"] for p in peers()["libcachesim"][trace] if p["policy"] == name}
    assert len(points) == 4
    return points


def hits_of(reference: Any, ids: list[int]) -> list[bool]:
    return [reference.get(key) for key in ids]


def ratio(hits: list[bool]) -> float:
    return round(sum(hits) / len(hits), 6)


def random_ids(seed: int, length: int = 4000) -> list[int]:
    """Return accesses with what caches live on: favourites, loops, scans and returns."""
    rng = random.Random(seed)
    ids: list[int] = []
    while len(ids) < length:
        kind = rng.random()
        if kind < 0.5:
            ids += [int(rng.paretovariate(0.7)) % 500 for _ in range(rng.randrange(1, 60))]
        elif kind < 0.7:
            start = rng.randrange(1000, 1400)
            ids += [*range(start, start + rng.randrange(1, 80))] * rng.randrange(1, 4)
        elif kind < 0.9 and ids:
            at = rng.randrange(len(ids))
            ids += ids[at : at + rng.randrange(1, 100)]
        else:
            ids += [rng.randrange(10_000, 20_000) for _ in range(rng.randrange(1, 50))]
    return ids[:length]


@needs_figures
@pytest.mark.parametrize("name", [name for name, (figure, _, _) in LIBCACHESIM.items() if figure])
@pytest.mark.parametrize("trace", TRACES)
def test_block_hits_equal_libcachesim(trace: str, name: str) -> None:
    points = figures(LIBCACHESIM[name][0] or "", trace)
    assert {size: hit_ratio(name, size, accesses(trace)) for size in points} == points


@pytest.mark.parametrize("name", [name for name in LIBCACHESIM if name != "slru"])
@pytest.mark.parametrize("capacity", [20, 37, 60, 101, 200])
def test_block_hits_equal_libcachesim_on_random_accesses(name: str, capacity: int) -> None:
    _, theirs, parameters = LIBCACHESIM[name]
    for seed in range(3):
        ids = random_ids(seed)
        assert hit_ratio(name, capacity, ids) == ratio(libcachesim_hits(theirs, capacity, ids, **parameters))


@pytest.mark.parametrize("capacity", [10, 19])
def test_s3fifo_of_libcachesim_stores_nothing_below_20_blocks(capacity: int) -> None:
    ids = random_ids(0)
    assert not any(libcachesim_hits("S3FIFO", capacity, ids))
    assert hit_ratio("s3fifo", capacity, ids) > 0.3


@pytest.mark.parametrize("capacity", [20, 60, 200, 15, 37, 59])
def test_slru_equals_libcachesim_but_for_blocks_that_it_evicts_early(capacity: int) -> None:
    early = 0
    for seed in range(4):
        ids = random_ids(seed)
        ours, theirs = (hits_of(SlruReference(capacity, bound=bound), ids) for bound in (False, True))
        assert hit_ratio("slru", capacity, ids) == ratio(ours)
        assert libcachesim_hits("SLRU", capacity, ids) == theirs
        early += ours != theirs
    assert (early > 0) == (capacity % 4 > 0)


@needs_figures
@pytest.mark.parametrize("trace", TRACES)
def test_lirs_equals_libcachesim_but_for_the_rules_that_it_adds(trace: str) -> None:
    points, ids = figures("LIRS", trace), accesses(trace)
    theirs = {size: ratio(hits_of(LirsReference(size, libcachesim_rules.DIFFERENCES), ids)) for size in points}
    assert theirs == points
    for size in (1000, 10_000):
        assert hit_ratio("lirs", size, ids) == ratio(hits_of(LirsReference(size), ids))


def test_lirs_on_random_accesses() -> None:
    left_out: dict[str, int] = dict.fromkeys(libcachesim_rules.DIFFERENCES, 0)
    for seed, capacity in product(range(3), (10, 41, 97, 200, 333)):
        ids = random_ids(seed)
        theirs = libcachesim_hits("LIRS", capacity, ids)
        assert hits_of(LirsReference(capacity, libcachesim_rules.DIFFERENCES), ids) == theirs
        assert ratio(hits_of(LirsReference(capacity), ids)) == hit_ratio("lirs", capacity, ids)
        for rule in left_out:
            left_out[rule] += hits_of(LirsReference(capacity, libcachesim_rules.DIFFERENCES - {rule}), ids) != theirs
    assert all(left_out.values()), left_out


@needs_figures
@pytest.mark.parametrize("trace", TRACES)
def test_w_tinylfu_with_the_rules_of_libcachesim_equals_its_figures(trace: str) -> None:
    points, ids = figures("WTinyLFU", trace), [key + 1 for key in accesses(trace)]
    rules = w_tinylfu_of_libcachesim.DIFFERENCES
    assert {size: ratio(hits_of(WTinyLfuReference(size, rules), ids)) for size in points} == points


@needs_figures
@pytest.mark.parametrize("trace", TRACES)
def test_w_tinylfu_equals_the_plain_cache_without_them(trace: str) -> None:
    for size in (1000, 10_000):
        ours = hit_ratio("w-tinylfu", size, accesses(trace))
        assert ours == ratio(hits_of(WTinyLfuReference(size), accesses(trace)))


@pytest.mark.parametrize("capacity", [60, 100, 110, 200, 333])
def test_w_tinylfu_on_random_accesses(capacity: int) -> None:
    rules = w_tinylfu_of_libcachesim.DIFFERENCES
    for seed in range(2):
        ids = random_ids(seed, 10_000)
        assert hits_of(WTinyLfuReference(capacity, rules), ids) == libcachesim_hits("WTinyLFU", capacity, ids)
        assert ratio(hits_of(WTinyLfuReference(capacity), ids)) == hit_ratio("w-tinylfu", capacity, ids)


@pytest.mark.parametrize("rule", sorted(w_tinylfu_of_libcachesim.DIFFERENCES))
def test_w_tinylfu_needs_every_rule_to_equal_libcachesim(rule: str) -> None:
    capacity = 60 if rule == w_tinylfu_of_libcachesim.WINDOW else 110  # 110: no segment comes out whole
    ids = random_ids(0, 20_000)
    less = w_tinylfu_of_libcachesim.DIFFERENCES - {rule}
    assert hits_of(WTinyLfuReference(capacity, less), ids) != libcachesim_hits("WTinyLFU", capacity, ids)


@needs_figures
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
