"""GDSF: frequency times cost over an inflating base, with equal cost or with what a chunk of KV cache costs."""

from collections.abc import Iterator

from sim.policies.base import EVICTION, PolicyContext
from sim.policies.chunkwise import ChunkPolicy
from sim.policies.hooks import known
from sim.policies.ranking import Ranking


@EVICTION.register("gdsf")
class Gdsf(ChunkPolicy):
    """Lowest H = L + uses x cost / size first; L becomes the H of what goes, so that old fame fades.

    Chunks have one size, and here one cost; equal H goes by last use. Cherkasova, Improving WWW proxies performance
    with greedy-dual-size-frequency, HPL-98-69R1, 1998; libCacheSim's GDSF.cpp.
    """

    def __init__(self) -> None:
        self._uses: dict[int, int] = {}
        self._ranking = Ranking()
        self._base = 0.0  # L

    def cost(self, key: int) -> float:
        """Return what a hit on a chunk saves."""
        return 1.0

    def _insert(self, key: int) -> None:
        self._use(key, 1)

    def _touch(self, key: int) -> None:
        self._use(key, self._uses[key] + 1)

    def _use(self, key: int, uses: int) -> None:
        self._uses[key] = uses
        self._ranking.set(key, self._base + uses * self.cost(key))

    def _remove(self, key: int) -> None:
        del self._uses[key]
        self._ranking.remove(key)

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room, and raise the base to what they were worth."""
        for key in run:
            del self._uses[key]
            self._base = max(self._base, self._ranking.remove(key))

    def _victims(self) -> Iterator[int]:
        return self._ranking.ordered()


@EVICTION.register("gdsf-kv")
class GdsfKv(Gdsf):
    """GDSF where a chunk costs the seconds that computing it again takes at its position in the prompt.

    Attention makes late chunks dearer than early ones, so among chunks used alike the head of a prompt goes first; use
    with ``structure: leaf_constrained`` where a chunk without its head is worthless.
    """

    def __init__(self) -> None:
        super().__init__()
        self._costs: dict[int, float] = {}  # by position: few are new

    def prepare(self, context: PolicyContext) -> None:
        """Learn what chunks cost where."""
        self._position = known(context.position, self, "the position of chunks in their prompt")
        self._recompute_s = known(context.recompute_s, self, "the time to compute a chunk (a timed run)")

    def cost(self, key: int) -> float:
        """Return the time that computing it takes [s]."""
        position = self._position(key)
        cost = self._costs.get(position)
        if cost is None:
            cost = self._costs[position] = self.cost_at(position)
        return cost

    def cost_at(self, position: int) -> float:
        """Return the time that computing the chunk at a position takes [s]."""
        return self._recompute_s(position)


@EVICTION.register("gdsf-kv-net")
class GdsfKvNet(GdsfKv):
    """GDSF where a chunk costs what a hit saves: the seconds to compute it again less those to read it from here.

    What is quicker to compute than to read costs nothing and goes first.
    """

    def prepare(self, context: PolicyContext) -> None:
        """Learn what chunks cost where and what reading one takes."""
        super().prepare(context)
        self._reload_s = known(context.reload_s, self, "the time to read a chunk from its tier")

    def cost_at(self, position: int) -> float:
        """Return the time that reading it instead of computing it saves, 0 or more [s]."""
        return max(self._recompute_s(position) - self._reload_s, 0.0)
