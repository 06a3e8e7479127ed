"""A replica that goes down and comes back: everything that it had in hand is lost."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from math import isnan

from sim.clock import Clock
from sim.engine.kv_blocks import KvBlocks
from sim.engine.request import Request
from sim.engine.scheduler import Scheduler
from sim.tiers.tier import Tier


class Restarts:
    """What a restart does to one replica.

    It takes effect when the step under way has ended. A request whose KV is being loaded by itself is lost when that
    load has ended, one that the front end has in hand when it would be handed over.

    Parameters
    ----------
    clock : Clock
        Time.
    scheduler, blocks, hbm : Scheduler, KvBlocks, Tier
        The replica's.
    """

    __slots__ = ("_blocks", "_clock", "_hbm", "_scheduler", "count", "down", "is_due", "on_lost")

    def __init__(self, *, clock: Clock, scheduler: Scheduler, blocks: KvBlocks, hbm: Tier) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._blocks = blocks
        self._hbm = hbm
        self.on_lost: Callable[[Request], None] | None = None
        """Called with each request that is lost, when it holds nothing any more."""
        self.count = 0
        """Restarts so far: a load that began before the last one is for nobody."""
        self.down = 0
        """Restarts that are under way; above 0, nothing is taken."""
        self.is_due = False
        """Whether the replica loses all that it has as soon as its step has ended."""

    def go_down(self) -> None:
        """Go down at the next step edge."""
        self.down += 1
        self.count += 1
        self.is_due = True

    def lose_all(self, last_step_ended_s: float) -> None:
        """Lose all requests and HBM, now that no step is under way (the last one ended at that time [s])."""
        self.is_due = False
        for request in self._scheduler.evacuate(self._clock.now_s, last_step_ended_s):
            self.lose(request)
        self._hbm.lose(list(self._hbm.ready.runs()))

    def lose(self, request: Request) -> None:
        """Lose a request that no queue holds any more."""
        self._blocks.free(request)
        request.ended = True  # for the stores that still read what were its blocks
        assert self.on_lost is not None
        self.on_lost(request)


def started_again(request: Request) -> Request:
    """Return a lost request as it is sent once more: its prompt and the tokens that its client has are computed again.

    Source: Request Migration Architecture of NVIDIA Dynamo (docs.nvidia.com/dynamo): a new worker goes on from the
    tokens generated so far.
    """
    again = copy(request)
    again.ended = again.failed = False
    again.held, again.private_units, again.stores_under_way = [], 0, 0
    again.computed = again.adopted = again.found_chunks = 0
    again.to_store = again.chunks.runs
    again.hit_tokens, again.load_tier_s = list(request.hit_tokens), list(request.load_tier_s)
    again.target = again.prompt_tokens + again.generated
    again.preemptions += not isnan(request.admitted_at_s)
    return again
