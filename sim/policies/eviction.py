"""Eviction policies: the order in which a tier gives up its chunks."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence

from sim.policies.base import EVICTION


@EVICTION.register("lru")
class Lru:
    """Least recently used first; an insertion and a touch are uses (as in libCacheSim's LRU.c and LMCache's LRU)."""

    def __init__(self) -> None:
        # OrderedDict and not dict: finding the first key of a dict takes time linear in the keys deleted before it.
        self._order: OrderedDict[int, None] = OrderedDict()

    @property
    def residents(self) -> Collection[int]:
        """The resident keys, live."""
        return self._order

    # The hot path of a run. Plain loops over C methods measured 0.05-0.1 us a key, less than map() or update() took.
    def insert(self, keys: Sequence[int], parent: int | None = None) -> None:
        """Make *keys* the most recently used ones."""
        order = self._order
        for key in keys:
            order[key] = None

    def touch(self, keys: Sequence[int]) -> None:
        """Make resident *keys* the most recently used ones; KeyError if one is not resident."""
        move_to_end = self._order.move_to_end
        for key in keys:
            move_to_end(key)

    def remove(self, keys: Iterable[int]) -> None:
        """Forget *keys*; KeyError if one is not resident."""
        order = self._order
        for key in keys:
            del order[key]

    def victims(self) -> Iterator[int]:
        """Return an iterator from the least to the most recently used key."""
        return iter(self._order)
