"""Decode steps of an unchanged batch: every step's edge in closed form, so that many steps are one jump.

While the batch does not change, each step reads one more token of context a request, so that both sides of the roofline
are straight lines in the step's number and a step costs ``overhead + max(compute + i*c1, memory + i*m1)``. The edge after
``j`` steps is ``anchor + S(j)``: one function of ``j``, never accumulated, used by jumps and by single steps alike. So
both see the same edges to the last bit, and an arrival exactly on an edge falls in the same step either way.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class DecodeRun:
    """The steps of one unchanged decode batch.

    Parameters
    ----------
    anchor_s : float
        When step 0 begins [s].
    overhead_s : float
        Cost of every step beside the roofline [s].
    compute_s, compute_slope_s : float
        Compute side of step ``i``: ``compute_s + i * compute_slope_s`` [s].
    memory_s, memory_slope_s : float
        Memory side likewise [s].
    valid_steps : int
        The lines hold for steps ``0 .. valid_steps - 1``.
    crossing : int
        First step at which the side that is lower at step 0 is the higher one; ``valid_steps`` if there is none.
    """

    anchor_s: float
    overhead_s: float
    compute_s: float
    compute_slope_s: float
    memory_s: float
    memory_slope_s: float
    valid_steps: int
    crossing: int

    @property
    def _lines(self) -> tuple[float, float, float, float]:
        """The side that leads at step 0, then the other."""
        if self.compute_s >= self.memory_s:
            return self.compute_s, self.compute_slope_s, self.memory_s, self.memory_slope_s
        return self.memory_s, self.memory_slope_s, self.compute_s, self.compute_slope_s

    def edge_s(self, steps: int) -> float:
        """Return when step ``steps - 1`` ends and step ``steps`` begins [s]."""
        first, first_slope, then, then_slope = self._lines
        before = min(steps, self.crossing)
        total = steps * self.overhead_s + (before * first + first_slope * (before * (before - 1) // 2))
        if steps > before:
            pairs = steps * (steps - 1) // 2 - before * (before - 1) // 2
            total += (steps - before) * then + then_slope * pairs
        return self.anchor_s + total

    def step_s(self, step: int) -> float:
        """Return how long step ``step`` takes [s]."""
        return self.overhead_s + max(
            self.compute_s + step * self.compute_slope_s, self.memory_s + step * self.memory_slope_s
        )

    def steps_until(self, when_s: float) -> int:
        """Return the smallest number of steps whose edge is not before ``when_s``."""
        if when_s <= self.anchor_s:
            return 0
        # Steps only get longer, so the first pace bounds the number from above and the last from below; the
        # comparisons make it exact whatever the rounding of these guesses.
        elapsed = when_s - self.anchor_s
        high = int(elapsed / self.step_s(0)) + 2
        while self.edge_s(high) < when_s:
            high *= 2
        low = max(0, int(elapsed / self.step_s(high)) - 1)
        while low > 0 and self.edge_s(low) >= when_s:
            low //= 2
        while high - low > 1:
            middle = (low + high) // 2
            if self.edge_s(middle) < when_s:
                low = middle
            else:
                high = middle
        return high


def decode_run(
    anchor_s: float,
    overhead_s: float,
    compute: tuple[float, float],
    memory: tuple[float, float],
    valid_steps: int,
) -> DecodeRun:
    """Build a :class:`DecodeRun`; ``compute`` and ``memory`` are (cost of step 0, increase a step) [s]."""
    (c0, c1), (m0, m1) = compute, memory
    lead, lead_slope, other, other_slope = (c0, c1, m0, m1) if c0 >= m0 else (m0, m1, c0, c1)
    crossing = valid_steps
    if other_slope > lead_slope:
        meet = (lead - other) / (other_slope - lead_slope)
        if meet < valid_steps:
            crossing = ceil(meet)
    return DecodeRun(anchor_s, overhead_s, c0, c1, m0, m1, valid_steps, max(crossing, 1))


UNLIMITED_STEPS = 1 << 40
"""More steps than any request has: the lines hold until something else changes."""

