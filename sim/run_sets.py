"""Sets and counts of chunks, kept as runs: what they cost goes by the number of runs, not of chunks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from sim.runs import STRAND_BITS, Chain
from sim.runs import count as count_chunks


class RunSet:
    """A set of keys.

    Each strand has the sorted bounds of its runs, start and stop in turn: a key is inside where an odd number of bounds
    lies at or below it.

    Parameters
    ----------
    runs : iterable of range
        Ascending runs of keys to begin with; they may overlap.
    """

    __slots__ = ("_bounds", "_size")

    def __init__(self, runs: Iterable[range] = ()) -> None:
        self._bounds: dict[int, list[int]] = {}
        self._size = 0
        for run in runs:
            self.add(run)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: int) -> bool:
        bounds = self._bounds.get(key >> STRAND_BITS)
        return bounds is not None and bisect_right(bounds, key) & 1 == 1

    def holds(self, low: int, high: int) -> bool:
        """Return whether all keys from ``low`` to below ``high``, of one strand and at least one, are in the set."""
        bounds = self._bounds.get(low >> STRAND_BITS)
        if bounds is None:
            return False
        place = bisect_right(bounds, low)
        return place & 1 == 1 and bounds[place] >= high

    def runs(self) -> Iterator[range]:
        """Yield all keys as runs; the set must not be changed meanwhile."""
        for bounds in self._bounds.values():
            yield from map(range, bounds[::2], bounds[1::2])

    def leading(self, run: range) -> int:
        """Return how many keys at the head of ``run`` are in the set; where none is, minus how many are not."""
        start, stop = run.start, run.stop
        bounds = self._bounds.get(start >> STRAND_BITS)
        if bounds is None:
            return start - stop
        place = bisect_right(bounds, start)
        if place < len(bounds) and bounds[place] < stop:
            stop = bounds[place]
        return stop - start if place & 1 else start - stop

    def leading_of(self, chain: Chain) -> int:
        """Return how many chunks at the head of a chain are in the set."""
        found = 0
        for run in chain.runs:
            length = self.leading(run)
            if length > 0:
                found += length
            if length < len(run):
                break
        return found

    def present(self, run: range) -> list[range]:
        """Return the parts of ``run`` that are in the set."""
        parts = []
        length = self.leading(run)
        while abs(length) < len(run):
            if length > 0:
                parts.append(run[:length])
            run = run[abs(length) :]
            length = self.leading(run)
        if length > 0:
            parts.append(run)
        return parts

    def absent(self, run: range) -> list[range]:
        """Return the parts of ``run`` that are not in the set, in the order of the run (which may descend)."""
        if run.step < 0:
            return [part[::-1] for part in reversed(self.absent(run[::-1]))]
        parts = []
        length = self.leading(run)
        while abs(length) < len(run):
            if length < 0:
                parts.append(run[:-length])
            run = run[abs(length) :]
            length = self.leading(run)
        if length < 0:
            parts.append(run)
        return parts

    def add(self, run: range) -> None:
        """Put the keys of an ascending run in; some may be there already."""
        start, stop = run.start, run.stop
        bounds = self._bounds.get(start >> STRAND_BITS)
        if bounds is None:
            self._bounds[start >> STRAND_BITS] = [start, stop]
            self._size += stop - start
            return
        if bounds[-1] == start:  # most runs continue what is there
            bounds[-1] = stop
            self._size += stop - start
            return
        self._size += count_chunks(self.absent(run))
        # Bounds inside or at the ends of the run go; its own stay where the set did not reach across them.
        first, last = bisect_left(bounds, start), bisect_right(bounds, stop)
        kept = [] if first % 2 else [start]
        if not last % 2:
            kept.append(stop)
        bounds[first:last] = kept

    def remove(self, run: range) -> None:
        """Take the keys of an ascending run out; KeyError if one is not there."""
        start, stop = run.start, run.stop
        strand = start >> STRAND_BITS
        bounds = self._bounds[strand]
        first = bisect_right(bounds, start)
        if not first & 1 or bounds[first] < stop:
            raise KeyError(run)
        self._size -= stop - start
        low, high = bounds[first - 1], bounds[first]
        if low == start and stop < high:  # as when chunks are evicted from the head of a prompt on
            bounds[first - 1] = stop
            return
        if low < start and stop == high:
            bounds[first] = start
            return
        kept = [low, start, stop, high] if low < start else []
        bounds[first - 1 : first + 1] = kept
        if not bounds:
            del self._bounds[strand]

    def discard(self, run: range) -> None:
        """Take out those keys of an ascending run that are there."""
        for part in self.present(run):
            self.remove(part)


class RunCounts:
    """How often each key is counted; keys counted 0 times are not in it.

    Each strand has a step function: sorted bounds, and between two of them the count that all keys there have.
    """

    __slots__ = ("_size", "_steps")

    def __init__(self) -> None:
        self._steps: dict[int, tuple[list[int], list[int]]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: int) -> bool:
        steps = self._steps.get(key >> STRAND_BITS)
        if steps is None:
            return False
        bounds, counts = steps
        place = bisect_right(bounds, key)
        return 0 < place < len(bounds) and counts[place - 1] > 0

    def add(self, run: range) -> None:
        """Count each key of an ascending run once more."""
        strand = run.start >> STRAND_BITS
        steps = self._steps.get(strand)
        if steps is None:
            self._steps[strand] = ([run.start, run.stop], [1])
            self._size += run.stop - run.start
        elif steps[0][-1] == run.start and steps[1][-1] == 1:  # as when a prefill goes on
            steps[0][-1] = run.stop
            self._size += run.stop - run.start
        else:
            self._change(steps, run, 1)

    def remove(self, run: range) -> list[range]:
        """Count each key of an ascending run once less; return the parts that are at 0 now. KeyError below 0."""
        strand = run.start >> STRAND_BITS
        steps = self._steps[strand]
        if steps == ([run.start, run.stop], [1]):
            del self._steps[strand]
            self._size -= run.stop - run.start
            return [run]
        return self._change(steps, run, -1)

    def absent(self, run: range) -> list[range]:
        """Return the parts of ``run`` that are counted 0 times, in the order of the run (which may descend)."""
        steps = self._steps.get(run.start >> STRAND_BITS)
        if steps is None:
            return [run]
        bounds, counts = steps
        at, stop = (run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1)
        place = bisect_right(bounds, at)
        if 0 < place < len(bounds) and bounds[place] >= stop:  # all of it in one step, as mostly
            return [] if counts[place - 1] else [run]
        parts = []
        while at < stop:
            end = min(bounds[place], stop) if place < len(bounds) else stop
            if not 0 < place < len(bounds) or not counts[place - 1]:
                parts.append(range(at, end))
            at, place = end, place + 1
        return parts if run.step > 0 else [part[::-1] for part in reversed(parts)]

    def at_least(self, run: range, least: int) -> list[range]:
        """Return the parts of an ascending ``run`` that are counted ``least`` times or more (``least`` above 0)."""
        steps = self._steps.get(run.start >> STRAND_BITS)
        if steps is None:
            return []
        bounds, counts = steps
        parts: list[range] = []
        for place in range(max(bisect_right(bounds, run.start), 1), len(bounds)):
            low, high = max(bounds[place - 1], run.start), min(bounds[place], run.stop)
            if low >= high:
                break
            if counts[place - 1] < least:
                continue
            if parts and parts[-1].stop == low:
                parts[-1] = range(parts[-1].start, high)
            else:
                parts.append(range(low, high))
        return parts

    def _change(self, steps: tuple[list[int], list[int]], run: range, by: int) -> list[range]:
        """Count the keys of ``run`` by so much more or less; return the parts that are at 0 now."""
        bounds, counts = steps
        first = bisect_left(bounds, run.start)
        if first < len(counts) and bounds[first] == run.start and bounds[first + 1] == run.stop:
            # What many share, such as a system prompt, is a step of its own and mostly stays one.
            changed = counts[first] + by
            before = counts[first - 1] if first else 0
            after = counts[first + 1] if first + 1 < len(counts) else 0
            if changed > 0 and counts[first] and before != changed != after:
                counts[first] = changed
                return []
        if by < 0 and self.absent(run):
            raise KeyError(run)
        first, last = _split(bounds, counts, run.start), _split(bounds, counts, run.stop)
        counts[first:last] = [count + by for count in counts[first:last]]
        edge = max(by, 0)  # the count after which a key has come in, or gone
        moved = [range(bounds[at], bounds[at + 1]) for at in range(first, last) if counts[at] == edge]
        self._size += by * count_chunks(moved)
        for place in range(last, first - 1, -1):  # what is equal to its neighbour is one step again
            before = counts[place - 1] if place else 0
            after = counts[place] if place < len(counts) else 0
            if before == after:
                _merge(bounds, counts, place)
        return moved if by < 0 else []


def _split(bounds: list[int], counts: list[int], at: int) -> int:
    """Make ``at`` a bound and return its place."""
    place = bisect_left(bounds, at)
    if place == len(bounds):
        bounds.append(at)
        counts.append(0)
    elif bounds[place] != at:
        bounds.insert(place, at)
        counts.insert(max(place - 1, 0), counts[place - 1] if place else 0)
    return place


def _merge(bounds: list[int], counts: list[int], place: int) -> None:
    """Remove a bound whose two sides count the same."""
    del bounds[place]
    del counts[place - 1 if place else 0]
