"""What happens to a malformed line of a trace: it ends the reading, or it is left out and counted."""

from dataclasses import dataclass, field

from models.errors import TraceError

REMEMBERED = 5
"""Malformed lines of which the place and the problem are kept; of the others only the number."""


@dataclass(slots=True, kw_only=True)
class BadLines:
    """Takes the malformed lines of one trace.

    A trace may be read several times, and a line may be wrong in several ways; each line counts once.

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
    # A bit for each line of a file up to the last one left out: ten million lines take 1.25 MB.
    _left_out: dict[str, bytearray] = field(default_factory=dict, init=False, repr=False)

    def report(self, where: str, problem: str) -> None:
        """Take the malformed line at *where* (``file:line``): return if it is to be left out, else raise TraceError."""
        error = TraceError(where, problem)
        if not self.skip:
            raise error
        file, _, line = where.rpartition(":")
        byte, bit = divmod(int(line), 8)
        left_out = self._left_out.setdefault(file, bytearray())
        left_out.extend(bytes(max(byte + 1 - len(left_out), 0)))
        if left_out[byte] >> bit & 1:
            return
        left_out[byte] |= 1 << bit
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
