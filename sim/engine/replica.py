"""One model replica: vLLM V1's step loop over a paged HBM pool, with decode steps taken in jumps.

A step takes the running requests first (every decode one token, every partial prefill what the token budget leaves),
then admits waiting ones in order while the whole prompt fits in HBM. Loads from lower tiers are either synchronous
(summed over the step's requests before the forward pass, everybody waits) or asynchronous (the request holds its blocks
and joins a later step). A request that cannot get a block for its next token preempts the last admitted one, which is
recomputed. Another scheduling policy than FCFS changes the order of the waiting ones and whom to preempt.

Sources: vLLM V1 ``v1/core/sched/scheduler.py``; LMCache ``vllm_v1_adapter.py`` for synchronous loads and stores.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from models.prefill import prefill_time_s
from models.step_times import StepTimes
from sim.clock import COMPLETION, STEP, Clock, Wakeup
from sim.engine.decode_batch import DecodeBatch
from sim.engine.decode_jumps import DecodeJumps
from sim.engine.forward import Forward
from sim.engine.kv_blocks import KvBlocks
from sim.engine.kv_transfers import KvTransfers
from sim.engine.load_choice import LoadChoice
from sim.engine.load_failures import LoadFailures
from sim.engine.prefetcher import Prefetcher
from sim.engine.replica_figures import ReplicaFigures
from sim.engine.request import Request
from sim.engine.restarts import Restarts
from sim.engine.scheduler import Scheduler
from sim.engine.settings import EngineSettings
from sim.engine.two_ended import TwoEndedLoads
from sim.policies.base import SchedulingPolicy
from sim.policies.loading import LoadingPolicy
from sim.policies.prefetch import NoPrefetch, PrefetchPolicy
from sim.recording import TokenIntervals
from sim.tiers.attached import Segment
from sim.tiers.hierarchy import KvHierarchy
from sim.tiers.loads import Load
from sim.tiers.tier import Tier

_IDLE: Final = 0
_SCHEDULED: Final = 1
_BUSY: Final = 2
_JUMPING: Final = 3
_STALLED: Final = 4

_EDGE: Final = COMPLETION - (1 << 20)
"""Order of step ends (plus the replica's index), before all else of their instant: replicas whose steps end together
take turns by index, whichever planned its step first, so that jumps do not change who comes first."""


class Replica(ReplicaFigures):
    """One engine with its HBM.

    Parameters
    ----------
    index : int
        Its place in the cluster.
    clock : Clock
        Time.
    settings : EngineSettings
        Limits and habits.
    cost : StepTimes
        What a step takes.
    hbm : Tier
        The paged pool, in engine blocks.
    hierarchy : KvHierarchy
        The tiers below.
    intervals : TokenIntervals
        Takes the inter-token latencies.
    scheduling, loading, prefetch : SchedulingPolicy, LoadingPolicy, PrefetchPolicy
        Of this replica only: who waits first, what is loaded and what recomputed, what is brought into memory ahead.
    """

    def __init__(
        self,
        *,
        index: int,
        clock: Clock,
        settings: EngineSettings,
        cost: StepTimes,
        hbm: Tier,
        hierarchy: KvHierarchy,
        intervals: TokenIntervals,
        scheduling: SchedulingPolicy,
        loading: LoadingPolicy,
        prefetch: PrefetchPolicy,
    ) -> None:
        self.index = index
        self.hbm = hbm
        self.hierarchy = hierarchy
        self.settings = settings
        self.intervals = intervals
        self._clock = clock
        self.on_end: Callable[[Request], None] | None = None
        """Called with each request that has ended."""
        self.on_lost: Callable[[Request], None] | None = None
        """Called with each request that a restart has lost."""
        prefill_s = partial(
            prefill_time_s, cost, budget=settings.max_num_batched_tokens, window_tokens=settings.window_tokens
        )
        choice = LoadChoice(loading, settings, hierarchy.loads, prefill_s)
        self._blocks = KvBlocks(settings, hbm, hierarchy, choice)
        self._batch = DecodeBatch(cost=cost, block_tokens=settings.block_tokens, window_tokens=settings.window_tokens)
        self._jumps = DecodeJumps(self._batch, hbm)
        self._scheduler = Scheduler(settings, self._blocks, self._batch, self._load_later, scheduling)
        self._transfers = KvTransfers(
            clock=clock,
            hierarchy=hierarchy,
            hbm=hbm,
            request_software_s=settings.request_software_s,
            catch_up=self.catch_up,
            free=self._free,
        )
        self._failures = LoadFailures(
            recomputes=settings.recomputes_failed_loads,
            hierarchy=hierarchy,
            blocks=self._blocks,
            scheduler=self._scheduler,
            on_failed=self._on_failed,
        )
        two_ended = TwoEndedLoads(clock, choice, self._transfers, self._failures, self._poke)
        self._two_ended = two_ended if choice.from_both_ends else None
        self._forward = Forward(
            clock=clock,
            settings=settings,
            batch=self._batch,
            scheduler=self._scheduler,
            transfers=self._transfers,
            failures=self._failures,
            order=_EDGE + index,
            on_end=self._on_forward_end,
        )
        self.restarts = Restarts(clock=clock, scheduler=self._scheduler, blocks=self._blocks, hbm=hbm)
        self.restarts.on_lost = self._on_lost
        self._prefetcher: Prefetcher | None = None
        if type(prefetch) is not NoPrefetch:
            if getattr(prefetch, "only_way", False):
                hierarchy.load_from_memory_only()
            self._prefetcher = Prefetcher(
                policy=prefetch,
                clock=clock,
                chunk_tokens=settings.chunk_tokens,
                prefetches=hierarchy.prefetches,
                blocks=self._blocks,
                scheduler=self._scheduler,
                catch_up=self.catch_up,
                wake=self._poke,
            )
        self._state = _IDLE
        self._awaits_room = False
        self._unseen: list[Request] = []  # arrived since the engine last looked
        self._since_look = 0  # decode steps taken since then
        self._wakeup: Wakeup | None = None
        self._edge_s = 0.0  # when the last step ended
        self.outstanding_requests = 0
        self.outstanding_tokens = 0
        self.room_wait_s = 0.0
        """Waiting time, summed over requests, in which the first of the queue did not fit in HBM [s]."""
        self._short_since_s = inf
        self._short_requests = 0

    # Arrivals --------------------------------------------------------------------------------------------------------

    def expect(self, request: Request) -> None:
        """Count a request that the router has sent here: the next one must not find this replica idle meanwhile."""
        self.outstanding_requests += 1
        self.outstanding_tokens += request.prompt_tokens
        self._scheduler.waiting_prefill_tokens += 1 if request.comes_over else request.target

    def enqueue(self, request: Request) -> None:
        """Take an expected request into the waiting queue, once the front end has let it through."""
        if self.restarts.down:
            self._scheduler.leave(request)
            self.restarts.lose(request)
            return
        if self.settings.receive_interval > 1 and self._batch.n:
            self._unseen.append(request)
        else:
            self._receive(request)
        self._poke()

    def _receive(self, request: Request) -> None:
        self._scheduler.add(request, self._clock.now_s)
        if self._prefetcher is not None:
            self._prefetcher.arrived(request)

    def _look(self) -> None:
        """Receive what has arrived, where this is a step before which the engine looks."""
        if not self._unseen or (self._since_look and self._batch.n):
            return
        self._since_look = 0
        self._receive_unseen()

    def _receive_unseen(self) -> None:
        unseen, self._unseen = self._unseen, []
        for request in unseen:
            self._receive(request)

    def _poke(self) -> None:
        """Something may have changed what the next step does: see to it at the next edge."""
        if self._state == _IDLE:
            self._schedule_step()
        elif self._state == _JUMPING:
            now = self._clock.now_s
            self._cut(now)

    def _cut(self, now: float) -> None:
        edge_s = self._jumps.cut(now, since=self._since_look, every=self.settings.receive_interval)
        if edge_s is not None:
            self._wake_at(edge_s, now)

    def _on_room(self) -> None:
        self._awaits_room = False
        self._poke()

    def _schedule_step(self) -> None:
        self._state = _SCHEDULED
        self._clock.at(self._clock.now_s, STEP + self.index, self._on_step)

    def _on_step(self, _: Wakeup) -> None:
        self._begin_step()

    def _next(self) -> None:
        """Begin the next step once everything else that is due at this instant has happened."""
        if self._clock.more_now():
            self._schedule_step()
        else:
            self._begin_step()

    # One step --------------------------------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        now = self._clock.now_s
        batch, scheduler = self._batch, self._scheduler
        self._state = _BUSY
        if self._short_since_s < now:
            self.room_wait_s += self._short_requests * (now - self._short_since_s)
        self._short_since_s = inf
        self._failures.end_failed()
        if self.restarts.is_due:
            self._jumps.forget()
            self._receive_unseen()
            self.restarts.lose_all(self._edge_s)
            self._state = _IDLE
            return
        drifts = False
        self._look()
        queued, mixed = len(scheduler.waiting), self.settings.mixed_steps
        # Where prompts come first, nobody decodes, and so nobody grows, in a step that computes any.
        fits = mixed or scheduler.plan(now, admit=True)
        preempted = False if not mixed and (scheduler.work or scheduler.loads) else self._grow(now)
        if preempted is None:
            return
        if mixed:
            queued = len(scheduler.waiting)
            fits = scheduler.plan(now, admit=not preempted)
        if self._prefetcher is not None and len(scheduler.waiting) < queued:
            self._prefetcher.queue_changed()
        if not fits:
            self._short_since_s, self._short_requests = now, len(scheduler.waiting)
            drifts = scheduler.reorders  # growth evicts what some wait for, and then another one may be first, and fit
            if self.hbm.spill is not None and not self._awaits_room:
                # Room comes free when a request ends, which pokes; only a write-back says so by itself.
                self._awaits_room = True
                self.hbm.wait_for_room(self._on_room)
        if scheduler.loads or scheduler.work:
            self._forward.begin()
        elif batch.n:
            # A step that preempts admits nobody; the next one may, so it is no part of a jump.
            self._decode(now, jumps=self.settings.decode_jumps and not (preempted or drifts))
        elif preempted:
            self._schedule_step()  # nobody is left running, so nobody would wake the engine: admit again at once
        else:
            self._jumps.forget()
            self._state = _IDLE

    def _grow(self, now: float) -> bool | None:
        """Take the blocks of the next decode step; return whether somebody was preempted, None to wait for room."""
        preempted = False
        while self._batch.n:
            growth = self._batch.next_growth()
            if not growth or self.hbm.take(growth):
                break
            if self.hbm.in_transit:
                self._state = _STALLED
                self.hbm.wait_for_room(self._resume)
                return None
            self._scheduler.preempt(now, self._edge_s)
            self._jumps.forget()
            preempted = True
        return preempted

    def _resume(self) -> None:
        if self._state == _STALLED:
            self._jumps.forget()
            self._schedule_step()

    def _load_later(self, request: Request, segments: list[Segment]) -> None:
        """Load a request while others run; it joins the step that begins next after that."""
        began_s, restarts = self._clock.now_s, self.restarts.count

        def joins() -> None:
            self._scheduler.loaded.append(request)
            self._poke()

        def loaded(load: Load) -> None:
            if not request.generated:
                request.load_s += self._clock.now_s - began_s
            if self.restarts.count > restarts:
                self._scheduler.leave(request)
                self.restarts.lose(request)
            elif load.lost is None or self._failures.after_load(request, load):
                joins()
            else:
                self._poke()

        if request.comes_over and request.handover is not None:
            request.handover.pull(request.request_id, self.index, joins)
            return
        if self._two_ended is not None:
            self._scheduler.meeting[request] = segments
            self._two_ended.begin(request, segments)
            return
        self._transfers.load(request, segments, loaded)

    # The forward pass ------------------------------------------------------------------------------------------------

    def _on_forward_end(self, filled: list[Request]) -> None:
        if not self.settings.synchronous_stores:
            self._transfers.store(filled)
            self._end_step()
        elif not self._transfers.store(filled, self._end_step):
            self._end_step()

    def _end_step(self) -> None:
        """Give out the step's tokens."""
        now = self._clock.now_s
        decodes, mixed = self._batch.n, self.settings.mixed_steps
        if decodes and mixed:
            interval_s = now - self._edge_s
            self.intervals.add(interval_s, interval_s, 1, decodes)
            self._advance(1, interval_s)
        for request in self._scheduler.take_work():
            self._first_token(request, now)
        self._jumps.forget()
        # Prompts that come first make the next interval longer of those who wait to decode; those who join here are
        # counted with them.
        if mixed or not decodes:
            self._edge_s = now
        self._since_look = 0
        self._next()

    def _first_token(self, request: Request, now: float) -> None:
        """The prompt is in: its first token (or, after a preemption, the next one) is out."""
        if not request.generated:
            request.first_token_at_s = now
        else:
            gap_s = now - request.last_token_at_s
            self.intervals.add(gap_s, gap_s, 1, 1)
            request.note_gap(gap_s)
        request.generated += 1
        left = request.output_tokens - request.generated
        if left > 0:
            self._batch.join(request, left)
        else:
            self._end(request)

    def _end(self, request: Request) -> None:
        self._scheduler.remove(request)
        request.ended = True
        self.outstanding_requests -= 1
        self.outstanding_tokens -= request.prompt_tokens
        if request.whole is not None:
            self._transfers.store_answer(request, self._blocks.adopt_answer(request))
        if not request.stores_under_way:
            self._free(request)
        if self._prefetcher is not None:
            self._prefetcher.ended(request)
        if self.on_end is not None:
            self.on_end(request)

    def restart(self) -> None:
        """Go down when the step under way has ended; :meth:`come_back` ends it."""
        self.restarts.go_down()
        if self._state == _STALLED:
            self._resume()
        else:
            self._poke()

    def come_back(self) -> None:
        """Take requests again."""
        self.restarts.down -= 1

    def _on_lost(self, request: Request) -> None:
        self.outstanding_requests -= 1
        self.outstanding_tokens -= request.prompt_tokens
        if self.on_lost is not None:
            self.on_lost(request)

    def _on_failed(self, request: Request) -> None:
        self.outstanding_requests -= 1
        self.outstanding_tokens -= request.prompt_tokens
        if self.on_end is not None:
            self.on_end(request)

    def handed_over(self, request: Request) -> None:
        """Note that the KV of an ended request has arrived where it is decoded."""
        request.stores_under_way -= 1
        if not request.stores_under_way:
            self._free(request)

    def _free(self, request: Request) -> None:
        self._blocks.free(request)
        if self._scheduler.waiting:
            self._poke()

    def _advance(self, steps: int, longest_s: float) -> None:
        """Give every decoding request so many tokens, and end those that have all of theirs."""
        batch = self._batch
        for request in batch.advance(steps, longest_s):
            self._jumps.forget()
            request.note_gap(batch.largest_gap_since(request.started_tick))
            self._end(request)

    # Decode jumps ----------------------------------------------------------------------------------------------------

    def _decode(self, now: float, *, jumps: bool) -> None:
        """Take decode steps up to the next one that can change the batch."""
        self._state = _JUMPING
        # A run that begins late (after a stall) has a first step that is longer than its own time.
        self._wake_at(self._jumps.plan(now, single=not jumps or now > self._edge_s), now)
        if self._unseen:
            self._cut(now)

    def _wake_at(self, edge_s: float, now: float) -> None:
        """Wake up when the jump ends (an earlier plan is void)."""
        self._wakeup = self._clock.at(edge_s if edge_s > now else now, _EDGE + self.index, self._on_jump_end)

    def catch_up(self) -> None:
        """Take the blocks of those steps of a jump that have begun, before somebody looks at the pool."""
        if self._state == _JUMPING:
            self._jumps.catch_up(self._clock.now_s)

    def _on_jump_end(self, event: Wakeup) -> None:
        if event is not self._wakeup:
            return
        now, batch = self._clock.now_s, self._batch
        steps, first_s, last_s, total_s = self._jumps.finish()
        self._state = _BUSY
        if steps == 1:
            first_s = last_s = now - self._edge_s
        self._since_look = (self._since_look + steps) % self.settings.receive_interval
        self._forward.compute_s += total_s
        self.intervals.add(first_s, last_s, steps, batch.n)
        self._edge_s = now
        # Steps only get longer while the batch stays the same, so the last of them is the longest.
        self._advance(steps, last_s)
        self._next()
