"""Prefetch: whose KV is brought from slower tiers into memory before its request is admitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import ClassVar, Final, Protocol

from models.errors import LocatedError
from sim.policies.base import QueuedRequest
from sim.registry import Registry

_HICACHE: Final = ("timeout", "wait_complete", "best_effort")


class PrefetchPolicy(Protocol):
    """Say whose KV is brought into memory ahead. One instance serves one replica and may keep state of its own.

    A request waits in the queue, and others pass it, while KV of its prompt is on its way into memory. What has no room
    there, or would go beyond ``under_way_bytes``, is not brought. A policy may also have what :class:`HiCache` has:
    ``min_tokens``, ``batch_tokens``, ``only_way`` and ``patience_s(tokens)``.
    """

    @property
    def under_way_bytes(self) -> int | None:
        """Most bytes on their way into memory at once [B]; None: half of the memory, as SGLang's HiCache has it."""
        ...

    def wanted(self, waiting: Sequence[QueuedRequest], arrived: QueuedRequest | None) -> Sequence[QueuedRequest]:
        """Return those of *waiting* whose KV is to be brought now, the most urgent first.

        Asked when a request has joined the queue (*arrived*), and, with None, when some have left it or KV has come.
        Those whose KV has been brought before do no harm.
        """
        ...

    def next_turn_s(self, request: QueuedRequest) -> float | None:
        """Return how long after the end of *request* its KV is brought back for the next turn [s]; None: not at all."""
        ...


PREFETCH = Registry[PrefetchPolicy]("prefetch policy", package="sim.policies", requires=("wanted", "next_turn_s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limited:
    """What all prefetches have in common.

    Parameters
    ----------
    under_way_bytes : int or None
        Most bytes on their way into memory at once [B]; None: half of the memory.
    """

    under_way_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.under_way_bytes is not None and self.under_way_bytes <= 0:
            raise LocatedError("under_way_bytes", f"is {self.under_way_bytes}; must be above 0")

    def wanted(self, waiting: Sequence[QueuedRequest], arrived: QueuedRequest | None) -> Sequence[QueuedRequest]:
        """Return nobody."""
        del waiting, arrived
        return ()

    def next_turn_s(self, request: QueuedRequest) -> float | None:
        """Return None: nothing is brought for the next turn."""
        del request
        return None


@PREFETCH.register("none")
@dataclass(frozen=True, slots=True, kw_only=True)
class NoPrefetch(_Limited):
    """KV is read when its request is admitted."""


@PREFETCH.register("at-enqueue")
@dataclass(frozen=True, slots=True, kw_only=True)
class AtEnqueue(_Limited):
    """KV is brought once, when its request joins the queue (SGLang's HiCache, LMCache's multi-process mode)."""

    def wanted(self, waiting: Sequence[QueuedRequest], arrived: QueuedRequest | None) -> Sequence[QueuedRequest]:
        """Return the request that has just come."""
        del waiting
        return () if arrived is None else (arrived,)


@PREFETCH.register("hicache")
@dataclass(frozen=True, slots=True, kw_only=True)
class HiCache(_Limited):
    """SGLang's HiCache: brought at enqueue by one thread, batch after batch, and left off when the request goes on.

    What is not in memory by then is computed: storage is read by prefetches only. Source: SGLang 0.5.23,
    ``managers/cache_controller.py`` (``_page_transfer``: terminated between batches of 128 pages) and
    ``mem_cache/hybrid_cache/hybrid_cache_controller.py`` (threshold and times).

    Parameters
    ----------
    policy : str
        ``timeout``: a request waits ``timeout_s`` and ``timeout_per_1024_tokens_s`` for each 1,024 tokens at most.
        ``wait_complete``: for all of it. ``best_effort``: not at all, and takes what is there when it is admitted.
    timeout_s, timeout_per_1024_tokens_s : float
        The wait of ``timeout`` [s].
    min_tokens : int
        Less than this in storage is not brought [tokens].
    batch_tokens : int
        Read at once [tokens]: 128 pages of 64.
    under_way_bytes : int or None
        As for all prefetches.
    """

    policy: str = "timeout"
    timeout_s: float = 1.0
    timeout_per_1024_tokens_s: float = 0.25
    min_tokens: int = 256
    batch_tokens: int = 8192
    only_way: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _Limited.__post_init__(self)
        if self.policy not in _HICACHE:
            raise LocatedError("policy", f"is '{self.policy}'; must be one of {', '.join(_HICACHE)}")
        for name, least in (("timeout_s", 0), ("timeout_per_1024_tokens_s", 0), ("min_tokens", 0), ("batch_tokens", 1)):
            if getattr(self, name) < least:
                raise LocatedError(name, f"is {getattr(self, name):g}; must be at least {least}")

    def wanted(self, waiting: Sequence[QueuedRequest], arrived: QueuedRequest | None) -> Sequence[QueuedRequest]:
        """Return the request that has just come."""
        del waiting
        return () if arrived is None else (arrived,)

    def patience_s(self, tokens: int) -> float:
        """Return how long a request waits for so many tokens [s]."""
        if self.policy == "wait_complete":
            return inf
        if self.policy == "best_effort":
            return 0.0
        return self.timeout_s + self.timeout_per_1024_tokens_s * tokens / 1024


@PREFETCH.register("look-ahead")
@dataclass(frozen=True, slots=True, kw_only=True)
class LookAhead(_Limited):
    """KV is brought for the first requests of the queue (CachedAttention's look-ahead window, arXiv 2403.19708).

    Parameters
    ----------
    requests : int
        How many of them.
    under_way_bytes : int or None
        As for all prefetches.
    """

    requests: int = 8

    def __post_init__(self) -> None:
        _Limited.__post_init__(self)
        if self.requests < 1:
            raise LocatedError("requests", f"is {self.requests}; must be at least 1")

    def wanted(self, waiting: Sequence[QueuedRequest], arrived: QueuedRequest | None) -> Sequence[QueuedRequest]:
        """Return the head of the queue."""
        del arrived
        return list(islice(waiting, self.requests))


@PREFETCH.register("next-turn")
@dataclass(frozen=True, slots=True, kw_only=True)
class NextTurn(_Limited):
    """What memory has lost of a conversation is brought back some time after a turn has ended, for the next one.

    Parameters
    ----------
    after_s : float
        How long after its end, a little less than users pause [s].
    under_way_bytes : int or None
        As for all prefetches.
    """

    after_s: float

    def __post_init__(self) -> None:
        _Limited.__post_init__(self)
        if self.after_s < 0:
            raise LocatedError("after_s", f"is {self.after_s:g}; must be at least 0")

    def next_turn_s(self, request: QueuedRequest) -> float | None:
        """Return the same time for every conversation; requests of none have no next turn."""
        return self.after_s if request.session_id >= 0 else None
