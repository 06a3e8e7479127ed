"""LIRS."""

from collections import OrderedDict
from collections.abc import Iterator

from sim.policies.base import EVICTION, PolicyContext
from sim.policies.chunkwise import ChunkOrder
from sim.policies.hooks import known

_HOT, _COLD, _GONE = 0, 1, 2
_COLD_SHARE = 0.01
_STACK_PER_CHUNK = 2


@EVICTION.register("lirs")
class Lirs(ChunkOrder):
    """Keeps the chunks whose last two uses had the fewest others between them; 1 % of the room is for all the rest.

    Stack S holds chunks by last use: hot (LIR), cold (HIR) and names of cold ones that went; its oldest is always hot.
    Queue Q holds the cold chunks that are resident; its oldest goes first. A cold chunk or a name that is used while in
    S becomes hot, and the oldest hot one turns cold and enters Q; a cold chunk used outside S enters S and stays cold.
    New chunks are hot while the hot share is not full, cold afterwards. S holds at most twice the capacity: the name
    that went first leaves it first. Jiang and Zhang, LIRS, SIGMETRICS 2002, with the bounds of libCacheSim's LIRS.c.

    LIRS.c (0.3.5) also turns the oldest hot chunk cold when a cold one outside S is used, so that the hot share is
    short by one; where the cold share is one chunk, the one that was used then goes, but is a hit the next time.
    """

    def __init__(self) -> None:
        self._stack: OrderedDict[int, int] = OrderedDict()
        self._queue: OrderedDict[int, None] = OrderedDict()
        self._gone: OrderedDict[int, None] = OrderedDict()
        self._hot = 0
        self._most_hot = self._most_stacked = 0

    def prepare(self, context: PolicyContext) -> None:
        """Learn the capacity."""
        capacity = known(context.capacity_chunks, self, "the capacity in chunks")
        self._most_hot = max(capacity - max(int(capacity * _COLD_SHARE), 1), 1)  # a cache of one chunk has it hot
        self._most_stacked = _STACK_PER_CHUNK * capacity

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident."""
        stack, gone = self._stack, self._gone
        for key in run:
            if key in stack:
                del gone[key]
                self._heat(key)
            elif self._hot < self._most_hot:
                stack[key] = _HOT
                self._hot += 1
            else:
                stack[key] = _COLD
                self._queue[key] = None
            if len(stack) > self._most_stacked:
                self._bound()

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again; KeyError if one is not resident."""
        stack = self._stack
        for key in run:
            state = stack.get(key)
            if state == _HOT:
                stack.move_to_end(key)
                self._prune()
            elif state == _COLD:
                del self._queue[key]
                self._heat(key)
            else:
                self._queue.move_to_end(key)
                stack[key] = _COLD
            if len(stack) > self._most_stacked:
                self._bound()

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room; S keeps the names of those in it."""
        stack, queue, gone = self._stack, self._queue, self._gone
        for key in run:
            if key in queue and key in stack:
                del queue[key]
                stack[key] = _GONE
                gone[key] = None
            else:
                self._remove(key)

    def remove(self, run: range) -> None:
        """Forget resident chunks; KeyError if one is not resident."""
        for key in run:
            self._remove(key)

    def _remove(self, key: int) -> None:
        if key in self._queue:
            del self._queue[key]
            self._stack.pop(key, None)
            return
        if self._stack[key] != _HOT:
            raise KeyError(key)
        del self._stack[key]
        self._hot -= 1
        self._prune()

    def _victims(self) -> Iterator[int]:
        yield from self._queue
        yield from (key for key, state in self._stack.items() if state == _HOT)

    def _heat(self, key: int) -> None:
        """Make a chunk in the stack hot and the youngest; the oldest hot one makes room for it."""
        self._stack[key] = _HOT
        self._stack.move_to_end(key)
        self._hot += 1
        if self._hot > self._most_hot:
            cooled, _ = self._stack.popitem(last=False)
            self._queue[cooled] = None
            self._hot -= 1
        self._prune()

    def _prune(self) -> None:
        """Drop what is older than the oldest hot chunk."""
        stack = self._stack
        while stack:
            oldest = next(iter(stack))
            if stack[oldest] == _HOT:
                return
            if stack.pop(oldest) == _GONE:
                del self._gone[oldest]

    def _bound(self) -> None:
        while len(self._stack) > self._most_stacked and self._gone:
            name, _ = self._gone.popitem(last=False)
            del self._stack[name]
