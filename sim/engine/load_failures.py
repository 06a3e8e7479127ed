"""What becomes of a request whose load failed: it fails, or what did not arrive is computed.

A step does not know that a synchronous load has failed: it computes on what is not there, and what it computed for that
request, and for others of the step that found the same chunks in HBM, is void. Then the prompt is computed from the
first missing chunk on, or the request is ended. An asynchronous load that failed is seen at the next step.

Source: vLLM V1 ``v1/core/sched/scheduler.py`` (``_handle_invalid_blocks``, ``_update_requests_with_invalid_blocks``)
and ``config/kv_transfer.py`` (``kv_load_failure_policy``, fail by default). There, a request of whose asynchronous load
nothing is usable is queued again and may load again; here it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sim.engine.kv_blocks import KvBlocks
from sim.engine.load_choice import between
from sim.engine.request import Request
from sim.engine.scheduler import Scheduler
from sim.tiers.attached import Segment
from sim.tiers.hierarchy import KvHierarchy
from sim.tiers.loads import Load


class LoadFailures:
    """The failed loads of one replica.

    Parameters
    ----------
    recomputes : bool
        Whether what is missing is computed; else the request fails.
    hierarchy, blocks, scheduler : KvHierarchy, KvBlocks, Scheduler
        What the request holds and where it waits.
    on_failed : callable
        Called with each request that has failed, when it holds nothing any more.
    """

    __slots__ = ("_blocks", "_hierarchy", "_on_failed", "_recomputes", "_scheduler", "_to_end")

    def __init__(
        self,
        *,
        recomputes: bool,
        hierarchy: KvHierarchy,
        blocks: KvBlocks,
        scheduler: Scheduler,
        on_failed: Callable[[Request], None],
    ) -> None:
        self._recomputes = recomputes
        self._hierarchy = hierarchy
        self._blocks = blocks
        self._scheduler = scheduler
        self._on_failed = on_failed
        self._to_end: list[Request] = []

    def after_step(self, failed: Mapping[Request, Load]) -> None:
        """See to the synchronous loads that failed in a step which has just been computed."""
        sharing = self._sharing(failed)
        if self._recomputes:
            for request, load in failed.items():
                self._scheduler.rewind(request, self._blocks.lose(request, load))
            for request, _, done in sharing:
                self._scheduler.rewind(request, done)
            return
        ending = [*failed.items(), *((request, load) for request, load, _ in sharing)]
        void = [self._blocks.filled(request, load.lost.start) for request, load in ending if load.lost]
        # All let go first, for they hold each other's chunks; nobody is to find those.
        for request, _ in ending:
            self._let_go(request)
        for chunks in void:
            self._blocks.forget(chunks)
        for request, _ in ending:
            self._on_failed(request)

    def after_load(self, request: Request, load: Load) -> bool:
        """See to an asynchronous load that has failed; return whether its request goes on."""
        if self._recomputes:
            self._scheduler.rewind(request, self._blocks.lose(request, load))
        else:
            self._to_end.append(request)
        return self._recomputes

    def after_part(self, request: Request, segments: Sequence[Segment], load: Load) -> None:
        """See to a part of a two-ended load that has failed: what is behind it stays, all before that is computed."""
        assert load.lost is not None
        begin = load.segments[0].start
        self._hierarchy.unpin(request.chunks, between(segments, segments[0].start, begin))
        if self._recomputes:
            until = load.lost.stop * self._scheduler.settings.chunk_tokens
            request.compute_until_tokens = min(until, self._blocks.limit(request))
            self._scheduler.meeting[request] = between(segments, load.lost.stop, segments[-1].end)
        else:
            self._to_end.append(request)

    def end_failed(self) -> None:
        """End the requests whose load failed since the last step."""
        ending, self._to_end = self._to_end, []
        for request in ending:
            self._let_go(request)
            self._on_failed(request)

    def _let_go(self, request: Request) -> None:
        request.ended = request.failed = True
        self._scheduler.give_up(request)
        self._blocks.free(request)

    def _sharing(self, failed: Mapping[Request, Load]) -> list[tuple[Request, Load, int]]:
        """Return who of the step found missing chunks in HBM, and how far its prompt was in HBM before the step."""
        found = []
        missing = [
            (load, load.lost.start, _at(request, load.lost.start)) for request, load in failed.items() if load.lost
        ]
        for request, done, _ in self._scheduler.work:
            if request in failed:
                continue
            for load, start, key in missing:
                if request.found_chunks > start and _at(request, start) == key:
                    found.append((request, load, done))
                    break
        return found


def _at(request: Request, position: int) -> int:
    """Return the key of a prompt's chunk."""
    return request.chunks.cut(position, position + 1)[0].start
