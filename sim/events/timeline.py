"""Events at their times, and what a run says of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sim.clock import ARRIVAL, Clock, Wakeup
from sim.recording import Columns


class Event(Protocol):
    """Something that happens once, and is over after a while or never.

    ``replicas`` are those whose requests tell how the event was felt; None: all of them. ``over_s`` is when its last
    effect was over, the index of caches aside [s]; None: not yet.
    """

    kind: str
    target: str
    at_s: float
    lasts_s: float | None
    replicas: Sequence[int] | None
    over_s: float | None

    def begin(self) -> None:
        """Let it happen now."""

    def end(self) -> None:
        """Let what was lost be back now; called ``lasts_s`` later, never where that is None."""

    def figures(self, requests: Columns) -> Mapping[str, float | None]:
        """Return what is to be shown of it beside times and windows, now that all requests have ended."""


class Timeline:
    """The events of a run, in time order.

    Parameters
    ----------
    clock : Clock
        Time.
    events : sequence of Event
        In any order; those of one instant happen in this order, after what ends then and before what arrives.
    """

    def __init__(self, clock: Clock, events: Sequence[Event] = ()) -> None:
        self._clock = clock
        self.events = sorted(events, key=lambda event: event.at_s)
        self._pending: dict[Wakeup, None] = {}
        self.happened: list[Event] = []

    def start(self) -> None:
        """Wait for all events from now on."""
        for event in self.events:
            self._at(event.at_s, event, self._begin)

    def missed(self) -> list[Event]:
        """Return the events whose time had not come when all requests had ended."""
        return self.events[len(self.happened) :]

    def stop(self) -> None:
        """Let nothing more happen: all requests have ended, and an event must not prolong the run."""
        for wakeup in self._pending:
            self._clock.forget(wakeup)
        self._pending.clear()

    def _at(self, when_s: float, event: Event, happen: Callable[[Event], None]) -> None:
        def due(wakeup: Wakeup) -> None:
            del self._pending[wakeup]
            happen(event)

        self._pending[self._clock.at(when_s, ARRIVAL, due)] = None

    def _begin(self, event: Event) -> None:
        self.happened.append(event)
        event.begin()
        if event.lasts_s is not None:
            self._at(self._clock.now_s + event.lasts_s, event, self._end)

    @staticmethod
    def _end(event: Event) -> None:
        event.end()
