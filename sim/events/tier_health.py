"""What is left of a pool: its drives and ports, its chunks, its room and the rates of its links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from sim.clock import Clock
from sim.events.layout import Layout
from sim.run_sets import RunSet
from sim.runs import Runs
from sim.tiers.faults import LoadFault, Read
from sim.tiers.tier import Tier
from sim.transfers.max_min import Path
from sim.transfers.varying import VaryingNetwork


class Loss(Protocol):
    """What reads fail by."""

    failed_loads: int


class LinkShare(NamedTuple):
    """What is left of a link."""

    link: str
    read_share: float
    write_share: float


class LostChunks:
    """Fails the reads of chunks that are lost while somebody waits for them; otherwise as ``also`` says.

    Parameters
    ----------
    tier : Tier
        The pool.
    also : LoadFault or None
        What else makes its reads fail.
    """

    __slots__ = ("_also", "_losses", "_tier")

    def __init__(self, tier: Tier, also: LoadFault | None) -> None:
        self._tier = tier
        self._also = also
        self._losses: list[tuple[Loss, RunSet]] = []

    def lose(self, loss: Loss, runs: Runs) -> None:
        """Note that chunks are about to be lost by this loss; those that are pinned will be asked for."""
        pinned = [part for run in runs for part in self._tier.pinned.at_least(run, 1)]
        if pinned:
            self._losses.append((loss, RunSet(pinned)))

    def fails(self, read: Read) -> bool:
        """Return whether something of this read is lost."""
        if not self._tier.doomed:
            self._losses.clear()  # nobody holds any of it any more
        for loss, lost in self._losses:
            wanted = (part for run in read.keys for part in lost.present(run))
            if any(self._tier.doomed.present(part) for part in wanted):
                loss.failed_loads += 1
                return True
        return self._also is not None and self._also.fails(read)


@dataclass(slots=True, kw_only=True)
class TierHealth:
    """One pool, as far as its parts are there.

    A drive that is lost takes its pieces of chunks with it, a box that cannot be reached hides them until it is back.
    Where no drive or no port is left, nothing can be read or written; what is under way takes its time and fails.

    Parameters
    ----------
    clock, network : Clock, VaryingNetwork
        Time and links.
    tier : Tier
        The pool.
    faults : LostChunks
        Fails its reads.
    layout : Layout
        Where chunks lie.
    boxes, ports : int
        Devices that the drives are spread over evenly, and their network ports in all (1 where the catalogue knows
        none).
    left_of_links : callable
        Takes drives and ports that are left, each at least 1, and returns what that leaves of the pool's links.
    rebuild_path : Path or None
        What a piece that is made again crosses: its sources are read, and it is written.
    drive_bytes_per_s : float
        What one drive can write [B/s].
    """

    clock: Clock
    network: VaryingNetwork
    tier: Tier
    faults: LostChunks
    layout: Layout
    boxes: int
    ports: int
    left_of_links: Callable[[int, int], Sequence[LinkShare]]
    rebuild_path: Path | None
    drive_bytes_per_s: float
    _whole_units: int = field(init=False)
    _absent: set[int] = field(default_factory=set, init=False)
    """Drives that are not there."""
    _missing: set[int] = field(default_factory=set, init=False)
    """Drives whose pieces are not there: those absent, and replacements that are not yet filled."""
    _ports_lost: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._whole_units = self.tier.capacity_units

    def drives_left(self) -> list[int]:
        """Return the numbers of the drives that are there, those that are still being filled last."""
        there = (drive for drive in range(self.layout.drives) if drive not in self._absent)
        return sorted(there, key=self._missing.__contains__)

    def boxes_left(self) -> list[range]:
        """Return the drives of each box of which any is there."""
        each = self.layout.drives // self.boxes
        boxes = (range(first, first + each) for first in range(0, self.layout.drives, each))
        return [drives for drives in boxes if not self._absent.issuperset(drives)]

    def lose(self, loss: Loss, drives: Iterable[int] = (), ports: int = 0) -> Runs:
        """Take parts away now; return the chunks that cannot be read any more."""
        newly = set(drives)
        self._absent |= newly
        self._missing |= newly
        self._ports_lost += ports
        tier = self.tier
        here = [*tier.ready.runs(), *tier.pending.runs()]
        gone = here if self._is_out else list(self.layout.dead(here, self._missing, newly))
        gone_ready = [part for run in gone for part in tier.ready.present(run)]
        self.faults.lose(loss, gone_ready)
        tier.lose(gone)
        self._settle()
        return gone_ready

    def restore(self, drives: Iterable[int] = (), ports: int = 0, *, filled: bool = True) -> None:
        """Put parts back now; drives that are not ``filled`` hold no piece of what there is."""
        back = set(drives)
        self._absent -= back
        if filled:
            self._missing -= back
        self._ports_lost -= ports
        self._settle()

    def rebuild(self, drives: Sequence[int], bytes_per_s: float, on_done: Callable[[], None]) -> float:
        """Make the pieces of replaced drives again, at most at this rate; return their bytes.

        Written are all pieces that the drives are to hold, by these drives; read are the ``data`` pieces that each is
        made of, from all.
        """
        n_bytes = self.tier.used_bytes * self.layout.overhead * len(drives) / self.layout.drives

        def done() -> None:
            self._missing.difference_update(drives)
            on_done()

        if self.rebuild_path is None or n_bytes <= 0.0:
            done()
        else:
            ceiling = min(bytes_per_s, len(drives) * self.drive_bytes_per_s)
            self.network.start(self.rebuild_path, n_bytes, done, ceiling)
        return n_bytes

    def bring_back(self, runs: Runs) -> int:
        """Find chunks again that could not be reached, as far as there is free room; return how many."""
        return 0 if self._is_out else self.tier.bring_back(runs)

    @property
    def _is_out(self) -> bool:
        return len(self._absent) == self.layout.drives or self._ports_lost >= self.ports

    def _settle(self) -> None:
        """Let room and links follow from what is left."""
        drives = self.layout.drives - len(self._absent)
        if self._is_out:
            self.tier.resize(0)
            return
        whole = self._whole_units
        self.tier.resize(whole if self.layout.parity else whole * drives // self.layout.drives)
        for link, read_share, write_share in self.left_of_links(drives, self.ports - self._ports_lost):
            self.network.leave(link, read_share, write_share)
