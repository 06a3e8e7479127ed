"""Decode steps of an unchanged batch: every step's edge in closed form, so that many steps are one jump.

While the batch does not change, each step reads one more token of context a request, so that a step's time is a
straight line in the step's number. The edge after ``j`` steps is ``anchor + S(j)``: one function of ``j``, never
accumulated, used by jumps and by single steps alike. So both see the same edges to the last bit, and an arrival exactly
on an edge falls in the same step either way.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final

UNLIMITED_STEPS: Final = 1 << 40
"""More steps than any request has: the line holds until something else changes."""


@dataclass(slots=True)  # never changed once made, but not frozen: a frozen one takes three times as long to make
class DecodeRun:
    """The steps of one unchanged decode batch.

    Parameters
    ----------
    anchor_s : float
        When step 0 begins [s].
    first_s, slope_s : float
        Step ``i`` takes ``first_s + i * slope_s`` [s].
    valid_steps : int
        The line holds for steps ``0 .. valid_steps - 1``.
    """

    anchor_s: float
    first_s: float
    slope_s: float
    valid_steps: int = UNLIMITED_STEPS

    def edge_s(self, steps: int) -> float:
        """Return when step ``steps - 1`` ends and step ``steps`` begins [s]."""
        return self.anchor_s + (steps * self.first_s + self.slope_s * (steps * (steps - 1) // 2))

    def step_s(self, step: int) -> float:
        """Return how long step ``step`` takes [s]."""
        return self.first_s + step * self.slope_s

    def steps_until(self, when_s: float) -> int:
        """Return the smallest number of steps whose edge is not before ``when_s``, or all of the valid ones."""
        if when_s <= self.anchor_s:
            return 0
        steps = min(self._about(when_s - self.anchor_s), self.valid_steps)
        # The closed form may be a step off; the edges themselves decide, so the answer is exact.
        while steps < self.valid_steps and self.edge_s(steps) < when_s:
            steps += 1
        while self.edge_s(steps - 1) >= when_s:
            steps -= 1
        return steps

    def _about(self, elapsed_s: float) -> int:
        """Return about how many steps fill ``elapsed_s``, at least one."""
        # Their sum is half * n^2 + (first - half) * n; this form of the root loses no digits when half is small.
        half_s = 0.5 * self.slope_s
        linear_s = self.first_s - half_s
        return max(1, ceil(2.0 * elapsed_s / (linear_s + sqrt(linear_s * linear_s + 4.0 * half_s * elapsed_s))))
