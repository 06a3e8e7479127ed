"""The prefix tree over any eviction policy: a chunk goes only after the chunks that continue it.

``structure: leaf_constrained`` of a tier wraps its policy here (SGLang's radix tree, Dynamo's lineage backend and
TensorRT-LLM evict that way); ``structure: hashmap`` (vLLM, LMCache) uses the policy as it is and may leave orphans.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, filterfalse, islice, pairwise

from models.errors import InvariantError
from sim.policies.base import EvictionPolicy, PolicyContext
from sim.policies.eviction import Lru
from sim.policies.hooks import hooks, name_of
from sim.policies.leaf_extents import LeafExtents, Pins
from sim.policies.ranked_extents import RankedExtents
from sim.run_sets import RunSet
from sim.runs import STRAND_BITS, as_runs


class LeafConstrained:
    """Any policy, evicting only leaves: resident chunks that no other resident chunk continues.

    When a leaf goes its parent may become a leaf, with the place in the order that it always had.

    Parameters
    ----------
    inner : EvictionPolicy
        The policy that orders the chunks; it sees the same calls as without the constraint.
    """

    def __init__(self, inner: EvictionPolicy) -> None:
        self._inner = inner
        self._hooks = hooks(inner)
        self._parents: dict[int, int | None] = {}  # of every resident chunk
        self._children: dict[int, int] = {}  # resident children of a chunk, itself resident or not; never 0

    @property
    def unbounded(self) -> bool:
        """Whether the inner policy works in a tier that is never full."""
        return bool(getattr(self._inner, "unbounded", False))

    @property
    def inner(self) -> EvictionPolicy:
        """The policy that orders the chunks."""
        return self._inner

    def prepare(self, context: PolicyContext) -> None:
        """Tell the inner policy what it needs to know."""
        self._hooks.prepare(context)

    def miss(self, run: range) -> None:
        """Tell the inner policy of chunks that are about to come."""
        if self._hooks.miss is not None:
            self._hooks.miss(run)

    def expired(self) -> Sequence[range]:
        """Return the chunks whose time is up."""
        return () if self._hooks.expired is None else self._hooks.expired()

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident in the tree and in the inner policy."""
        self._inner.insert(run, parent)
        self._link(run, parent)

    def touch(self, run: range) -> None:
        """Note that resident chunks were used again."""
        self._inner.touch(run)

    def remove(self, run: range) -> None:
        """Forget chunks, leaves or not: a tier may lose any chunk, and what continued it is then an orphan."""
        self._inner.remove(run)
        for key in run:
            self._unlink(key)

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room."""
        self._hooks.evict(run)
        for key in run:
            self._unlink(key)

    def victims(self) -> Iterator[range]:
        """Yield the leaves of this moment, in the order of the inner policy."""
        # The table of children holds parents only, so it is the set of what is not a leaf.
        leaves = filterfalse(self._children.__contains__, chain.from_iterable(self._inner.victims()))
        return (range(key, key + 1) for key in leaves)

    def evictable(self, pinned: Pins | tuple[()] = ()) -> Iterator[int]:
        """Yield chunks in the order in which they would go if each one yielded went before the next is asked for.

        A parent follows its last child where its own place in the order comes before the next leaf. Pinned chunks
        stay, and so do their ancestors. Changes nothing.
        """
        gone: dict[int, int] = {}
        passed: set[int] = set()
        left = len(self._parents)
        for candidate in chain.from_iterable(self._inner.victims()):
            if candidate not in self._parents:
                raise broken(self._inner, f"victims() returned chunk {candidate}, which is not resident")
            left -= 1
            if left < 0:
                raise broken(self._inner, f"victims() returned more than the {len(self._parents)} resident chunks")
            key: int | None = candidate
            # An interior chunk that was passed over comes before all that follows: it is next once its last child goes.
            while key is not None and key not in pinned and self._children.get(key, 0) == gone.get(key, 0):
                yield key
                key = self._parents[key]
                if key is not None:
                    gone[key] = gone.get(key, 0) + 1
                    if key not in passed:
                        break
            else:
                if key == candidate:
                    passed.add(candidate)

    def select(self, wanted: int, pinned: Pins) -> list[range]:
        """Return the first *wanted* of them as runs."""
        return as_runs(islice(self.evictable(pinned), wanted), step=-1)

    def _link(self, keys: range, parent: int | None) -> None:
        children = self._children
        for key in keys if keys.step > 0 else reversed(keys):
            self._parents[key] = parent
            if parent is not None:
                children[parent] = children.get(parent, 0) + 1
            parent = key

    def _unlink(self, key: int) -> int | None:
        """Take *key* out of the tree and return its parent if that has no resident child now, else None."""
        parent = self._parents.pop(key)
        if parent is None:
            return None
        left = self._children[parent] - 1
        if left:
            self._children[parent] = left
            return None
        del self._children[parent]
        return parent


class LeafConstrainedLru(LeafConstrained):
    """LRU evicting only leaves: the same order as LeafConstrained(Lru()) at O(log n) a stretch of a prompt.

    The general class looks past every interior chunk that is older than the oldest leaf, and a tier below another one
    has many: the head of a chain is hit above and so never touched here.
    """

    def __init__(self) -> None:
        super().__init__(Lru())
        self._extents = LeafExtents()

    def insert(self, run: range, parent: int | None = None) -> None:
        """Make the chunks of *run* resident and the most recently used ones."""
        self._extents.insert(run, parent)

    def touch(self, run: range) -> None:
        """Make resident chunks the most recently used ones; KeyError if one is not resident."""
        self._extents.touch(run)

    def evict(self, run: range) -> None:
        """Forget chunks that went to make room."""
        self._extents.remove(run)

    def remove(self, run: range) -> None:
        """Forget chunks, leaves or not; KeyError if one is not resident."""
        self._extents.remove(run)

    def victims(self) -> Iterator[range]:
        """Yield the leaves of this moment, the least recently used first."""
        return (range(key, key + 1) for key in self._extents.leaves())

    def evictable(self, pinned: Pins | tuple[()] = ()) -> Iterator[int]:
        """Yield chunks in the order in which they would go, as :meth:`LeafConstrained.evictable` says."""
        return chain.from_iterable(self._extents.leaving(pinned))

    def select(self, wanted: int, pinned: Pins) -> list[range]:
        """Return the first *wanted* of them as runs."""
        victims: list[range] = []
        for run in self._extents.leaving(pinned):
            part = run if len(run) <= wanted else run[:wanted]
            wanted -= len(part)
            last = victims[-1] if victims else None
            if last is not None and last.stop == part.start and last.start >> STRAND_BITS == part.start >> STRAND_BITS:
                victims[-1] = range(last.start, part.stop, -1)
            else:
                victims.append(part)
            if not wanted:
                break
        return victims


def constrain_to_leaves(policy: EvictionPolicy) -> LeafConstrained:
    """Return the new, still empty *policy* under the leaf constraint, in its fastest form."""
    if isinstance(policy, LeafConstrained):
        return policy
    return LeafConstrainedLru() if type(policy) is Lru else LeafConstrained(policy)


def select_victims(policy: EvictionPolicy, wanted: int, pinned: Pins, resident: RunSet | None = None) -> list[range]:
    """Return the next *wanted* chunks to evict, best first, without evicting them; fewer if pins leave fewer.

    They are what evicting chunk by chunk would take: under the leaf constraint a parent may follow its child. With
    *resident*, all chunks that the policy was given, InvariantError names a policy whose victims are not those chunks.
    """
    if wanted <= 0:
        return []
    if isinstance(policy, LeafConstrained):
        return policy.select(wanted, pinned)
    if isinstance(policy, RankedExtents):
        resident = None  # its victims are its extents, and most of them single chunks, each of which would cost a look
    victims = _first_victims(policy, wanted, pinned, resident)
    if resident is not None and len(victims) > 1:
        _check_unique(policy, victims)
    return victims


def _first_victims(policy: EvictionPolicy, wanted: int, pinned: Pins, resident: RunSet | None) -> list[range]:
    victims: list[range] = []
    left = 0 if resident is None else len(resident)
    for run in policy.victims():
        if resident is not None:
            # Most runs are one resident chunk, which needs no call to be found sound.
            if type(run) is not range or run.stop != run.start + 1 or run.start not in resident:
                _check(policy, run, resident)
            left -= len(run)
            if left < 0:
                raise broken(policy, f"victims() returned more than the {len(resident)} resident chunks")
        for part in pinned.absent(run) if len(run) > 1 else (() if run.start in pinned else (run,)):
            victims.append(part if len(part) <= wanted else part[:wanted])
            wanted -= len(part)
            if wanted <= 0:
                return victims
    if resident is not None and left:
        raise broken(policy, f"victims() left out {left} of the {len(resident)} resident chunks")
    return victims


def broken(policy: EvictionPolicy, what: str) -> InvariantError:
    """Return the error that names a policy and what it did against its contract."""
    blamed = policy.inner if type(policy) is LeafConstrained else policy
    return InvariantError(f"eviction policy '{name_of(blamed)}' breaks its contract: {what}")


def check_run(policy: EvictionPolicy, run: range) -> None:
    """Refuse a victim that is no run; raises InvariantError."""
    if not isinstance(run, range) or abs(run.step) != 1 or not run:
        raise broken(policy, f"victims() returned {run!r}; it must be a range of consecutive keys")


def _check(policy: EvictionPolicy, run: range, resident: RunSet) -> None:
    """Refuse what is no run of resident chunks."""
    check_run(policy, run)
    low, high = (run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1)
    if low >> STRAND_BITS == (high - 1) >> STRAND_BITS and resident.holds(low, high):
        return
    if len(run) == 1:
        raise broken(policy, f"victims() returned chunk {run.start}, which is not resident")
    raise broken(policy, f"victims() returned {run!r}, which is not all resident")


def _check_unique(policy: EvictionPolicy, victims: list[range]) -> None:
    """Refuse a chunk that came twice."""
    taken = sorted([(run.start, run.stop) if run.step > 0 else (run.stop + 1, run.start + 1) for run in victims])
    for (_, stop), (first, _) in pairwise(taken):
        if first < stop:
            raise broken(policy, f"victims() returned chunk {first} twice")
