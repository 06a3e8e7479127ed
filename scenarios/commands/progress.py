"""Progress of a long run on stderr: a bar on a terminal, lines elsewhere, nothing in the first two seconds."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from models.units import format_seconds

# What is over sooner needs no progress; the same interval spaces the lines of a log.
_QUIET_S = 2.0


class Progress:
    """Call it with the fraction done, 0 to 1 or None, and the number ended; it decides whether to show anything.

    Parameters
    ----------
    what : str
        What goes on.
    unit : str
        What the number counts, such as ``of 8 runs``.
    eta : bool
        Whether lines say how long it will take yet; bars do.
    """

    def __init__(self, what: str, *, unit: str = "requests", eta: bool = False) -> None:
        self._what = what
        self._unit = unit
        self._eta = eta
        self._began_s = time.monotonic()
        self._shown_at_s = self._began_s
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, fraction: float | None, ended: int) -> None:
        """Show how far it is if it is time to; without a fraction, how many have ended."""
        count = f"{self._what}: {ended:,} {self._unit}"
        if self._bar is not None:
            total = None if fraction is None else 1.0  # None leaves it as it is
            self._bar.update(self._task, total=total, completed=fraction, description=count)
            return
        now_s = time.monotonic()
        if now_s - self._shown_at_s < _QUIET_S:
            return
        self._shown_at_s = now_s
        if sys.stderr.isatty():
            self._start_bar(fraction, count)
        else:
            share = "" if fraction is None else f", {fraction:.0%}"
            sys.stderr.write(f"{count}{share}{self._left(fraction, now_s)}\n")
            sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _left(self, fraction: float | None, now_s: float) -> str:
        """Return how long it will take yet at the pace so far."""
        if not self._eta or not fraction:
            return ""
        return f", {format_seconds((now_s - self._began_s) * (1.0 - fraction) / fraction)} left"

    def _start_bar(self, fraction: float | None, count: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(count, total=None if fraction is None else 1.0, completed=fraction or 0.0)
        self._bar.start()
