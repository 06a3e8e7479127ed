"""A growing row of counts that says at once what the last ones add up to."""

from array import array

_BITS = 5
_GROUP = 1 << _BITS


class LiveCounts:
    """Counts in the order in which they were appended; any may change later.

    Sums are kept of every 32 counts, of every 32 such sums and so on: a change or a sum of the last counts takes a step
    for each level, four of them for a million counts. It takes 8 bytes a count.
    """

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels = [array("q")]

    def __len__(self) -> int:
        return len(self._levels[0])

    def append(self, count: int) -> None:
        """Add a count at the end."""
        levels = self._levels
        index = len(levels[0])
        for level in levels:
            if index == len(level):
                level.append(count)
            else:
                level[index] += count
            index >>= _BITS
        if len(levels[-1]) > _GROUP:
            levels.append(array("q", (sum(levels[-1][:_GROUP]), levels[-1][_GROUP])))

    def take(self, index: int, count: int) -> None:
        """Lower one of the counts."""
        for level in self._levels:
            level[index] -= count
            index >>= _BITS

    def since(self, index: int) -> int:
        """Return the sum of the counts from *index* on."""
        total = 0
        for level in self._levels[:-1]:
            within = index & (_GROUP - 1)
            if within:
                total += sum(level[index : index - within + _GROUP])
                index += _GROUP
            index >>= _BITS
        return total + sum(self._levels[-1][index:])

    def counts(self) -> "array[int]":
        """Return all counts as they are now; not to be changed."""
        return self._levels[0]
