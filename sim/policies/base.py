"""What a policy may see and must do: protocols and registries, no implementation."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from sim.registry import Registry
from sim.runs import Chain


class EvictionPolicy(Protocol):
    """Order the chunks that are resident in one tier.

    The tier owns capacity, bytes, pins and statistics; the policy owns order only: no clock, no input or output, no
    global random state. The tier inserts a chunk only while it is absent, and touches or removes it only while it is
    resident. A policy that a scenario can name is a class registered in EVICTION; its keyword arguments are the
    parameters in the file.

    Chunks come and go as runs: a ``range`` of keys, in the order in which they count. One that ascends is a stretch of
    a prefix chain from its head on, one that descends the same from its tail. A policy may treat it as the ints in it.
    """

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident; that counts as a use, its last key being the most recent.

        *parent* is the chunk before the head of the run (it need not be resident), None where the run begins the chain.
        """
        ...

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again, the last one most recently."""
        ...

    def remove(self, run: range) -> None:
        """Forget resident chunks, whether evicted or dropped."""
        ...

    def victims(self) -> Iterator[range]:
        """Yield every resident chunk once, best victim first, as runs; lazy, and changes nothing that a caller can see.

        The policy must not be changed while the iterator is in use. A tier takes its victims with
        :func:`sim.policies.leaf.select_victims`, which knows about pins and about ``structure: leaf_constrained``.
        """
        ...


class RoutedRequest(Protocol):
    """What a router sees of a request."""

    @property
    def chunks(self) -> Chain:
        """The full chunks of the prompt."""
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

    def cached_prefix_tokens(self, chunks: Chain) -> int:
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
    "eviction policy", package="sim.policies", requires=("insert", "touch", "remove", "victims")
)
ROUTING = Registry[RoutingPolicy]("router", package="sim.policies", requires=("choose",))
