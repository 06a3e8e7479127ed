"""Routers: which replica serves a request."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.policies.base import ROUTING, ReplicaView, RoutedRequest


@ROUTING.register("round-robin")
@dataclass(slots=True, kw_only=True)
class RoundRobin:
    """One replica after the other, whatever the requests are."""

    _served: int = field(default=0, init=False)

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        """Return the index of the next replica in turn."""
        del request  # the turn does not depend on it
        chosen = replicas[self._served % len(replicas)]
        self._served += 1
        return chosen.index


@ROUTING.register("least-loaded")
@dataclass(frozen=True, slots=True, kw_only=True)
class LeastLoaded:
    """The replica with the fewest outstanding prompt tokens; of equals, the lowest index."""

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        """Return the index of the replica whose outstanding prompts are shortest in all."""
        del request  # every replica would get the same one
        return min((replica.outstanding_tokens, replica.index) for replica in replicas)[1]


@ROUTING.register("prefix-aware")
@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixAware:
    """The replica where the prompt would be computed soonest: the fewest tokens to compute, its queue included.

    The measure is waiting_prefill_tokens + prompt_tokens - cached_prefix_tokens: the prefill part of the cost that
    Dynamo's KV router minimises (ai-dynamo/dynamo, lib/kv-router/src/scheduling/selector/default.rs), every cached
    token counting in full. Of equals, the least loaded, then the lowest index.
    """

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        """Return the index of the replica with the fewest tokens to compute before the first output token."""
        chunks = request.chunks
        # The prompt's own length is the same for all replicas, so it is left out of the comparison.
        return min(
            (
                replica.waiting_prefill_tokens - replica.cached_prefix_tokens(chunks),
                replica.outstanding_tokens,
                replica.index,
            )
            for replica in replicas
        )[2]
