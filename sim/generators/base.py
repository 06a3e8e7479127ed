"""What a generator is to the rest of kvtier, and the checks that all of them share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from models.errors import InputError
from sim.generators.arrivals import GeneratedTrace
from sim.registry import Registry
from sim.traces.record import Trace
from sim.traces.sessions import Session


class Generator(Protocol):
    """Makes a trace from a seed."""

    def trace(self) -> Trace:
        """Return the trace; equal parameters make equal traces."""
        ...


GENERATORS: Registry[Generator] = Registry("synthetic workload", package="sim.generators", requires=("trace",))

_COUNTS = ("requests", "block_tokens", "sessions")
_POSITIVE = ("duration_s", "session_rate_per_s", "length_scale", "arrival_quantum_s", "rate_scale")


def check_parameters(generator: object, kind: str) -> None:
    """Refuse parameters that describe no workload; raises InputError that starts with the *kind* of workload.

    A generator needs exactly one of *requests*, *duration_s* and, where it has that, *sessions*. Counts must be at
    least 1, times, rates and scales above 0 and finite, wherever the generator has them and they are not None.
    """
    ends = [name for name in ("requests", "duration_s", "sessions") if hasattr(generator, name)]
    if sum(getattr(generator, name) is not None for name in ends) != 1:
        allowed = f"{', '.join(ends[:-1])} or {ends[-1]}"
        raise InputError(f"a {kind} workload needs either {allowed}, and not more than one of them")
    require(getattr(generator, "seed", 0) >= 0, kind, "seed", getattr(generator, "seed", 0), "0 or more")
    for name in _COUNTS:
        value = getattr(generator, name, None)
        require(value is None or value >= 1, kind, name, value, "at least 1")
    for name in _POSITIVE:
        value = getattr(generator, name, None)
        require(value is None or 0 < value < math.inf, kind, name, value, "above 0 and finite")


def require(holds: bool, kind: str, name: str, value: object, allowed: str) -> None:
    """Raise InputError about parameter *name* of a *kind* of workload unless it *holds*."""
    if not holds:
        raise InputError(f"{kind} workload: {name} is {value}; must be {allowed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionGenerator(ABC):
    """Base of generators that draw whole sessions; a class below it says its kind, its rate and how one is drawn."""

    kind: ClassVar[str]
    """As it is registered."""
    seed: int = 0
    requests: int | None = None
    duration_s: float | None = None
    session_rate_per_s: float
    rate_scale: float = 1.0
    length_scale: float = 1.0
    block_tokens: int = 512

    def __post_init__(self) -> None:
        """Refuse parameters that describe no workload; raises InputError."""
        check_parameters(self, self.kind)

    def trace(self) -> GeneratedTrace:
        """Return the requests as a trace that can be read any number of times, by arrival or by session."""
        return GeneratedTrace(
            name=f"{self.kind}-seed-{self.seed}",
            block_tokens=self.block_tokens,
            draw=self._sessions,
            requests=self.requests,
            duration_s=self.duration_s,
            **self._trace_options(),
        )

    def _trace_options(self) -> dict[str, Any]:
        """Return what else its trace is to know."""
        return {}

    @abstractmethod
    def _sessions(self) -> Iterator[Session]:
        """Return a fresh iterator over the sessions by start."""
