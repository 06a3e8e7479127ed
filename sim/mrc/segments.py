"""A trace as visits of segments: blocks that are used together or not at all, whatever their number.

A segment is a piece of the prefix tree between two places where prompts begin, part or end, so every prompt is a few
whole segments: the 288,500 block references of Mooncake's conversation trace are 37,454 visits. What one block of a
segment does in a cache tells what the others do, and replays cost by the visit, not by the block.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

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

    @property
    def distinct_blocks(self) -> int:
        """How many blocks there are."""
        return int(self.sizes.sum())

    def per_request(self, values: Ints) -> Ints:
        """Return the sums by request of values by visit."""
        sums = np.concatenate(([0], np.cumsum(values)))
        return sums[self.ends] - sums[self.starts]

    def unbroken(self, hits: Ints) -> Ints:
        """Return by request the blocks hit before the first that is not, of *hits* by visit [blocks].

        In a visit that is not hit as a whole, the blocks that are must be its first ones.
        """
        missed = np.cumsum(hits < self.blocks)
        before = missed - (hits < self.blocks)
        at_start = np.concatenate(([0], missed))[self.starts]
        return self.per_request(np.where(before == at_start[self.requests], hits, 0))

    def chains(self) -> Iterator[Chain]:
        """Yield the blocks of each request as runs of keys."""
        keys, sizes, segments = self.keys.tolist(), self.sizes.tolist(), self.segments.tolist()
        start = 0
        for end in self.ends.tolist():
            runs: list[range] = []
            for segment in segments[start:end]:
                key, stop = keys[segment], keys[segment] + sizes[segment]
                if runs and runs[-1].stop == key:
                    key = runs.pop().start
                runs.append(range(key, stop))
            yield Chain(runs)
            start = end


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
            last = run.stop
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
    return Visits(
        name=trace.name,
        block_tokens=trace.block_tokens,
        **_segmented(_ints(starts), _ints(stops), _ints(ends)),
        prompt_tokens=_ints(prompt_tokens),
        arrived_at_s=np.array(arrived_at_s),
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


def visits_of(requests: Iterable[Iterable[range]], *, block_tokens: int = 1) -> Visits:
    """Return requests that are given by runs of keys, one second apart, their prompts being full blocks."""
    starts, stops, ends, prompt_tokens = array("q"), array("q"), array("q"), array("q")
    for request in requests:
        blocks = 0
        for run in request:
            starts.append(run.start)
            stops.append(run.stop)
            blocks += len(run)
        ends.append(len(starts))
        prompt_tokens.append(blocks * block_tokens)
    return Visits(
        name="requests",
        block_tokens=block_tokens,
        **_segmented(_ints(starts), _ints(stops), _ints(ends)),
        prompt_tokens=_ints(prompt_tokens),
        arrived_at_s=np.arange(len(ends), dtype=np.float64),
    )


def _segmented(starts: Ints, stops: Ints, ends: Ints) -> dict[str, Ints]:
    """Cut runs of keys wherever one of them begins or ends; *ends* counts the runs of each request."""
    cuts = np.unique(np.concatenate((starts, stops)))
    first, last = np.searchsorted(cuts, starts), np.searchsorted(cuts, stops)
    n_pieces = last - first
    behind = np.cumsum(n_pieces)
    pieces = np.arange(behind[-1] if len(behind) else 0) + np.repeat(last - behind, n_pieces)
    used, segments = np.unique(pieces, return_inverse=True)
    visits_until = np.concatenate(([0], behind))
    return {
        "keys": cuts[used],
        "sizes": cuts[used + 1] - cuts[used],
        "segments": segments.astype(np.int64),
        "ends": visits_until[ends],
    }


def _ints(values: "array[int]") -> Ints:
    found: NDArray[np.int64] = np.array(values, dtype=np.int64)
    return found
