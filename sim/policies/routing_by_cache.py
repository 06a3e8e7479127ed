"""Routers that look at what is cached where: on each replica, in every tier, at what price."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import exp
from random import Random

from models.errors import LocatedError
from sim.policies.base import ROUTING, CachedPrefix, ReplicaView, RoutedRequest
from sim.policies.routing import seed_zero

Cost = tuple[float, int, int]
"""What a replica costs, its outstanding prompt tokens, its index: the smallest is best."""


@ROUTING.register("prefix-aware")
@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixAware:
    """The replica with the least work in front of the answer: its queue and this prompt, less what is cached there.

    The cost of Dynamo's KV router (ai-dynamo/dynamo@07a6c9ce, lib/kv-router/src/scheduling/selector/default.rs),
    in tokens: ``prefill_scale * (waiting_prefill_tokens + prompt_tokens - credit) + decode_weight *
    outstanding_tokens``, where the credit counts cached tokens by their tier's weight. By default what a replica has of
    its own counts in full and nothing else does, so the cost is the number of tokens to compute. Of equals, the least
    loaded, then the lowest index. It knows the true state of every cache, with no delay.

    Parameters
    ----------
    hbm_weight, memory_weight, storage_weight, shared_weight : float
        Worth of a cached token in HBM, in memory, on drives and in a tier that all replicas share, 0 to 1.
    prefill_scale : float
        Weight of the tokens to compute, 0 or more.
    decode_weight : float
        Weight of the prompt tokens of the replica's requests that have not ended, 0 or more.
    temperature : float
        0: the cheapest replica. Above, each is drawn with a probability that falls with its cost:
        ``exp(-(cost - least) / ((most - least) * temperature))``.
    """

    hbm_weight: float = 1.0
    memory_weight: float = 1.0
    storage_weight: float = 1.0
    shared_weight: float = 0.0
    prefill_scale: float = 1.0
    decode_weight: float = 0.0
    temperature: float = 0.0
    random: Random = field(default_factory=seed_zero)
    _counts_tokens: bool = field(init=False)

    def __post_init__(self) -> None:
        for name in ("hbm_weight", "memory_weight", "storage_weight", "shared_weight"):
            if not 0 <= getattr(self, name) <= 1:
                raise LocatedError(name, f"is {getattr(self, name):g}; must be from 0 to 1")
        for name in ("prefill_scale", "decode_weight", "temperature"):
            if getattr(self, name) < 0:
                raise LocatedError(name, f"is {getattr(self, name):g}; must be at least 0")
        weights = (self.hbm_weight, self.memory_weight, self.storage_weight, self.shared_weight)
        plain = weights == (1, 1, 1, 0) and self.prefill_scale == 1 and not self.decode_weight
        object.__setattr__(self, "_counts_tokens", plain and not self.temperature)

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        """Return the index of the replica with the least cost, or of the one that is drawn."""
        chunks = request.chunks
        if self._counts_tokens:
            # The prompt's own length is the same for all replicas, so it is left out of the comparison.
            return min(
                (
                    replica.waiting_prefill_tokens - replica.cached_prefix_tokens(chunks),
                    replica.outstanding_tokens,
                    replica.index,
                )
                for replica in replicas
            )[2]
        return self._pick([self._cost(request, replica) for replica in replicas])

    def _cost(self, request: RoutedRequest, replica: ReplicaView) -> Cost:
        weights = {
            "hbm": self.hbm_weight,
            "memory": self.memory_weight,
            "storage": self.storage_weight,
            "shared": self.shared_weight,
        }
        credit = sum(weights[hit.kind] * hit.tokens for hit in replica.cached_prefix(request.chunks).hits)
        to_compute = replica.waiting_prefill_tokens + request.prompt_tokens - credit
        outstanding = replica.outstanding_tokens
        return self.prefill_scale * to_compute + self.decode_weight * outstanding, outstanding, replica.index

    def _pick(self, costs: Sequence[Cost]) -> int:
        best = min(costs)
        if not self.temperature:
            return best[2]
        least, most = best[0], max(costs)[0]
        scale = (most - least) * self.temperature
        shares = [exp((least - cost) / scale) if scale else 1.0 for cost, _, _ in costs]
        return self.random.choices([index for _, _, index in costs], cum_weights=list(accumulate(shares)))[0]


@ROUTING.register("dynamo")
@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamo(PrefixAware):
    """The prefix-aware router with the defaults of Dynamo's: memory counts three quarters, drives a quarter.

    Source: ai-dynamo/dynamo@0243c51b, lib/kv-router/src/scheduling/config.rs (host_cache_hit_weight 0.75,
    disk_cache_hit_weight 0.25, shared_cache_multiplier 0, router_temperature 0). Its load is the blocks of active
    requests; here it is their prompt tokens, a prefix that several share counted for each. Dynamo breaks ties at
    random, this router by load and index. It does not hold requests back when all replicas are busy.
    """

    memory_weight: float = 0.75
    storage_weight: float = 0.25
    decode_weight: float = 1.0


@ROUTING.register("tier-aware")
@dataclass(frozen=True, slots=True, kw_only=True)
class TierAware:
    """The replica where the first token would come soonest, counting what it could load from every tier, shared or not.

    The estimate is the time to compute what waits there and the rest of this prompt, and to load what is cached, as if
    nobody else were on the way. It takes no account of attention over the prefix or of loads that wait.

    Parameters
    ----------
    load_weight : float
        Weight of the time to load: 0 takes loads to be free, above 1 they are expected to be held up by others.
    """

    load_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.load_weight < 0:
            raise LocatedError("load_weight", f"is {self.load_weight:g}; must be at least 0")

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        """Return the index of the replica with the least estimate; of equals, the least loaded, then the lowest."""
        return min(self._cost(request, replica) for replica in replicas)[2]

    def _cost(self, request: RoutedRequest, replica: ReplicaView) -> Cost:
        cached: CachedPrefix = replica.cached_prefix(request.chunks)
        tokens = replica.waiting_prefill_tokens + request.prompt_tokens - sum(hit.tokens for hit in cached.hits)
        estimate_s = tokens * replica.prefill_s_per_token + self.load_weight * cached.load_s
        return estimate_s, replica.outstanding_tokens, replica.index
