"""Progress of a long run on stderr: a bar on a terminal, lines elsewhere, nothing in the first two seconds."""

import sys
import time
from types import TracebackType
from typing import Any, Self

# What is over sooner needs no progress; the same interval spaces the lines of a log.
_QUIET_S = 2.0


class Progress:
    """Call it with the fraction done, 0 to 1 or None, and the requests ended; it decides whether to show anything."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown_at_s = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, fraction: float | None, ended: int) -> None:
        """Show how far it is if it is time to; without a fraction, how many requests have ended."""
        count = f"{self._what}: {ended:,} requests"
        if self._bar is not None:
            self._bar.update(self._task, completed=fraction, description=count)
            return
        now_s = time.monotonic()
        if now_s - self._shown_at_s < _QUIET_S:
            return
        self._shown_at_s = now_s
        if sys.stderr.isatty():
            self._start_bar(fraction, count)
        else:
            share = "" if fraction is None else f", {fraction:.0%}"
            sys.stderr.write(f"{count}{share}\n")
            sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _start_bar(self, fraction: float | None, count: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(count, total=None if fraction is None else 1.0, completed=fraction or 0.0)
        self._bar.start()
