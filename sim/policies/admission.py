"""Admission filters: which chunks may enter a tier."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from models.errors import InputError
from sim.policies.base import ADMISSION
from sim.policies.sketch import CountMinSketch
from sim.run_sets import RunCounts, RunSet
from sim.runs import Runs, count, cut


@ADMISSION.register("frequency")
class Frequency:
    """Chunks that were used often enough lately: in at least ``uses`` prompts within the last ``window_s`` seconds.

    Dynamo KVBM has a filter like it before its disk, for the sake of the drive's life (offload/filter.rs: 2 uses; an
    early version forgot one every 300 s).

    Parameters
    ----------
    now_s : callable
        Returns the time [s].
    uses : int
        How many prompts, the present one included.
    window_s : float
        How long a use counts [s].
    """

    def __init__(self, *, now_s: Callable[[], float], uses: int = 2, window_s: float = 300.0) -> None:
        if uses < 1:
            raise InputError(f"uses is {uses}; must be at least 1")
        if window_s <= 0:
            raise InputError(f"window_s is {window_s:g}; must be above 0")
        self._now_s = now_s
        self._uses = uses
        self._window_s = window_s
        self._counts = RunCounts()
        self._recent: deque[tuple[float, Runs]] = deque()

    def use(self, chunks: Runs) -> None:
        """Count a use of each chunk."""
        self._forget()
        self._recent.append((self._now_s(), chunks))
        for run in chunks:
            self._counts.add(run)

    def admit(self, chunks: Runs, room: int, victims: Callable[[int], Runs]) -> Runs:
        """Return those that were used often enough."""
        del room, victims  # what else is in the tier plays no part
        self._forget()
        return [part for run in chunks for part in self._counts.at_least(run, self._uses)]

    def _forget(self) -> None:
        oldest_s = self._now_s() - self._window_s
        while self._recent and self._recent[0][0] < oldest_s:
            for run in self._recent.popleft()[1]:
                self._counts.remove(run)


@ADMISSION.register("tinylfu")
class TinyLfu:
    """In a full tier, chunks that were used more often than those they would evict (TinyLFU, arXiv 1512.00727).

    A count-min sketch of four rows of 4-bit counters, halved every so often, estimates both. Candidates are held
    against the victims of the tier's own policy one by one, and the first that is used no more than its victim ends
    it: what follows in its chain would have lost its prefix.

    Parameters
    ----------
    capacity_chunks : int
        Chunks that fit in the tier.
    samples_per_chunk : int
        All counts are halved after so many uses for each chunk that fits; Caffeine takes 10.
    """

    def __init__(self, *, capacity_chunks: int, samples_per_chunk: int = 10) -> None:
        if samples_per_chunk < 1:
            raise InputError(f"samples_per_chunk is {samples_per_chunk}; must be at least 1")
        self._sketch = CountMinSketch(capacity_chunks, capacity_chunks * samples_per_chunk)

    def use(self, chunks: Runs) -> None:
        """Count a use of each chunk."""
        self._sketch.add(chunks)

    def admit(self, chunks: Runs, room: int, victims: Callable[[int], Runs]) -> Runs:
        """Return those for which there is room, and those that beat their victims."""
        short = count(chunks) - room
        if short <= 0:
            return chunks
        rivals = victims(short)
        held = count(rivals)  # beyond them there is nobody to evict, so that those are refused anyway
        challengers = self._sketch.estimates(cut(chunks, room, room + held))
        beaten = np.flatnonzero(challengers <= self._sketch.estimates(rivals))
        return cut(chunks, 0, room + int(beaten[0])) if beaten.size else chunks


class _Worthwhile:
    """Chunks of prompts that are worth it; a chunk that one such prompt has had may enter from then on."""

    def __init__(self) -> None:
        self._worth_it = RunSet()

    def use(self, chunks: Runs) -> None:
        """Note the chunks if their prompt is worth it."""
        if self.is_worth_it(count(chunks)):
            for run in chunks:
                self._worth_it.add(run)

    def admit(self, chunks: Runs, room: int, victims: Callable[[int], Runs]) -> Runs:
        """Return those of prompts that were worth it."""
        del room, victims  # what else is in the tier plays no part
        return [part for run in chunks for part in self._worth_it.present(run)]

    def is_worth_it(self, chunks: int) -> bool:
        """Whether a prompt of so many full chunks is worth it."""
        raise NotImplementedError


@ADMISSION.register("min-prefix")
class MinimumPrefix(_Worthwhile):
    """Chunks of prompts whose full chunks have at least ``min_tokens`` tokens: short prefixes save little.

    Parameters
    ----------
    chunk_tokens : int
        Tokens a chunk.
    min_tokens : int
        The shortest prefix that enters [tokens].
    """

    def __init__(self, *, chunk_tokens: int, min_tokens: int) -> None:
        super().__init__()
        if min_tokens < 1:
            raise InputError(f"min_tokens is {min_tokens}; must be at least 1")
        self._min_chunks = -(-min_tokens // chunk_tokens)

    def is_worth_it(self, chunks: int) -> bool:
        """Whether so many chunks have enough tokens."""
        return chunks >= self._min_chunks


@ADMISSION.register("break-even")
class BreakEven(_Worthwhile):
    """Chunks of prompts that are quicker to load from here than to compute, each with nobody else on the way.

    Prefixes are judged as a whole: a chunk in the middle is of no use without those before it, and a late one, which
    takes longer to compute, pays for an early one. Attention grows with the square of the length, bytes do not, so that
    a slow tier takes long prompts only (Mooncake, FAST'25, equation 2, is the same comparison).

    Parameters
    ----------
    recompute_s : callable
        Returns the time to compute the first n chunks of a prompt [s].
    load_s : callable
        Returns the time to load n chunks from here [s].
    """

    def __init__(self, *, recompute_s: Callable[[int], float], load_s: Callable[[int], float]) -> None:
        super().__init__()
        self._recompute_s = recompute_s
        self._load_s = load_s
        self._known: dict[int, bool] = {}

    def is_worth_it(self, chunks: int) -> bool:
        """Whether so many chunks are quicker to load than to compute."""
        known = self._known.get(chunks)
        if known is None:
            known = self._known[chunks] = chunks > 0 and self._load_s(chunks) < self._recompute_s(chunks)
        return known
