"""The simulated clock: SimPy's event heap, with absolute times and a stated order for ties."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappush
from typing import Final

import simpy

COMPLETION: Final = 0
"""Order of transfers and steps that end: first at any instant."""
ARRIVAL: Final = 1
"""Order of requests that arrive: after completions, so that a client's next request follows the answer."""
STEP: Final = 2
"""Order of engine steps that begin (plus the replica's index): they see all that ended or arrived at this instant."""
SETTLE: Final = 1 << 40
"""Order of the transfers' new rates: last, so that all changes of one instant are filled once."""

Callback = Callable[["Wakeup"], None]


class Wakeup(simpy.Event):
    """An event that calls one function; the cheapest event that SimPy's loop can run."""

    # Triggered from the start, and alike for all: what SimPy sets on every event stands on the class.
    _value = None
    _ok = True

    def __init__(self, clock: Clock, callback: Callback) -> None:
        self.env = clock
        self.callbacks = [callback]


class Clock(simpy.Environment):
    """SimPy's environment with absolute wake-up times.

    ``timeout(delay)`` computes ``now + delay``, which can miss a step edge by one rounding; edges are compared for
    equality here, so wake-ups are pushed with their absolute time. This is the only place that touches SimPy's heap.
    """

    def at(self, when_s: float, order: int, callback: Callback) -> Wakeup:
        """Call ``callback`` at ``when_s`` [s]; equal times run by ``order``, then first come, first served.

        Raises
        ------
        ValueError
            If ``when_s`` lies before the present or is not a number.
        """
        if not when_s >= self._now:
            message = f"cannot wake at {when_s} s: it is already {self._now} s"
            raise ValueError(message)
        event = Wakeup(self, callback)
        heappush(self._queue, (when_s, order, next(self._eid), event))  # type: ignore[misc]  # orders beyond SimPy's two
        return event

    def forget(self, event: Wakeup) -> None:
        """Do not wake up for an event that is still to come; a search through all of them, so not for often."""
        self._queue.remove(next(entry for entry in self._queue if entry[3] is event))
        heapify(self._queue)

    @property
    def now_s(self) -> float:
        """The present [s]."""
        return self._now

    def more_now(self) -> bool:
        """Whether another event is due at this very instant."""
        queue = self._queue
        return bool(queue) and queue[0][0] <= self._now

    def events_scheduled(self) -> int:
        """Return how many events have been scheduled so far."""
        return next(self._eid)
