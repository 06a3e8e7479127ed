"""The requests of a replica that decode together: one token each a tick, so that their sums follow from the tick."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from models.operator_tables import OperatorTables
from models.prefill import prefill_step_s
from models.roofline import StepCost
from models.step_table import StepTable
from models.step_times import StepTimes
from sim.engine.decode import UNLIMITED_STEPS, DecodeRun
from sim.engine.request import Request

Prefill = tuple[Request, int, int]
"""Part of a prompt: whose, the tokens that are there already, and those that the step computes."""


class DecodeBatch:
    """Decoding requests, what their next steps cost, when they finish and when they need blocks.

    Parameters
    ----------
    cost : StepTimes
        What a step takes.
    block_tokens : int
        Engine block [tokens].
    window_tokens : int or None
        Attention window of the model's windowed layers [tokens].
    """

    __slots__ = (
        "_block_tokens",
        "_cost",
        "_ends",
        "_gap_ticks",
        "_gaps_s",
        "_new_block_at",
        "_offset_sum",
        "_window_tokens",
        "n",
        "tick",
    )

    def __init__(self, *, cost: StepTimes, block_tokens: int, window_tokens: int | None) -> None:
        self._cost = cost
        self._block_tokens = block_tokens
        self._window_tokens = window_tokens
        self.n = 0
        """How many requests decode."""
        self.tick = 0
        """Decode steps taken so far."""
        self._ends: list[tuple[int, int, Request]] = []
        self._offset_sum = 0
        # How many requests take a new block in the step after each tick, by the tick's place in a block.
        self._new_block_at = [0] * block_tokens
        # Inter-token maxima: a stack of (tick, duration), durations falling, for the largest one since any tick.
        self._gap_ticks: list[int] = []
        self._gaps_s: list[float] = []

    # Who decodes -----------------------------------------------------------------------------------------------------

    def join(self, request: Request, steps: int) -> None:
        """Let a request whose target is in HBM decode ``steps`` tokens."""
        tick = self.tick
        request.started_tick = tick
        offset = request.position_offset = request.target - tick
        self.n += 1
        self._offset_sum += offset
        self._new_block_at[-offset % self._block_tokens] += 1
        heappush(self._ends, (tick + steps, request.request_id, request))

    def advance(self, steps: int, longest_s: float) -> Sequence[Request]:
        """Take ``steps`` steps, the longest of ``longest_s`` [s]; return the requests that are done with them."""
        tick = self.tick = self.tick + steps
        ticks, gaps = self._gap_ticks, self._gaps_s
        while gaps and gaps[-1] <= longest_s:
            gaps.pop()
            ticks.pop()
        gaps.append(longest_s)
        ticks.append(tick)
        ends = self._ends
        if ends[0][0] > tick:
            return ()
        due = []
        while ends and ends[0][0] <= tick:
            request = heappop(ends)[2]
            self._leave(request)
            due.append(request)
        return due

    def remove(self, request: Request) -> None:
        """Take out a request before its end (preemption)."""
        self._leave(request)
        self._ends = [entry for entry in self._ends if entry[2] is not request]
        heapify(self._ends)

    def _leave(self, request: Request) -> None:
        offset, block = request.position_offset, self._block_tokens
        self.n -= 1
        self._offset_sum -= offset
        self._new_block_at[-offset % block] -= 1
        decoded = self.tick - request.started_tick
        request.generated += decoded
        # The blocks that growth took for it since its prefill, by the same rule as in growth().
        request.private_units += -(-(request.target + decoded) // block) - -(-request.target // block)

    def largest_gap_since(self, tick: int) -> float:
        """Return the longest step after ``tick`` [s]."""
        return self._gaps_s[bisect_right(self._gap_ticks, tick)]

    @property
    def steps_to_finish(self) -> int:
        """Steps until the first of them has all its tokens."""
        return self._ends[0][0] - self.tick

    # What steps cost -------------------------------------------------------------------------------------------------

    @property
    def context_tokens(self) -> int:
        """Context that the next step reads, summed over the requests [tokens]."""
        return self.n * (self.tick + 1) + self._offset_sum

    def _window_state(self) -> tuple[int, int, int]:
        """Return windowed context of the next step, how many contexts still grow in it, and for how many steps."""
        window = self._window_tokens
        total, below, steps = 0, 0, UNLIMITED_STEPS
        if window is None:
            return total, below, steps
        for _, _, request in self._ends:
            context = self.tick + 1 + request.position_offset
            if context < window:
                total += context
                below += 1
                steps = min(steps, window - context)
            else:
                total += window
        return total, below, steps

    def anchor(self, now_s: float) -> DecodeRun:
        """Return the steps of the batch as it is, the next one beginning now.

        Raises
        ------
        ScenarioError
            If step times come from a table, and the next step lies outside it.
        """
        n, cost, held = self.n, self._cost, self.context_tokens
        if not isinstance(cost, StepCost):
            first_s, slope_s, line_end = cost.decode_line(n, held)
            return DecodeRun(now_s, first_s, slope_s * n, (line_end - held) // n + 1)
        windowed, below, steps = self._window_state()
        full_s, window_s = cost.decode_s_per_context_token, cost.decode_s_per_window_token
        first_s = cost.beside_attention_s(n, n) + full_s * held + window_s * windowed
        return DecodeRun(now_s, first_s, full_s * n + window_s * below, steps)

    def mixed_step_s(self, prefills: Sequence[Prefill], *, decodes: bool = True) -> float:
        """Return the time of a step that computes parts of prompts, beside the batch's own tokens if it *decodes* [s].

        Raises ScenarioError as :meth:`anchor` does.
        """
        n, cost, window = self.n if decodes else 0, self._cost, self._window_tokens
        if isinstance(cost, OperatorTables):
            parts = [(done, new) for _, done, new in prefills]
            return cost.step_s(parts, decodes=n, decode_context_tokens=self.context_tokens if decodes else 0)
        tokens = n
        pairs = context = window_pairs = window_context = 0
        for _, done, new in prefills:
            tokens += new
            pairs += new * done + new * (new + 1) // 2
            context += done + new
            if window is not None:
                window_pairs += _window_sum(done + new, window) - _window_sum(done, window)
                window_context += min(done, window) + new
        if n:
            held = self.context_tokens
            pairs += held
            context += held
            if window is not None:
                windowed = self._window_state()[0]
                window_pairs += windowed
                window_context += windowed
        return cost.step_s(
            tokens=tokens,
            sequences=n + len(prefills),
            prompts=len(prefills),
            pairs=pairs,
            window_pairs=window_pairs,
            context_tokens=context,
            window_context_tokens=window_context,
        )

    def prefill_s_per_token(self, budget: int) -> float:
        """Return the time of a prompt token in a step of ``budget`` tokens of one new prompt and nothing else [s]."""
        cost = self._cost
        if not isinstance(cost, StepTable):
            return prefill_step_s(cost, 0, budget, window_tokens=self._window_tokens) / budget
        tokens = min(budget, cost.tokens[-1])  # as far as it was measured
        context = min(max(tokens, cost.context_tokens[0]), cost.context_tokens[-1])
        return cost.decode_line(tokens, context)[0] / tokens

    # What steps need -------------------------------------------------------------------------------------------------

    def growth(self, first: int, steps: int) -> int:
        """Return the blocks that ``steps`` decode steps take from tick ``first`` on."""
        block, at = self._block_tokens, self._new_block_at
        rounds, rest = divmod(steps, block)
        units = rounds * self.n
        if rest:
            start = first % block
            end = start + rest
            units += sum(at[start:end]) if end <= block else sum(at[start:]) + sum(at[: end - block])
        return units

    def next_growth(self) -> int:
        """Return the blocks that the next step takes."""
        return self._new_block_at[self.tick % self._block_tokens]

    def affordable_steps(self, count: int, room: int) -> int:
        """Return how many of the next ``count`` steps find blocks in ``room`` (the first one has its own)."""
        first = self.tick + 1
        # The bound spares most jumps the exact count: in each started block's worth of steps everybody takes one block.
        if self.n * (count // self._block_tokens + 1) <= room or self.growth(first, count - 1) <= room:
            return count
        low, high = 1, count
        while high - low > 1:
            middle = (low + high) // 2
            if self.growth(first, middle - 1) <= room:
                low = middle
            else:
                high = middle
        return low


def _window_sum(position: int, window: int) -> int:
    """Return the (query, key) pairs of the first ``position`` tokens when each sees at most ``window`` tokens."""
    inside = min(position, window)
    return inside * (inside + 1) // 2 + (position - inside) * window
