"""When the blocks of prompts were used before, counted by runs: what holds for one block of a run holds for all of it.

A prompt always begins where its chain begins. So the last uses of the blocks of a strand (see `sim.prefix_tree`) form a
stack: the newest covers the blocks at its head, older ones what lies deeper. A prompt takes whole entries off the top,
cuts one in two, and puts itself on top, which costs a few steps whatever the number of blocks. A coding agent's trace
of 94 million block references is 49,000 prompts of a few runs each.

Blocks are told by their chain: a block behind another prefix is another one. Blocks are used in order of arrival, and
in a prompt first to last. The stack distance of a reference is the number of other blocks used since the one before to
the same block (R. L. Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970);
an LRU cache hits exactly where it is below the capacity. It is the same for all blocks of a part, which is a piece of a
prompt that was last used in one piece of one earlier prompt: for the block at place k of n, the n - 1 others of the
part lie in between, those behind it from then and those before it from now, and all that was used after the part and
not since.
"""

from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sim.arrays import Ints
from sim.prefix_tree import PrefixTree
from sim.runs import STRAND_BITS, Runs
from sim.traces.live_counts import LiveCounts
from sim.traces.record import NO_ID


def _ints() -> "array[int]":
    return array("i")


def _longs() -> "array[int]":
    return array("q")


@dataclass(slots=True)
class Parts:
    """Blocks that were used again, by parts; one entry each."""

    request: "array[int]" = field(default_factory=_ints)
    """The request that uses them."""
    before: "array[int]" = field(default_factory=_ints)
    """The request that used them last."""
    blocks: "array[int]" = field(default_factory=_ints)
    """How many they are."""
    distance: "array[int]" = field(default_factory=_longs)
    """Their stack distance, counting full blocks only [blocks]."""
    partial_between: "array[int]" = field(default_factory=_ints)
    """Partial blocks that come on top of it."""


@dataclass(slots=True)
class Uses:
    """Uses of the head of a strand, one for each run of each prompt."""

    request: "array[int]" = field(default_factory=_ints)
    strand: "array[int]" = field(default_factory=_ints)
    blocks: "array[int]" = field(default_factory=_ints)


class Reuse:
    """Reuse in a stream of prompts, given by :meth:`add` in order of arrival. Takes some 8 bytes a distinct block."""

    def __init__(self) -> None:
        self.parts = Parts()
        """Full blocks used again."""
        self.partial_parts = Parts()
        """Partial last blocks used again, of prompts that were sent again."""
        self.uses = Uses()
        self.seen = _ints()
        """By request: full blocks that an earlier request had."""
        self.last_block = _longs()
        """By request: key of its last full block, or `NO_ID`; see :meth:`common_blocks`."""
        self.root = _ints()
        """By request: strand of its first block, or `NO_ID`."""
        self.parent = _ints()
        """By request: the last one that has the deepest of its seen blocks, or `NO_ID`."""
        self.deepest = _longs()
        """By request: key of that block; `NO_ID` where there is none, or where it is the partial one."""
        self._tree = PrefixTree()
        # By strand: the entry on top of its stack (where it ends, which use it was), and the others, deepest first.
        self._ends = _ints()
        self._tops = _ints()
        self._deeper: dict[int, list[tuple[int, int]]] = {}
        # How many blocks were last used by each use, and of partial blocks by each request.
        self._live = LiveCounts()
        self._live_partial = LiveCounts()
        self._uses_until = _ints()  # by request
        self._partial: dict[int, int] = {}  # the request that used it last

    def add(self, ids: list[int], partial_id: int) -> None:
        """Take the next prompt: its full blocks, and its unfilled last one or `NO_ID`."""
        request = len(self.seen)
        chain = self._tree.chain(ids)
        parts = self.parts
        before = len(parts.request)
        for run in chain.runs:
            self._use(run.start >> STRAND_BITS, len(run), request)
        self.seen.append(chain.seen)
        self.root.append(chain.runs[0].start >> STRAND_BITS if ids else NO_ID)
        self.last_block.append(chain.runs[-1][-1] if ids else NO_ID)
        self._uses_until.append(len(self.uses.request))
        parent, deepest = NO_ID, NO_ID
        if len(parts.request) > before:
            # Seen blocks are the first of a prompt, so the last part ends with the deepest.
            parent, deepest = parts.before[-1], self._deepest_of(chain.runs, chain.seen)
        if partial_id != NO_ID:
            last = self._partial.get(partial_id)
            if last is not None:
                self._use_partial_again(request, last)
                if chain.seen == len(chain):
                    parent, deepest = last, NO_ID
            self._partial[partial_id] = request
        self._live_partial.append(int(partial_id != NO_ID))
        self.parent.append(parent)
        self.deepest.append(deepest)

    def end(self) -> None:
        """Let go of all that only :meth:`add` and :meth:`common_blocks` need, which is more than half of the memory."""
        self._tree = PrefixTree()
        self._partial.clear()
        self._deeper.clear()
        self._ends, self._tops = _ints(), _ints()

    def last_uses(self) -> tuple["array[int]", "array[int]"]:
        """Return how many full blocks were last used by each use, and of partial blocks by each request."""
        return self._live.counts(), self._live_partial.counts()

    def used_more_than(self, times: float, keys: "array[int]") -> NDArray[np.bool_]:
        """Return for each key of a full block whether more prompts than that use it; false for `NO_ID`."""
        strands, blocks = self.uses_by_strand()
        wanted = np.frombuffer(keys, dtype=np.int64)
        is_block = wanted != NO_ID
        # Uses by strand, the longest first: a block is used as often as there are uses that reach it.
        order = strands * (1 << STRAND_BITS) - blocks
        place = wanted >> STRAND_BITS << STRAND_BITS
        first = np.searchsorted(order, place - (1 << STRAND_BITS), side="left")
        reach = np.searchsorted(order, place - (wanted - place + 1), side="right")
        is_common: NDArray[np.bool_] = is_block & (reach - first > times)
        return is_common

    def uses_by_strand(self) -> tuple[Ints, Ints]:
        """Return strand and length [blocks] of all uses, by strand, the longest first."""
        strands = np.frombuffer(self.uses.strand, dtype=np.int32).astype(np.int64)
        blocks = np.frombuffer(self.uses.blocks, dtype=np.int32).astype(np.int64)
        order = np.lexsort((-blocks, strands))
        return strands[order], blocks[order]

    def common_blocks(self, first: int, second: int) -> int:
        """Return how many blocks two chains share, given by the keys of their last blocks (`NO_ID` for none)."""
        places: dict[int, int] = {}  # by strand: how many blocks of it the first chain has
        while first != NO_ID:
            strand = first >> STRAND_BITS
            start = strand << STRAND_BITS
            places[strand] = first - start + 1
            parent = self._tree.parent(start)
            first = NO_ID if parent is None else parent
        common = 0
        while second != NO_ID:
            strand = second >> STRAND_BITS
            start = strand << STRAND_BITS
            parent = self._tree.parent(start)
            if common:
                common += second - start + 1
            elif strand in places:
                common = min(second - start + 1, places[strand])
            second = NO_ID if parent is None else parent
        return common

    @staticmethod
    def _deepest_of(runs: Runs, seen: int) -> int:
        for run in runs:
            if seen <= len(run):
                return run[seen - 1]
            seen -= len(run)
        raise AssertionError("more blocks were seen than there are")

    def _use(self, strand: int, length: int, request: int) -> None:
        """Use the first *length* blocks of a strand."""
        uses = self.uses
        use = len(uses.request)
        if strand == len(self._ends):
            self._ends.append(length)
            self._tops.append(use)
        else:
            self._use_again(strand, length, request)
            self._ends[strand] = length
            self._tops[strand] = use
        uses.request.append(request)
        uses.strand.append(strand)
        uses.blocks.append(length)
        self._live.append(length)

    def _use_again(self, strand: int, length: int, request: int) -> None:
        """Take what is used again off the stack of a strand."""
        parts, live = self.parts, self._live
        deeper = self._deeper.pop(strand, [])
        end, use = self._ends[strand], self._tops[strand]
        done = 0  # so many are on top of all others now
        while True:
            blocks = min(end, length) - done
            before = self.uses.request[use]
            parts.request.append(request)
            parts.before.append(before)
            parts.blocks.append(blocks)
            parts.distance.append(live.since(use + 1) + done + max(end - length, 0) + blocks - 1)
            parts.partial_between.append(self._live_partial.since(before) if self._partial else 0)
            live.take(use, blocks)
            if end > length:
                deeper.append((end, use))
            if end >= length or not deeper:
                break
            done = end
            end, use = deeper.pop()
        if deeper:
            self._deeper[strand] = deeper

    def _use_partial_again(self, request: int, last: int) -> None:
        parts = self.partial_parts
        parts.request.append(request)
        parts.before.append(last)
        parts.blocks.append(1)
        parts.distance.append(self._live.since(self._uses_until[last]))
        parts.partial_between.append(self._live_partial.since(last + 1))
        self._live_partial.take(last, 1)
