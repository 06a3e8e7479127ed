"""The decode run under way: how far the present jump goes, and the HBM blocks that its steps take on the way."""

from __future__ import annotations

from typing import NamedTuple

from models.errors import InvariantError
from sim.engine.decode import DecodeRun
from sim.engine.decode_batch import DecodeBatch
from sim.policies.leaf import LeafConstrained
from sim.tiers.tier import Tier


class Jump(NamedTuple):
    """A jump that has been taken: its steps, the first and last one's length [s], and all of them together [s]."""

    steps: int
    first_s: float
    last_s: float
    total_s: float


class DecodeJumps:
    """Plans jumps over the steps of an unchanged decode batch.

    Parameters
    ----------
    batch : DecodeBatch
        Who decodes.
    hbm : Tier
        Where its tokens go.
    """

    __slots__ = ("_batch", "_edge_s", "_grown", "_hbm", "_run", "_steps", "_to", "_to_edge_s")

    def __init__(self, batch: DecodeBatch, hbm: Tier) -> None:
        self._batch = batch
        self._hbm = hbm
        # Steps taken since the run's anchor, where the jump goes, both edges, and the steps whose blocks are taken.
        self._run: DecodeRun | None = None
        self._steps = self._to = self._grown = 0
        self._edge_s = self._to_edge_s = 0.0

    def forget(self) -> None:
        """The batch has changed: the next plan begins a new run."""
        self._run = None

    def plan(self, now_s: float, *, single: bool) -> float:
        """Begin a jump to the next step that can change the batch (``single``: of one step) and return its end [s].

        The blocks of its first step are taken already.
        """
        batch, run = self._batch, self._run
        if run is None or self._steps >= run.valid_steps:
            run = self._run = batch.anchor(now_s)
            self._steps = 0
            self._edge_s = now_s
        start = self._steps
        self._grown = start + 1
        count = 1
        if not single:
            count = min(batch.steps_to_finish, run.valid_steps - start)
            if count > 1:
                count = batch.affordable_steps(count, self._room())
        return self._go_to(run, start + count)

    def cut(self, now_s: float, *, since: int = 0, every: int = 1) -> float | None:
        """End the jump at the next edge; return that edge [s], None where the jump ends there anyway.

        With *every* above 1, only edges count that many steps apart, the last of which was *since* steps before the
        jump began.
        """
        run, start = self._run, self._steps
        if run is None or self._to <= start + 1:
            return None
        to = max(run.steps_until(now_s), start + 1)
        to += -(to - start + since) % every
        return self._go_to(run, to) if to < self._to else None

    def _go_to(self, run: DecodeRun, steps: int) -> float:
        self._to = steps
        edge_s = self._to_edge_s = run.edge_s(steps)
        return edge_s

    def _room(self) -> int:
        """Return the blocks that a jump may count on.

        Where evicting takes a transfer (a write-back tier below), or a prefix tree may keep unpinned chunks, those are
        the blocks that are free now.
        """
        hbm = self._hbm
        if hbm.spill is not None or isinstance(hbm.policy, LeafConstrained):
            return hbm.free_units
        return hbm.available_units

    def catch_up(self, now_s: float) -> None:
        """Take the blocks of the steps that have begun, before somebody else looks at the pool or changes it."""
        if self._run is not None and self._to > self._grown:
            self._grow_to(min(self._run.steps_until(now_s), self._to))

    def _grow_to(self, steps: int) -> None:
        if steps > self._grown:
            units = self._batch.growth(self._batch.tick + self._grown - self._steps, steps - self._grown)
            if units and not self._hbm.take(units):
                message = "a decode jump ran out of HBM blocks that it had counted on"
                raise InvariantError(message)
            self._grown = steps

    def finish(self) -> Jump:
        """Take the jump to its end and say what it was; the batch's tick is still that of its beginning."""
        run, start, end = self._run, self._steps, self._to
        assert run is not None
        self._grow_to(end)
        jump = Jump(end - start, run.step_s(start), run.step_s(end - 1), self._to_edge_s - self._edge_s)
        self._steps = end
        self._edge_s = self._to_edge_s
        return jump
