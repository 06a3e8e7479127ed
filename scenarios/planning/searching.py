"""Finds the least of ascending values that is good enough, by bisection in log space. Knows nothing of simulations.

Two values are asked for at a time, a third and two thirds of the way by ratio: hardly more than halving asks for, and
both can be tried at once. What is asked for does not depend on who can try how many.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal, Protocol

# How far around the start is looked for a change from missed to kept, round by round, until the bounds.
_GROWTH: Final = (4.0, 8.0, 16.0, math.inf)
# The last look: so much beyond the answer, where a figure that wobbles might be good enough again; unless something
# not much farther has been tried on the way.
_BEYOND: Final = 0.1
_NOT_MUCH_FARTHER: Final = 0.25
# A figure that differs by less at both ends tells nothing of which side is better: it may be noise.
_FLAT: Final = 0.05
# So many counts beside one that cannot run are all tried: to try those that cannot either costs next to nothing.
_FEW: Final = 16


class Verdict(Protocol):
    """What became of a value."""

    @property
    def can_run(self) -> bool:
        """Whether it could be tried at all; otherwise it is not good enough."""
        ...

    @property
    def meets(self) -> bool:
        """Whether it is good enough."""
        ...

    @property
    def shortfall(self) -> float:
        """How far it is from good enough: less is better."""
        ...


Judge = Callable[[Sequence[int]], Sequence[Verdict]]
"""Tries the values at these places, all at once if it can, and returns what became of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found.

    Parameters
    ----------
    place : int or None
        Of the answer; None where no value that was tried is good enough.
    beyond : int or None
        Of the next value on the side where it is no longer good enough; None where the bounds end there.
    sense : str
        ``least``: what is larger is good enough too. ``most``: what is smaller is.
    best : int
        Nearest to good enough: the bound that the shortfall falls towards, unless it is clearly less elsewhere.
    exceptions : tuple of int
        Places that say otherwise than ``sense``: good enough beyond the answer, or not good enough on its own side.
    matters : bool
        Whether the values change anything at all.
    """

    place: int | None
    beyond: int | None
    sense: Literal["least", "most"]
    best: int
    exceptions: tuple[int, ...]
    matters: bool


def search(values: Sequence[float], start: int, judge: Judge, *, counts: bool = False) -> Found:
    """Return the least of *values* that is good enough with all larger ones that were tried, or the most.

    From *start* both ways, farther each time, until good enough changes to not good enough; between these in thirds
    until they are neighbours; then once a tenth beyond the answer. Where what is good enough changes more than once,
    the answer is the safe one: nothing that was tried on its own side is not good enough. A value that cannot be tried,
    between two that can, says nothing (32 heads on 3 GPUs); beyond all that can, it is not good enough (too few GPUs).

    Parameters
    ----------
    values : sequence of float
        Ascending, above 0.
    start : int
        Place of the value that is tried first.
    judge : callable
        Called with places that have not been tried yet.
    counts : bool
        Whether values count things, so that some cannot run by themselves and others beyond them can; else what cannot
        run is taken to reach to the bound.
    """
    search_ = _Search(values, judge, counts)
    search_.tried([start])
    search_.grow(start)
    search_.settle()
    search_.look_beyond()
    search_.settle()  # what was seen there may have turned the sense
    return search_.found()


@dataclass(slots=True)
class _Search:
    values: Sequence[float]
    judge: Judge
    counts: bool
    verdicts: dict[int, Verdict] = field(default_factory=dict)

    def tried(self, places: Sequence[int]) -> None:
        """Try the places that have not been tried."""
        new = [place for place in dict.fromkeys(places) if place not in self.verdicts]
        if new:
            self.verdicts |= dict(zip(new, self.judge(new), strict=True))

    def grow(self, start: int) -> None:
        """Look farther and farther, on the side where something may change, until it has and the end is good enough."""
        for factor in _GROWTH:
            end = max(self.verdicts) if self._sense() == "least" else min(self.verdicts)
            is_settled = not self.counts or all(one.can_run for one in self._ends())
            if self._changes() and self.verdicts[end].meets and is_settled:
                return
            down, up = self._sides()
            low, high = self._near(self.values[start] / factor), self._near(self.values[start] * factor)
            self.tried([place for place, wanted in ((low, down), (high, up)) if wanted])

    def gap(self) -> tuple[int, int] | None:
        """Return the neighbours among what was tried between which the answer lies, None where it is at a bound."""
        changes = self._changes()
        if not changes:
            return None
        return changes[-1] if self._sense() == "least" else changes[0]

    def settle(self) -> None:
        """Try what lies between until nothing is left to ask."""
        while wanted := self._between():
            self.tried(wanted)

    def _between(self) -> list[int]:
        """Return what to try next between values that were tried: where the answer lies, or where what can run ends."""
        gap = self.gap() or self._edge()
        return [] if gap is None else self._thirds(*gap)

    def _edge(self) -> tuple[int, int] | None:
        """Return the last that ran towards where it is better, and the next, which cannot; None where nothing is."""
        ran, all_ = self._ran(), sorted(self.verdicts)
        if not ran:
            return None
        if self._sense() == "least":
            return next(((ran[-1], place) for place in all_ if place > ran[-1]), None)
        return next(((place, ran[0]) for place in reversed(all_) if place < ran[0]), None)

    def _thirds(self, low: int, high: int) -> list[int]:
        """Return the places a third and two thirds from one value to another, by ratio, or the next ones not tried.

        Of counts all beside one that cannot run, if they are few.
        """
        bottom, top = self.verdicts[low].can_run, self.verdicts[high].can_run
        if self.counts and not (bottom and top):
            # Nothing that was tried farther out can run either.
            few = self._left(low if bottom else min(self.verdicts), high if top else max(self.verdicts))
            if 0 < len(few) <= _FEW:
                return few
        left = self._left(low, high)
        ratio = self.values[high] / self.values[low]
        wanted = [self._near(self.values[low] * ratio**share) for share in (1 / 3, 2 / 3)]
        return [min(left, key=lambda other: abs(other - place)) for place in wanted] if left else []

    def _left(self, low: int, high: int) -> list[int]:
        return [place for place in range(low + 1, high) if place not in self.verdicts]

    def look_beyond(self) -> None:
        """Try the value a tenth beyond the answer, which ought not to be good enough."""
        gap = self.gap()
        if gap is None:
            return
        low, high = gap
        least = self._sense() == "least"
        answer = high if least else low

        def away(place: int) -> float:
            ratio = self.values[place] / self.values[answer]
            return 1.0 - (ratio if least else 1.0 / ratio)

        place = self._near(self.values[high] * (1 - _BEYOND) if least else self.values[low] / (1 - _BEYOND))
        seen = any(away(place) <= away(other) <= _NOT_MUCH_FARTHER for other in self.verdicts)
        if not low <= place <= high and not seen:
            self.tried([place])

    def found(self) -> Found:
        """Return what the values tried say."""
        sense, gap = self._sense(), self.gap()
        place: int | None = None
        beyond: int | None = None
        if gap is not None:
            beyond, place = gap if sense == "least" else gap[::-1]
        elif next(iter(self.verdicts.values())).meets:
            place = min(self.verdicts) if sense == "least" else max(self.verdicts)
        return Found(
            place=place,
            beyond=beyond,
            sense=sense,
            best=self._best(sense),
            exceptions=self._exceptions(place, sense),
            matters=len({verdict.shortfall for verdict in self.verdicts.values()}) > 1 or len(self.verdicts) == 1,
        )

    def _best(self, sense: str) -> int:
        end = max(self.verdicts) if sense == "least" else min(self.verdicts)
        least = min(self.verdicts, key=lambda place: self.verdicts[place].shortfall)
        return least if _differ(self.verdicts[end], self.verdicts[least]) else end

    def _exceptions(self, place: int | None, sense: str) -> tuple[int, ...]:
        if place is None:
            return ()
        least = sense == "least"
        expected = {at: at >= place if least else at <= place for at in self._ran()}
        return tuple(at for at, meets in expected.items() if self.verdicts[at].meets != meets)

    def _changes(self) -> list[tuple[int, int]]:
        """Return neighbours among what was tried of which one is good enough; those that fit the sense."""
        pairs = [
            pair for pair in pairwise(self._telling()) if self.verdicts[pair[0]].meets != self.verdicts[pair[1]].meets
        ]
        upper_meets = self._sense() == "least"
        return [pair for pair in pairs if self.verdicts[pair[1]].meets == upper_meets]

    def _ran(self) -> list[int]:
        return [place for place in sorted(self.verdicts) if self.verdicts[place].can_run]

    def _telling(self) -> list[int]:
        """Return what was tried, in order, without what cannot run between two that can."""
        ran = self._ran()
        low, high = (ran[0], ran[-1]) if ran else (math.inf, -math.inf)
        return [place for place in sorted(self.verdicts) if self.verdicts[place].can_run or not low < place < high]

    def _sense(self) -> Literal["least", "most"]:
        """Return whether more is better, by the outermost of what ran, then of what was tried; where alike, it is."""
        low, high = self._ends_that_ran()
        if low.meets == high.meets:
            if _differ(low, high):
                return "most" if low.shortfall < high.shortfall else "least"
            low, high = self._ends()
        return "most" if low.meets and not high.meets else "least"

    def _sides(self) -> tuple[bool, bool]:
        """Return on which sides something may change: down, up."""
        low, high = self._ends_that_ran()
        if not _differ(low, high):
            return True, True
        more_is_better = high.shortfall < low.shortfall
        low, high = self._ends()
        return more_is_better == low.meets or not low.can_run, more_is_better != high.meets or not high.can_run

    def _ends(self) -> tuple[Verdict, Verdict]:
        return self.verdicts[min(self.verdicts)], self.verdicts[max(self.verdicts)]

    def _ends_that_ran(self) -> tuple[Verdict, Verdict]:
        ran = self._ran()
        return (self.verdicts[ran[0]], self.verdicts[ran[-1]]) if ran else self._ends()

    def _near(self, value: float) -> int:
        """Return the place of the value nearest to *value*, by ratio."""
        if value <= 0.0:
            return 0
        if value == math.inf:
            return len(self.values) - 1
        return nearest(self.values, value)


def nearest(values: Sequence[float], value: float) -> int:
    """Return which of ascending *values* is nearest to *value* by ratio, the lower of two; all are above 0."""
    at = bisect_left(values, value)
    near = [place for place in (at - 1, at) if 0 <= place < len(values)]
    return min(near, key=lambda place: abs(math.log(values[place] / value)))


def _differ(one: Verdict, other: Verdict) -> bool:
    """Whether two shortfalls are clearly apart."""
    return one.shortfall != other.shortfall and abs(one.shortfall - other.shortfall) > _FLAT
