"""Leaf-first, whatever the structure of the tier."""

from collections.abc import Iterator

from sim.policies.base import EVICTION
from sim.policies.leaf import LeafConstrainedLru


@EVICTION.register("lineage")
class Lineage(LeafConstrainedLru):
    """The least recently used leaf first: a chunk goes only after those that continue it, with its own last use.

    Dynamo's lineage.rs and SGLang's radix tree under LRU; the same as ``lru`` with ``structure: leaf_constrained``.
    """

    def victims(self) -> Iterator[range]:
        """Yield every resident chunk in the order in which they would go."""
        return (range(key, key + 1) for key in self.evictable())
