"""Runs: chunks of one chain that follow each other, held as one Python ``range`` of keys.

Everything that is done to the chunks of a prompt is done to a few runs in place of hundreds of chunks. A run ascends
(head first) unless it says otherwise; ``run[::-1]`` is the same run from its tail. The runs of one chain come from
:class:`sim.prefix_tree.PrefixTree`, which gives chunks that follow each other consecutive keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

Runs = Sequence[range]
"""Runs of a chain, head first."""

STRAND_BITS: Final = 24
"""A run lies inside one strand: 2**24 keys that agree in all higher bits. Look-ups go by strand."""


class Chain:
    """The full chunks of one prompt, head first.

    Parameters
    ----------
    runs : sequence of range
        Their keys.
    seen : int or None
        How many of them an earlier prompt had; when this one arrives the others are cached nowhere. None: unknown.
    """

    __slots__ = ("_length", "runs", "seen")

    def __init__(self, runs: Runs, seen: int | None = None) -> None:
        self.runs = runs
        self._length = count(runs)
        self.seen = self._length if seen is None else seen

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        for run in self.runs:
            yield from run

    def cut(self, start: int, stop: int | None = None) -> Runs:
        """Return the runs of the chunks from position ``start`` up to ``stop``."""
        if not start and (stop is None or stop >= self._length):
            return self.runs
        return cut(self.runs, start, self._length if stop is None else stop)


def count(runs: Runs) -> int:
    """Return how many chunks there are in all."""
    return len(runs[0]) if len(runs) == 1 else sum(map(len, runs))


def cut(runs: Runs, start: int, stop: int) -> list[range]:
    """Return the chunks from position ``start`` up to ``stop``, as runs."""
    found = []
    for run in runs:
        if stop <= max(start, 0):
            break
        length = len(run)
        if start < length:
            found.append(run if start <= 0 and stop >= length else run[max(start, 0) : stop])
        start -= length
        stop -= length
    return found


def shifted(runs: Runs, offset: int) -> Runs:
    """Return the runs with ``offset`` added to each key."""
    return [range(run.start + offset, run.stop + offset) for run in runs] if offset else runs


def as_runs(keys: Iterable[int], step: int = 1) -> list[range]:
    """Return keys as runs of this step (1 or -1), in their order."""
    found: list[range] = []
    for key in keys:
        last = found[-1] if found else None
        if last is not None and key == last.stop and key >> STRAND_BITS == last.start >> STRAND_BITS:
            found[-1] = range(last.start, key + step, step)
        else:
            found.append(range(key, key + step, step))
    return found


def ascending(run: range) -> range:
    """Return a run head first, whichever way it came."""
    return run if run.step > 0 else run[::-1]
