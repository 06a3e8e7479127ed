"""One model replica: vLLM V1's step loop over a paged HBM pool, with decode steps taken in jumps.

A step takes the running requests first (every decode one token, every partial prefill what the token budget leaves), then
admits waiting ones in order while the whole prompt fits in HBM. Loads from lower tiers are either synchronous (summed over
the step's requests before the forward pass, everybody waits) or asynchronous (the request holds its blocks and joins a
later step). A request that cannot get a block for its next token preempts the last admitted one, which is recomputed.

Sources: vLLM V1 ``v1/core/sched/scheduler.py`` and ``kv_cache_manager.py``; LMCache ``vllm_v1_adapter.py`` for
synchronous loads and stores.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import nan
from typing import Final

from models.errors import InvariantError
from models.roofline import StepCost
from sim.clock import COMPLETION, STEP, Clock, Wakeup
from sim.decode import UNLIMITED_STEPS, DecodeRun, decode_run
from sim.hierarchy import KvHierarchy, Segment
from sim.recording import TokenIntervals
from sim.request import Request
from sim.tier import Tier

_IDLE: Final = 0
_SCHEDULED: Final = 1
_BUSY: Final = 2
_JUMPING: Final = 3
_STALLED: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The engine's limits and habits.

    Parameters
    ----------
    block_tokens, chunk_tokens : int
        Engine block and unit of residency below HBM [tokens]; the second is a multiple of the first.
    max_num_batched_tokens, max_num_seqs : int
        Token budget of a step, and most requests that run at once.
    prefix_caching : bool
        Whether finished chunks stay findable in HBM.
    synchronous_loads : bool
        Whether loads stop the batch.
    synchronous_stores : bool
        Whether the copy out of HBM extends the step.
    min_load_tokens : int
        Hits below HBM shorter than this are recomputed [tokens].
    request_software_s : float
        Software time that each synchronous load adds (key hashing, buffer set-up) [s].
    mixed_step_factor : float
        Time factor of steps that mix prefill and decode.
    window_tokens : int or None
        Attention window of the model's windowed layers.
    state_units : int
        HBM blocks of the fixed state that a running sequence holds (linear-attention layers).
    decode_jumps : bool
        False: one event a decode step.
    """

    block_tokens: int
    chunk_tokens: int
    max_num_batched_tokens: int
    max_num_seqs: int
    prefix_caching: bool = True
    synchronous_loads: bool = False
    synchronous_stores: bool = False
    min_load_tokens: int = 0
    request_software_s: float = 0.0
    mixed_step_factor: float = 1.0
    window_tokens: int | None = None
    state_units: int = 0
    decode_jumps: bool = True


class Replica:
    """One engine with its HBM.

    Parameters
    ----------
    index : int
        Its place in the cluster.
    clock : Clock
        Time.
    settings : EngineSettings
        Limits and habits.
    cost : StepCost
        What a step takes.
    hbm : Tier
        The paged pool, in engine blocks.
    hierarchy : KvHierarchy
        The tiers below.
    intervals : TokenIntervals
        Takes the inter-token latencies.
    on_end : callable
        Called with each request that has ended, and its largest inter-token latency [s].
    """

    def __init__(
        self,
        *,
        index: int,
        clock: Clock,
        settings: EngineSettings,
        cost: StepCost,
        hbm: Tier,
        hierarchy: KvHierarchy,
        intervals: TokenIntervals,
        on_end: Callable[[Request, float], None],
    ) -> None:
        self.index = index
        self.hbm = hbm
        self.hierarchy = hierarchy
        self.settings = settings
        self._clock = clock
        self._cost = cost
        self.intervals = intervals
        self._on_end = on_end
        self._blocks_per_chunk = settings.chunk_tokens // settings.block_tokens
        self._state = _IDLE
        self._awaits_room = False
        self._waiting: deque[Request] = deque()
        self._loaded: deque[Request] = deque()
        self._running: dict[Request, None] = {}
        self._prefilling: dict[Request, None] = {}
        # Decoding requests advance together, one token a tick, so sums over them follow from the tick.
        self._tick = 0
        self._ends: list[tuple[int, int, Request]] = []
        self._n_decoding = 0
        self._offset_sum = 0
        self._new_block_at = [0] * settings.block_tokens
        # The decode run under way: steps taken since its anchor, where the jump goes, steps whose blocks are taken.
        self._run: DecodeRun | None = None
        self._steps = 0
        self._jump_to = 0
        self._grown = 0
        self._wakeup: Wakeup | None = None
        self._edge_s = 0.0
        # The step under way.
        self._work: list[tuple[Request, int, int]] = []
        self._loads: list[tuple[Request, list[Segment]]] = []
        self._load_began_s = 0.0
        self._forward_began_s = 0.0
        # Inter-token maxima: a stack of (tick, duration), durations falling, for the largest one since any tick.
        self._gap_ticks: list[int] = []
        self._gaps_s: list[float] = []
        self.outstanding_requests = 0
        self.outstanding_tokens = 0
        self.waiting_prefill_tokens = 0
        self.steps_taken = 0
        self.compute_s = 0.0
        self.load_stall_s = 0.0
        self.store_stall_s = 0.0

    # What routers see ------------------------------------------------------------------------------------------------

    def cached_prefix_tokens(self, chunks: Sequence[int]) -> int:
        """Return how many leading tokens of a prompt need not be computed here [tokens]."""
        hits = self._hbm_hits(chunks)
        segments = self.hierarchy.lookup(chunks, hits)
        return (segments[-1].end if segments else hits) * self.settings.chunk_tokens

    def fits(self, request: Request) -> bool:
        """Whether the request can be served at all."""
        blocks = -(-(request.prompt_tokens + request.output_tokens) // self.settings.block_tokens)
        return blocks + 1 + self.settings.state_units <= self.hbm.capacity_units

    # Arrivals --------------------------------------------------------------------------------------------------------

    def enqueue(self, request: Request) -> None:
        """Take a request into the waiting queue."""
        request.queued_at_s = self._clock.now_s
        self.outstanding_requests += 1
        self.outstanding_tokens += request.prompt_tokens
        self.waiting_prefill_tokens += request.target
        self._waiting.append(request)
        self._poke()

    def _poke(self) -> None:
        """Something may have changed what the next step does: see to it at the next edge."""
        if self._state == _IDLE:
            self._state = _SCHEDULED
            self._clock.at(self._clock.now_s, STEP + self.index, self._on_step)
        elif self._state == _JUMPING:
            run = self._run
            assert run is not None
            now = self._clock.now_s
            to = max(run.steps_until(now), self._steps + 1)
            if to < self._jump_to:
                self._jump_to = to
                self._wakeup = self._clock.at(max(run.edge_s(to), now), COMPLETION, self._on_jump_end)

    def _on_room(self) -> None:
        self._awaits_room = False
        self._poke()

    def _on_step(self, _: Wakeup) -> None:
        self._begin_step()

    def _next(self) -> None:
        """Begin the next step once everything else that is due at this instant has happened."""
        if self._clock.more_now():
            self._state = _SCHEDULED
            self._clock.at(self._clock.now_s, STEP + self.index, self._on_step)
        else:
            self._begin_step()

    # One step --------------------------------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        now = self._clock.now_s
        self._state = _BUSY
        preempted = False
        while self._n_decoding:
            if self._grow_one_step():
                break
            if self.hbm.in_transit:
                self._state = _STALLED
                self.hbm.wait_for_room(self._resume)
                return
            self._preempt_last()
            preempted = True
        budget = self.settings.max_num_batched_tokens - self._n_decoding
        for request in self._prefilling:
            if budget <= 0:
                break
            budget -= self._plan(request, budget)
        if not preempted and (self._waiting or self._loaded):
            self._admit(budget, now)
        if self._loads:
            self._load_began_s = now
            self._load_next()
        elif self._work:
            self._forward()
        elif self._n_decoding:
            self._jump(now)
        else:
            self._run = None
            self._state = _IDLE

    def _resume(self) -> None:
        if self._state == _STALLED:
            self._state = _SCHEDULED
            self._run = None
            self._clock.at(self._clock.now_s, STEP + self.index, self._on_step)

    def _admit(self, budget: int, now: float) -> None:
        """Move requests into the step: those whose load has ended, then waiting ones in order."""
        running = self._running
        max_num_seqs = self.settings.max_num_seqs
        while budget > 0 and self._loaded and len(running) < max_num_seqs:
            budget -= self._join(self._loaded.popleft(), budget)
        waiting = self._waiting
        while budget > 0 and waiting and len(running) < max_num_seqs:
            request = waiting[0]
            segments = self._allocate(request)
            if segments is None:
                return
            waiting.popleft()
            if not request.generated:
                request.queue_s += now - request.queued_at_s
            if not request.preemptions:
                request.admitted_at_s = now
            if segments and not self.settings.synchronous_loads:
                self._load_asynchronously(request, segments, now)
                continue
            if segments:
                self._loads.append((request, segments))
            budget -= self._join(request, budget)

    def _join(self, request: Request, budget: int) -> int:
        self._running[request] = None
        self._prefilling[request] = None
        return self._plan(request, budget)

    def _plan(self, request: Request, budget: int) -> int:
        """Give a request its prompt tokens of this step; the chunks that they fill are findable at once."""
        done = request.computed
        tokens = min(request.target - done, budget)
        self._work.append((request, done, tokens))
        request.computed = done + tokens
        self.waiting_prefill_tokens -= tokens
        if self.settings.prefix_caching:
            self._adopt(request)
        return tokens

    def _hbm_hits(self, chunks: Sequence[int]) -> int:
        ready = self.hbm.ready
        hits = 0
        for chunk in chunks:
            if chunk not in ready:
                break
            hits += 1
        return hits

    def _allocate(self, request: Request) -> list[Segment] | None:
        """Take HBM for the whole prompt and decide what is loaded; None (nothing changed) where it does not fit now."""
        settings, hbm = self.settings, self.hbm
        chunks = request.chunks
        chunk_tokens = settings.chunk_tokens
        # The last token is always computed, and with it its whole block (vLLM: max_cache_hit_length = num_tokens - 1).
        limit = (request.target - 1) // settings.block_tokens * settings.block_tokens
        hits = self._hbm_hits(chunks)
        cached = min(hits * chunk_tokens, limit)
        units = -(-request.target // settings.block_tokens) - hits * self._blocks_per_chunk + settings.state_units
        if cached < hits * chunk_tokens:
            units += 1  # the recomputed last block is a private copy
        found = chunks[:hits]
        idle = hits - len(hbm.pinned.intersection(found))
        if units > hbm.available_units - idle * self._blocks_per_chunk:
            return None
        hbm.pin(found)
        if not hbm.take(units):
            hbm.unpin(found, wake=False)
            if not self._awaits_room:
                self._awaits_room = True
                hbm.wait_for_room(self._on_room)
            return None
        segments: list[Segment] = []
        if cached < limit and hits < len(chunks):
            segments = self.hierarchy.lookup(chunks, hits)
        loaded = 0
        if segments:
            loaded = min(segments[-1].end * chunk_tokens, limit) - cached
            if loaded < max(1, settings.min_load_tokens):
                segments, loaded = [], 0
        request.private_units = units
        request.held = list(found)
        request.adopted = hits
        request.computed = cached + loaded
        self._count_hits(request, cached, segments, limit)
        if segments:
            self.hierarchy.pin(chunks, segments)
        return segments

    def _count_hits(self, request: Request, cached: int, segments: Sequence[Segment], limit: int) -> None:
        """Count hit and computed tokens of the first admission; a recomputation after preemption is no hit."""
        if request.preemptions:
            request.computed_prompt_tokens += request.target - request.computed
            self.waiting_prefill_tokens -= request.computed
            return
        chunk_tokens = self.settings.chunk_tokens
        request.hit_tokens[0] = cached
        self.hbm.hit_tokens += cached
        for segment in segments:
            tokens = min(segment.end * chunk_tokens, limit) - segment.start * chunk_tokens
            request.hit_tokens[segment.tier + 1] += tokens
            self.hierarchy.tiers[segment.tier].tier.hit_tokens += tokens
        request.computed_prompt_tokens = request.target - request.computed
        self.waiting_prefill_tokens -= request.computed

    # Loads -----------------------------------------------------------------------------------------------------------

    def _load_next(self) -> None:
        """Load the step's requests one after another, then run the forward pass."""
        if not self._loads:
            stalled = self._clock.now_s - self._load_began_s
            self.load_stall_s += stalled
            for request, _, _ in self._work:
                if not request.generated:
                    request.load_s += stalled
            self._forward()
            return
        request, segments = self._loads.pop(0)
        software_s = self.settings.request_software_s

        def loaded() -> None:
            if software_s:
                self._clock.at(self._clock.now_s + software_s, COMPLETION, lambda _: self._load_next())
            else:
                self._load_next()

        self.hierarchy.load(request.request_id, request.chunks, segments, request.load_tier_s, loaded)

    def _load_asynchronously(self, request: Request, segments: list[Segment], now: float) -> None:
        def loaded() -> None:
            request.load_s += self._clock.now_s - now
            self._loaded.append(request)
            self._poke()

        self.hierarchy.load(request.request_id, request.chunks, segments, request.load_tier_s, loaded)

    # The forward pass ------------------------------------------------------------------------------------------------

    def _forward(self) -> None:
        now = self._clock.now_s
        self._forward_began_s = now
        tokens = pairs = window_pairs = context = window_context = 0
        window = self.settings.window_tokens
        for _, done, new in self._work:
            tokens += new
            pairs += new * done + new * (new + 1) // 2
            context += done + new
            if window is not None:
                window_pairs += _window_sum(done + new, window) - _window_sum(done, window)
                window_context += min(done, window) + new
        decodes = self._n_decoding
        if decodes:
            held = decodes * (self._tick + 1) + self._offset_sum
            pairs += held
            context += held
            if window is not None:
                windowed, _, _ = self._window_state(window)
                window_pairs += windowed
                window_context += windowed
        step_s = self._cost.step_s(
            tokens=tokens + decodes,
            pairs=pairs,
            window_pairs=window_pairs,
            context_tokens=context,
            window_context_tokens=window_context,
        )
        if decodes:
            step_s *= self.settings.mixed_step_factor
        self.compute_s += step_s
        self.steps_taken += 1
        self._clock.at(now + step_s, COMPLETION, self._on_forward_end)

    def _adopt(self, request: Request) -> None:
        """Make filled chunks findable: vLLM hashes blocks when their tokens are scheduled."""
        full = min(request.computed // self.settings.chunk_tokens, len(request.chunks))
        if full > request.adopted:
            new = self.hbm.adopt(request.chunks[request.adopted : full])
            request.private_units -= len(new) * self._blocks_per_chunk
            request.held += new
            request.adopted = full

    def _on_forward_end(self, _: Wakeup) -> None:
        now = self._clock.now_s
        forward_s = now - self._forward_began_s
        under_way = 0
        stores_extend_step = self.settings.synchronous_stores

        def stored() -> None:
            nonlocal under_way
            under_way -= 1
            if not under_way:
                self.store_stall_s += self._clock.now_s - now
                self._end_step()

        for request, _, _ in self._work:
            if not request.generated:
                request.compute_s += forward_s
            if request.computed == request.target and self._store(request, stored if stores_extend_step else None):
                under_way += 1
        if not stores_extend_step or not under_way:
            self._end_step()

    def _store(self, request: Request, on_left: Callable[[], None] | None) -> bool:
        """Write the prompt's chunks through; its blocks stay until the bytes have left HBM."""

        def left() -> None:
            self._catch_up()
            self.hbm.in_transit -= 1
            request.stores_under_way -= 1
            if request.ended and not request.stores_under_way:
                self._free(request)
            else:
                self.hbm.give(0)  # nothing yet, but a stalled step may look again
            if on_left is not None:
                on_left()

        if not self.hierarchy.store(request.request_id, request.chunks, left):
            return False
        self.hbm.in_transit += 1
        request.stores_under_way += 1
        return True

    def _end_step(self) -> None:
        """Give out the step's tokens."""
        now = self._clock.now_s
        decodes = self._n_decoding
        if decodes:
            self._tick += 1
            interval = now - self._edge_s
            self.intervals.add(interval, interval, 1, decodes)
            self._note_gap(interval)
            self._finish_due()
        work, self._work = self._work, []
        for request, _, _ in work:
            if request.computed == request.target:
                del self._prefilling[request]
                self._first_token(request, now)
        self._run = None
        self._edge_s = now
        self._next()

    def _first_token(self, request: Request, now: float) -> None:
        """The prompt is in: its first token (or, after a preemption, the next one) is out."""
        if not request.generated:
            request.first_token_at_s = now
        request.generated += 1
        left = request.output_tokens - request.generated
        if left <= 0:
            self._end(request, nan)
            return
        request.started_tick = self._tick
        request.position_offset = request.target - self._tick
        self._n_decoding += 1
        self._offset_sum += request.position_offset
        self._new_block_at[-request.position_offset % self.settings.block_tokens] += 1
        heappush(self._ends, (self._tick + left, request.request_id, request))

    def _stop_decoding(self, request: Request) -> int:
        """Take a request out of the decode batch and return how many tokens it decoded since its prefill."""
        self._n_decoding -= 1
        self._offset_sum -= request.position_offset
        self._new_block_at[-request.position_offset % self.settings.block_tokens] -= 1
        decoded = self._tick - request.started_tick
        request.generated += decoded
        block = self.settings.block_tokens
        # Blocks that growth took for it since its prefill, by the same rule as in _growth.
        request.private_units += -(-(request.target + decoded) // block) - -(-request.target // block)
        return decoded

    def _finish_due(self) -> None:
        ends, tick = self._ends, self._tick
        while ends and ends[0][0] <= tick:
            request = heappop(ends)[2]
            self._stop_decoding(request)
            self._end(request, self._largest_gap_since(request.started_tick))

    def _end(self, request: Request, largest_gap_s: float) -> None:
        del self._running[request]
        request.ended = True
        self.outstanding_requests -= 1
        self.outstanding_tokens -= request.prompt_tokens
        if not request.stores_under_way:
            self._free(request)
        self._on_end(request, largest_gap_s)

    def _free(self, request: Request) -> None:
        hbm = self.hbm
        held, request.held = request.held, []
        units, request.private_units = request.private_units, 0
        if held:
            hbm.unpin(held, wake=False)
            hbm.touch(held)
        hbm.give(units)
        if self._waiting:
            self._poke()

    # Decode jumps ----------------------------------------------------------------------------------------------------

    def _jump(self, now: float) -> None:
        """Take decode steps up to the next one that can change the batch."""
        run = self._run
        if run is None or self._steps >= run.valid_steps:
            run = self._run = self._anchor(now)
            self._steps = 0
        start = self._steps
        self._grown = start + 1
        count = self._ends[0][0] - self._tick
        if not self.settings.decode_jumps or now > self._edge_s:
            count = 1
        count = min(count, run.valid_steps - start)
        if count > 1:
            count = self._affordable_steps(count)
        self._jump_to = start + count
        self._state = _JUMPING
        self._wakeup = self._clock.at(max(run.edge_s(self._jump_to), now), COMPLETION, self._on_jump_end)

    def _anchor(self, now: float) -> DecodeRun:
        n = self._n_decoding
        cost = self._cost
        overhead, compute, memory = cost.affine(n)
        held = n * (self._tick + 1) + self._offset_sum
        windowed, below, steps = 0, 0, UNLIMITED_STEPS
        if self.settings.window_tokens is not None:
            windowed, below, steps = self._window_state(self.settings.window_tokens)
        return decode_run(
            now,
            overhead,
            (
                compute + cost.compute_s_per_pair * held + cost.compute_s_per_window_pair * windowed,
                cost.compute_s_per_pair * n + cost.compute_s_per_window_pair * below,
            ),
            (
                memory + cost.memory_s_per_context_token * held + cost.memory_s_per_window_token * windowed,
                cost.memory_s_per_context_token * n + cost.memory_s_per_window_token * below,
            ),
            steps,
        )

    def _window_state(self, window: int) -> tuple[int, int, int]:
        """Return windowed context of the next step, how many contexts still grow in it, and for how many steps."""
        total, below, steps = 0, 0, UNLIMITED_STEPS
        for _, _, request in self._ends:
            context = self._tick + 1 + request.position_offset
            if context < window:
                total += context
                below += 1
                steps = min(steps, window - context)
            else:
                total += window
        return total, below, steps

    def _growth(self, first: int, steps: int) -> int:
        """Return the blocks that ``steps`` decode steps take from tick ``first`` on."""
        counts = self.settings.block_tokens
        rounds, rest = divmod(steps, counts)
        units = rounds * self._n_decoding
        at = self._new_block_at
        for i in range(first, first + rest):
            units += at[i % counts]
        return units

    def _grow_one_step(self) -> bool:
        units = self._new_block_at[self._tick % self.settings.block_tokens]
        return not units or self.hbm.take(units)

    def _affordable_steps(self, count: int) -> int:
        """Return how many of the next ``count`` steps find blocks (the first one has its own)."""
        hbm = self.hbm
        # With a write-back tier below, evicting takes a transfer, so only blocks that are free now count.
        room = hbm.available_units if hbm.spill is None else hbm.free_units
        first = self._tick + 1
        if self._growth(first, count - 1) <= room:
            return count
        low, high = 1, count
        while high - low > 1:
            middle = (low + high) // 2
            if self._growth(first, middle - 1) <= room:
                low = middle
            else:
                high = middle
        return low

    def _catch_up(self) -> None:
        """Take the blocks of those steps of a jump that have begun, before somebody else changes the pool."""
        if self._state == _JUMPING and self._run is not None:
            begun = min(self._run.steps_until(self._clock.now_s), self._jump_to)
            self._grow_to(begun)

    def _grow_to(self, steps: int) -> None:
        if steps > self._grown:
            units = self._growth(self._tick + self._grown - self._steps, steps - self._grown)
            if units and not self.hbm.take(units):
                message = f"replica {self.index}: a decode jump ran out of HBM blocks that it had counted on"
                raise InvariantError(message)
            self._grown = steps

    def _on_jump_end(self, event: Wakeup) -> None:
        if event is not self._wakeup:
            return
        self._wakeup = None
        now = self._clock.now_s
        run = self._run
        assert run is not None
        self._grow_to(self._jump_to)
        start, end = self._steps, self._jump_to
        taken = end - start
        first_s, last_s = run.step_s(start), run.step_s(end - 1)
        if taken == 1:
            first_s = last_s = now - self._edge_s
        self.compute_s += run.edge_s(end) - run.edge_s(start)
        self.steps_taken += taken
        self.intervals.add(first_s, last_s, taken, self._n_decoding)
        self._tick += taken
        self._steps = end
        self._note_gap(max(first_s, last_s))
        self._edge_s = now
        before = self._n_decoding
        self._finish_due()
        if self._n_decoding != before:
            self._run = None
        self._next()

    def _note_gap(self, gap_s: float) -> None:
        ticks, gaps = self._gap_ticks, self._gaps_s
        while gaps and gaps[-1] <= gap_s:
            gaps.pop()
            ticks.pop()
        gaps.append(gap_s)
        ticks.append(self._tick)

    def _largest_gap_since(self, tick: int) -> float:
        return self._gaps_s[bisect_right(self._gap_ticks, tick)]

    # Preemption ------------------------------------------------------------------------------------------------------

    def _preempt_last(self) -> None:
        """Give up the last admitted request's blocks; it is recomputed from the front of the queue."""
        request = next(reversed(self._running))
        del self._running[request]
        if request in self._prefilling:
            del self._prefilling[request]
            self.waiting_prefill_tokens -= request.target - request.computed
        else:
            self._stop_decoding(request)
            self._ends = [entry for entry in self._ends if entry[2] is not request]
            self._ends.sort()
        request.preemptions += 1
        request.target = request.prompt_tokens + request.generated
        request.computed = request.adopted = 0
        self.waiting_prefill_tokens += request.target
        request.queued_at_s = self._clock.now_s
        self._free(request)
        self._waiting.appendleft(request)
        self._run = None


def _window_sum(position: int, window: int) -> int:
    """Return the (query, key) pairs of the first ``position`` tokens when each sees at most ``window`` tokens."""
    inside = min(position, window)
    return inside * (inside + 1) // 2 + (position - inside) * window
