"""What a policy may see and must do: protocols and registries, no implementation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sim.registry import Registry
from sim.runs import Chain

NEVER: Final = 1 << 62
"""Number of the next use of a chunk that nobody will use again."""


class Future(Protocol):
    """When chunks will be used next, for policies that look ahead (:class:`sim.policies.future.KnownFuture`)."""

    @property
    def now(self) -> int:
        """How many uses (requests; accesses where each block is one) have begun so far."""
        ...

    def next_uses(self, run: range) -> Sequence[tuple[range, int]]:
        """Return the parts of an ascending *run* with the number of their next use, ``now`` or later, or NEVER."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContext:
    """What is known where a policy works; None: not known there.

    Parameters
    ----------
    capacity_chunks : int or None
        Chunks that fit.
    now_s : callable or None
        Returns the time [s].
    position : callable or None
        Returns the place of a chunk in its chain, 0 for the first.
    generation : callable or None
        Returns how many prompts built on one another up to the one that first had a chunk, 1 for the first: its turn.
    recompute_s : callable or None
        Returns how long it takes to compute one chunk at a place in its chain, alone and with all before it cached [s].
    reload_s : float or None
        How long it takes to read one chunk from here, alone [s].
    future : Future or None
        What will be used when.
    """

    capacity_chunks: int | None = None
    now_s: Callable[[], float] | None = None
    position: Callable[[int], int] | None = None
    generation: Callable[[int], int] | None = None
    recompute_s: Callable[[int], float] | None = None
    reload_s: float | None = None
    future: Future | None = None


class EvictionPolicy(Protocol):
    """Order the chunks that are resident in one tier.

    The tier owns capacity, bytes, pins and statistics; the policy owns order only: no input or output, no global random
    state. The tier inserts a chunk only while it is absent, and touches or removes it only while it is resident. A
    policy that a scenario can name is a class registered in EVICTION; its keyword arguments are the parameters in the
    file.

    Chunks come and go as runs: a ``range`` of keys, in the order in which they count. One that ascends is a stretch of
    a prefix chain from its head on, one that descends the same from its tail. A policy may treat it as the ints in it
    (:class:`sim.policies.chunkwise.ChunkPolicy` does).

    A policy may also have any of these methods; :func:`sim.policies.making.hooks` gives them for every policy:

    ``prepare(context: PolicyContext) -> None``
        Called once, before anything else.
    ``miss(run: range) -> None``
        Chunks that are not resident were asked for, and room is about to be made for them. They may never be inserted,
        and chunks may be inserted that were not announced (those that are computed in HBM).
    ``evict(run: range) -> None``
        Forget resident chunks that went to make room; without it, :meth:`remove` is called. They come in the order in
        which ``victims`` had them, less those passed over because they are pinned or are no leaves.
    ``expired() -> Sequence[range]``
        Resident chunks whose time is up: they are dropped before the next look-up.

    A class with a true attribute ``unbounded`` is given a tier that is never full.
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

        The order is that in which chunks would go if they were evicted now, one after another. The policy must not be
        changed while the iterator is in use. A tier takes its victims with
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
