"""Intervals: by hand over seeds, and over blocks against truths that are known."""

from statistics import NormalDist

import numpy as np
import pytest
from comparison_kit import a_sample, metrics, waiting_times

from scenarios.comparison.intervals import BlockDraws, difference_over_seeds, resolution_of


def test_seeds_by_hand() -> None:
    found = difference_over_seeds([10.0, 20.0, 30.0], [11.0, 22.0, 33.0])
    # Differences 1, 2, 3: mean 2, deviation 1; t of 2 degrees of freedom at 97.5 % is 4.30265 (any table).
    assert found.difference == pytest.approx(2.0)
    assert found.low == pytest.approx(2.0 - 4.302653 / 3**0.5)
    assert found.high == pytest.approx(2.0 + 4.302653 / 3**0.5)
    assert found.equal  # -0.48 to 4.48


def test_pairs_of_seeds_find_what_their_spread_would_hide() -> None:
    found = difference_over_seeds([1.0, 5.0, 9.0, 13.0], [1.1, 5.12, 9.11, 13.09])
    assert found.low is not None
    assert found.low > 0.05
    assert found.equal is False


def test_the_same_figures_are_equal_and_one_pair_says_nothing_of_others() -> None:
    same = difference_over_seeds([3.0, 4.0], [3.0 + 1e-12, 4.0])
    assert (same.difference, same.low, same.high, same.equal) == (0.0, 0.0, 0.0, True)
    assert difference_over_seeds([0.0], [0.0]).equal
    alone = difference_over_seeds([3.0], [4.0])
    assert (alone.difference, alone.low, alone.high, alone.equal) == (1.0, None, None, None)
    with pytest.raises(ValueError, match="2 and 1"):
        difference_over_seeds([1.0, 2.0], [1.0])


def test_what_is_counted_in_bins_is_known_no_better_than_them() -> None:
    # All three seeds 0.1 % apart: sure, if it were not the width of a bin.
    args = [0.1, 0.1, 0.1], [0.1001, 0.1001, 0.1001]
    assert difference_over_seeds(*args).equal is False
    assert difference_over_seeds(*args, resolution=resolution_of("itl_s.p99")).equal
    assert resolution_of("ttft_s.p99") == 0.0


def test_identical_runs_differ_by_nothing() -> None:
    ttft_s = waiting_times(np.random.default_rng(1), 600)
    same = BlockDraws(a_sample(ttft_s), 0).differences(metrics(ttft_s), a_sample(ttft_s), metrics(ttft_s))
    assert len(same) == 4
    for found in same.values():
        assert (found.difference, found.low, found.high, found.equal) == (0.0, 0.0, 0.0, True)


def test_pairs_find_a_small_gain_and_strangers_cannot() -> None:
    random = np.random.default_rng(2)
    first, stranger = waiting_times(random, 600), 0.97 * waiting_times(random, 600)
    better = first * random.uniform(0.95, 0.99, first.size)
    draws = BlockDraws(a_sample(first), 0)
    paired = draws.differences(metrics(first), a_sample(better), metrics(better))
    assert [found.equal for found in paired.values()] == [False] * 4
    assert all(found.high is not None and found.high < 0.0 for found in paired.values())
    # Of other requests nothing can be paired, and nothing is claimed.
    other = a_sample(stranger, prompt_tokens=101)
    assert a_sample(first).pairs_with(a_sample(better))
    assert not a_sample(first).pairs_with(other)
    apart = draws.differences(metrics(first), other, metrics(stranger))
    assert all((found.low, found.high, found.equal) == (None, None, None) for found in apart.values())


def test_draws_are_those_of_the_seed() -> None:
    random = np.random.default_rng(3)
    first, other = waiting_times(random, 600), waiting_times(random, 600)
    args = metrics(first), a_sample(other), metrics(other)
    one, again, another = (BlockDraws(a_sample(first), seed).differences(*args) for seed in (5, 5, 6))
    assert one == again
    assert one != another


def test_too_few_blocks_give_no_interval() -> None:
    first, other = np.ones(5), np.full(5, 2.0)
    none = a_sample(first, blocks=1)
    none = type(none)(workload=none.workload[:0], ratios={}, ranked={})
    found = BlockDraws(none, 0).differences(metrics(first), none, metrics(other))
    assert found["ttft_s.mean"].equal is None
    assert found["ttft_s.mean"].difference == 1.0


# The logarithm of the waits below is normal with deviation 0.5; the variant takes 0.9 times as long, give or take a
# factor whose logarithm has deviation 0.1. So all true differences are known.
SPREAD = float(np.hypot(0.5, 0.1))
NORMAL = {f"ttft_s.p{q}": NormalDist().inv_cdf(q / 100) for q in (50, 90, 99)}
TRUTH = {"ttft_s.mean": 0.9 * np.exp(SPREAD**2 / 2.0) - np.exp(0.125)}
TRUTH |= {metric: 0.9 * np.exp(SPREAD * z) - np.exp(0.5 * z) for metric, z in NORMAL.items()}


def held_share(trials: int, blocks: int, memory: float, wanted: dict[str, float]) -> dict[str, float]:
    """How often the intervals held the truth."""
    random = np.random.default_rng(4)
    held = dict.fromkeys(wanted, 0)
    for trial in range(trials):
        first = waiting_times(random, 2000, memory)
        other = first * 0.9 * waiting_times(random, 2000, memory) ** 0.2
        samples = [a_sample(ttft_s, blocks=blocks, ranked="ttft_s.p50" in wanted) for ttft_s in (first, other)]
        found = BlockDraws(samples[0], trial).differences(metrics(first), samples[1], metrics(other))
        for metric, true in wanted.items():
            low, high = found[metric].low, found[metric].high
            assert low is not None
            assert high is not None
            held[metric] += int(low <= true <= high)
    return {metric: count / trials for metric, count in held.items()}


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    held = held_share(150, 30, 0.8, TRUTH)
    # Chance alone takes 95 % below 90 % in one of a hundred such series, and all of them to 100 % never.
    assert all(share >= 0.9 for share in held.values()), held
    assert held["ttft_s.mean"] < 0.99, held


def test_blocks_as_short_as_the_memory_of_a_queue_promise_too_much() -> None:
    mean = {"ttft_s.mean": TRUTH["ttft_s.mean"]}
    assert held_share(20, 500, 0.95, mean)["ttft_s.mean"] < 0.7
    assert held_share(40, 30, 0.95, mean)["ttft_s.mean"] > 0.8
