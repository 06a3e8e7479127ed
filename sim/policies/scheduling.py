"""Schedulers: in which order the waiting requests of an engine are admitted, and whom it preempts."""

from collections.abc import Sequence
from dataclasses import dataclass

from models.errors import LocatedError
from sim.policies.base import SCHEDULING, EngineView, Queued, QueuedRequest, SchedulingPolicy


@SCHEDULING.register("fcfs")
@dataclass(frozen=True, slots=True)
class Fcfs(SchedulingPolicy):
    """First come, first served; a preempted request comes first (vLLM's default)."""

    def order(self, waiting: Sequence[Queued], engine: EngineView) -> Sequence[Queued]:
        """Return the requests as they come."""
        del engine
        return waiting


@SCHEDULING.register("shortest-prefill-first")
@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestPrefillFirst(SchedulingPolicy):
    """The fewest tokens to compute first, cached ones not counted; of equals, the earliest arrival.

    As SGLang's ``shortest-prefill-first`` (sgl-project/sglang@00550cd1, python/sglang/srt/managers/schedule_policy.py)
    without its deferral of prompts that share a prefix nobody has yet.

    Parameters
    ----------
    aging_tokens_per_s : float
        Each second of waiting counts as so many tokens less, so that long prompts are not passed over for ever
        [tokens/s]; 0: they may be.
    """

    aging_tokens_per_s: float = 0.0

    def __post_init__(self) -> None:
        _check_aging(self.aging_tokens_per_s)

    def order(self, waiting: Sequence[Queued], engine: EngineView) -> Sequence[Queued]:
        """Return the requests by what they leave to compute."""
        now_s, aging = engine.now_s, self.aging_tokens_per_s

        def rank(request: QueuedRequest) -> tuple[float, int]:
            tokens = request.target - engine.cached_tokens(request)
            return tokens - aging * (now_s - request.arrived_at_s), request.request_id

        return sorted(waiting, key=rank)


@SCHEDULING.register("cache-aware")
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAware(SchedulingPolicy):
    """The longest cached prefix first, so that it is used before it is evicted; of equals, the earliest arrival.

    As SGLang's ``lpm`` (sgl-project/sglang@00550cd1, python/sglang/srt/managers/schedule_policy.py) without its
    deferral of prompts that share a prefix nobody has yet. What the tiers below HBM hold counts like HBM. Aging as
    sgl-project/sglang#33210 proposes it, by the clock in place of scheduling passes.

    Parameters
    ----------
    longest_queue : int
        A queue longer than this is served as it comes; 128 in SGLang, to bound the cost of the look-ups.
    aging_tokens_per_s : float
        Each second of waiting counts as so many cached tokens, so that prompts that nobody has cached are not passed
        over for ever [tokens/s]; 0: they may be.
    """

    longest_queue: int = 128
    aging_tokens_per_s: float = 0.0

    def __post_init__(self) -> None:
        if self.longest_queue < 1:
            raise LocatedError("longest_queue", f"is {self.longest_queue}; must be at least 1")
        _check_aging(self.aging_tokens_per_s)

    def order(self, waiting: Sequence[Queued], engine: EngineView) -> Sequence[Queued]:
        """Return the requests by what is cached of them."""
        if len(waiting) > self.longest_queue:
            return sorted(waiting, key=_number)
        now_s, aging = engine.now_s, self.aging_tokens_per_s

        def rank(request: QueuedRequest) -> tuple[float, int]:
            return -engine.cached_tokens(request) - aging * (now_s - request.arrived_at_s), request.request_id

        return sorted(waiting, key=rank)


@SCHEDULING.register("priority")
@dataclass(frozen=True, slots=True, kw_only=True)
class Priority(SchedulingPolicy):
    """The smallest priority first, less what it has gained by waiting; of equals, the earliest arrival.

    As vLLM's ``priority`` (``v1/core/sched/request_queue.py``), which preempts the other end of the same order; aging
    as vllm-project/vllm#20608 proposed it. ``workload.priorities`` says who has which priority.

    Parameters
    ----------
    aging_s : float or None
        Waiting time that is worth one step of priority [s]; None: waiting gains nothing, as in vLLM, and the last may
        wait for ever. 10 s as in the proposal.
    """

    aging_s: float | None = 10.0

    def __post_init__(self) -> None:
        if self.aging_s is not None and self.aging_s <= 0:
            raise LocatedError("aging_s", f"is {self.aging_s:g}; must be greater than 0")

    def order(self, waiting: Sequence[Queued], engine: EngineView) -> Sequence[Queued]:
        """Return the requests by their priority after aging."""
        del engine
        return sorted(waiting, key=self._rank)

    def victim(self, running: Sequence[Queued], engine: EngineView) -> Queued:
        """Return the least urgent request, of equals the last to arrive."""
        del engine
        return max(running, key=self._rank)

    def _rank(self, request: QueuedRequest) -> tuple[float, float, int]:
        # All gain alike by the second, so who stands before whom does not change: the time of arrival says it once.
        gained = 0.0 if self.aging_s is None else request.arrived_at_s / self.aging_s
        return request.priority + gained, request.arrived_at_s, request.request_id


def _number(request: QueuedRequest) -> int:
    return request.request_id


def _check_aging(aging_tokens_per_s: float) -> None:
    if aging_tokens_per_s < 0:
        raise LocatedError("aging_tokens_per_s", f"is {aging_tokens_per_s:g}; must be at least 0")
