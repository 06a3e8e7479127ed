"""When a replica brings KV into memory ahead: asks the prefetch policy, and lets requests wait for what is coming."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import cast

from models.errors import InvariantError
from sim.clock import COMPLETION, Clock, Wakeup
from sim.engine.kv_blocks import KvBlocks
from sim.engine.request import Request
from sim.engine.scheduler import Scheduler
from sim.policies.prefetch import PrefetchPolicy
from sim.runs import Chain
from sim.tiers.prefetches import Prefetches, UnderWay
from sim.transfers.legs import Done


class Prefetcher:
    """The prefetches of one replica.

    Parameters
    ----------
    policy : PrefetchPolicy
        Decides.
    clock : Clock
        Time.
    chunk_tokens : int
        Tokens a chunk.
    prefetches : Prefetches
        Moves the bytes.
    blocks, scheduler : KvBlocks, Scheduler
        What is in HBM already, and who waits.
    catch_up : callable
        Called before somebody looks at HBM.
    wake : callable
        Called when a request need not wait any more.
    """

    def __init__(
        self,
        *,
        policy: PrefetchPolicy,
        clock: Clock,
        chunk_tokens: int,
        prefetches: Prefetches,
        blocks: KvBlocks,
        scheduler: Scheduler,
        catch_up: Callable[[], None],
        wake: Done,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._prefetches = prefetches
        self._blocks = blocks
        self._scheduler = scheduler
        self._catch_up = catch_up
        self._wake = wake
        self._chunk_tokens = chunk_tokens
        self._patience_s: Callable[[int], float] = getattr(policy, "patience_s", _until_it_is_complete)
        self._min_tokens: int = getattr(policy, "min_tokens", 0)
        self._waits: dict[Request, _Wait] = {}
        batch_tokens: int | None = getattr(policy, "batch_tokens", None)
        if batch_tokens is not None:
            prefetches.batch_chunks = max(1, batch_tokens // chunk_tokens)
        prefetches.on_ended = self.queue_changed
        if policy.under_way_bytes is not None:
            prefetches.most_bytes = policy.under_way_bytes

    def arrived(self, request: Request) -> None:
        """A request has joined the queue."""
        self._look(request)
        if not request.prefetched:
            self._wait(request)  # somebody else may have called for it

    def queue_changed(self) -> None:
        """Some requests have left the queue, or KV has come."""
        for request in [request for request in self._waits if request.admitted_at_s >= 0.0]:
            self._waits.pop(request).leave_off()
        self._look(None)

    def ended(self, request: Request) -> None:
        """A request has ended; its conversation may go on."""
        after_s = self._policy.next_turn_s(request)
        if after_s is not None:
            chunks = request.whole or request.chunks
            when_s = self._clock.now_s + after_s
            self._clock.at(when_s, COMPLETION, lambda _: self._bring_back(request.request_id, chunks))

    def _look(self, arrived: Request | None) -> None:
        waiting = self._scheduler.waiting
        for wanted in self._policy.wanted(waiting, arrived):
            request = cast("Request", wanted)
            if not isinstance(wanted, Request):
                name = type(self._policy).__qualname__
                raise InvariantError(f"prefetch policy {name}: wanted() must return requests that wait")
            if not request.prefetched and self._bring(request.request_id, request.chunks):
                request.prefetched = True
                self._wait(request)

    def _bring_back(self, request_id: int, chunks: Chain) -> None:
        self._bring(request_id, chunks)

    def _bring(self, request_id: int, chunks: Chain) -> bool:
        self._catch_up()
        segments = self._blocks.below(chunks)
        if self._min_tokens and self._prefetches.storage_chunks(segments) * self._chunk_tokens < self._min_tokens:
            return True
        return self._prefetches.begin(request_id, chunks, segments)

    def _wait(self, request: Request) -> None:
        under_way = self._prefetches.of(request.chunks)
        if not under_way:
            return
        wait = _Wait(request, under_way, self._wake)
        tokens = self._chunk_tokens * sum(len(each.keys) for each in under_way)
        patience_s = self._patience_s(tokens)
        if patience_s == inf:
            return
        self._waits[request] = wait
        if not patience_s:
            wait.go_on()
            return

        def give_up(_: Wakeup) -> None:
            if wait.left:
                wait.go_on()
                wait.leave_off()
                self._wake()

        self._clock.at(self._clock.now_s + patience_s, COMPLETION, give_up)


class _Wait:
    """A request that waits for prefetches."""

    __slots__ = ("_request", "_under_way", "_wake", "left")

    def __init__(self, request: Request, under_way: list[UnderWay], wake: Done) -> None:
        self._request = request
        self._under_way = under_way
        self._wake = wake
        self.left = len(under_way)
        request.awaited_prefetches += self.left
        for each in under_way:
            each.waiting.append(self._one_has_ended)

    def _one_has_ended(self) -> None:
        if self.left:
            self.left -= 1
            self._request.awaited_prefetches -= 1
            if not self._request.awaited_prefetches:
                self._wake()

    def go_on(self) -> None:
        """Wait no longer."""
        self._request.awaited_prefetches -= self.left
        self.left = 0

    def leave_off(self) -> None:
        """Read no further batch of what was called for by this request itself."""
        for each in self._under_way:
            if each.request_id == self._request.request_id:
                each.stopped = True


def _until_it_is_complete(_: int) -> float:
    return inf
