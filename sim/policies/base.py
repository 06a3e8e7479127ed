"""What a policy may see and must do: protocols and registries, no implementation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

from sim.registry import Registry
from sim.runs import Chain, Runs

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
    def session_id(self) -> int:
        """The conversation that it belongs to, below 0 where the workload has none."""
        ...

    @property
    def priority(self) -> int:
        """How urgent it is: smaller is more urgent, 0 where the workload says nothing."""
        ...

    @property
    def chunks(self) -> Chain:
        """The full chunks of the prompt."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt [tokens]."""
        ...


TierKind = Literal["hbm", "memory", "storage", "shared"]
"""What a router can tell tiers apart by; ``shared`` is one where all replicas reach the same chunks."""


class TierHit(NamedTuple):
    """What one tier serves of a prompt."""

    tier: str
    """Name in the scenario."""
    kind: TierKind
    tokens: int
    load_s: float
    """Time to read it into HBM with nobody else on the way [s]; 0 for HBM."""


class CachedPrefix(NamedTuple):
    """What a replica would not have to compute of a prompt."""

    hits: Sequence[TierHit]
    """From the head of the prompt on, as the replica would load it; a tier may come more than once."""
    load_s: float
    """Time until all of it would be in HBM, with nobody else on the way [s]: tiers at once or in turn, as it does."""


class ReplicaView(Protocol):
    """What a router sees of a replica at the moment a request arrives; looking changes nothing."""

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

    def cached_prefix(self, chunks: Chain) -> CachedPrefix:
        """Return how much of *chunks* each tier would serve, those that all replicas share included."""
        ...

    @property
    def prefill_s_per_token(self) -> float:
        """Time of one prompt token in a full step of nothing but a prompt's first tokens [s]."""
        ...


class RoutingPolicy(Protocol):
    """Choose the replica of each request. One instance serves one run and may keep state of its own."""

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> int:
        """Return the ``index`` of one of *replicas* (at least one is given)."""
        ...


class QueuedRequest(Protocol):
    """What a scheduler sees of a request that waits or runs."""

    @property
    def request_id(self) -> int:
        """Its number in the run, in the order of arrival."""
        ...

    @property
    def session_id(self) -> int:
        """The conversation that it belongs to, below 0 where the workload has none."""
        ...

    @property
    def priority(self) -> int:
        """How urgent it is: smaller is more urgent, 0 where the workload says nothing."""
        ...

    @property
    def arrived_at_s(self) -> float:
        """When the client sent it [s]."""
        ...

    @property
    def target(self) -> int:
        """Tokens to have in HBM before its next token: the prompt, and what a preemption took away again [tokens]."""
        ...


Queued = TypeVar("Queued", bound=QueuedRequest)


class EngineView(Protocol):
    """What a scheduler sees of its engine; looking changes nothing."""

    @property
    def now_s(self) -> float:
        """The present [s]."""
        ...

    def cached_tokens(self, request: QueuedRequest) -> int:
        """Return how many of its ``target`` tokens would not be computed: what HBM and the tiers below hold."""
        ...


class SchedulingPolicy(Protocol):
    """Order the requests that wait in one engine. One instance serves one replica and may keep state of its own."""

    def order(self, waiting: Sequence[Queued], engine: EngineView) -> Sequence[Queued]:
        """Return *waiting* in the order of admission: each request once.

        They come as the last call left them, new ones behind, a preempted one in front. Asked before each step that may
        admit somebody; the first that does not fit in HBM holds up those behind it.
        """
        ...

    def victim(self, running: Sequence[Queued], engine: EngineView) -> Queued:
        """Return whom to preempt when HBM is full, one of *running*, which come in the order of their admission."""
        del engine
        return running[-1]


Writes = Literal["at-use", "at-eviction", "never"]
"""When a tier is written: when a prompt is in HBM, when the tier above evicts, or not at all (promotion apart)."""


class PlacementPolicy(Protocol):
    """Say when chunks are written to a tier. One instance serves one pool and may keep state of its own.

    One that writes at use may also have a method ``used(chunks: Runs) -> Runs``. It is called with all chunks of each
    prompt once it is in HBM for the first time, head first, and returns those that are to be written if the tier lacks
    them. Without it those are written that HBM served and those that were computed.
    """

    @property
    def writes(self) -> Writes:
        """When the tier is written; an attribute of the class."""
        ...


class AdmissionPolicy(Protocol):
    """Say which chunks may enter a tier, however they come: stored, written back or promoted.

    One instance serves one pool and may keep state of its own.
    """

    def use(self, chunks: Runs) -> None:
        """Note that a prompt with these chunks, all it has, is in HBM for the first time, head first."""
        ...

    def admit(self, chunks: Runs, room: int, victims: Callable[[int], Runs]) -> Runs:
        """Return those of *chunks* that may enter, in their order, as parts of the given runs.

        The tier lacks all of them; those that come first are worth most. *room* of them fit without an eviction;
        ``victims(n)`` returns whom n more would evict, the first to go first (fewer where pins keep the others).
        """
        ...


EVICTION = Registry[EvictionPolicy](
    "eviction policy", package="sim.policies", requires=("insert", "touch", "remove", "victims")
)
ROUTING = Registry[RoutingPolicy]("router", package="sim.policies", requires=("choose",), supplied=("random",))
SCHEDULING = Registry[SchedulingPolicy]("scheduler", package="sim.policies", requires=("order", "victim"))
PLACEMENT = Registry[PlacementPolicy]("placement", package="sim.policies", requires=("writes",))
ADMISSION = Registry[AdmissionPolicy](
    "admission filter",
    package="sim.policies",
    requires=("use", "admit"),
    supplied=("capacity_chunks", "chunk_tokens", "load_s", "now_s", "recompute_s"),
)
