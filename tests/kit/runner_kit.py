"""Tasks for the runner; other processes import them from here."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from models.errors import UnknownNameError

Report = Callable[[float | None, int], None]


def squared(task: int, report: Report) -> int:
    report(0.5, 10)
    return task * task


def odd_one_out(task: int, report: Report) -> int:
    """Fail in another way for each task below 4."""
    if task == 0:
        raise UnknownNameError("tier", "drum", ["dram"])
    if task == 1:
        return [][task]
    if task == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if task == 3:
        os._exit(7)
    return task


def pid(task: int, report: Report) -> int:
    time.sleep(0.1)
    return os.getpid()


def forever(task: int, report: Report) -> None:
    report(0.0, os.getpid())
    while True:  # busy, as a simulation is
        sum(range(1000))


def half_known(task: int, report: Report) -> None:
    """Say only how many requests have ended."""
    report(None, 50)
    report(None, 100)


def dies(task: tuple[str, int], report: Report) -> int:
    """Kill the process as many times as the task says, a letter in its file each; return the number of the try."""
    path, deaths = Path(task[0]), task[1]
    tries = len(path.read_text()) if path.exists() else 0
    if tries < deaths:
        path.write_text("x" * (tries + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return tries + 1


def fails_in(task: tuple[str, str], report: Report) -> None:
    """Leave a file named as the process, and fail."""
    (Path(task[1]) / str(os.getpid())).touch()
    time.sleep(0.2)  # so that the other process gets some
    if task[0] == "foreseen":
        raise UnknownNameError("tier", "drum", ["dram"])
    if task[0] == "another":
        raise ZeroDivisionError
