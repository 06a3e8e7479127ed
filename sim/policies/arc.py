"""ARC, as published and as in vLLM's CPU tier."""

from collections import OrderedDict
from collections.abc import Iterator

from sim.policies.base import EVICTION, PolicyContext
from sim.policies.chunkwise import ChunkOrder
from sim.policies.hooks import known


class _ArcLists(ChunkOrder):
    """What both have: chunks used once (T1) and again (T2), each by last use, and the names of what left each."""

    def __init__(self) -> None:
        self._once: OrderedDict[int, None] = OrderedDict()  # T1
        self._again: OrderedDict[int, None] = OrderedDict()  # T2
        self._ghosts_once: OrderedDict[int, None] = OrderedDict()  # B1
        self._ghosts_again: OrderedDict[int, None] = OrderedDict()  # B2
        self._target = 0.0  # p: what T1 should hold
        self._capacity = 0

    def prepare(self, context: PolicyContext) -> None:
        """Learn the capacity."""
        self._capacity = known(context.capacity_chunks, self, "the capacity in chunks")

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again; KeyError if one is not resident."""
        once, again = self._once, self._again
        for key in run:
            if key in again:
                again.move_to_end(key)
            else:
                del once[key]
                again[key] = None

    def remove(self, run: range) -> None:
        """Forget resident chunks; KeyError if one is not resident."""
        once, again = self._once, self._again
        for key in run:
            if key in once:
                del once[key]
            else:
                del again[key]

    def _learn(self, key: int) -> bool:
        """Move the target towards the list whose ghost was asked for; whether it was a ghost."""
        if key in self._ghosts_once:
            step = self._step(len(self._ghosts_again), len(self._ghosts_once))
            self._target = min(self._target + step, self._capacity)
        elif key in self._ghosts_again:
            step = self._step(len(self._ghosts_once), len(self._ghosts_again))
            self._target = max(self._target - step, 0)
        else:
            return False
        return True

    def _step(self, other: int, own: int) -> float:
        return max(1.0, other / own)


@EVICTION.register("arc")
class Arc(_ArcLists):
    """Chunks used once and chunks used again, in two LRU lists whose sizes follow what was evicted too early.

    A miss on the name of a chunk that left the first list (B1) moves the target of that list up by max(1, |B2|/|B1|),
    one on a name that left the second down by max(1, |B1|/|B2|); the chunk enters the second list. The first list
    gives up its oldest while it is longer than the target, or as long and the miss was on a name of the second; else
    the second does. Lists and names together hold twice the capacity. Megiddo and Modha, ARC, FAST 2003, figure 4.

    A tier makes room for a whole run of misses at once: the target has then moved for all of them, and the rule for
    equal length goes by the last.
    """

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[int, bool] = {}  # ghosts asked for and not inserted yet: whether they had been used again
        self._asked_again = False  # whether the last miss was on a name of the second list
        self._asked_ghost = False

    def miss(self, run: range) -> None:
        """Move the target for the chunks asked for that are remembered."""
        asked, ghosts_once, ghosts_again = self._asked, self._ghosts_once, self._ghosts_again
        for key in run:
            if key in ghosts_once or key in ghosts_again:
                self._ask(key)
            elif key not in asked:
                self._asked_again = self._asked_ghost = False

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident; those asked for by their names have been used again."""
        asked, once, again = self._asked, self._once, self._again
        for key in run:
            if key not in asked and (key in self._ghosts_once or key in self._ghosts_again):
                self._ask(key)
            if key in asked:
                del asked[key]
                again[key] = None
            else:
                once[key] = None
        if run:
            self._asked_again = self._asked_ghost = False

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room, and remember their names."""
        once, again, capacity = self._once, self._again, self._capacity
        ghosts_once, ghosts_again = self._ghosts_once, self._ghosts_again
        for key in run:
            # A miss that is no ghost keeps |T1| + |B1| and the sum of all lists in bounds (case IV of the paper).
            if not self._asked_ghost:
                first = len(once) + len(ghosts_once)
                if first >= capacity:
                    if not ghosts_once:  # all that is resident was used once: the oldest goes without leaving its name
                        self.remove(range(key, key + 1))
                        continue
                    ghosts_once.popitem(last=False)
                elif ghosts_again and first + len(again) + len(ghosts_again) >= 2 * capacity:
                    ghosts_again.popitem(last=False)
            if key in once:
                del once[key]
                ghosts_once[key] = None
            else:
                del again[key]
                ghosts_again[key] = None

    def _ask(self, key: int) -> None:
        self._asked_again = key in self._ghosts_again
        self._asked_ghost = self._learn(key)
        if self._asked_ghost:
            self._asked[key] = self._asked_again
            (self._ghosts_again if self._asked_again else self._ghosts_once).pop(key)
            if len(self._asked) > self._capacity:  # asked for and never stored: forget the oldest of those
                del self._asked[next(iter(self._asked))]

    def _victims(self) -> Iterator[int]:
        once, again = iter(self._once), iter(self._again)
        once_size, again_size = len(self._once), len(self._again)
        while once_size or again_size:
            over = once_size > self._target or (self._asked_again and once_size == self._target)
            if once_size and (over or not again_size):
                once_size -= 1
                yield next(once)
            else:
                again_size -= 1
                yield next(again)


@EVICTION.register("arc-vllm")
class ArcVllm(_ArcLists):
    """ARC as vLLM's CPU tier has it: what comes back after an eviction starts in the first list again.

    Names move the target as in ARC and stay in their list, made young, until the chunk is stored; both lists of names
    hold the capacity. The first list gives up its oldest while it is as long as the target (rounded down) or longer.
    vllm/v1/kv_offload/cpu/policies/arc.py (vLLM 0.33).
    """

    def miss(self, run: range) -> None:
        """Move the target for the chunks asked for that are remembered."""
        for key in run:
            if self._learn(key):
                (self._ghosts_once if key in self._ghosts_once else self._ghosts_again).move_to_end(key)

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident."""
        once, ghosts_once, ghosts_again = self._once, self._ghosts_once, self._ghosts_again
        for key in run:
            once[key] = None
            ghosts_once.pop(key, None)
            ghosts_again.pop(key, None)

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room, and remember their names."""
        once, again = self._once, self._again
        for key in run:
            if key in once:
                del once[key]
                ghosts = self._ghosts_once
            else:
                del again[key]
                ghosts = self._ghosts_again
            ghosts[key] = None
            if len(ghosts) > self._capacity:
                ghosts.popitem(last=False)

    def _victims(self) -> Iterator[int]:
        once, again = iter(self._once), iter(self._again)
        once_size, again_size = len(self._once), len(self._again)
        while once_size or again_size:
            if once_size and (once_size >= int(self._target) or not again_size):
                once_size -= 1
                yield next(once)
            else:
                again_size -= 1
                yield next(again)
