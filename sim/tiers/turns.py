"""Loads that the software makes only so many of at once: the others wait for their turn, first come first served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Turns:
    """So many may work at once.

    Parameters
    ----------
    at_once : int
        How many.
    """

    __slots__ = ("_free", "_waiting")

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, begin: Callable[[], None]) -> None:
        """Call ``begin`` now, or once those before it have ended."""
        if self._free:
            self._free -= 1
            begin()
        else:
            self._waiting.append(begin)

    def ended(self) -> None:
        """One that had begun has ended: the next one begins."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._free += 1
