"""A trace as visits of segments: blocks that are used together or not at all, whatever their number.

A segment is a piece of the prefix tree between two places where prompts begin, part or end, so every prompt is a few
whole segments: the 288,500 block references of Mooncake's conversation trace are 37,454 visits. What one block of a
segment does in a cache tells what the others do, and replays cost by the visit, not by the block.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.errors import TraceError
from sim.arrays import Floats, Ints
from sim.prefix_tree import PrefixTree
from sim.runs import STRAND_BITS, Chain
from sim.traces.block_trace import BlockTrace
from sim.traces.record import NO_ID, Trace

# Strands from here on hold one partial last block each; those of PrefixTree are numbered from 0.
_PARTIAL_STRANDS: Final = 1 << 37

Flags: TypeAlias = NDArray[np.bool_]

OnRequest = Callable[[int], None]
"""Called with the number of requests read so far."""


@dataclass(frozen=True, kw_only=True)
class Visits:
    """Requests as visits of segments, in order; an access of a block trace is a request of one block.

    Segments are numbered so that what continues another one has the higher number.

    Parameters
    ----------
    name
        The trace's name.
    block_tokens
        Tokens of a block; 0 where the trace has objects of its own sizes.
    keys
        By segment: key of its first block (:mod:`sim.runs`).
    sizes
        By segment: its blocks.
    segments
        By visit: the segment.
    ends
        By request: its visits end before this one.
    prompt_tokens
        By request: length of the prompt [tokens].
    arrived_at_s
        By request: its arrival [s].
    object_bytes
        By visit: size of the object [bytes]; None for requests.
    tree
        The prefix tree that the keys are of; None where nothing continues anything.
    partial_after
        By partial last block, in the order of their strands: key of the block before it, -1 for none.
    """

    name: str
    block_tokens: int
    keys: Ints
    sizes: Ints
    segments: Ints
    ends: Ints
    prompt_tokens: Ints
    arrived_at_s: Floats
    object_bytes: Ints | None = None
    tree: PrefixTree | None = None
    partial_after: Sequence[int] = ()

    @cached_property
    def segment_list(self) -> list[int]:
        """By visit: the segment. Lists are for loops, where they are quicker than arrays."""
        return _listed(self.segments)

    @cached_property
    def size_list(self) -> list[int]:
        """By segment: its blocks."""
        return _listed(self.sizes)

    @cached_property
    def end_list(self) -> list[int]:
        """By request: its visits end before this one."""
        return _listed(self.ends)

    @cached_property
    def next_request_list(self) -> list[int]:
        """By visit: the request that visits the segment next, -1 if there is none."""
        return _listed(np.where(self.next_visits < 0, -1, self.requests[self.next_visits]))

    @cached_property
    def starts(self) -> Ints:
        """By request: its first visit."""
        return np.concatenate(([0], self.ends[:-1]))

    @cached_property
    def blocks(self) -> Ints:
        """By visit: its blocks."""
        return self.sizes[self.segments]

    @cached_property
    def request_blocks(self) -> Ints:
        """By request: its blocks."""
        return self.per_request(self.blocks)

    @cached_property
    def requests(self) -> Ints:
        """By visit: the request."""
        return np.repeat(np.arange(len(self.ends)), self.ends - self.starts)

    @cached_property
    def next_visits(self) -> Ints:
        """By visit: the next one to the same segment, -1 if there is none."""
        order = np.argsort(self.segments, kind="stable")
        again = self.segments[order[1:]] == self.segments[order[:-1]]
        following = np.full(len(order), -1, dtype=np.int64)
        following[order[:-1][again]] = order[1:][again]
        return following

    @cached_property
    def first_numbers(self) -> Ints:
        """By segment: number of its first block, all blocks being numbered from 0."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def distinct_blocks(self) -> int:
        """How many blocks there are."""
        return int(self.sizes.sum())

    def per_request(self, values: Ints) -> Ints:
        """Return the sums by request of values by visit."""
        sums: Ints = np.concatenate(([0], np.cumsum(values)))
        between: Ints = sums[self.ends] - sums[self.starts]
        return between

    def unbroken(self, hits: Flags) -> Ints:
        """Return by request the blocks that hit before the first that does not, from *hits* by block reference."""
        ends = np.cumsum(self.request_blocks)
        misses = np.append(np.flatnonzero(~hits), ends[-1])
        starts = ends - self.request_blocks
        first_miss: Ints = misses[np.searchsorted(misses, starts)]
        unbroken: Ints = np.minimum(first_miss, ends) - starts
        return unbroken

    def chains(self) -> Iterator[Chain]:
        """Yield the blocks of each request as runs of keys."""
        keys, sizes, segments = self.keys.tolist(), self.size_list, self.segment_list
        start = 0
        for end in self.end_list:
            runs: list[range] = []
            for segment in segments[start:end]:
                key, stop = keys[segment], keys[segment] + sizes[segment]
                if runs and runs[-1].stop == key:
                    key = runs.pop().start
                runs.append(range(key, stop))
            yield Chain(runs)
            start = end

    def block_numbers(self) -> Iterator[Iterator[int]]:
        """Yield the blocks of each request by their numbers."""
        first, sizes, segments = self.first_numbers.tolist(), self.size_list, self.segment_list
        start = 0
        for end in self.end_list:
            yield (
                number
                for segment in segments[start:end]
                for number in range(first[segment], first[segment] + sizes[segment])
            )
            start = end

    def key(self, number: int) -> int:
        """Return the key of the block of this number."""
        segment = int(np.searchsorted(self.first_numbers, number, side="right")) - 1
        return int(self.keys[segment] + number - self.first_numbers[segment])

    def position(self, key: int) -> int:
        """Return how many blocks come before this one in its chain."""
        return self._in_tree(key, PrefixTree.position, 1, 0)

    def generation(self, key: int) -> int:
        """Return how many prompts built on one another up to the one that first had a block, 1 for the first."""
        return self._in_tree(key, PrefixTree.generation, 0, 1)

    def _in_tree(self, key: int, of: Callable[[PrefixTree, int], int], more: int, alone: int) -> int:
        """Ask the tree about a block; a partial last one has that of the block before it and *more*."""
        if self.tree is None:
            return alone
        partial = (key >> STRAND_BITS) - _PARTIAL_STRANDS
        if partial < 0:
            return of(self.tree, key)
        before = self.partial_after[partial]
        return alone if before == NO_ID else of(self.tree, before) + more


def read_requests(trace: Trace, *, partial_blocks: bool = True, on_request: OnRequest = lambda _: None) -> Visits:
    """Read a trace of requests once; *partial_blocks*: an unfilled last block that has an id is a block like others.

    Raises TraceError where it is malformed or holds no request with a block.
    """
    tree = PrefixTree()
    partial_keys: dict[tuple[int, int], int] = {}
    starts, stops, ends = array("q"), array("q"), array("q")
    prompt_tokens, arrived_at_s = array("q"), array("d")
    for record in trace.records():
        last = NO_ID
        for run in tree.chain(record.block_ids).runs:
            starts.append(run.start)
            stops.append(run.stop)
            last = run.stop - 1
        if partial_blocks and record.partial_block_id != NO_ID:
            strand = _PARTIAL_STRANDS + len(partial_keys)
            key = partial_keys.setdefault((last, record.partial_block_id), strand << STRAND_BITS)
            starts.append(key)
            stops.append(key + 1)
        ends.append(len(starts))
        prompt_tokens.append(record.prompt_tokens)
        arrived_at_s.append(record.arrived_at_s)
        on_request(len(ends))
    if not starts:
        raise TraceError(trace.name, "no request of the trace says which blocks it has")
    keys, sizes, segments, visits_until = _segmented(_ints(starts), _ints(stops))
    return Visits(
        name=trace.name,
        block_tokens=trace.block_tokens,
        keys=keys,
        sizes=sizes,
        segments=segments,
        ends=visits_until[_ints(ends)],
        prompt_tokens=_ints(prompt_tokens),
        arrived_at_s=np.array(arrived_at_s),
        tree=tree,
        partial_after=[after for after, _ in partial_keys],
    )


def read_accesses(trace: BlockTrace, on_request: OnRequest = lambda _: None) -> Visits:
    """Read a block trace once, each object being one block; raises TraceError where it is malformed."""
    keys, sizes_bytes, at_s = array("q"), array("q"), array("d")
    for access in trace.accesses():
        keys.append(access.key)
        sizes_bytes.append(access.size_bytes)
        at_s.append(access.at_s)
        on_request(len(keys))
    objects, segments = np.unique(_ints(keys), return_inverse=True)
    return Visits(
        name=trace.name,
        block_tokens=0,
        keys=np.arange(len(objects)) << STRAND_BITS,
        sizes=np.ones(len(objects), dtype=np.int64),
        segments=segments.astype(np.int64),
        ends=np.arange(1, len(segments) + 1),
        prompt_tokens=np.zeros(len(segments), dtype=np.int64),
        arrived_at_s=np.array(at_s),
        object_bytes=_ints(sizes_bytes),
    )


def _segmented(starts: Ints, stops: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Cut runs of keys wherever one of them begins or ends.

    Returns key and size of each segment, the segments of all runs, and after how many of these 0, 1, 2, ... runs end.
    """
    cuts = np.unique(np.concatenate((starts, stops)))
    first, last = np.searchsorted(cuts, starts), np.searchsorted(cuts, stops)
    until = np.concatenate(([0], np.cumsum(last - first)))
    pieces = np.arange(until[-1]) + np.repeat(last - until[1:], last - first)
    used, segments = np.unique(pieces, return_inverse=True)
    return cuts[used], cuts[used + 1] - cuts[used], segments.astype(np.int64), until.astype(np.int64)


def _ints(values: "array[int]") -> Ints:
    found: NDArray[np.int64] = np.array(values, dtype=np.int64)
    return found


def _listed(values: Ints) -> list[int]:
    found: list[int] = values.tolist()
    return found
