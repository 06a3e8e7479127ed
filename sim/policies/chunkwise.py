"""Policies that think chunk by chunk: runs in, keys inside."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Final

from sim.runs import STRAND_BITS

_MOST_MERGED: Final = 32
"""Victims that are read ahead to make one run of them: as many as a prompt takes at once, not more."""

_OFFSET_MASK: Final = (1 << STRAND_BITS) - 1


class ChunkOrder(ABC):
    """An order of single chunks, read as runs; a class below it says what the order is and what changes it."""

    def victims(self) -> Iterator[range]:
        """Yield every resident chunk once, best victim first, neighbours as one run."""
        start = stop = step = 0
        for key in self._victims():
            length = stop - start if step > 0 else start - stop
            if length and length < _MOST_MERGED:
                if key == stop and (step > 0 or length == 1) and key & _OFFSET_MASK:
                    step = 1
                    stop = key + 1
                    continue
                if key == start - length and (step < 0 or length == 1) and start & _OFFSET_MASK >= length:
                    step = -1
                    stop = key - 1
                    continue
            if length:
                yield range(start, stop, step)
            start, stop, step = key, key + 1, 1
        if step:
            yield range(start, stop, step)

    @abstractmethod
    def _victims(self) -> Iterable[int]:
        """Return the resident chunks in the order in which they would go; must not change anything."""


class ChunkPolicy(ChunkOrder):
    """An eviction policy over single chunks; a class below it says what one chunk does.

    The chunks of a run count one after another, in its order. Only the methods with an underscore are to be written. A
    class that also wants to hear of evictions or misses writes ``evict(run)`` or ``miss(run)``.
    """

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident."""
        insert = self._insert
        for key in run:
            insert(key)

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again; KeyError if one is not resident."""
        touch = self._touch
        for key in run:
            touch(key)

    def remove(self, run: range) -> None:
        """Forget resident chunks; KeyError if one is not resident."""
        remove = self._remove
        for key in run:
            remove(key)

    @abstractmethod
    def _insert(self, key: int) -> None:
        """Make an absent chunk resident; that counts as a use."""

    @abstractmethod
    def _touch(self, key: int) -> None:
        """Note another use of a resident chunk."""

    @abstractmethod
    def _remove(self, key: int) -> None:
        """Forget a resident chunk; KeyError where it is not resident."""
