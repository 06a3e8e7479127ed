"""Decode steps of an unchanged batch: every step's edge in closed form, so that many steps are one jump.

While the batch does not change, each step reads one more token of context a request, so that both sides of the roofline
are straight lines in the step's number and a step costs ``overhead + max(compute + i*c1, memory + i*m1)``. The edge
after ``j`` steps is ``anchor + S(j)``: one function of ``j``, never accumulated, used by jumps and by single steps
alike. So both see the same edges to the last bit, and an arrival exactly on an edge falls in the same step either way.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final

UNLIMITED_STEPS: Final = 1 << 40
"""More steps than any request has: the lines hold until something else changes."""


@dataclass(slots=True)  # never changed once made, but not frozen: a frozen one takes three times as long to make
class DecodeRun:
    """The steps of one unchanged decode batch; made by :func:`decode_run`.

    Parameters
    ----------
    anchor_s : float
        When step 0 begins [s].
    overhead_s : float
        Cost of every step beside the roofline [s].
    first_s, first_slope_s : float
        The side of the roofline that is higher at step 0: ``first_s + i * first_slope_s`` for step ``i`` [s].
    then_s, then_slope_s : float
        The other side likewise [s].
    valid_steps : int
        The lines hold for steps ``0 .. valid_steps - 1``.
    crossing : int
        First step at which the other side is the higher one; ``valid_steps`` if there is none.
    """

    anchor_s: float
    overhead_s: float
    first_s: float
    first_slope_s: float
    then_s: float
    then_slope_s: float
    valid_steps: int
    crossing: int

    def edge_s(self, steps: int) -> float:
        """Return when step ``steps - 1`` ends and step ``steps`` begins [s]."""
        if steps <= self.crossing:
            climbed = self.first_slope_s * (steps * (steps - 1) // 2)
            return self.anchor_s + (steps * self.overhead_s + (steps * self.first_s + climbed))
        before = self.crossing
        pairs = before * (before - 1) // 2
        total = steps * self.overhead_s + (before * self.first_s + self.first_slope_s * pairs)
        total += (steps - before) * self.then_s + self.then_slope_s * (steps * (steps - 1) // 2 - pairs)
        return self.anchor_s + total

    def step_s(self, step: int) -> float:
        """Return how long step ``step`` takes [s]."""
        first_s = self.first_s + step * self.first_slope_s
        then_s = self.then_s + step * self.then_slope_s
        return self.overhead_s + (first_s if first_s >= then_s else then_s)

    def steps_until(self, when_s: float) -> int:
        """Return the smallest number of steps whose edge is not before ``when_s``, or all of the valid ones."""
        if when_s <= self.anchor_s:
            return 0
        elapsed_s = when_s - self.anchor_s
        steps = min(_solve(elapsed_s, self.overhead_s + self.first_s, self.first_slope_s), self.valid_steps)
        if steps > self.crossing:
            crossing = self.crossing
            elapsed_s -= self.edge_s(crossing) - self.anchor_s
            pace_s = self.overhead_s + self.then_s + crossing * self.then_slope_s
            steps = min(crossing + _solve(elapsed_s, pace_s, self.then_slope_s), self.valid_steps)
        # The closed form may be a step off; the edges themselves decide, so the answer is exact.
        while steps < self.valid_steps and self.edge_s(steps) < when_s:
            steps += 1
        while self.edge_s(steps - 1) >= when_s:
            steps -= 1
        return steps


def _solve(elapsed_s: float, first_s: float, slope_s: float) -> int:
    """Return about how many steps of ``first_s + i * slope_s`` fill ``elapsed_s``, at least one."""
    # Their sum is half * n^2 + (first - half) * n; this form of the root loses no digits when half is small.
    half_s = 0.5 * slope_s
    linear_s = first_s - half_s
    return max(1, ceil(2.0 * elapsed_s / (linear_s + sqrt(linear_s * linear_s + 4.0 * half_s * elapsed_s))))


def decode_run(
    anchor_s: float,
    overhead_s: float,
    compute: tuple[float, float],
    memory: tuple[float, float],
    valid_steps: int,
) -> DecodeRun:
    """Build a :class:`DecodeRun`; ``compute`` and ``memory`` are (cost of step 0, increase a step) [s]."""
    (first, first_slope), (then, then_slope) = (compute, memory) if compute[0] >= memory[0] else (memory, compute)
    crossing = valid_steps
    if then_slope > first_slope:
        meet = (first - then) / (then_slope - first_slope)
        if meet < valid_steps:
            crossing = max(ceil(meet), 1)
    return DecodeRun(anchor_s, overhead_s, first, first_slope, then, then_slope, valid_steps, crossing)
