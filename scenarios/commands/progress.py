"""Progress of a long run on stderr: a bar on a terminal, lines elsewhere, nothing in the first two seconds."""

import sys
import time
from types import TracebackType
from typing import Any, Self

# What is over sooner needs no progress; the same interval spaces the lines of a log.
_QUIET_S = 2.0


class Progress:
    """Call it with the fraction done, in [0, 1]; it decides whether to show anything."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown_at_s = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, fraction: float) -> None:
        """Show *fraction* if it is time to."""
        if self._bar is not None:
            self._bar.update(self._task, completed=fraction)
            return
        now_s = time.monotonic()
        if now_s - self._shown_at_s < _QUIET_S:
            return
        self._shown_at_s = now_s
        if sys.stderr.isatty():
            self._start_bar(fraction)
        else:
            sys.stderr.write(f"{self._what}: {fraction:.0%}\n")
            sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _start_bar(self, fraction: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._what, total=1.0, completed=fraction)
        self._bar.start()
