"""The contract of eviction policies as a check that anybody can run over a class of their own.

    from sim.policies.contract import check_policy

    check_policy("my_module:MyPolicy")

It raises InvariantError with the first law that the class breaks, and returns where it found none.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from random import Random

from sim.policies.base import EvictionPolicy, PolicyContext
from sim.policies.future import KnownFuture
from sim.policies.hooks import hooks
from sim.policies.leaf import LeafConstrained, broken, check_run, constrain_to_leaves, select_victims
from sim.policies.making import make_policy
from sim.prefix_tree import PrefixTree
from sim.run_sets import RunSet
from sim.runs import Chain, Runs, ascending, count

_CAPACITY = 24
_LONGEST = 12


def check_policy(
    policy: str | Callable[[], EvictionPolicy],
    *,
    leaf_constrained: bool = False,
    rounds: int = 30,
    **parameters: object,
) -> None:
    """Check a policy, given by name or as what makes a new one, on short random loads in a small cache.

    The laws: ``victims`` yields every resident chunk once and no other, as ascending or descending runs; looking at it
    changes nothing; the order is that in which chunks then go; equal calls give equal orders; what was removed does not
    come back; pinned chunks stay, and what can be evicted is found. With *leaf_constrained* the class works under that
    structure, where the order may change as chunks go.

    Raises
    ------
    InvariantError
        With the law that was broken, the class named.
    InputError
        If the class cannot be loaded, or needs what nobody knows.
    """
    for seed in range(rounds):
        _Play(policy, Random(seed), leaf_constrained=leaf_constrained, parameters=parameters).run()


class _Play:
    """Three copies of a policy under the same calls: one is looked at each time, one now and then, one at the end."""

    def __init__(
        self,
        policy: str | Callable[[], EvictionPolicy],
        random: Random,
        *,
        leaf_constrained: bool,
        parameters: dict[str, object],
    ) -> None:
        self._random = random
        self._leaf_constrained = leaf_constrained
        self._tree = PrefixTree()
        self._prompts = self._chains()
        self._sent = 0
        self._resident = RunSet()
        self._lost: set[int] = set()
        context = PolicyContext(
            capacity_chunks=_CAPACITY,
            now_s=lambda: float(self._sent),
            position=self._tree.position,
            generation=self._tree.generation,
            recompute_s=lambda position: 1.0 + 0.1 * position,
            reload_s=0.5,
            future=KnownFuture((prompt.runs for prompt in self._prompts), lambda: self._sent),
        )

        def make() -> EvictionPolicy:
            if isinstance(policy, str):
                return make_policy(policy, context, leaf_constrained=leaf_constrained, **parameters)
            made = constrain_to_leaves(policy()) if leaf_constrained else policy()
            hooks(made).prepare(context)
            return made

        self._watched, self._other, self._alone = (make() for _ in range(3))
        self._all = [(made, hooks(made)) for made in (self._watched, self._other, self._alone)]

    def _chains(self) -> list[Chain]:
        """Return prompts that share heads, some the same as before, some longer, some new."""
        random = self._random
        ids: list[list[int]] = [[]]
        for number in range(random.randrange(8, 40)):
            base = random.choice(ids[-6:])
            base = base[: random.randrange(len(base) + 1)] if random.random() < 0.3 else base
            new = random.randrange(0 if base else 1, _LONGEST // 2)
            ids.append([*base, *range(1000 * number, 1000 * number + new)][:_LONGEST])
        return [self._tree.chain(prompt) for prompt in ids if prompt]

    def run(self) -> None:
        """Send all prompts, a cache of a few of them in between."""
        random = self._random
        for prompt in self._prompts:
            self._sent += 1
            for part in list(self._watched_expired()):
                self._forget([part], dropped=True)
            self._request(prompt)
            if random.random() < 0.2 and self._resident:
                run = random.choice(list(self._resident.runs()))
                at = random.randrange(len(run))
                self._forget([run[at : at + 2]], dropped=True)
            self._check()
        self._compare(self._alone)
        if not self._leaf_constrained:  # passing over a chunk that is no leaf may move a hand that others come under
            self._check_order()

    def _watched_expired(self) -> Sequence[range]:
        expired = [made_hooks.expired() for _, made_hooks in self._all if made_hooks.expired is not None]
        return expired[0] if expired else ()

    def _request(self, prompt: Chain) -> None:
        """Do what a tier does for a prompt: touch what is there, make room, insert the rest."""
        tail_first = self._random.random() < 0.5
        present = [part for run in prompt.runs for part in self._resident.present(run)]
        absent = [part for run in prompt.runs for part in self._resident.absent(run)]
        for part in reversed(present) if tail_first else present:
            for made, _ in self._all:
                made.touch(part[::-1] if tail_first else part)
        for part in absent:
            for _, made_hooks in self._all:
                if made_hooks.miss is not None:
                    made_hooks.miss(part)
        self._make_room(count(absent) - (_CAPACITY - len(self._resident)), RunSet(prompt.runs))
        if count(absent) > _CAPACITY - len(self._resident) or self._random.random() < 0.1:
            return  # as where a transfer is given up
        for part in reversed(absent) if tail_first else absent:
            parent = self._tree.parent(part.start)
            for made, _ in self._all:
                made.insert(part[::-1] if tail_first else part, parent)
            self._resident.add(part)
            self._lost.difference_update(part)

    def _make_room(self, wanted: int, pinned: RunSet) -> None:
        victims = select_victims(self._watched, wanted, pinned, self._resident)
        for key in chain.from_iterable(victims):
            if key in pinned:
                raise broken(self._watched, f"pinned chunk {key} was chosen")
        free = sum(count(pinned.absent(run)) for run in self._resident.runs())
        if count(victims) < min(wanted, free) and not isinstance(self._watched, LeafConstrained):
            raise broken(self._watched, f"only {count(victims)} of {min(wanted, free)} chunks were found to evict")
        self._forget(victims, dropped=False)

    def _forget(self, runs: Runs, *, dropped: bool) -> None:
        for run in runs:
            for made, made_hooks in self._all:
                (made.remove if dropped else made_hooks.evict)(run)
            self._resident.remove(ascending(run))
            self._lost.update(run)

    def _check(self) -> None:
        order = self._order(self._watched)
        again = [key for key in order if key in self._lost]
        if again:
            raise broken(self._watched, f"chunk {again[0]} was removed, and victims() returned it")
        absent = [key for key in order if key not in self._resident]
        if absent:
            raise broken(self._watched, f"victims() returned chunk {absent[0]}, which is not resident")
        if len(set(order)) < len(order):
            raise broken(self._watched, "victims() returned a chunk twice")
        if len(order) < len(self._resident):
            raise broken(self._watched, f"victims() left out {len(self._resident) - len(order)} resident chunks")
        next(iter(self._watched.victims()), None)
        if self._order(self._watched) != order:
            raise broken(self._watched, "looking at victims() changed the order")
        if self._random.random() < 0.2:
            self._compare(self._other)

    def _compare(self, other: EvictionPolicy) -> None:
        if self._order(self._watched) != self._order(other):
            raise broken(other, "equal calls gave another order, or looking at victims() changed a later one")

    def _check_order(self) -> None:
        """Evict everything one by one: chunks go as victims() said."""
        order = self._order(self._watched)
        for key in order:
            first = next(self._candidates(self._watched), None)
            if first != key:
                raise broken(self._watched, f"victims() said that chunk {key} would go next, then it was {first}")
            self._forget([range(key, key + 1)], dropped=False)

    def _order(self, policy: EvictionPolicy) -> list[int]:
        return list(islice(self._candidates(policy), len(self._resident) + 1))

    def _candidates(self, policy: EvictionPolicy) -> Iterator[int]:
        if isinstance(policy, LeafConstrained):
            yield from policy.evictable()
            return
        for run in policy.victims():
            check_run(policy, run)
            yield from run
