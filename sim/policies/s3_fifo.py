"""S3-FIFO."""

from collections import OrderedDict, deque
from collections.abc import Iterator

from sim.policies.base import EVICTION, PolicyContext
from sim.policies.chunkwise import ChunkOrder
from sim.policies.ghosts import Ghosts
from sim.policies.hooks import known

_MOST_USES = 3
_USES_TO_STAY = 2


@EVICTION.register("s3fifo")
class S3Fifo(ChunkOrder):
    """Three FIFO queues: a small one (10 %) that new chunks pass through, a main one, and names of what left the small.

    Eviction takes from the main queue if that holds more than its share, else from the small one. The oldest of the
    small queue moves to the main one if it was hit twice, else it goes and its name is kept (as many names as the main
    queue holds). The oldest of the main queue enters it anew with one hit less if it was hit (3 hits count), else it
    goes. A chunk whose name is kept enters the main queue, as does what comes before the first eviction once the small
    queue is full. Yang et al., FIFO queues are all you need, SOSP 2023; libCacheSim's S3FIFO.c (0.3.5, which
    stores nothing where the capacity is below 20 chunks).
    """

    def __init__(self) -> None:
        self._small: OrderedDict[int, None] = OrderedDict()
        self._main: OrderedDict[int, None] = OrderedDict()
        self._uses: dict[int, int] = {}
        self._ghosts = Ghosts(0)
        self._share = self._main_share = 0
        self._has_evicted = False

    def prepare(self, context: PolicyContext) -> None:
        """Learn the capacity."""
        capacity = known(context.capacity_chunks, self, "the capacity in chunks")
        self._share = max(capacity // 10, 1)
        self._main_share = capacity - self._share
        self._ghosts = Ghosts(max(capacity * 9 // 10, 1))

    def miss(self, run: range) -> None:
        """Look whether the chunks asked for are remembered."""
        self._ghosts.recall(run)

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident."""
        small, main, uses, ghosts = self._small, self._main, self._uses, self._ghosts
        names, recalled = ghosts.keys, ghosts.recalled
        for key in run:
            if (key in recalled or key in names) and ghosts.was_recalled(key):
                main[key] = None
            else:
                (main if not self._has_evicted and len(small) >= self._share else small)[key] = None
            uses[key] = 0

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again; KeyError if one is not resident."""
        uses = self._uses
        for key in run:
            if uses[key] < _MOST_USES:
                uses[key] += 1

    def remove(self, run: range) -> None:
        """Forget resident chunks; KeyError if one is not resident."""
        for key in run:
            del self._uses[key]
            if key in self._small:
                del self._small[key]
            else:
                del self._main[key]

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room, and do what their queues did to give them up."""
        self._has_evicted = True
        small, main, uses, ghosts = self._small, self._main, self._uses, self._ghosts
        for key in run:
            # Mostly one that was not hit goes from the old end of the queue whose turn it is.
            if uses[key]:
                self._evict(key)
            elif small and (len(main) <= self._main_share or not main):
                if next(iter(small)) == key:
                    del small[key], uses[key]
                    ghosts.add(key)
                else:
                    self._evict(key)
            elif next(iter(main)) == key:
                del main[key], uses[key]
            else:
                self._evict(key)

    def _evict(self, key: int) -> None:
        small, main, uses = self._small, self._main, self._uses
        passed: list[tuple[OrderedDict[int, None], int]] = []  # pinned ones that would have gone first
        queue = main
        while True:
            # What begins in the small queue goes on there until one went or it is empty.
            begun = queue is small and bool(small)
            queue = small if begun or self._takes_from_small(len(small), len(main)) else main
            oldest, _ = queue.popitem(last=False)
            if queue is small and uses[oldest] >= _USES_TO_STAY:
                main[oldest] = None
                uses[oldest] = 0
            elif queue is main and uses[oldest]:
                main[oldest] = None
                uses[oldest] -= 1
            elif oldest == key:
                break
            else:
                passed.append((queue, oldest))
                queue = main  # the next one is looked for anew
        del uses[key]
        if queue is small:
            self._ghosts.add(key)
        for queue, stays in reversed(passed):
            queue[stays] = None
            queue.move_to_end(stays, last=False)

    def _victims(self) -> Iterator[int]:
        # The same steps as in an eviction, on the sizes and on what would have entered the main queue.
        small, main = iter(self._small), iter(self._main)
        small_size, main_size = len(self._small), len(self._main)
        entered: deque[tuple[int, int]] = deque()
        all_uses, main_share = self._uses, self._main_share
        begun = False
        while small_size or main_size:
            if small_size and (begun or main_size <= main_share or not main_size):
                begun = True
                small_size -= 1
                key = next(small)
                if all_uses[key] < _USES_TO_STAY:
                    begun = False
                    yield key
                    continue
                entered.append((key, 0))
                main_size += 1
            else:
                following = next(main, None)
                key, uses = entered.popleft() if following is None else (following, all_uses[following])
                if uses:
                    entered.append((key, uses - 1))
                else:
                    main_size -= 1
                    yield key

    def _takes_from_small(self, small_size: int, main_size: int) -> bool:
        return small_size > 0 and (main_size <= self._main_share or not main_size)
