"""The future of a workload that is known beforehand, for the bounds: which request uses which chunk next."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from sim.policies.base import NEVER
from sim.prefix_tree import KEY_MASK
from sim.runs import STRAND_BITS, Runs

_OFFSET_MASK: Final = (1 << STRAND_BITS) - 1
_NONE: Final = -1


class KnownFuture:
    """Uses in the order in which they come, by strand: 24 bytes a run.

    A prompt uses a strand from its first chunk to some length, so the next use of the chunk at an offset is the first
    to come that is longer than the offset.

    Parameters
    ----------
    uses : iterable of sequence of range
        The runs of each prompt, in the order in which they will come; number 0 is the first. Runs begin at the first
        chunk of their strand, as those of a :class:`sim.runs.Chain` do. Read when first needed.
    now : callable
        Returns how many of them have begun.
    """

    def __init__(self, uses: Iterable[Runs], now: Callable[[], int]) -> None:
        self._now = now
        self._uses: Iterable[Runs] | None = uses

    def _read(self, uses: Iterable[Runs]) -> None:
        strands, numbers, lengths = array("q"), array("q"), array("q")
        for number, runs in enumerate(uses):
            for run in runs:
                strands.append(run.start >> STRAND_BITS)
                numbers.append(number)
                lengths.append(len(run))
        order = np.argsort(np.array(strands, dtype=np.int64), kind="stable")
        self._strands = array("q", np.array(strands, dtype=np.int64)[order].tobytes())
        self._numbers = array("q", np.array(numbers, dtype=np.int64)[order].tobytes())
        self._lengths = array("q", np.array(lengths, dtype=np.int64)[order].tobytes())
        self._longer = self._next_longer()
        names, first = np.unique(np.array(self._strands, dtype=np.int64), return_index=True)
        ends = [*first[1:].tolist(), len(self._strands)]
        self._places = dict(zip(names.tolist(), zip(first.tolist(), ends, strict=True), strict=True))

    @property
    def now(self) -> int:
        """How many uses have begun."""
        return self._now()

    def next_uses(self, run: range) -> list[tuple[range, int]]:
        """Return the parts of an ascending *run* with the number of their next use, ``now`` or later, or NEVER."""
        if self._uses is not None:
            uses, self._uses = self._uses, None
            self._read(uses)
        own = run.start & KEY_MASK
        place = self._places.get(own >> STRAND_BITS)
        if place is None:
            return [(run, NEVER)]
        low, high = place
        at = bisect_left(self._numbers, self._now(), low, high)
        offset = own & _OFFSET_MASK
        shift, stop = run.start - offset, offset + len(run)
        parts = []
        if at == high:
            at = _NONE
        while at != _NONE:
            length = self._lengths[at]
            if length > offset:
                end = min(length, stop)
                parts.append((range(shift + offset, shift + end), self._numbers[at]))
                if end == stop:
                    return parts
                offset = end
            at = self._longer[at]
        parts.append((range(shift + offset, shift + stop), NEVER))
        return parts

    def _next_longer(self) -> array[int]:
        """Return for each use of a strand the place of the next one that is longer, so that each step gains chunks."""
        longer = array("q", [_NONE]) * len(self._lengths)
        waiting: list[int] = []
        for place, length in enumerate(self._lengths):
            if waiting and self._strands[waiting[-1]] != self._strands[place]:
                waiting.clear()
            while waiting and self._lengths[waiting[-1]] < length:
                longer[waiting.pop()] = place
            waiting.append(place)
        return longer
