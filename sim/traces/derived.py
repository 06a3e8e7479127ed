"""What a trace that is made of another one has in common with it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from sim.traces.record import Trace

TraceT = TypeVar("TraceT", bound=Trace)


@dataclass(slots=True, kw_only=True)
class DerivedTrace(Generic[TraceT]):
    """Base of traces that read another trace in another way.

    Parameters
    ----------
    trace
        The one that it is made of.
    """

    trace: TraceT

    @property
    def name(self) -> str:
        """Its name."""
        return self.trace.name

    @property
    def block_tokens(self) -> int:
        """Size of its blocks [tokens]."""
        return self.trace.block_tokens

    @property
    def has_prefixes(self) -> bool:
        """Whether its records say which blocks they share."""
        return self.trace.has_prefixes
