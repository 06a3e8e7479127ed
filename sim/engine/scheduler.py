"""Who runs, who waits and what the next step computes: vLLM V1's ``Scheduler.schedule``.

Running requests come first, in the order of their admission; then those whose load has ended; then waiting ones in the
order of the scheduling policy, while the whole prompt fits in HBM. A step that had to preempt admits nobody.

Source: vLLM V1 ``v1/core/sched/scheduler.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import cast

from models.errors import InvariantError
from sim.engine.decode_batch import DecodeBatch, Prefill
from sim.engine.kv_blocks import KvBlocks
from sim.engine.request import Request
from sim.engine.settings import EngineSettings
from sim.policies.base import QueuedRequest, SchedulingPolicy
from sim.policies.scheduling import Fcfs
from sim.tiers.attached import Segment

Load = tuple[Request, list[Segment]]


class _View:
    """What a scheduling policy sees of the engine."""

    __slots__ = ("_blocks", "now_s")

    def __init__(self, blocks: KvBlocks) -> None:
        self._blocks = blocks
        self.now_s = 0.0

    def cached_tokens(self, request: QueuedRequest) -> int:
        """Return how many of the request's tokens would not be computed [tokens]."""
        return self._blocks.cached_tokens(cast("Request", request))


class Scheduler:
    """The queues of one replica.

    Parameters
    ----------
    settings : EngineSettings
        Limits and habits.
    blocks : KvBlocks
        HBM.
    batch : DecodeBatch
        Who decodes.
    load_later : callable
        Called with a request that loads asynchronously and its segments; :attr:`loaded` takes it when it is there.
    policy : SchedulingPolicy
        Orders who waits and says whom to preempt.
    """

    __slots__ = (
        "_batch",
        "_blocks",
        "_load_later",
        "_policy",
        "_prefilling",
        "_running",
        "_view",
        "loaded",
        "loads",
        "meeting",
        "settings",
        "waiting",
        "waiting_prefill_tokens",
        "work",
    )

    def __init__(
        self,
        settings: EngineSettings,
        blocks: KvBlocks,
        batch: DecodeBatch,
        load_later: Callable[[Request, list[Segment]], None],
        policy: SchedulingPolicy,
    ) -> None:
        self.settings = settings
        self._blocks = blocks
        self._batch = batch
        self._load_later = load_later
        # The queue is in the order of arrival by itself.
        self._policy = None if type(policy) is Fcfs else policy
        self._view = _View(blocks)
        self._running: dict[Request, None] = {}
        self._prefilling: dict[Request, None] = {}
        self.waiting: deque[Request] = deque()
        self.loaded: deque[Request] = deque()
        """Requests whose asynchronous load has ended; they hold their blocks."""
        self.meeting: dict[Request, list[Segment]] = {}
        """Requests that are computed from the front while they are loaded from the back; they hold their blocks."""
        self.work: list[Prefill] = []
        """What the step computes beside one token of each decoding request."""
        self.loads: deque[Load] = deque()
        """What the step loads before that."""
        self.waiting_prefill_tokens = 0
        """Prompt tokens that are still to be computed, those of expected requests included."""

    def add(self, request: Request, now_s: float) -> None:
        """Take a request into the waiting queue."""
        request.queued_at_s = now_s
        self.waiting.append(request)

    @property
    def reorders(self) -> bool:
        """Whether the first of the queue may be another one at the next step, though nobody has arrived or ended."""
        return self._policy is not None

    def plan(self, now_s: float, *, admit: bool) -> bool:
        """Fill :attr:`work` and :attr:`loads` for the step that begins now; False if a request found no room in HBM."""
        budget = self.settings.max_num_batched_tokens - (self._batch.n if self.settings.mixed_steps else 0)
        for request in self._prefilling:
            if budget <= 0:
                break
            budget -= self._compute(request, budget)
        if self.meeting:
            budget = self._plan_fronts(budget)
        if not admit or not (self.waiting or self.loaded):
            return True
        running, waiting, max_num_seqs = self._running, self.waiting, self.settings.max_num_seqs
        while budget > 0 and self.loaded and len(running) < max_num_seqs:
            budget -= self._join(self.loaded.popleft(), budget)
        if self._policy is not None and len(waiting) > 1 and budget > 0 and len(running) < max_num_seqs:
            self._view.now_s = now_s
            self.waiting = _ordered(self._policy, waiting, self._view)
        return self._admit(now_s, budget)

    def _admit(self, now_s: float, budget: int) -> bool:
        """Admit waiting requests in order; False if one found no room in HBM."""
        running, waiting, max_num_seqs = self._running, self.waiting, self.settings.max_num_seqs
        passed: list[Request] = []
        fits = True
        while budget > 0 and waiting and len(running) < max_num_seqs:
            request = waiting[0]
            if request.awaited_prefetches:
                passed.append(waiting.popleft())
                continue
            segments = self._blocks.allocate(request)
            if segments is None:
                fits = False
                break
            waiting.popleft()
            if not request.comes_over:
                self.waiting_prefill_tokens -= request.computed
            if not request.generated:
                request.queue_s += now_s - request.queued_at_s
            if not request.preemptions:
                request.admitted_at_s = now_s
            if request.comes_over or (segments and not self._blocks.stops_the_batch(segments)):
                self._load_later(request, segments)
                if request not in self.meeting:
                    continue
                if request.loads_from_back:
                    budget -= self._compute_front(request, budget)
                    continue
                self._blocks.meet(request, self.meeting.pop(request))  # nothing of it is worth loading
            elif segments:
                self.loads.append((request, segments))
            budget -= self._join(request, budget)
        waiting.extendleft(reversed(passed))
        return fits

    def _plan_fronts(self, budget: int) -> int:
        """Compute the fronts of two-ended loads and let those go on whose ends have met; return the budget left."""
        for request, segments in list(self.meeting.items()):
            if request.loads_from_back or request.computed < request.compute_until_tokens:
                if budget > 0:
                    budget -= self._compute_front(request, budget)
            else:
                del self.meeting[request]
                self.waiting_prefill_tokens -= self._blocks.meet(request, segments)
                self.loaded.append(request)
        return budget

    def _compute_front(self, request: Request, budget: int) -> int:
        tokens = min(budget, request.compute_until_tokens - request.computed)
        return self._compute(request, tokens) if tokens > 0 else 0

    def _join(self, request: Request, budget: int) -> int:
        self._running[request] = None
        self._prefilling[request] = None
        return self._compute(request, budget)

    def _compute(self, request: Request, budget: int) -> int:
        """Give a request its prompt tokens of this step; the chunks that they fill are findable at once."""
        done = request.computed
        tokens = min(request.target - done, budget)
        self.work.append((request, done, tokens))
        request.computed = done + tokens
        self.waiting_prefill_tokens -= tokens
        if self.settings.prefix_caching:
            self._blocks.adopt(request)
        return tokens

    def take_work(self) -> list[Request]:
        """End the step's work and return the requests whose prompt is in HBM now."""
        work, self.work = self.work, []
        filled = [request for request, _, _ in work if request.computed == request.target]
        for request in filled:
            del self._prefilling[request]
        return filled

    def preempt(self, now_s: float, last_step_ended_s: float) -> None:
        """Give up the blocks of one request (FCFS: the last admitted); it is recomputed from the front of the queue."""
        if self._policy is None:
            request, _ = self._running.popitem()
        else:
            self._view.now_s = now_s
            request = _victim(self._policy, list(self._running), self._view)
            del self._running[request]
        if request in self._prefilling:
            del self._prefilling[request]
            self.waiting_prefill_tokens -= request.target - request.computed
        else:
            self._stop_decoding(request, last_step_ended_s)
        request.preemptions += 1
        request.comes_over = False
        request.target = request.prompt_tokens + request.generated
        request.computed = request.adopted = 0
        request.queued_at_s = now_s
        self.waiting_prefill_tokens += request.target
        self._blocks.free(request)
        self.waiting.appendleft(request)

    def rewind(self, request: Request, computed: int) -> None:
        """Compute a request again from token ``computed`` on: what stands there has failed to load."""
        self.waiting_prefill_tokens += request.computed - computed
        request.computed = computed

    def give_up(self, request: Request) -> None:
        """Forget an admitted request whose prompt will not be computed."""
        for queue in (self._running, self._prefilling, self.meeting):
            queue.pop(request, None)
        self.work = [part for part in self.work if part[0] is not request]
        self.leave(request)

    def _stop_decoding(self, request: Request, last_step_ended_s: float) -> None:
        self._batch.remove(request)
        request.last_token_at_s = last_step_ended_s
        if self._batch.tick > request.started_tick:
            request.note_gap(self._batch.largest_gap_since(request.started_tick))

    def evacuate(self, now_s: float, last_step_ended_s: float) -> list[Request]:
        """Forget all requests, between two steps, and return them; those that are being loaded are with their loads."""
        for request in self._running:
            if request not in self._prefilling:
                self._stop_decoding(request, last_step_ended_s)
        for request in self.waiting:
            if not request.generated:
                request.queue_s += now_s - request.queued_at_s
        gone = [*self._running, *self.loaded, *self.waiting]
        for queue in (self._running, self._prefilling, self.loaded, self.waiting):
            queue.clear()
        for request in gone:
            self.leave(request)
        return gone

    def leave(self, request: Request) -> None:
        """Do not count on computing a request any more."""
        self.waiting_prefill_tokens -= request.target - request.computed

    def remove(self, request: Request) -> None:
        """Forget a request that has ended."""
        del self._running[request]


def _ordered(policy: SchedulingPolicy, waiting: deque[Request], view: _View) -> deque[Request]:
    """Return the queue in the order of the policy; InvariantError if requests are missing or new."""
    ordered = deque(policy.order(tuple(waiting), view))
    if len(ordered) != len(waiting) or set(ordered) != set(waiting):
        name = type(policy).__qualname__
        raise InvariantError(f"scheduler {name}: order() must return each waiting request once; it lost or added some")
    return ordered


def _victim(policy: SchedulingPolicy, running: list[Request], view: _View) -> Request:
    """Return whom the policy preempts; InvariantError if that request does not run."""
    victim = policy.victim(running, view)
    if victim not in running:
        raise InvariantError(f"scheduler {type(policy).__qualname__}: victim() must return a running request")
    return victim
