"""Traffic of others on the links: tenants, checkpoints, many senders at once.

It goes as flows do, in pieces that follow one another without a gap, so that it shares every link as the tiers' traffic
does and is soon over once the run is. N equal senders are one flow of N times the share: max-min fairness cannot tell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple

from sim.clock import ARRIVAL, Clock, Wakeup
from sim.transfers.flows import FlowNetwork
from sim.transfers.max_min import Path

_PIECE_S: Final = 1.0
"""A piece is what a source moves in this time when nothing is in its way [s]. Rates do not depend on it; it bounds what
goes on after a source has stopped."""


class Bursts(NamedTuple):
    """So many bytes at once, again after a time [s] from beginning to beginning (inf: never again)."""

    n_bytes: float
    every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a neighbour asks for on each of its paths.

    Parameters
    ----------
    rate_bytes_per_s : float
        The most that it would move [B/s]; with bursts it may be inf.
    limit : float
        Share of a path's capacity that it may take at most.
    share : float
        Weight of all its senders together in the max-min filling, against 1 of a tier's transfer.
    reserved : float
        Share of each link, below 1, that is kept from it for the tiers' transfers while they ask for it.
    bursts : Bursts or None
        None: it moves bytes all the time, and what it cannot move is not made up for. A burst that comes before the
        last one has ended waits for it.
    start_s, stop_s : float
        When it begins and when it asks for no more, counted from the beginning of its phase [s].
    phase : int or None
        None: the whole run.
    """

    rate_bytes_per_s: float
    limit: float = 1.0
    share: float = 1.0
    reserved: float = 0.0
    bursts: Bursts | None = None
    start_s: float = 0.0
    stop_s: float = inf
    phase: int | None = None


class _Source:
    """A demand on one path; what is to be moved next, its kinds say."""

    def __init__(self, clock: Clock, network: FlowNetwork, path: Path, demand: Demand) -> None:
        self.path = path
        self._clock = clock
        self._network = network
        self._demand = demand
        self._ceiling = min(demand.rate_bytes_per_s, demand.limit * path.capacity_bytes_per_s)
        self._piece_bytes = self._ceiling * _PIECE_S
        self._moving_bytes = 0.0
        self._wakeups: dict[Wakeup, None] = {}
        network.give_to_others(path, demand.reserved)

    def begin(self) -> None:
        """Its phase begins."""
        now = self._clock.now_s
        self._at(now + self._demand.start_s, self._start)
        if self._demand.stop_s < inf:
            self._at(now + self._demand.stop_s, self._stop)

    def end(self) -> None:
        """Its phase is over: nothing more begins."""
        self._forget()
        self._stop()

    def asked_bytes(self) -> float:
        """Return what it has asked for until now [B]."""
        raise NotImplementedError

    def _start(self) -> None:
        raise NotImplementedError

    def _stop(self) -> None:
        raise NotImplementedError

    def _next_bytes(self) -> float:
        """Return what there is to move now at most, 0 for nothing [B]."""
        raise NotImplementedError

    def _moved(self, n_bytes: float) -> None:
        """Take note that the last piece has arrived."""

    def _at(self, when_s: float, act: Callable[[], None]) -> None:
        def wake(event: Wakeup) -> None:
            del self._wakeups[event]
            act()

        self._wakeups[self._clock.at(when_s, ARRIVAL, wake)] = None

    def _forget(self) -> None:
        """Begin and stop no more."""
        for wakeup in self._wakeups:
            self._clock.forget(wakeup)
        self._wakeups.clear()

    def _move(self) -> None:
        if self._moving_bytes:
            return
        self._moving_bytes = min(self._next_bytes(), self._piece_bytes)
        if self._moving_bytes:
            self._network.start(self.path, self._moving_bytes, self._on_piece, self._ceiling, self._demand.share)

    def _on_piece(self) -> None:
        n_bytes, self._moving_bytes = self._moving_bytes, 0.0
        self._moved(n_bytes)
        self._move()


class _Steady(_Source):
    """Moves bytes all the time."""

    _since_s: float | None = None
    _until_s = inf
    _asked_bytes = 0.0

    def begin(self) -> None:
        self._until_s = self._clock.now_s + self._demand.stop_s
        super().begin()

    def asked_bytes(self) -> float:
        on_s = 0.0 if self._since_s is None else self._clock.now_s - self._since_s
        return self._asked_bytes + on_s * self._demand.rate_bytes_per_s

    def _start(self) -> None:
        self._since_s = self._clock.now_s
        self._move()

    def _stop(self) -> None:
        self._asked_bytes, self._since_s = self.asked_bytes(), None

    def _next_bytes(self) -> float:
        return 0.0 if self._since_s is None else self._ceiling * (self._until_s - self._clock.now_s)


class _Bursty(_Source):
    """Moves bursts, one after another."""

    def __init__(self, clock: Clock, network: FlowNetwork, path: Path, demand: Demand, bursts: Bursts) -> None:
        super().__init__(clock, network, path, demand)
        self._bursts = bursts
        self._begun = 0
        self._first_s = 0.0
        self._waiting: deque[tuple[float, float]] = deque()
        self.took_s: list[float] = []
        """How long each burst that has ended took, from when it was asked for [s]."""

    def end(self) -> None:
        super().end()
        self._waiting.clear()

    def asked_bytes(self) -> float:
        return self._begun * self._bursts.n_bytes

    def _start(self) -> None:
        now = self._clock.now_s
        if not self._begun:
            self._first_s = now
        self._begun += 1
        self._waiting.append((now, self._bursts.n_bytes))
        if self._bursts.every_s < inf:
            self._at(self._first_s + self._begun * self._bursts.every_s, self._start)
        self._move()

    def _stop(self) -> None:
        self._forget()

    def _next_bytes(self) -> float:
        return self._waiting[0][1] if self._waiting else 0.0

    def _moved(self, n_bytes: float) -> None:
        if not self._waiting:
            return  # the phase ended meanwhile
        asked_at_s, left_bytes = self._waiting.popleft()
        if n_bytes < left_bytes:
            self._waiting.appendleft((asked_at_s, left_bytes - n_bytes))
        else:
            self.took_s.append(self._clock.now_s - asked_at_s)


class Count(NamedTuple):
    """What a neighbour has done by some moment."""

    asked_bytes: float
    moved_bytes: float
    ended_bursts: list[int]


class Neighbour:
    """Traffic of others under one name, the same on each of some paths."""

    def __init__(self, name: str, clock: Clock, network: FlowNetwork, paths: Sequence[Path], demand: Demand) -> None:
        self.name = name
        self.phase = demand.phase
        bursts = demand.bursts
        self._bursty = [] if bursts is None else [_Bursty(clock, network, path, demand, bursts) for path in paths]
        self.sources: Sequence[_Source] = self._bursty or [_Steady(clock, network, path, demand) for path in paths]

    def count(self, moved_bytes: Mapping[Path, float]) -> Count:
        """Return what it has done by now; ``moved_bytes`` are those of all paths [B]."""
        return Count(
            sum(source.asked_bytes() for source in self.sources),
            sum(moved_bytes[source.path] for source in self.sources),
            [len(source.took_s) for source in self._bursty],
        )

    def figures(self, began: Count, ended: Count, elapsed_s: float) -> dict[str, Any]:
        """Return one entry of the ``neighbours`` part of a summary: what happened between two moments.

        ``bursts`` are those that ended in that time, ``mean_s`` and ``max_s`` from when they were asked for.
        """
        moved_bytes = ended.moved_bytes - began.moved_bytes
        found: dict[str, Any] = {
            "asked_bytes": ended.asked_bytes - began.asked_bytes,
            "moved_bytes": moved_bytes,
            "mean_bytes_per_s": moved_bytes / elapsed_s if elapsed_s > 0.0 else None,
        }
        if self._bursty:
            spans = zip(self._bursty, began.ended_bursts, ended.ended_bursts, strict=True)
            took_s = [value for source, before, after in spans for value in source.took_s[before:after]]
            found["bursts"] = {
                "ended": len(took_s),
                "mean_s": sum(took_s) / len(took_s) if took_s else None,
                "max_s": max(took_s, default=None),
            }
        return found


class Neighbours:
    """All neighbours of a run."""

    def __init__(self, network: FlowNetwork, neighbours: Sequence[Neighbour] = ()) -> None:
        self._network = network
        self._all = neighbours

    def __bool__(self) -> bool:
        return bool(self._all)

    def begin(self, phase: int) -> None:
        """A phase begins; the first one is the beginning of the run."""
        for neighbour in self._all:
            if neighbour.phase == phase or (neighbour.phase is None and phase == 0):
                for source in neighbour.sources:
                    source.begin()

    def end(self, phase: int, *, last: bool) -> None:
        """All requests of a phase have ended, and those of the run with the last one."""
        for neighbour in self._all:
            if neighbour.phase == phase or (neighbour.phase is None and last):
                for source in neighbour.sources:
                    source.end()

    def counts(self, moved_bytes: Mapping[Path, float]) -> list[Count]:
        """Return what each has done by now; ``moved_bytes`` are those of all paths [B]."""
        return [neighbour.count(moved_bytes) for neighbour in self._all]

    def link_bytes(self, moved_bytes: Mapping[Path, float]) -> list[list[float]]:
        """Return their part of what went over each link by now, by direction [B]."""
        return self._network.over_links(
            {source.path: moved_bytes[source.path] for neighbour in self._all for source in neighbour.sources}
        )

    def figures(self, began: Sequence[Count], ended: Sequence[Count], elapsed_s: float) -> dict[str, dict[str, Any]]:
        """Return the ``neighbours`` part of a summary."""
        links = self._network.links
        return {
            neighbour.name: neighbour.figures(before, after, elapsed_s)
            | {"links": [links[i].name for source in neighbour.sources for i, _, _ in source.path.links]}
            for neighbour, before, after in zip(self._all, began, ended, strict=True)
        }
