"""Routers that do something to the process they run in; worker processes import them from here."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from models.errors import SimulationError
from sim.policies.base import ReplicaView, RoutedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadly:
    """Kill as many processes as *deaths* says, one for each file in *folder* that is not there yet."""

    folder: str
    deaths: int

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        died = len(list(Path(self.folder).iterdir()))
        if died < self.deaths:
            (Path(self.folder) / str(died)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 0


@dataclass(slots=True, kw_only=True)
class Counting:
    """Leave a file in *folder* for each run, named after *point*; wait for a file called *gate* if one is named."""

    folder: str
    point: int
    gate: str = ""
    _seen: bool = field(default=False, init=False)

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        if not self._seen:
            self._seen = True
            (Path(self.folder) / f"{self.point}-{uuid4().hex}").touch()
        while self.gate and not Path(self.gate).exists():
            time.sleep(0.01)
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """Fail: as kvtier does on purpose, or in a way that nobody foresaw."""

    on_purpose: bool

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        if self.on_purpose:
            raise SimulationError("the router does not\nlike it")
        raise ZeroDivisionError("by chance")


def counting(folder: Path, points: int, *, gate: Path | None = None, waits_from: int = 0) -> list[dict[str, object]]:
    """Return points of a sweep that leave a file each; from *waits_from* on they wait for the *gate*."""
    rows = []
    for point in range(points):
        waits = {"gate": str(gate)} if gate is not None and point >= waits_from else {}
        rows.append({"cluster.router": {"sweep_kit:Counting": {"folder": str(folder), "point": point} | waits}})
    return rows


def runs_of(folder: Path) -> list[int]:
    """Return the points that were run, once for each time."""
    return sorted(int(path.name.partition("-")[0]) for path in folder.iterdir())
