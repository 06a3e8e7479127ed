"""Replicas that restart, are added or drained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sim.clock import Clock
from sim.cluster import Cluster
from sim.prefix_tree import KEY_BITS
from sim.recording import Columns
from sim.tiers.tier import Tier


@dataclass(frozen=True, slots=True)
class Memory:
    """A pool that goes with a process or a node, or what one replica has there.

    Parameters
    ----------
    tier : Tier
        The pool.
    replica : int or None
        Only its chunks go, where the pool tells apart what different replicas wrote; None: all.
    """

    tier: Tier
    replica: int | None = None

    def lose(self) -> float:
        """Lose it now and return the bytes of KV that were there [B]."""
        tier = self.tier
        runs = [run for part in (tier.ready, tier.pending) for run in part.runs()]
        if self.replica is not None:
            runs = [run for run in runs if run.start >> KEY_BITS == self.replica]
        lost = sum(len(part) for run in runs for part in tier.ready.present(run))
        tier.lose(runs)
        return lost * tier.chunk_bytes


@dataclass(slots=True, kw_only=True)
class Restart:
    """Replicas go down and come back cold: HBM is lost, and so is what else lived in their memory.

    Requests in hand fail or start again elsewhere, as the engine does with loads that fail.

    Parameters
    ----------
    target : str
        As in results.
    at_s, lasts_s : float
        When, and how long until they serve again [s].
    clock, cluster : Clock, Cluster
        Time and the cluster.
    replicas : sequence of int
        Which.
    memory : sequence of Memory
        What is lost beside HBM.
    """

    target: str
    at_s: float
    lasts_s: float | None
    clock: Clock
    cluster: Cluster
    replicas: Sequence[int] | None
    memory: Sequence[Memory]
    kind: str = "restart"
    over_s: float | None = field(default=None, init=False)
    _lost_bytes: float = field(default=0.0, init=False)
    _in_hand: int = field(default=0, init=False)

    def begin(self) -> None:
        """Go down now."""
        for index in self.replicas or ():
            self.cluster.withdraw(index)
        for memory in self.memory:
            self._lost_bytes += memory.lose()
        for index in self.replicas or ():
            engine = self.cluster.replicas[index]
            self._in_hand += engine.outstanding_requests
            self._lost_bytes += len(engine.hbm.ready) * engine.hbm.chunk_bytes
            engine.restart()

    def end(self) -> None:
        """Serve again now, cold."""
        for index in self.replicas or ():
            self.cluster.replicas[index].come_back()
            self.cluster.put_back(index)
        self.over_s = self.clock.now_s

    def figures(self, requests: Columns) -> Mapping[str, float | None]:
        """Return KV lost and the requests that were in hand."""
        del requests
        return {"lost_bytes": self._lost_bytes, "requests_in_hand": self._in_hand}


@dataclass(slots=True, kw_only=True)
class Drain:
    """A replica takes no more requests, and finishes those that it has."""

    target: str
    at_s: float
    cluster: Cluster
    replicas: Sequence[int] | None
    kind: str = "drain"
    lasts_s: float | None = None
    over_s: float | None = None

    def begin(self) -> None:
        """Take no more requests."""
        for index in self.replicas or ():
            self.cluster.withdraw(index)

    def end(self) -> None:
        """Never called: a drained replica does not come back by itself."""

    def figures(self, requests: Columns) -> Mapping[str, float | None]:
        """Return how long it took until its last request had ended [s]."""
        theirs = np.isin(requests["replica"], self.replicas or ())
        ended_s = requests["finished_at_s"][theirs & ~np.isnan(requests["finished_at_s"])]
        return {"drained_s": float(np.max(ended_s, initial=self.at_s)) - self.at_s}


@dataclass(slots=True, kw_only=True)
class Add:
    """A replica starts, and serves when it has; before, nobody sends it anything."""

    target: str
    at_s: float
    lasts_s: float | None
    clock: Clock
    cluster: Cluster
    replicas: Sequence[int] | None
    kind: str = "add"
    over_s: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        for index in self.replicas or ():
            self.cluster.withdraw(index)

    def begin(self) -> None:
        """Begin to start: weights are loaded, graphs captured."""

    def end(self) -> None:
        """Serve from now on."""
        for index in self.replicas or ():
            self.cluster.put_back(index)
        self.over_s = self.clock.now_s

    def figures(self, requests: Columns) -> Mapping[str, float | None]:
        """Return the requests that it has served."""
        return {"served_requests": int(np.isin(requests["replica"], self.replicas or ()).sum())}
