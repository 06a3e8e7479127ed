"""Time to live: chunks that expire."""

from collections.abc import Callable

from models.errors import InputError
from sim.policies.base import EVICTION, PolicyContext
from sim.policies.eviction import Fifo, Lru
from sim.policies.extents import Extent, ExtentPolicy
from sim.policies.hooks import known


class _Expiring(ExtentPolicy):
    """An order in which the oldest expires first."""

    def __init__(self, ttl_s: float = 120.0) -> None:
        super().__init__()
        if not ttl_s > 0:
            raise InputError(f"eviction policy with a time to live: ttl_s is {ttl_s:g}; must be above 0 s")
        self._ttl_s = ttl_s

    def prepare(self, context: PolicyContext) -> None:
        """Learn the time."""
        self._now_s: Callable[[], float] = known(context.now_s, self, "the time (a timed run)")

    def expired(self) -> list[range]:
        """Return the chunks whose time is up."""
        latest_s = self._now_s() - self._ttl_s
        found = []
        extent = self._ends.newer
        while extent is not self._ends and extent.since <= latest_s:
            found.append(extent.run)
            extent = extent.newer
        return found

    def _add(self, run: range) -> Extent:
        extent = super()._add(run)
        extent.since = self._now_s()
        return extent


@EVICTION.register("ttl")
class Ttl(_Expiring, Fifo):
    """Chunks expire a fixed time after they were stored; when room is needed before, the first to expire goes first.

    Parameters
    ----------
    ttl_s : float
        Time to live [s]; the default is what Dynamo's router believes of a cached block.
    """


@EVICTION.register("ttl-sliding")
class TtlSliding(_Expiring, Lru):
    """Chunks expire a fixed time after their last use; when room is needed before, the first to expire goes first.

    Parameters
    ----------
    ttl_s : float
        Time to live [s]; the default is what Dynamo's router believes of a cached block.
    """

    def touch(self, run: range) -> None:
        """Give resident chunks their whole time again; KeyError if one is not resident."""
        self.remove(run)
        self.insert(run)
