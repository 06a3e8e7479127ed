"""Runs many tasks in processes of this machine; results do not depend on how many. Knows nothing of scenarios.

A worker is a fresh interpreter (spawn) that takes one task after another. Workers ignore the interrupt key, which a
terminal sends to all of them: their parent ends them. One whose parent is gone, however that came about, ends itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final, Generic, TypeVar

from models.errors import KvTierError, LostTaskError

T = TypeVar("T")
R = TypeVar("R")

Report = Callable[[float | None, int], None]
"""Takes the fraction of a task that is done, None where that cannot be known, and the requests that have ended."""
Work = Callable[[T, Report], R]
"""Does one task. A function at the top of a module: other processes find it there."""

_PROGRESS: Final = "progress"
_DONE: Final = "done"
_FAILED: Final = "failed"
_DIED: Final = "died"
# A task whose length is not known is never shown as done before it is.
_ALMOST: Final = 0.99
_SIGKILL: Final = 9  # what the out-of-memory killer of Linux sends; Windows has no name for it


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """What became of a task: its value, or the error that ended it."""

    value: R | None = None
    error: KvTierError | None = None


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_tasks(
    work: Work[T, R],
    tasks: Sequence[T],
    *,
    jobs: int | None = None,
    attempts: int = 1,
    progress: Report | None = None,
) -> Generator[tuple[int, Outcome[R]], None, None]:
    """Yield the place of each task in *tasks* and its outcome as they end, from *jobs* processes at a time.

    With one job all is done in this process. An error of a task is its outcome, and the others go on; a process that
    dies takes only its task with it. However the iteration is left, by KeyboardInterrupt too, no process stays behind.

    Parameters
    ----------
    work : function
        At the top of a module; tasks and results must be picklable.
    tasks : sequence
        Begun in this order.
    jobs : int or None
        Processes, at least 1; None: as many as there are cores. Never more than tasks.
    attempts : int
        How many processes a task gets, one after another, as long as they die under it.
    progress : function or None
        Called with the fraction of all tasks that is done, None while it is not known, and the number that have ended.
    """
    shown = _Overall(len(tasks), progress)
    jobs = min(available_cores() if jobs is None else jobs, len(tasks))
    if jobs < 1 and tasks:
        raise ValueError(f"jobs is {jobs}; must be at least 1")
    if jobs <= 1:
        for index, task in enumerate(tasks):
            outcome = attempt(work, task, partial(shown.heard, index))
            shown.ended(index)
            yield index, outcome
        return
    pool = _Pool(work, attempts)
    try:
        yield from pool.outcomes(tasks, jobs, shown)
    finally:
        pool.end()


def attempt(work: Work[T, R], task: T, report: Report) -> Outcome[R]:
    """Do one task here; whatever ends it is its outcome. An error that nobody foresaw comes out as LostTaskError."""
    try:
        return Outcome(value=work(task, report))
    except KvTierError as error:
        return Outcome(error=error)
    except Exception as error:  # plugged-in code may fail in any way; the other tasks are not to suffer
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename}:{place.lineno}"
        return Outcome(error=LostTaskError(f"{type(error).__name__}: {error} ({where})"))


class _Overall:
    """Adds up how far all tasks are."""

    def __init__(self, tasks: int, progress: Report | None) -> None:
        self._progress = progress
        self._done = [0.0] * tasks
        self._requests = [0] * tasks
        self._typical = 0  # requests of a task that has ended: others are likely to be as long
        self._ended = 0

    def heard(self, index: int, fraction: float | None, requests: int) -> None:
        """Note how far a task is."""
        self._requests[index] = requests
        if fraction is None and self._typical:
            fraction = min(requests / self._typical, _ALMOST)
        self._done[index] = fraction or 0.0
        self._show()

    def ended(self, index: int) -> None:
        """Note that a task has ended."""
        self._typical = max(self._typical, self._requests[index])
        self._done[index] = 1.0
        self._ended += 1
        self._show()

    def _show(self) -> None:
        if self._progress is not None:
            # Nothing at all may be known yet: then it is not 0 % that is done.
            self._progress(sum(self._done) / len(self._done) if any(self._done) else None, self._ended)


class _Worker(Generic[T, R]):
    """One process, and the task that it is at."""

    def __init__(self, work: Work[T, R]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self.task = -1
        self._theirs = theirs

    def start(self) -> None:
        """Begin to listen for tasks."""
        with _interrupts_held_back():
            self.process.start()
            self._theirs.close()  # so that the death of the process is the end of the pipe

    def take(self, index: int, task: T) -> None:
        """Send the process a task."""
        self.task = index
        with suppress(OSError):  # a process that has died meanwhile: the end of its pipe tells what became of the task
            self.connection.send(task)

    def hear(self) -> tuple[str, Any]:
        """Return what it has to say; its death is the failure of its task."""
        try:
            message: tuple[str, Any] = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
            hint = "; where memory ran out, fewer --jobs need less" if code == -_SIGKILL else ""
            return _DIED, LostTaskError(f"its process died ({how}{hint})")
        return message

    def end(self) -> None:
        """End the process now; it keeps nothing that has to be put away."""
        if self.process.pid is not None:
            self.process.kill()
            self.process.join()
        self.connection.close()


class _Pool(Generic[T, R]):
    """The workers of one call."""

    def __init__(self, work: Work[T, R], attempts: int) -> None:
        self._work = work
        self._attempts = attempts
        self._workers: list[_Worker[T, R]] = []

    def outcomes(self, tasks: Sequence[T], jobs: int, shown: _Overall) -> Iterator[tuple[int, Outcome[R]]]:
        """Deal the tasks out and yield what becomes of them, as they end."""
        waiting = iter(enumerate(tasks))
        deaths = [0] * len(tasks)
        for index, task in islice(waiting, jobs):
            self._start().take(index, task)
        while self._workers:
            ready = wait([worker.connection for worker in self._workers])
            for worker in [worker for worker in self._workers if worker.connection in ready]:
                kind, said = worker.hear()
                if kind == _PROGRESS:
                    shown.heard(worker.task, *said)
                    continue
                ended = worker.task
                deaths[ended] += kind == _DIED
                if kind == _DIED and deaths[ended] < self._attempts:
                    self._go_on(worker, (ended, tasks[ended]), afresh=True)
                    continue
                # What was not foreseen may have left anything behind in its process.
                self._go_on(worker, next(waiting, None), afresh=isinstance(said, LostTaskError))
                shown.ended(ended)
                yield ended, Outcome(value=said) if kind == _DONE else Outcome(error=said)

    def end(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def _start(self) -> _Worker[T, R]:
        worker = _Worker(self._work)
        self._workers.append(worker)  # before it starts: an interruption must find all that has started
        worker.start()
        return worker

    def _go_on(self, worker: _Worker[T, R], following: tuple[int, T] | None, *, afresh: bool) -> None:
        """Give a worker its next task, *afresh* to a new process; without a task it ends."""
        if following is None or afresh:
            self._workers.remove(worker)
            worker.end()
            if following is None:
                return
            worker = self._start()
        worker.take(*following)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Let interrupts wait, and new processes be deaf to them from birth: they inherit what is held back."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows; there a worker ignores them from its first line on
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, work: Work[T, R]) -> None:
    """Do tasks until no more come: what a worker runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            task: T = connection.recv()
            outcome = attempt(work, task, lambda fraction, ended: connection.send((_PROGRESS, (fraction, ended))))
            connection.send((_DONE, outcome.value) if outcome.error is None else (_FAILED, outcome.error))


def _end_with_parent() -> None:
    """Wait for the parent's death, and die: a task in full flow would not notice before its end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
