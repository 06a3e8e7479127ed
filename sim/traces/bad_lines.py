"""What happens to a malformed line of a trace: it ends the reading, or it is left out and counted."""

from dataclasses import dataclass, field

from models.errors import TraceError

REMEMBERED = 5
"""Malformed lines of which the place and the problem are kept; of the others only the number."""


@dataclass(slots=True, kw_only=True)
class BadLines:
    """Takes the malformed lines of one trace.

    A trace may be read several times; each line counts once, since every pass over a file meets its lines in order.

    Parameters
    ----------
    skip
        Leave malformed lines out and count them. By default the first one raises TraceError: a request left out
        quietly would change every result.
    """

    skip: bool = False
    count: int = field(default=0, init=False)
    """Lines left out so far."""
    first: list[TraceError] = field(default_factory=list, init=False)
    """The first few of them, with place and problem."""
    _last_line: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def report(self, where: str, problem: str) -> None:
        """Take the malformed line at *where* (``file:line``); returns if it is to be left out, else raises TraceError.

        Of several problems in one line only the first is counted.
        """
        error = TraceError(where, problem)
        if not self.skip:
            raise error
        file, _, line = where.rpartition(":")
        number = int(line)
        if number <= self._last_line.get(file, 0):
            return
        self._last_line[file] = number
        self.count += 1
        if len(self.first) < REMEMBERED:
            self.first.append(error)

    def summary(self) -> str | None:
        """Return one line that says how many lines were left out and why the first was, or None for none."""
        if not self.count:
            return None
        lines = "1 malformed line" if self.count == 1 else f"{self.count} malformed lines"
        return f"{lines} left out; the first: {self.first[0]}"

    def none_left(self) -> str | None:
        """Return what to say where all lines were left out, or None if it was not for malformed ones."""
        return f"no request is left: {self.summary()}" if self.count else None
