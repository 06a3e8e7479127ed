"""The stages of a transfer: a path, the software that drives it, and the write buffer at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from models.software import SoftwarePath
from sim.transfers.flows import FlowNetwork
from sim.transfers.max_min import Path

Done = Callable[[], None]


class Countdown:
    """Calls ``on_all`` once, when as many things have ended as were begun."""

    __slots__ = ("_on_all", "under_way")

    def __init__(self, on_all: Done, under_way: int = 0) -> None:
        self._on_all = on_all
        self.under_way = under_way

    def ended(self) -> None:
        """One of them has ended."""
        self.under_way -= 1
        if not self.under_way:
            self._on_all()


@dataclass(slots=True)
class WriteCache:
    """The fast write buffer of a drive: writes are quick until it is full and it drains at the sustained rate.

    Parameters
    ----------
    capacity_bytes : float
        Its size [B].
    drain_bytes_per_s : float
        The sustained write rate [B/s].
    """

    capacity_bytes: float
    drain_bytes_per_s: float
    _level_bytes: float = 0.0
    _at_s: float = 0.0

    def absorb(self, n_bytes: float, now_s: float) -> float:
        """Take as much of a write as still fits and return it [B]."""
        drained = (now_s - self._at_s) * self.drain_bytes_per_s
        level = max(0.0, self._level_bytes - drained)
        taken = min(n_bytes, self.capacity_bytes - level)
        self._level_bytes = level + taken
        self._at_s = now_s
        return taken


@dataclass(slots=True)
class Leg:
    """One stage of a transfer: a path and the software that drives it.

    Parameters
    ----------
    path : Path
        The links that its bytes cross.
    chunk_bytes : int
        Bytes of one chunk over all workers [B].
    software : SoftwarePath
        Chunks in flight, time of a round (device and network latency included), bandwidth of one stream and of one
        process.
    processes : float
        Shards that workers move at once: one a GPU; where several hold the same KV, each shard counts once. 1 where one
        process moves the KV of all of them.
    splits : int
        Pieces that the software moves of each chunk, one after another as chunks are.
    layers : int
        Parts of each piece that are objects of their own, one a layer: a layer's are moved when those of the layer
        before it are there.
    write_cache, sustained_path : WriteCache or None, Path or None
        A drive's fast write buffer, and the path that writes take once it is full.
    """

    path: Path
    chunk_bytes: int
    software: SoftwarePath
    processes: float
    splits: int = 1
    layers: int = 1
    write_cache: WriteCache | None = None
    sustained_path: Path | None = None
    _ceilings: dict[int, float] = field(default_factory=dict)

    def ceiling_bytes_per_s(self, chunks: int) -> float:
        """Return the most that a flow of that many chunks can get [B/s], links unshared.

        The smaller of the software path's law (rounds of software time + piece / stream) and of the path's capacity
        with one round's software time before the first byte (of each layer).
        """
        ceiling = self._ceilings.get(chunks)
        if ceiling is None:
            n_bytes = chunks * self.chunk_bytes
            splits, layers = self.splits, self.layers
            alone = n_bytes / (layers * self.software.software_s + n_bytes / self.path.capacity_bytes_per_s)
            # Layer after layer: all take as long, so that the rate of one is that of all.
            law = self.software.ceiling_bytes_per_s(
                chunks=chunks * splits, chunk_bytes=self.chunk_bytes / splits / layers, processes=self.processes
            )
            ceiling = self._ceilings[chunks] = min(alone, law)
        return ceiling


def move(leg: Leg, chunks: int, network: FlowNetwork, now_s: float, on_done: Done) -> None:
    """Move chunks over a leg; what a drive's write buffer cannot take follows at the sustained rate."""
    n_bytes: float = chunks * leg.chunk_bytes
    ceiling = leg.ceiling_bytes_per_s(chunks)
    if leg.write_cache is not None and leg.sustained_path is not None:
        quick = leg.write_cache.absorb(n_bytes, now_s)
        slow, path, after = n_bytes - quick, leg.sustained_path, on_done
        if quick <= 0.0:
            network.start(path, slow, after, ceiling)
            return
        if slow > 0.0:
            n_bytes, on_done = quick, lambda: network.start(path, slow, after, ceiling)
    network.start(leg.path, n_bytes, on_done, ceiling)
