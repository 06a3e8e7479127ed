"""When a replica brings KV into memory ahead: asks the prefetch policy, and lets requests wait for what is coming."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from models.errors import InvariantError
from sim.clock import COMPLETION, Clock
from sim.engine.kv_blocks import KvBlocks
from sim.engine.request import Request
from sim.engine.scheduler import Scheduler
from sim.policies.prefetch import PrefetchPolicy
from sim.runs import Chain
from sim.tiers.prefetches import Prefetches
from sim.transfers.legs import Done


class Prefetcher:
    """The prefetches of one replica.

    Parameters
    ----------
    policy : PrefetchPolicy
        Decides.
    clock : Clock
        Time.
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
        return self._prefetches.begin(request_id, chunks, self._blocks.below(chunks))

    def _wait(self, request: Request) -> None:
        def come() -> None:
            request.awaited_prefetches -= 1
            if not request.awaited_prefetches:
                self._wake()

        request.awaited_prefetches += self._prefetches.wait(request.chunks, come)
