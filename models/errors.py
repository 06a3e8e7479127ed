"""Every error that kvtier raises on purpose; the command line turns them into one line and an exit code."""

import difflib
from collections.abc import Iterable

# Long lists of names stop being readable in one line of a terminal.
_LISTED_NAMES = 40


class KvTierError(Exception):
    """Base of all errors raised on purpose (exit code 1)."""


class InputError(KvTierError):
    """Something that the user wrote is wrong (exit code 2)."""


class LocatedError(InputError):
    """Bad input at a known place: *where* is a file, file:line or key path, *problem* says what and what is allowed."""

    def __init__(self, where: str, problem: str) -> None:
        # The raw arguments, so that type(e)(*e.args) and pickling rebuild the same error: SimPy and process pools do
        # that.
        super().__init__(where, problem)
        self.where = where
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


class ScenarioError(LocatedError):
    """A scenario, an override or a quantity in one is wrong."""


class TraceError(LocatedError):
    """A trace cannot be read."""


class CatalogueError(LocatedError):
    """A catalogue entry is wrong, or parts that were chosen do not fit together."""


class UnknownNameError(InputError):
    """A name that is looked up in a list does not stand in it."""

    def __init__(self, kind: str, name: str, allowed: Iterable[str]) -> None:
        names = tuple(allowed)
        super().__init__(kind, name, names)
        self.kind = kind
        self.name = name
        self.allowed = names

    def __str__(self) -> str:
        hint = did_you_mean(self.name, self.allowed)
        listed = ", ".join(self.allowed[:_LISTED_NAMES]) or "none"
        more = len(self.allowed) - _LISTED_NAMES
        rest = f" and {more} more" if more > 0 else ""
        return f"unknown {self.kind} '{self.name}'{hint} (allowed: {listed}{rest})"


class SimulationError(KvTierError):
    """A run failed (exit code 1)."""


class LostTaskError(SimulationError):
    """A task ended without an answer of its own: its process died, or an error came up that nobody foresaw."""


class InvariantError(SimulationError):
    """A run broke a law that must hold, such as the balance of bytes: a defect of kvtier or of a plugged-in part."""


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the closest allowed name, or nothing where none is close."""
    names = {candidate.lower(): candidate for candidate in allowed}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f"; did you mean '{names[close[0]]}'?" if close else ""
