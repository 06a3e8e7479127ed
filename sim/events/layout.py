"""Where the pieces of a chunk lie on the drives of a tier, and which chunks do not survive a loss."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from sim.runs import as_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Each chunk is cut into ``data`` pieces and ``parity`` more are made of them, every one on a drive of its own.

    Any ``data`` of them make the chunk again. One and none: whole chunks on single drives. One and c - 1: c copies.
    As many as there are drives and none: a stripe (RAID 0). The pieces of chunk number i lie on drive i, modulo the
    number of drives, and those that follow it, so that every drive has the same share of all chunks.

    Parameters
    ----------
    data, parity : int
        Pieces.
    drives : int
        Drives, at least as many as pieces.
    """

    data: int
    parity: int
    drives: int

    @property
    def overhead(self) -> float:
        """Bytes on drives for each byte of KV."""
        return (self.data + self.parity) / self.data

    def dead(self, runs: Iterable[range], missing: Collection[int], newly: Collection[int]) -> Iterator[range]:
        """Yield those of ascending runs of chunks that cannot be made again now that some drives are lost too.

        ``missing`` are all drives whose pieces are not there, ``newly`` those of them that this loss has taken.
        """
        n = self.drives
        places = [
            start for start in range(n) if self._meets(start, newly) and self._meets(start, missing) > self.parity
        ]
        if len(places) == n:
            yield from runs
        elif places:
            for run in runs:
                first = ((place - run.start) % n for place in places)
                yield from as_runs(sorted(key for at in first for key in run[at::n]))

    def _meets(self, start: int, drives: Collection[int]) -> int:
        """Return how many pieces of a chunk whose first is on drive ``start`` lie on some drives."""
        return sum((drive - start) % self.drives < self.data + self.parity for drive in drives)
