"""The cluster: takes requests, routes them to replicas and writes down how they ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import nan

from models.errors import InvariantError
from sim.clock import Clock
from sim.disaggregation import DecodePool
from sim.engine.front_end import FrontEnd, FrontEndSettings
from sim.engine.replica import Replica
from sim.engine.request import Request
from sim.engine.restarts import started_again
from sim.policies.base import RoutingPolicy
from sim.prefix_tree import PrefixTree
from sim.recording import COMPLETED, FAILED, REJECTED, OccupancyLog, RequestLog
from sim.tiers.tier import Tier

_SAMPLE_EVERY_S = 1.0
"""Occupancy is noted at request ends, at most this often [s]: as often as iostat prints."""


class Cluster:
    """Replicas behind a router.

    Parameters
    ----------
    clock : Clock
        Time.
    replicas : sequence of Replica
        The engines that requests are sent to.
    router : RoutingPolicy
        Chooses one for each request.
    front_end : FrontEndSettings
        Each replica has one.
    log : RequestLog
        Takes a row a request.
    occupancy : OccupancyLog
        Takes samples of used bytes.
    tiers : mapping of str to sequence of Tier
        All pools by tier name, fastest tier first.
    prefixes : PrefixTree
        Names the chunks of all prompts.
    priority_of : callable or None
        Returns the priority of a session, or of a request that has none, by its number; None: all are alike.
    decode : DecodePool or None
        Who decodes, where ``replicas`` only prefill.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        replicas: Sequence[Replica],
        router: RoutingPolicy,
        front_end: FrontEndSettings,
        log: RequestLog,
        occupancy: OccupancyLog,
        tiers: Mapping[str, Sequence[Tier]],
        prefixes: PrefixTree,
        priority_of: Callable[[int], int] | None = None,
        decode: DecodePool | None = None,
    ) -> None:
        self.clock = clock
        self.replicas = list(replicas)
        self.decode = decode
        self.pools = [self.replicas] if decode is None else [self.replicas, decode.replicas]
        """The engines by what they do: all of them, or those that prefill and those that decode."""
        self.engines = [replica for pool in self.pools for replica in pool]
        for place, replica in enumerate(self.engines):
            replica.on_end = partial(self._end, place)
            replica.on_lost = partial(self._lost, place)
        self.tiers = tiers
        self.log = log
        self._router = router
        self._max_model_len = front_end.max_model_len
        self._occupancy = occupancy
        self.prefixes = prefixes
        self._priority_of = priority_of
        self._serving = self.replicas
        self._indexes: Collection[int] = range(len(self.replicas))
        self._withdrawn = [0] * len(self.replicas)
        self._unrouted: list[Request] = []
        """Requests that came while no replica served."""
        self.restarts_fail = True
        """Whether requests that a restart loses fail; else they are sent once more."""
        self._front_ends = [FrontEnd(clock, front_end) for _ in self.replicas]
        self._next_sample_s = 0.0
        self.submitted = 0
        self.completed = 0
        self.rejected = 0
        self.failed = 0
        self.on_progress: Callable[[], None] | None = None

    @property
    def open_requests(self) -> int:
        """Requests that have not ended."""
        return self.submitted - self.completed - self.rejected - self.failed

    def submit(
        self,
        *,
        session_id: int,
        phase: int,
        prompt_tokens: int,
        output_tokens: int,
        chunks: Sequence[int],
        answer: Sequence[int] = (),
        replica: int | None = None,
        on_end: Callable[[Request], None] | None = None,
    ) -> None:
        """Take a request now; ``replica`` bypasses the router (a client that knows its server).

        ``chunks`` are ids of the prompt's full chunks, head first: equal ids mean equal prompts up to their end.
        ``answer`` are ids of the chunks that the answer will fill after them, given where somebody keeps answers.
        """
        priority = 0
        if self._priority_of is not None:
            priority = self._priority_of(session_id if session_id >= 0 else self.submitted)
        request = Request(
            request_id=self.submitted,
            session_id=session_id,
            phase=phase,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            chunks=self.prefixes.chain(chunks),
            whole=self.prefixes.chain([*chunks, *answer]) if answer else None,
            arrived_at_s=self.clock.now_s,
            tiers=len(self.tiers),
            priority=priority,
            on_end=on_end,
        )
        self.submitted += 1
        limit = self._max_model_len
        too_long = limit is not None and prompt_tokens + output_tokens > limit
        if too_long or not all(pool[0].fits(request) for pool in self.pools):
            self._reject(request)
            return
        if self.decode is not None and output_tokens:
            request = self.decode.split(request)
        if replica is None or replica not in self._indexes:
            self._route(request)
        else:
            self._send(request, replica)

    def _route(self, request: Request) -> None:
        if not self._serving:
            self._unrouted.append(request)
            return
        replica = self._router.choose(request, self._serving)
        if replica not in self._indexes:
            name = type(self._router).__qualname__
            raise InvariantError(f"router {name}: choose() must return the index of a replica; got {replica!r}")
        self._send(request, replica)

    def withdraw(self, index: int) -> None:
        """Send nothing more to a replica; it goes on with what it has. Each withdrawal takes a return of its own."""
        self._withdrawn[index] += 1
        self._note_serving()

    def put_back(self, index: int) -> None:
        """Send requests to a replica again, first of all those that came while there was none."""
        self._withdrawn[index] -= 1
        self._note_serving()
        unrouted, self._unrouted = self._unrouted, []
        for request in unrouted:
            self._route(request)

    def _note_serving(self) -> None:
        self._serving = [replica for replica in self.replicas if not self._withdrawn[replica.index]]
        self._indexes = [replica.index for replica in self._serving]

    def _lost(self, place: int, request: Request) -> None:
        """See to a request that a replica has lost as it went down."""
        if self.restarts_fail:
            request.failed = True
            self._fail(place, request)
        else:
            self._route(started_again(request))

    def _send(self, request: Request, index: int) -> None:
        engine = self.replicas[index]
        engine.expect(request)
        self._front_ends[index].take(request.prompt_tokens, lambda: engine.enqueue(request))

    def _reject(self, request: Request) -> None:
        self.rejected += 1
        self._write_down_unserved(request, -1, REJECTED)

    def _fail(self, replica: int, request: Request) -> None:
        """Write down a request whose load failed."""
        self.failed += 1
        if self.decode is not None:
            request = self.decode.abandon(request)
        self._write_down_unserved(request, replica, FAILED)

    def _write_down_unserved(self, request: Request, replica: int, state: int) -> None:
        # It has no TTFT that these could be parts of; a token from before a preemption was for nothing.
        request.queue_s = request.load_s = request.compute_s = request.first_token_at_s = nan
        self._write_down(request, replica, state, nan)
        self._ended(request)

    def _end(self, replica: int, request: Request) -> None:
        """Write down a request that a replica has served or failed, or see to its second half."""
        if request.failed:
            self._fail(replica, request)
            return
        if self.decode is not None:
            engine = self.engines[replica]
            if self.decode.take_over(request, engine, engine.handed_over):
                return
        now = self.clock.now_s
        self.completed += 1
        self._write_down(request, replica, COMPLETED, now)
        if now >= self._next_sample_s:
            self._next_sample_s = now + _SAMPLE_EVERY_S
            self.sample()
        self._ended(request)

    def _write_down(self, request: Request, replica: int, state: int, finished_at_s: float) -> None:
        handed_over: tuple[float, ...] = ()
        if self.decode is not None:
            handed_over = self.decode.finish(request)
            if request.handover is not None:
                replica = request.handover.source
        self.log.append(
            request.request_id,
            request.session_id,
            request.phase,
            replica,
            state,
            request.preemptions,
            request.prompt_tokens,
            request.output_tokens,
            request.computed_prompt_tokens,
            request.arrived_at_s,
            request.admitted_at_s,
            request.first_token_at_s,
            finished_at_s,
            request.queue_s,
            request.load_s,
            request.compute_s,
            request.largest_gap_s,
            request.hit_tokens,
            request.load_tier_s,
            handed_over,
        )

    def _ended(self, request: Request) -> None:
        if request.on_end is not None:
            request.on_end(request)
        if self.on_progress is not None:
            self.on_progress()

    def sample(self) -> None:
        """Note how full every tier is."""
        now = self.clock.now_s
        for replica in self.engines:
            replica.catch_up()
        for index, pools in enumerate(self.tiers.values()):
            self._occupancy.sample(index, now, sum(pool.used_bytes for pool in pools))
