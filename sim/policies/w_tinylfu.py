"""W-TinyLFU."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import islice

from sim.policies.base import EVICTION, PolicyContext
from sim.policies.chunkwise import ChunkOrder
from sim.policies.frequencies import Frequencies
from sim.policies.hooks import known

_WINDOW_SHARE = 0.01
_PROTECTED_SHARE = 0.8
_SAMPLE_PER_CHUNK = 10


@EVICTION.register("w-tinylfu")
class WTinyLfu(ChunkOrder):
    """A small LRU window for what is new; it passes into the main part only in place of what is used less often.

    The window holds 1 % of the capacity, the main part is an SLRU with 80 % protected. When room is needed, the oldest
    of the window stands against the least recent of the probation segment: the one with fewer uses goes, the window's
    where they are equal. Uses are those of :class:`sim.policies.frequencies.Frequencies`, halved every 10 x capacity,
    counted at every access. Einziger, Friedman and Manes, TinyLFU, ACM TOS 2017.

    libCacheSim's WTinyLFU.c (0.3.5) differs: it counts in a Bloom filter of 14.4 counters for each chunk of the main
    part, so that others' uses add to a chunk's on a long trace; it does not count hits in the window, and counts what
    leaves the window once more; it halves after 32 hits in the main part for each chunk there; a chunk enters the
    protected segment where only that has room; segments are cut to whole chunks apart, and what is over goes at a hit;
    below 100 chunks it has no window and stores nothing.
    """

    def __init__(self) -> None:
        self._window: OrderedDict[int, None] = OrderedDict()
        self._probation: OrderedDict[int, None] = OrderedDict()
        self._protected: OrderedDict[int, None] = OrderedDict()
        self._main_most = self._protected_most = 0
        self._uses = Frequencies(1)

    def prepare(self, context: PolicyContext) -> None:
        """Learn the capacity."""
        capacity = known(context.capacity_chunks, self, "the capacity in chunks")
        self._main_most = capacity - max(int(capacity * _WINDOW_SHARE), 1)
        self._protected_most = int(self._main_most * _PROTECTED_SHARE)
        self._uses = Frequencies(_SAMPLE_PER_CHUNK * capacity)

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident."""
        window, add = self._window, self._uses.add
        for key in run:
            add(key)
            window[key] = None

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again; KeyError if one is not resident."""
        window, probation, protected, add = self._window, self._probation, self._protected, self._uses.add
        for key in run:
            add(key)
            if key in protected:
                protected.move_to_end(key)
            elif key in window:
                window.move_to_end(key)
            else:
                del probation[key]
                protected[key] = None
                if len(protected) > self._protected_most:
                    probation[protected.popitem(last=False)[0]] = None

    def remove(self, run: range) -> None:
        """Forget resident chunks; KeyError if one is not resident."""
        for key in run:
            for part in (self._window, self._probation, self._protected):
                if key in part:
                    del part[key]
                    break
            else:
                raise KeyError(key)

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room; where one of the main part did, one of the window took its place."""
        window, probation, protected = self._window, self._probation, self._protected
        for key in run:
            size = len(probation) + len(protected)
            if size < self._main_most and window:
                self._fill_main()
                size = len(probation) + len(protected)
            if key in window:
                del window[key]
                continue
            if window and size >= self._main_most:
                # The window's candidate has won the place of the main part's.
                probation[window.popitem(last=False)[0]] = None
            if key in probation:
                del probation[key]
            else:
                del protected[key]

    def _fill_main(self) -> None:
        """Let the oldest of the window into the main part while that has room."""
        while self._window and self._main_size() < self._main_most:
            entering, _ = self._window.popitem(last=False)
            self._probation[entering] = None

    def _main_size(self) -> int:
        return len(self._probation) + len(self._protected)

    def _victims(self) -> Iterator[int]:
        # The same steps as in evictions, on what would have entered the main part.
        window, probation, protected = iter(self._window), iter(self._probation), iter(self._protected)
        entered = deque(islice(window, max(self._main_most - self._main_size(), 0)))

        def following() -> int | None:
            key = next(probation, None)
            if key is None:
                key = entered.popleft() if entered else next(protected, None)
            return key

        victim = following()
        for candidate in window:
            if victim is None or self._uses.count(candidate) <= self._uses.count(victim):
                yield candidate
            else:
                yield victim
                entered.append(candidate)
                victim = following()
        while victim is not None:
            yield victim
            victim = following()
