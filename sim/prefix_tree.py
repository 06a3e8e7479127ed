"""The prefix tree of all prompts: names chunks so that a prompt is a few runs of consecutive keys.

Traces name chunks as they like (in order of first use over all sessions, by hash, with gaps), and a conversation of
fifty turns would be fifty runs. Here a strand is a chain that grows at its end as long as prompts continue it and forks
where one differs, so a conversation that only grows stays one run, whatever its chunks are called.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from sim.runs import STRAND_BITS, Chain

KEY_BITS: Final = 62
"""Keys are below 2**62; what lies above tells apart the views of replicas that do not see each other's entries."""

KEY_MASK: Final = (1 << KEY_BITS) - 1
_STRAND_CHUNKS: Final = 1 << STRAND_BITS
_NONE: Final[list[int]] = []
"""Stands for no growths; never changed."""


class _Strand:
    """A chain of chunks by the ids that the workload gave them."""

    __slots__ = ("depth", "generation", "growths", "ids", "key", "parent")

    def __init__(self, key: int, parent: int | None, depth: int, generation: int, ids: array[int]) -> None:
        self.key = key
        """Key of its first chunk."""
        self.parent = parent
        """Key of the chunk before its first one."""
        self.depth = depth
        """How many chunks come before its first one."""
        self.generation = generation
        """That of its first chunks."""
        self.growths: list[int] = _NONE
        """Its lengths when later prompts continued it: what they added is one generation younger each time."""
        self.ids = ids


class PrefixTree:
    """All chains seen so far. Takes 8 bytes a distinct chunk."""

    def __init__(self) -> None:
        self._strands: list[_Strand] = []
        self._forks: dict[tuple[int | None, int], _Strand] = {}
        """Strands by the chunk before them and the id of their first."""

    def chain(self, ids: Sequence[int]) -> Chain:
        """Return the keys of a prompt's chunks, given by ids below 2**63 that are equal where all before them are."""
        if not ids:
            return Chain(())
        rest = array("q", ids)
        runs: list[range] = []
        seen = 0
        parent: int | None = None
        strand: _Strand | None = None  # the one before, where the prompt goes on past its end
        while rest:
            following = self._forks.get((parent, rest[0]))
            if following is None:
                if strand is None or len(strand.ids) + len(rest) > _STRAND_CHUNKS:
                    runs += self._grown(parent, seen, rest)
                else:
                    if not strand.growths:
                        strand.growths = []  # most strands never grow, and an empty list takes 56 bytes
                    strand.growths.append(len(strand.ids))
                    strand.ids += rest
                    runs[-1] = range(runs[-1].start, strand.key + len(strand.ids))
                break
            length = common_prefix(following.ids, rest)
            seen += length
            runs.append(range(following.key, following.key + length))
            parent = following.key + length - 1
            strand = following if length == len(following.ids) else None
            rest = rest[length:]
        return Chain(runs, seen)

    def parent(self, key: int) -> int | None:
        """Return the key of the chunk before this one in its chain, in the same view; None for the first."""
        own = key & KEY_MASK
        strand = self._strands[own >> STRAND_BITS]
        before = own - 1 if own > strand.key else strand.parent
        return None if before is None else before + key - own

    def position(self, key: int) -> int:
        """Return how many chunks come before this one in its chain."""
        own = key & KEY_MASK
        strand = self._strands[own >> STRAND_BITS]
        return strand.depth + own - strand.key

    def generation(self, key: int) -> int:
        """Return 1 for a chunk of a prompt that shared nothing, and one more than its parent's for one that was added.

        In a conversation that is the turn in which a chunk was first sent, or one more where a system prompt that
        another conversation sent first stands before it.
        """
        own = key & KEY_MASK
        strand = self._strands[own >> STRAND_BITS]
        return strand.generation + bisect_right(strand.growths, own - strand.key)

    def _grown(self, parent: int | None, depth: int, ids: array[int]) -> list[range]:
        """Add strands for chunks that no prompt had yet."""
        runs = []
        generation = 1 if parent is None else self.generation(parent) + 1
        for at in range(0, len(ids), _STRAND_CHUNKS):
            key = len(self._strands) << STRAND_BITS
            strand = _Strand(key, parent, depth + at, generation, ids[at : at + _STRAND_CHUNKS])
            self._strands.append(strand)
            self._forks[parent, strand.ids[0]] = strand
            runs.append(range(key, key + len(strand.ids)))
            parent = runs[-1][-1]
        return runs


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many leading ids are equal; compared in halves, because arrays compare at the speed of memory."""
    most = min(len(first), len(second))
    if first[:most] == second[:most]:
        return most
    low, high = 0, most  # the first `low` are equal, the first `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low
