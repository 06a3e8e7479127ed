"""What a policy may see and must do: protocols and registries, no implementation."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from sim.registry import Registry


class EvictionPolicy(Protocol):
    """Order the chunks that are resident in one tier.

    The tier owns capacity, bytes, pins and statistics; the policy owns order only: no clock, no input or output, no
    global random state. The tier inserts a chunk only while it is absent, and touches or removes it only while it is
    resident. A policy that a scenario can name is a class registered in EVICTION; its keyword arguments are the
    parameters in the file.
    """

    @property
    def residents(self) -> Collection[int]:
        """The resident keys: one live dict or set that the policy keeps anyway, with C-speed membership.

        The tier looks chunks up in it and never changes it.
        """
        ...

    def insert(self, keys: Sequence[int], parent: int | None = None) -> None:
        """Make *keys* resident; that counts as a use, the last key being the most recent.

        The keys are one run of a prefix chain, head first unless the tier's insertion order is tail first;
        *parent* is the chunk before the head of the run (it need not be resident), None where the run begins the chain.
        """
        ...

    def touch(self, keys: Sequence[int]) -> None:
        """Note that resident *keys* were used again, the last one most recently."""
        ...

    def remove(self, keys: Iterable[int]) -> None:
        """Forget resident *keys*, whether evicted or dropped."""
        ...

    def victims(self) -> Iterator[int]:
        """Yield every resident key once, best victim first; lazy, and changes nothing that a caller can see.

        The policy must not be changed while the iterator is in use. A tier takes its victims with
        :func:`sim.policies.leaf.select_victims`, which knows about pins and about ``structure: leaf_constrained``.
        """
        ...


class RoutedRequest(Protocol):
    """What a router sees of a request."""

    @property
    def chunks(self) -> Sequence[int]:
        """Ids of the full chunks of the prompt, head first."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt [tokens]."""
        ...


class ReplicaView(Protocol):
    """What a router sees of a replica at the moment a request arrives."""

    @property
    def index(self) -> int:
        """Position of the replica in the cluster, from 0."""
        ...

    @property
    def outstanding_tokens(self) -> int:
        """Prompt tokens of its outstanding requests, computed or not [tokens]."""
        ...

    @property
    def outstanding_requests(self) -> int:
        """Requests routed to it that have not ended."""
        ...

    @property
    def waiting_prefill_tokens(self) -> int:
        """Prompt tokens routed to it that are still to be computed [tokens]."""
        ...

    def cached_prefix_tokens(self, chunks: Sequence[int]) -> int:
        """Return how many leading tokens of *chunks* are cached where this replica reaches them [tokens].

        A tier that serves all replicas alike does not count: it would hide what the replica has of its own.
        """
        ...


class RoutingPolicy(Protocol):
    """Choose the replica of each request. One instance serves one run and may keep state of its own."""

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        """Return the ``index`` of one of *replicas* (at least one is given)."""
        ...


EVICTION = Registry[EvictionPolicy](
    "eviction policy", package="sim.policies", requires=("residents", "insert", "touch", "remove", "victims")
)
ROUTING = Registry[RoutingPolicy]("router", package="sim.policies", requires=("choose",))
