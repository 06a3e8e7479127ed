"""Runs many tasks on a Dask cluster, as `scenarios.runner` does in processes of this machine."""

from __future__ import annotations

import logging
import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from models.errors import InputError, KvTierError, LostTaskError
from scenarios.runner import Outcome, Report, Work, attempt
from scenarios.sweeping.identity import code_fingerprint

T = TypeVar("T")
R = TypeVar("R")

_ANSWERS_WITHIN_S: Final = 10
_SOCKETS: Final = frozenset({"", "tcp", "tls"})
_SCHEMES: Final = _SOCKETS | {"ucx", "ws", "wss"}


def run_on_dask(
    work: Work[T, R], tasks: Sequence[T], *, address: str, progress: Report | None = None
) -> Generator[tuple[int, Outcome[R]], None, None]:
    """Yield the place of each task in *tasks* and its outcome as they end, from the workers of a Dask cluster.

    Every worker must have the same kvtier installed, and the files that tasks name at the same paths. A task whose
    worker is lost is given to others, as often as the scheduler's ``allowed-failures`` says; then that is its outcome.
    However the iteration is left, what has not begun does not begin. With one thread a worker
    (``dask worker --nthreads 1``), runs do not get in each other's way.

    Parameters
    ----------
    work, tasks, progress
        As for :func:`scenarios.runner.run_tasks`; how far a task is cannot be known.
    address : str
        Of the scheduler, such as ``tcp://10.0.0.1:8786``.

    Raises
    ------
    InputError
        If ``distributed`` is not installed, or no scheduler answers.
    KvTierError
        If the scheduler is lost, or a worker has no kvtier or another one.
    """
    if not tasks:
        return
    with _quiet(), _client(address) as client:
        from distributed import as_completed

        do = partial(_on_worker, work, code_fingerprint())
        # Not pure: equal tasks are run by themselves, and nothing of an earlier sweep is found.
        waiting = {future.key: future for future in client.map(do, tasks, pure=False, batch_size=100)}
        places = {key: place for place, key in enumerate(waiting)}
        try:
            # With its loop, since there is no default client: that would be the whole process's.
            for ended, future in enumerate(as_completed(list(waiting.values()), loop=client.loop), start=1):
                place, outcome = places[future.key], _outcome(future, address)
                # Forgotten once it is here: else what a worker has done would be done again when it is lost.
                del waiting[future.key], future
                if progress is not None:
                    progress(ended / len(tasks), ended)
                yield place, outcome
        finally:
            client.cancel(list(waiting.values()))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the client from logging, with a traceback, that it is trying to reach the scheduler again."""
    logger = logging.getLogger("distributed.client")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--dask needs the package distributed; install kvtier[dask]") from None
    _knock(address)
    try:
        return Client(address, timeout=_ANSWERS_WITHIN_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:  # TimeoutError is an OSError
        raise _no_answer(address, error) from None


def _knock(address: str) -> None:
    """Raise InputError where nobody listens: a client that gets no answer goes on trying, and not in silence."""
    scheme, _, place = address.rpartition("://")
    host, _, port = place.rpartition(":")
    if scheme not in _SCHEMES or not host or not port.isdigit():
        raise InputError(f"--dask {address}: must be the address of a Dask scheduler, such as tcp://10.0.0.1:8786")
    if scheme not in _SOCKETS:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWERS_WITHIN_S).close()
    except (OSError, OverflowError) as error:
        raise _no_answer(address, error) from None


def _no_answer(address: str, error: Exception) -> InputError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return InputError(f"--dask {address}: no Dask scheduler answers there: {reason}")


def _outcome(future: Any, address: str) -> Outcome[Any]:
    """Return what became of a task; raises KvTierError where that is nothing that it did itself."""
    from concurrent.futures import CancelledError

    from distributed.scheduler import KilledWorker

    try:
        found = future.result()
    except KilledWorker as error:
        return Outcome(error=LostTaskError(f"{error.allowed_failures + 1} workers died, one after another"))
    except (CancelledError, OSError):
        raise KvTierError(f"--dask {address}: the scheduler is lost, or has dropped the runs") from None
    except Exception as error:  # our own part raises nothing, so it could not be found or read there
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise KvTierError(f"--dask {address}: a worker cannot run kvtier ({reason}); install it on all") from None
    if isinstance(found, str):
        raise KvTierError(f"--dask {address}: {found}")
    outcome: Outcome[Any] = found
    return outcome


def _on_worker(work: Work[T, R], code: str, task: T) -> Outcome[R] | str:
    """Do a task; return why not where this is not the kvtier that asks."""
    if code_fingerprint() != code:
        return "a worker has another version of kvtier, or of what it rests on; install the same on all of them"
    return attempt(work, task, _silent)


def _silent(_fraction: float | None, _ended: int) -> None:
    pass
