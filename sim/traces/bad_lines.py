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
    left_out: dict[str, int] = field(default_factory=dict, init=False)
    """Lines that are well formed and yet no request, such as a failed one without a prompt, by kind."""
    # A bit for each line of a file up to the last one left out: ten million lines take 1.25 MB.
    _seen: dict[str, bytearray] = field(default_factory=dict, init=False, repr=False)

    def report(self, where: str, problem: str) -> None:
        """Take the malformed line at *where* (``file:line``): return if it is to be left out, else raise TraceError."""
        error = TraceError(where, problem)
        if not self.skip:
            raise error
        if not self._is_new(where):
            return
        self.count += 1
        if len(self.first) < REMEMBERED:
            self.first.append(error)

    def leave_out(self, where: str, kind: str) -> None:
        """Count the well-formed line at *where* (``file:line``) as one of a *kind* (a plural) that is no request."""
        if self._is_new(where):
            self.left_out[kind] = self.left_out.get(kind, 0) + 1

    def summary(self) -> str | None:
        """Return one line that says how many lines were left out and why, or None for none."""
        said = [f"{count} {kind} left out" for kind, count in self.left_out.items()]
        if self.count:
            lines = "1 malformed line" if self.count == 1 else f"{self.count} malformed lines"
            said.append(f"{lines} left out; the first: {self.first[0]}")
        return "; ".join(said) or None

    def none_left(self) -> str | None:
        """Return what to say where all lines were left out, or None if none was."""
        summary = self.summary()
        return summary and f"no request is left: {summary}"

    def _is_new(self, where: str) -> bool:
        """Return whether the line at *where* (``file:line``) was not left out before, and note that it is."""
        file, _, line = where.rpartition(":")
        byte, bit = divmod(int(line), 8)
        seen = self._seen.setdefault(file, bytearray())
        seen.extend(bytes(max(byte + 1 - len(seen), 0)))
        if seen[byte] >> bit & 1:
            return False
        seen[byte] |= 1 << bit
        return True
