"""What caches of one tier hit, by the simplest code that can be read: the reference for traces and generators.

The rule of the published figures: a request hits as far as its blocks are resident without a gap; all its blocks are
then used, tail first, so that the tail of a prompt is evicted before its head; then the cache shrinks to its capacity.
The policies of the simulator are not used, so that these figures do not move with them.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from itertools import takewhile
from typing import Literal

from sim.traces.record import NO_ID, Trace, TraceRecord

Requests = list[list[int]]


def all_ids(record: TraceRecord) -> list[int]:
    """The blocks of a prompt, the unfilled last one among them where it has an id."""
    return record.block_ids + [record.partial_block_id] * (record.partial_block_id != NO_ID)


def requests_of(trace: Trace) -> Requests:
    return [all_ids(record) for record in trace.records()]


def hit_ratio(requests: Iterable[list[int]], capacity_blocks: int, policy: Literal["lru", "fifo", "lfu"]) -> float:
    """Hits over references. LFU counts uses for good, also while a block is not resident; ties go to the older use."""
    cache: OrderedDict[int, None] = OrderedDict()  # in the order of eviction, except for LFU
    uses: dict[int, tuple[int, int]] = {}
    by_uses: list[tuple[int, int, int]] = []
    n_hits = n_references = tick = 0
    for ids in requests:
        n_references += len(ids)
        n_hits += sum(1 for _ in takewhile(cache.__contains__, ids))
        for block_id in reversed(ids):
            if policy == "lru" and block_id in cache:
                cache.move_to_end(block_id)
            cache[block_id] = None
            if policy == "lfu":
                tick += 1
                count = uses.get(block_id, (0, 0))[0] + 1
                uses[block_id] = count, tick
                heapq.heappush(by_uses, (count, tick, block_id))
        while len(cache) > capacity_blocks:
            if policy == "lfu":
                count, used_at, block_id = heapq.heappop(by_uses)
                if uses[block_id] == (count, used_at):
                    cache.pop(block_id, None)
            else:
                cache.popitem(last=False)
    return n_hits / n_references
