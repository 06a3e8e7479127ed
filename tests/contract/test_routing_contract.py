"""Laws that every registered router and scheduler keeps."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest
from engine_kit import Row, Rows, made_up_cost, scenario, serve, table
from hypothesis import given
from hypothesis import strategies as st

from models.errors import InvariantError
from sim.policies.base import ROUTING, SCHEDULING, CachedPrefix, TierHit
from sim.runs import Chain

ROUTERS, SCHEDULERS = ROUTING.names(), SCHEDULING.names()


@dataclass
class Request:
    chunks: Chain = field(default_factory=lambda: Chain((range(4),)))
    prompt_tokens: int = 1000
    session_id: int = -1
    priority: int = 0
    request_id: int = 0
    arrived_at_s: float = 0.0
    target: int = 1000


@dataclass
class Replica:
    index: int
    outstanding_tokens: int = 0
    waiting_prefill_tokens: int = 0
    cached_tokens: int = 0
    shared_tokens: int = 0
    outstanding_requests: int = 0
    prefill_s_per_token: float = 1e-4

    def cached_prefix_tokens(self, chunks: Chain) -> int:
        return self.cached_tokens

    def cached_prefix(self, chunks: Chain) -> CachedPrefix:
        hits = [
            TierHit("hbm", "hbm", self.cached_tokens // 2, 0.0),
            TierHit("dram", "memory", self.cached_tokens // 4, 0.01),
            TierHit("nvme", "storage", self.cached_tokens // 4, 0.1),
            TierHit("fabric", "shared", self.shared_tokens, 0.05),
        ]
        return CachedPrefix(hits, 0.1)


tokens = st.integers(0, 1000)
replicas = st.lists(st.builds(Replica, st.integers(0, 9), tokens, tokens, tokens, tokens), min_size=1, max_size=5).map(
    lambda found: list({replica.index: replica for replica in found}.values())
)
requests = st.builds(Request, session_id=st.integers(-1, 2), prompt_tokens=st.integers(1, 2000))


def router(name: str):
    return ROUTING.create(name)


@pytest.mark.parametrize("name", ROUTERS)
@given(calls=st.lists(st.tuples(requests, replicas), min_size=1, max_size=8))
def test_routers_choose_one_of_the_replicas_and_repeat_themselves(name: str, calls) -> None:
    one, other = router(name), router(name)
    for request, choice in calls:
        chosen = one.choose(request, choice)
        assert chosen in {replica.index for replica in choice}
        assert other.choose(request, choice) == chosen


class Engine:
    """A view whose requests have cached what a table says."""

    def __init__(self, now_s: float, cached: dict[int, int]) -> None:
        self.now_s = now_s
        self._cached = cached

    def cached_tokens(self, request: Request) -> int:
        return min(self._cached.get(request.request_id, 0), request.target - 1)


queues = st.lists(
    st.builds(Request, priority=st.integers(0, 3), arrived_at_s=st.floats(0, 100), target=st.integers(1, 4000)),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("name", SCHEDULERS)
@given(queue=queues, cached=st.dictionaries(st.integers(0, 11), st.integers(0, 4000)), shuffle=st.randoms())
def test_schedulers_return_each_request_once_and_preempt_one_that_runs(name: str, queue, cached, shuffle) -> None:
    for number, request in enumerate(queue):
        request.request_id = number
    policy, engine = SCHEDULING.create(name), Engine(100.0, cached)
    given_order = tuple(queue)
    ordered = policy.order(given_order, engine)
    assert sorted(map(id, ordered)) == sorted(map(id, queue))
    assert given_order == tuple(queue)
    assert list(SCHEDULING.create(name).order(given_order, engine)) == list(ordered)
    assert policy.victim(queue, engine) in queue
    if name != "fcfs":  # the order says all: it does not matter how they stood before
        mixed = list(queue)
        shuffle.shuffle(mixed)
        assert [r.request_id for r in policy.order(tuple(mixed), engine)] == [r.request_id for r in ordered]


FAMILIES = [range(100 * family, 100 * family + 8) for family in range(3)]


def load(seed: int) -> list[Row]:
    random = Random(seed)
    return [
        Row(random.uniform(0, 0.5), random.choice((33, 100, 250)), random.choice((1, 150)), random.choice(FAMILIES))
        for _ in range(40)
    ]


def columns(name: str, key: str, seed: int) -> dict[str, np.ndarray]:
    """A tight cluster: queues, preemptions, hits in HBM and DRAM."""
    sections = {"cluster": {"replicas": 3, "replicas_per_node": 3}, "engine": {"max_num_seqs": 4}}
    section = "cluster" if key == "router" else "engine"
    sections[section] = sections[section] | {key: name}
    setup = scenario(hbm_blocks=48, tiers={"dram": {"device": "ddr5", "capacity": 2e8}}, run={"seed": seed}, **sections)
    return table(serve(setup, Rows(load(1)), made_up_cost(fixed_s=1e-3, dense_compute_s_per_token=2.0**-10)))


@pytest.mark.parametrize(
    ("key", "name"), [("router", name) for name in ROUTERS] + [("scheduling", name) for name in SCHEDULERS]
)
def test_every_request_ends_and_the_same_seed_gives_the_same_run(key: str, name: str) -> None:
    done, again = (columns(name, key, seed=3) for _ in range(2))
    assert len(done["finished_at_s"]) == 40
    assert done["preemptions"].any()
    assert not np.isnan(done["finished_at_s"]).any()
    assert done.keys() == again.keys()
    for column, values in done.items():
        assert values.tobytes() == again[column].tobytes(), column


@pytest.mark.parametrize("name", ["random", "power-of-two"])
def test_routers_that_draw_follow_the_seed_of_the_run(name: str) -> None:
    one, other = (columns(name, "router", seed)["replica"].tolist() for seed in (3, 4))
    assert one != other


# Who breaks the contract ---------------------------------------------------------------------------------------------


class Loses:
    def order(self, waiting: Sequence, engine) -> Sequence:
        return waiting[:-1]

    def victim(self, running: Sequence, engine):
        return running[-1]


class Doubles(Loses):
    def order(self, waiting: Sequence, engine) -> Sequence:
        return [waiting[0], *waiting]


class Strangers(Loses):
    def order(self, waiting: Sequence, engine) -> Sequence:
        return waiting

    def victim(self, running: Sequence, engine):
        return None


@pytest.mark.parametrize(("policy", "what"), [(Loses, "order"), (Doubles, "order"), (Strangers, "victim")])
def test_a_scheduler_that_breaks_its_contract_is_named(policy: type, what: str, monkeypatch) -> None:
    monkeypatch.setitem(SCHEDULING._classes, "broken", policy)
    with pytest.raises(InvariantError, match=rf"scheduler {policy.__name__}: {what}\(\)"):
        columns("broken", "scheduling", seed=1)


@pytest.mark.parametrize("answer", [3, -1, None])
def test_a_router_that_returns_no_replica_is_named(answer: object, monkeypatch) -> None:
    class Astray:
        def choose(self, request, replicas):
            return answer

    monkeypatch.setitem(ROUTING._classes, "broken", Astray)
    with pytest.raises(InvariantError, match=rf"router .*Astray: choose\(\) .* got {answer}"):
        columns("broken", "router", seed=1)
