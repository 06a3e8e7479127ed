"""How often chunks were used lately, resident or not: what TinyLFU keeps in a sketch."""


class Frequencies:
    """Counts of uses, at most ``most`` each, all halved every ``sample`` uses.

    TinyLFU keeps them in a count-min sketch of 4-bit counters (Einziger, Friedman and Manes, TinyLFU, ACM TOS 2017);
    here they are exact, so that nothing depends on a hash. What has been halved to 0 is forgotten.
    """

    __slots__ = ("_counts", "_most", "_sample", "_uses")

    def __init__(self, sample: int, most: int = 15) -> None:
        self._counts: dict[int, int] = {}
        self._sample = max(sample, 1)
        self._most = most
        self._uses = 0

    def add(self, key: int) -> int:
        """Count a use and return how many there are."""
        counts = self._counts
        count = counts.get(key, 0)
        if count < self._most:
            count += 1
            counts[key] = count
        self._uses += 1
        if self._uses >= self._sample:
            self._uses //= 2
            self._counts = {key: count >> 1 for key, count in counts.items() if count > 1}
            return count >> 1
        return count

    def count(self, key: int) -> int:
        """Return how many uses are remembered."""
        return self._counts.get(key, 0)
