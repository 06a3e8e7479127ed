"""What a load is to a run, and phases of loads on one warm cluster.

A driver's ``start`` sends its first requests and ``on_done`` is called once when all of its requests have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sim.cluster import Cluster


class Driver(Protocol):
    """Sends requests to a cluster."""

    def start(self, cluster: Cluster, phase: int, on_done: Callable[[], None]) -> None:
        """Begin now."""

    def fraction_done(self) -> float | None:
        """Return how much of it is done, 0 to 1; None where that cannot be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One load on the warm cluster.

    Parameters
    ----------
    name : str
        As in results.
    driver : Driver
        The load.
    clear : tuple of str
        Tiers emptied before it begins.
    restart : bool
        Engines restart before it: HBM is lost, and every index that lives in a process.
    """

    name: str
    driver: Driver
    clear: tuple[str, ...] = ()
    restart: bool = False
