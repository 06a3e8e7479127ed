"""Replays of one policy and capacity by the segment: FIFO, LRU that evicts leaves, and Belady's MIN.

They count exactly what a replay block by block counts (tests hold them against one), some ten times faster.
"""

from heapq import heappop, heappush

import numpy as np

from sim.arrays import Ints
from sim.mrc.segments import Visits


def fifo(visits: Visits, capacity_blocks: int) -> Ints:
    """Return by visit the blocks that hit in a queue of insertions, each block on its own.

    The blocks of a segment hold consecutive places in the queue. If the first was evicted, the miss moves the queue on
    by one and evicts the next, and so on; if it was not, none of the others was.
    """
    sizes = visits.sizes.tolist()
    place = [-1 << 62] * len(sizes)  # of the first block in the queue of all insertions
    gone = -capacity_blocks  # insertions that have left the cache again
    missed = bytearray(len(visits.segments))
    for visit, segment in enumerate(visits.segments.tolist()):
        if place[segment] < gone:
            place[segment] = gone + capacity_blocks
            gone += sizes[segment]
            missed[visit] = 1
    return np.where(np.frombuffer(missed, dtype=np.bool_), 0, visits.blocks)


def leaf_lru(visits: Visits, capacity_blocks: int) -> Ints:
    """Return by request the blocks that hit where LRU evicts only leaves, at any capacity.

    The blocks that a request hits stay while it is served. One that does not fit loses its tail, and leaves one block
    empty: the rule of :func:`sim.replay.prefix_replay`.
    """
    segments, sizes = visits.segments.tolist(), visits.sizes.tolist()
    resident = [0] * len(sizes)  # blocks at the head of each segment
    used_by = [-1] * len(sizes)
    hits, ends = [], visits.ends.tolist()
    free = capacity_blocks
    oldest, tail = -1, 0  # what is evicted next: the request `oldest` from its visit tail - 1 down to where it begins
    oldest_start = start = 0
    for request, end in enumerate(ends):
        hit = wanted = 0
        for segment in segments[start:end]:
            hit += resident[segment]
            wanted += sizes[segment]
            used_by[segment] = request
        hits.append(hit)
        wanted -= hit
        while wanted > free:
            if tail == oldest_start:
                oldest += 1
                if oldest == request:  # only what it hits itself is left
                    wanted = max(free - 1, 0)
                    oldest -= 1
                    break
                oldest_start, tail = (ends[oldest - 1] if oldest else 0), ends[oldest]
                continue
            segment = segments[tail - 1]
            if used_by[segment] == oldest and resident[segment]:
                gone = min(resident[segment], wanted - free)
                resident[segment] -= gone
                free += gone
                if wanted <= free:
                    break
            tail -= 1
        free -= wanted
        for segment in segments[start:end]:
            if not wanted:
                break
            more = min(sizes[segment] - resident[segment], wanted)
            resident[segment] += more
            wanted -= more
        start = end
    return np.array(hits, dtype=np.int64)


def leaf_belady(visits: Visits, capacity_blocks: int) -> Ints:
    """Return by request the blocks that hit where the leaf goes whose next use is farthest, and a prompt may go past.

    A block that is used again later than all that is resident is not inserted, nor are those behind it. What is not
    used again at all gives way to anything, so it is counted as free space here from its last use on.
    """
    segments, sizes = visits.segments.tolist(), visits.sizes.tolist()
    n_segments = len(sizes)
    next_visits = visits.next_visits
    next_uses = np.where(next_visits < 0, -1, visits.requests[next_visits]).tolist()
    resident = [0] * n_segments
    # One number for next use and segment, the farthest first, of equals what continues the other; what lies in the
    # past sinks to the end and is never looked at.
    heap: list[int] = []
    free = capacity_blocks
    hits = []
    start = 0
    for end in visits.ends.tolist():
        hit = 0
        going_on = True
        for visit in range(start, end):
            segment, next_use = segments[visit], next_uses[visit]
            here = resident[segment]
            hit += here
            if next_use < 0:
                free += here
                resident[segment] = 0
                continue
            wanted = sizes[segment] - here
            if wanted and going_on:
                if wanted > free:
                    free += _make_room(heap, resident, wanted - free, (next_use + 1) * n_segments)
                    going_on = wanted <= free
                    wanted = min(wanted, free)
                free -= wanted
                resident[segment] = here = here + wanted
            if here:
                heappush(heap, -(next_use * n_segments + segment))
        hits.append(hit)
        start = end
    return np.array(hits, dtype=np.int64)


def _make_room(heap: list[int], resident: list[int], wanted: int, beyond: int) -> int:
    """Evict up to *wanted* blocks with entries of at least *beyond*; return how many went."""
    gone = 0
    while gone < wanted and heap and -heap[0] >= beyond:
        segment = -heap[0] % len(resident)
        if resident[segment] > wanted - gone:
            resident[segment] -= wanted - gone
            return wanted
        gone += resident[segment]
        resident[segment] = 0
        heappop(heap)
    return gone


def belady(visits: Visits, capacity_blocks: int) -> Ints:
    """Return by visit the blocks that hit where the block goes whose next use is farthest, each block on its own.

    Every miss inserts its block, as in libCacheSim. What is not used again takes the place of nothing but itself.
    """
    sizes = visits.blocks.tolist()
    positions = np.cumsum(visits.blocks) - visits.blocks
    at = positions.tolist()
    kept = bytearray(int(visits.blocks.sum()))  # by reference: whether its block was kept since the one before
    heap: list[int] = []  # visits to come that find blocks, the last one first
    live = 0  # resident blocks that will be used again
    for visit, following in enumerate(visits.next_visits.tolist()):
        begin, size = at[visit], sizes[visit]
        if following < 0:
            if live == capacity_blocks and not kept[begin]:
                _drop_farthest(heap, kept, at, sizes)
                live -= 1
            live -= kept.count(1, begin, begin + size)
            continue
        missing = size - kept.count(1, begin, begin + size)
        place = at[following]
        if missing <= capacity_blocks - live:
            live += missing
            kept[place : place + size] = b"\1" * size
            heappush(heap, -following)
            continue
        for offset in range(size):
            if not kept[begin + offset]:
                if live == capacity_blocks:
                    _drop_farthest(heap, kept, at, sizes)
                else:
                    live += 1
            kept[place + offset] = 1
            if not offset:
                heappush(heap, -following)
    return np.add.reduceat(np.frombuffer(kept, dtype=np.int8), positions, dtype=np.int64)


def _drop_farthest(heap: list[int], kept: bytearray, at: list[int], sizes: list[int]) -> None:
    """Evict the block whose next use is farthest; there is one."""
    while True:
        visit = -heap[0]
        last = kept.rfind(1, at[visit], at[visit] + sizes[visit])
        if last >= 0:
            kept[last] = 0
            return
        heappop(heap)
