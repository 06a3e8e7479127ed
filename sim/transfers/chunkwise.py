"""Transfers chunk by chunk: the slow way of moving data, which the flows of ``sim.transfers.flows`` are held against.

A flow sums up a load of many chunks in one rate with one ceiling. Here each chunk is moved on its own, as the software
does it: a slot spends its software time, then moves its piece, then takes the next. Written on its own, without the
classes, virtual clocks and shortcuts of the flow mode, and at a cost per chunk: for tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, ulp
from typing import Final

from models.software import SoftwarePath
from sim.clock import COMPLETION, Clock, Wakeup
from sim.transfers.flows import READ, Hop, Link

_DUST_BYTES: Final = 1e-3
"""A piece with less than this left has arrived, as a flow has."""
_NO_ROOM: Final = 1e-12
"""Less than this left of a link is a rounding."""

Weights = dict[tuple[str, int], float]
"""By link and direction (0 for both, where they share its time): the share of its time that one B/s takes."""


@dataclass(slots=True, eq=False)
class _Piece:
    """One chunk's part of one process, under way."""

    process: int
    left_bytes: float
    rate: float = 0.0


@dataclass(slots=True, eq=False)
class _Transfer:
    """One load: its processes each have ``waiting`` pieces to take and some of them under way."""

    weights: Weights
    piece_bytes: float
    software: SoftwarePath
    share: float
    on_done: Callable[[], None]
    waiting: list[int]
    unfinished: int
    moving: list[_Piece] = field(default_factory=list)

    def caps(self) -> list[float]:
        """Return what each moving piece could get with the links to itself [B/s]."""
        alone = 1.0 / max(self.weights.values())
        stream = self.software.stream_bytes_per_s or inf
        process = self.software.process_bytes_per_s or inf
        of_process = Counter(piece.process for piece in self.moving)
        return [min(alone, stream, process / of_process[piece.process]) for piece in self.moving]


class ChunkNetwork:
    """Links and the chunks on them.

    Parameters
    ----------
    clock : Clock
        The simulated clock.
    links : sequence of Link
        The links, names unique.
    """

    def __init__(self, clock: Clock, links: Sequence[Link]) -> None:
        self._clock = clock
        self._links = {link.name: link for link in links}
        self._transfers: list[_Transfer] = []
        self._at_s = 0.0
        self._wakeup: Wakeup | None = None

    def path(self, hops: Sequence[Hop]) -> Weights:
        """Return the share of each link's time that one B/s over these hops takes; KeyError for an unknown link."""
        weights: Weights = {}
        for hop in hops:
            link = self._links[hop.link]
            capacity = hop.bytes_per_s or (link.read_bytes_per_s if hop.direction == READ else link.write_bytes_per_s)
            key = (hop.link, hop.direction if link.duplex else 0)
            weights[key] = weights.get(key, 0.0) + hop.passes / capacity
        return weights

    def start(
        self,
        path: Weights,
        chunks: int,
        chunk_bytes: float,
        on_done: Callable[[], None],
        software: SoftwarePath,
        *,
        processes: int = 1,
        share: float = 1.0,
    ) -> None:
        """Start a load of ``chunks`` now; ``on_done()`` is called when the last of them has arrived.

        Each of ``processes`` workers moves its part of every chunk, ``software.in_flight`` parts at a time. All parts
        under way together get one max-min share (of weight ``share``) of every link.
        """
        transfer = _Transfer(
            weights=path,
            piece_bytes=chunk_bytes / processes,
            software=software,
            share=share,
            on_done=on_done,
            waiting=[chunks] * processes,
            unfinished=chunks * processes,
        )
        self._transfers.append(transfer)
        for process in range(processes):
            for _ in range(min(software.in_flight, chunks)):
                self._take(transfer, process)

    def _take(self, transfer: _Transfer, process: int) -> None:
        """Let a free slot of a process begin with its next piece, if one waits."""
        if not transfer.waiting[process]:
            return
        transfer.waiting[process] -= 1

        def move(_: Wakeup) -> None:
            self._advance()
            transfer.moving.append(_Piece(process, transfer.piece_bytes))
            self._refill()

        self._clock.at(self._clock.now_s + transfer.software.software_s, COMPLETION, move)

    def _advance(self) -> None:
        """Move all pieces on to the present."""
        elapsed_s = self._clock.now_s - self._at_s
        self._at_s = self._clock.now_s
        for transfer in self._transfers:
            for piece in transfer.moving:
                piece.left_bytes -= piece.rate * elapsed_s

    def _refill(self) -> None:
        """Share the links anew among the pieces, and wake when the first of them arrives."""
        transfers = [transfer for transfer in self._transfers if transfer.moving]
        caps = [transfer.caps() for transfer in transfers]
        rates = max_min_rates(
            [(transfer.weights, sum(cap), transfer.share) for transfer, cap in zip(transfers, caps, strict=True)]
        )
        first_s = inf
        for transfer, cap, rate in zip(transfers, caps, rates, strict=True):
            per_cap = rate / sum(cap)
            for piece, own in zip(transfer.moving, cap, strict=True):
                piece.rate = per_cap * own
                first_s = min(first_s, self._clock.now_s + max(piece.left_bytes, 0.0) / piece.rate)
        self._wakeup = self._clock.at(first_s, COMPLETION, self._on_wake) if transfers else None

    def _on_wake(self, event: Wakeup) -> None:
        if self._wakeup is not event:
            return
        self._advance()
        now_s = self._clock.now_s
        for transfer in list(self._transfers):
            arrived: list[_Piece] = []
            moving: list[_Piece] = []
            for piece in transfer.moving:
                ends = piece.left_bytes <= max(_DUST_BYTES, piece.rate * 8.0 * ulp(now_s))
                (arrived if ends else moving).append(piece)
            transfer.moving = moving
            transfer.unfinished -= len(arrived)
            for piece in arrived:
                self._take(transfer, piece.process)
            if not transfer.unfinished:
                self._transfers.remove(transfer)
                transfer.on_done()
        self._refill()


def max_min_rates(demands: Sequence[tuple[Weights, float, float]]) -> list[float]:
    """Return max-min fair rates [B/s] for (weights, ceiling [B/s], share) each, by plain progressive filling.

    All rise together, each by its share, until one meets its ceiling or a link is full; who is on it stops, and the
    others rise on (Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2).
    """
    rates = [0.0] * len(demands)
    rising = set(range(len(demands)))
    room = dict.fromkeys((key for weights, _, _ in demands for key in weights), 1.0)
    while rising:
        slopes = {key: sum(demands[i][2] * demands[i][0].get(key, 0.0) for i in sorted(rising)) for key in room}
        rises = {key: room[key] / slope for key, slope in slopes.items() if slope > 0.0}
        tightest = min(rises, key=lambda key: rises[key])
        nearest = min(rising, key=lambda i: (demands[i][1] - rates[i]) / demands[i][2])
        to_ceiling = (demands[nearest][1] - rates[nearest]) / demands[nearest][2]
        rise = max(min(rises[tightest], to_ceiling), 0.0)
        for key, slope in slopes.items():
            room[key] = max(room[key] - rise * slope, 0.0)
        for i in rising:
            rates[i] += rise * demands[i][2]
        if to_ceiling <= rises[tightest]:
            rates[nearest] = demands[nearest][1]
            rising.discard(nearest)
        else:
            rising -= {i for i in rising if tightest in demands[i][0]}
    return rates


def reserved_rates(demands: Sequence[tuple[Weights, float, float]], kept: Sequence[float | None]) -> list[float]:
    """Return rates [B/s] as :func:`max_min_rates` does, with shares of every link ``kept`` from some of the demands.

    ``kept`` is None for the tiers' own and a share, maybe 0, for others'. What ``sim.transfers.reserving`` says, for
    every link and whoever is on it: a part of a link is one more thing that is shared.
    """
    shares = sorted({share for share in kept if share})
    asked = dict.fromkeys((key for weights, _, _ in demands for key in weights), 0.0)
    for (weights, ceiling, _), own in zip(demands, kept, strict=True):
        for key, weight in weights.items():
            asked[key] += 0.0 if own is not None else ceiling * weight
    held: list[tuple[Weights, float, float]] = []
    for (weights, ceiling, by_weight), own in zip(demands, kept, strict=True):
        parts = {
            (f"{link} less {share}", way): weight / (1.0 - min(share, asked[link, way]))
            for share in shares
            for (link, way), weight in weights.items()
            if own is not None and own >= share
        }
        held.append((weights | parts, ceiling, by_weight))
    rates = max_min_rates(held)
    room = dict.fromkeys(asked, 1.0)
    for (weights, _, _), rate in zip(demands, rates, strict=True):
        for key, weight in weights.items():
            room[key] -= rate * weight
    rising = [
        i
        for i, (weights, ceiling, _) in enumerate(demands)
        if kept[i] and rates[i] < ceiling and min(room[key] for key in weights) > _NO_ROOM
    ]
    rests = [
        ({key: weight / room[key] for key, weight in demands[i][0].items()}, demands[i][1] - rates[i], demands[i][2])
        for i in rising
    ]
    for i, more in zip(rising, max_min_rates(rests), strict=True):
        rates[i] += more
    return rates
