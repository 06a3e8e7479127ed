"""Drives, ports and whole boxes of a tier that are lost and come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from sim.events.tier_health import TierHealth
from sim.recording import Columns
from sim.runs import Runs, count


@dataclass(slots=True, kw_only=True)
class TierLoss:
    """Some parts of a pool are lost; after a while, what replaces them is there.

    A drive comes back empty and, where chunks have parity, is filled from the others; a port comes back as it was, and
    so does a target (a box: an enclosure, a storage server) with what it holds.

    Parameters
    ----------
    kind : str
        Which parts: drive, port or target.
    target : str
        As in results.
    at_s, lasts_s : float, float or None
        When it happens, and how long until the parts are back; None: they stay away [s].
    number : int
        How many; no more than there are then.
    health : TierHealth
        The pool.
    rebuild_bytes_per_s : float
        Limit of the pieces made again, as they are written [B/s].
    replicas : sequence of int or None
        Who uses the pool; None: everybody.
    """

    kind: str
    target: str
    at_s: float
    lasts_s: float | None
    number: int
    health: TierHealth
    rebuild_bytes_per_s: float = inf
    replicas: Sequence[int] | None = None
    over_s: float | None = field(default=None, init=False)
    failed_loads: int = field(default=0, init=False)
    _drives: list[int] = field(default_factory=list, init=False)
    _ports: int = field(default=0, init=False)
    _hidden: Runs = field(default=(), init=False)
    _gone_bytes: float = field(default=0.0, init=False)
    _back_bytes: float = field(default=0.0, init=False)
    _rebuilt_bytes: float = field(default=0.0, init=False)
    _rebuild_began_s: float | None = field(default=None, init=False)
    _rebuild_s: float | None = field(default=None, init=False)

    def begin(self) -> None:
        """Lose the parts now."""
        health = self.health
        if self.kind == "drive":
            self._drives = health.drives_left()[: self.number]
        elif self.kind == "port":
            self._ports = self.number
        else:
            boxes = health.boxes_left()[: self.number]
            self._drives = [drive for box in boxes for drive in box]
            self._ports = len(boxes) * health.ports // health.boxes
        gone = health.lose(self, self._drives, self._ports)
        self._gone_bytes = count(gone) * health.tier.chunk_bytes
        if self.kind != "drive":
            self._hidden = gone

    def end(self) -> None:
        """Put them back now."""
        health = self.health
        rebuilds = self.kind == "drive" and health.layout.parity > 0
        health.restore(self._drives, self._ports, filled=not rebuilds)
        if rebuilds:
            self._rebuild_began_s = health.clock.now_s
            self._rebuilt_bytes = health.rebuild(self._drives, self.rebuild_bytes_per_s, self._rebuilt)
            return
        self._back_bytes = health.bring_back(self._hidden) * health.tier.chunk_bytes
        self._hidden = ()
        self.over_s = health.clock.now_s

    def _rebuilt(self) -> None:
        now_s = self.health.clock.now_s
        assert self._rebuild_began_s is not None
        self._rebuild_s = now_s - self._rebuild_began_s
        self.over_s = now_s

    def figures(self, requests: Columns) -> Mapping[str, float | None]:
        """Return KV lost for good or out of reach for a while, loads that failed by it, and the rebuild."""
        del requests
        is_lost = self.kind == "drive"
        return {
            "lost_bytes": self._gone_bytes if is_lost else 0.0,
            "unreachable_bytes": 0.0 if is_lost else self._gone_bytes,
            "returned_bytes": self._back_bytes,
            "failed_loads": self.failed_loads,
            "rebuild_bytes": self._rebuilt_bytes,
            "rebuild_s": self._rebuild_s,
        }
