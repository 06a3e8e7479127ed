"""The cache that never evicts."""

from typing import ClassVar

from sim.policies.base import EVICTION
from sim.policies.eviction import Fifo


@EVICTION.register("infinite")
class Infinite(Fifo):
    """A bound: the tier is never full, so that every chunk that was ever stored there stays.

    It bounds from above what any policy and any capacity of this tier can hit on this workload: only first uses miss.
    It says nothing about TTFT: more hits are more loads.
    """

    unbounded: ClassVar[bool] = True
