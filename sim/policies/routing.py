"""Routers that look at sessions and load: which replica serves a request. `routing_by_cache` has those that see KV."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import signature
from random import Random

from models.errors import LocatedError
from sim.policies.base import ROUTING, ReplicaView, RoutedRequest, RoutingPolicy


def seed_zero() -> Random:
    """Return the random numbers of a router that was made by hand; in a run they come from the seed of the run."""
    return Random(0)


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


@ROUTING.register("random")
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomReplica:
    """Any replica, each as likely as the others."""

    random: Random = field(default_factory=seed_zero)

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        """Return the index of a replica drawn at random."""
        del request
        return self.random.choice(replicas).index


@ROUTING.register("least-loaded")
@dataclass(frozen=True, slots=True, kw_only=True)
class LeastLoaded:
    """The replica with the fewest outstanding prompt tokens; of equals, the lowest index."""

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        """Return the index of the replica whose outstanding prompts are shortest in all."""
        del request  # every replica would get the same one
        return _least_loaded(replicas)


@ROUTING.register("power-of-two")
@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOfTwo:
    """The less loaded of two replicas drawn at random (Mitzenmacher, IEEE TPDS 12(10), 2001).

    Load is outstanding prompt tokens; of equals, the lowest index.

    Parameters
    ----------
    choices : int
        How many replicas are drawn; with all of them it is ``least-loaded``.
    """

    choices: int = 2
    random: Random = field(default_factory=seed_zero)

    def __post_init__(self) -> None:
        if self.choices < 1:
            raise LocatedError("choices", f"is {self.choices}; must be at least 1")

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        """Return the index of the least loaded of the replicas that are drawn."""
        del request
        drawn = min(self.choices, len(replicas))
        return _least_loaded(self.random.sample(replicas, drawn))


@ROUTING.register("session-affinity")
@dataclass(slots=True, kw_only=True)
class SessionAffinity:
    """The replica that served the session before.

    The first turn, a request without a session and, where ``overload_tokens`` is set, a turn whose replica is
    overloaded go where the fallback sends them; the session stays there from then on. It keeps one entry a session.

    Parameters
    ----------
    fallback : str
        Router of the requests that have no replica yet.
    overload_tokens : int or None
        A replica is overloaded when it has more than this many outstanding prompt tokens more than the least loaded
        one [tokens]; None: never.
    """

    fallback: str = "least-loaded"
    overload_tokens: int | None = None
    random: Random = field(default_factory=seed_zero)
    _router: RoutingPolicy = field(init=False)
    _homes: dict[int, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.overload_tokens is not None and self.overload_tokens < 0:
            raise LocatedError("overload_tokens", f"is {self.overload_tokens}; must be at least 0")
        supplied = {"random": self.random} if "random" in signature(ROUTING.get(self.fallback)).parameters else {}
        self._router = ROUTING.create(self.fallback, **supplied)

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        """Return the index of the session's replica, or of the one that it gets now."""
        session = request.session_id
        home = self._homes.get(session)
        if home is None or self._is_left(home, replicas):
            home = self._router.choose(request, replicas)
            if session >= 0:
                self._homes[session] = home
        return home

    def _is_left(self, home: int, replicas: Sequence[ReplicaView]) -> bool:
        loads = {replica.index: replica.outstanding_tokens for replica in replicas}
        if home not in loads:
            return True
        return self.overload_tokens is not None and loads[home] - min(loads.values()) > self.overload_tokens


def _least_loaded(replicas: Sequence[ReplicaView]) -> int:
    return min((replica.outstanding_tokens, replica.index) for replica in replicas)[1]
