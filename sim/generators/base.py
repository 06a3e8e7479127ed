"""What a generator is to the rest of kvtier, and the checks that all of them share."""

import math
from typing import Protocol

from models.errors import InputError
from sim.registry import Registry
from sim.traces.record import Trace


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
