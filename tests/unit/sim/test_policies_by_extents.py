"""Policies that keep chunks in extents, beside the same written chunk by chunk, over runs that are cut anywhere."""

import math
import random

import pytest
from runs_kit import STRAND, WINDOWS, flat, run_set

from sim.policies.base import EvictionPolicy, PolicyContext
from sim.policies.hooks import hooks
from sim.policies.leaf import select_victims
from sim.policies.priority_lru import PriorityLru
from sim.policies.workload_aware import WorkloadAware


def position(key: int) -> int:
    """The end of one strand and the begin of the next stand near the head of their prompts."""
    return (key + 8) % STRAND


def turn(key: int) -> int:
    return 1 + position(key) // 4


class Model:
    """What both have: a time, and the last use of each chunk."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.clock = 0
        self.used: dict[int, int] = {}

    def insert(self, key: int) -> None:
        self.clock += 1
        self.used[key] = self.clock

    def touch(self, key: int) -> None:
        self.insert(key)

    def remove(self, key: int) -> None:
        del self.used[key]


class PriorityModel(Model):
    def __init__(self, priority: int) -> None:
        super().__init__()
        self.priority = priority
        self.until_s: dict[int, float] = {}

    def insert(self, key: int) -> None:
        super().insert(key)
        self.until_s[key] = self.now_s + 5.0 if position(key) < 6 else -math.inf

    def order(self) -> list[int]:
        def rank(key: int) -> tuple[int, int]:
            return (self.priority if self.until_s[key] > self.now_s else 35, self.used[key])

        return sorted(self.used, key=rank)


class ReuseModel(Model):
    def __init__(self) -> None:
        super().__init__()
        self.at_s: dict[int, float] = {}
        self.seen: dict[int, list[float]] = {}  # by turn: uses, reuses, and the time between
        self.changed_s = 0.0

    def insert(self, key: int) -> None:
        super().insert(key)
        self.at_s[key] = self.changed_s = self.now_s
        self.seen.setdefault(turn(key), [0, 0, 0.0])[0] += 1

    def touch(self, key: int) -> None:
        seen = self.seen[turn(key)]
        seen[1] += 1
        seen[2] += self.now_s - self.at_s[key]
        self.insert(key)

    def chance(self, key: int) -> float:
        uses, reuses, between_s = self.seen[turn(key)]
        rate = (reuses + 1) / (between_s + 60.0)
        idle_s = self.changed_s - self.at_s[key]
        return (reuses + 1) / (uses + 1) * math.exp(-rate * idle_s) * -math.expm1(-rate * 60.0)

    def order(self) -> list[int]:
        # What was used at one time in one turn goes in the order of use; of equal chances the earlier turn goes first.
        return sorted(self.used, key=lambda key: (self.chance(key), turn(key), self.used[key]))


def part_of(resident: dict[int, int], rng: random.Random) -> range:
    low = high = rng.choice(sorted(resident))
    while low - 1 in resident and low % STRAND and rng.random() < 0.7:
        low -= 1
    while high + 1 in resident and (high + 1) % STRAND and rng.random() < 0.7:
        high += 1
    return range(low, high + 1)[:: rng.choice([1, 1, -1])]


def play(policy: EvictionPolicy, model: PriorityModel | ReuseModel, rng: random.Random) -> None:
    found = hooks(policy)
    found.prepare(PolicyContext(now_s=lambda: model.now_s, position=position, generation=turn))
    for _ in range(60):
        model.now_s += rng.choice([0.0, 0.0, 0.5, 2.0])
        what = rng.randrange(5) if model.used else 0
        window = rng.choice(WINDOWS)
        first = rng.randrange(len(window))
        runs = [window[first : rng.randrange(first, len(window)) + 1]] if what <= 1 else [part_of(model.used, rng)]
        if what <= 1:
            for run in run_set(model.used).absent(runs[0][:: rng.choice([1, 1, -1])]):
                policy.insert(run)
                for key in run:
                    model.insert(key)
            continue
        if what == 2:
            policy.touch(runs[0])
            for key in runs[0]:
                model.touch(key)
            continue
        if what == 3:
            policy.remove(runs[0])
        else:
            if found.miss is not None:
                found.miss(range(1 << 40, (1 << 40) + 1))
            if isinstance(model, ReuseModel):
                model.changed_s = model.now_s
            order = model.order()
            pinned = {key for key in order if rng.random() < 0.15}
            runs = select_victims(policy, rng.randrange(1, 9), run_set(pinned), run_set(model.used))
            assert flat(runs) == [key for key in order if key not in pinned][: len(flat(runs))]
            for run in runs:
                found.evict(run)
        for key in flat(runs):
            model.remove(key)
        if found.miss is not None:
            found.miss(range(0))
        if isinstance(model, ReuseModel):
            model.changed_s = model.now_s
        assert flat(policy.victims()) == model.order()


@pytest.mark.parametrize("priority", [100, 0])
def test_priority_lru_whose_priorities_end(priority: int) -> None:
    for seed in range(150):
        policy = PriorityLru(head_chunks=6, head_priority=priority, duration_s=5.0)
        play(policy, PriorityModel(priority), random.Random(seed))


def test_workload_aware() -> None:
    for seed in range(150):
        play(WorkloadAware(), ReuseModel(), random.Random(seed))
