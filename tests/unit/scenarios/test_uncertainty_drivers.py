"""Indices and intervals against closed forms, on functions instead of runs."""

import itertools

import numpy as np
import pytest

from scenarios.uncertainty.draws import distances, student
from scenarios.uncertainty.drivers import MODEL_ERROR, SEEDS, sobol_drivers
from scenarios.uncertainty.figures import Combined, error_exponent, figures_of
from scenarios.uncertainty.fit import ModelError
from scenarios.uncertainty.surrogate import first_order, fit_quadratic, refit, total_effect

EXACT = ModelError(sd=0.0, degrees_of_freedom=np.inf, source="test")
NAMES = ("a", "b", "c", "d", "e")


def drawn(n: int = 128, correlation: np.ndarray | None = None) -> np.ndarray:
    return distances(n, np.eye(len(NAMES)) if correlation is None else correlation, seed=3)


def causes(y: np.ndarray, x: np.ndarray, correlation: np.ndarray | None = None):
    together = np.eye(len(NAMES)) if correlation is None else correlation
    found = sobol_drivers(Combined("hit_ratio", y, np.array([7.0]), EXACT), x, together, NAMES)
    assert found is not None
    return found, {cause.name: cause for cause in found.causes}


def test_a_linear_figure_has_the_shares_of_its_squares() -> None:
    x = drawn()
    found, by_name = causes(7.0 + x @ [3.0, 0.0, -4.0, 0.0, 0.0], x)
    for name, share in (("a", 9 / 25), ("b", 0.0), ("c", 16 / 25), ("e", 0.0)):
        cause = by_name[name]
        assert cause.first == pytest.approx(share, abs=0.02)  # the variance of 128 draws is 1 within 2 %
        assert cause.total == pytest.approx(cause.first)
        assert cause.first_interval[0] <= cause.first <= cause.first_interval[1]
    assert found.explained == pytest.approx(1.0)
    assert [cause.name for cause in found.causes[:2]] == ["c", "a"]


def test_a_product_counts_in_total_and_not_at_first() -> None:
    x = drawn(512)
    _, by_name = causes(2.0 * x[:, 0] + x[:, 0] * x[:, 1] + x[:, 2] ** 2, x)
    # Variances 4, 1 and 2 of 7 in all.
    for name, first, total in (("a", 4, 5), ("b", 0, 1), ("c", 2, 2), ("d", 0, 0)):
        assert by_name[name].first == pytest.approx(first / 7, abs=0.03)
        assert by_name[name].total == pytest.approx(total / 7, abs=0.03)


def test_the_closed_forms_agree_with_sampling_of_the_same_function() -> None:
    """Var(E[y|x_i]) and E[Var(y|others)] by brute force, correlated inputs, every kind of term."""
    random = np.random.default_rng(1)
    root = random.normal(size=(3, 3)) + 2.0 * np.eye(3)
    covariance = root @ root.T
    correlation = covariance / np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()))
    terms = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 2))

    def function(x: np.ndarray) -> np.ndarray:
        return 1.0 + x @ [1.0, -2.0, 0.5] + 0.7 * x[..., 0] ** 2 + x[..., 0] * x[..., 1] - 0.6 * x[..., 1] * x[..., 2]

    x = random.multivariate_normal(np.zeros(3), correlation, 400)
    quadratic = refit(x, function(x), terms)
    assert quadratic.explained == pytest.approx(1.0)
    for i in range(3):
        others = [j for j in range(3) if j != i]
        r = correlation[others, i]
        given_i = random.multivariate_normal(np.zeros(2), correlation[np.ix_(others, others)] - np.outer(r, r), 2000)
        given_i -= given_i.mean(axis=0)
        outer = random.normal(size=1500)
        points = np.empty((1500, 2000, 3))
        points[:, :, i] = outer[:, None]
        points[:, :, others] = outer[:, None, None] * r + given_i
        assert first_order(quadratic, correlation)[i] == pytest.approx(function(points).mean(axis=1).var(), rel=0.2)
        weights = np.linalg.solve(correlation[np.ix_(others, others)], r)
        left = np.sqrt(1.0 - r @ weights)
        outer_others = random.multivariate_normal(np.zeros(2), correlation[np.ix_(others, others)], 2000)
        points = np.empty((2000, 1000, 3))
        points[:, :, others] = outer_others[:, None, :]
        points[:, :, i] = (outer_others @ weights)[:, None] + left * random.normal(size=1000)
        assert total_effect(quadratic, correlation)[i] == pytest.approx(function(points).var(axis=1).mean(), rel=0.2)


def test_correlated_parameters_tell_of_each_other() -> None:
    correlation = np.eye(5)
    correlation[0, 1] = correlation[1, 0] = 0.8
    x = drawn(512, correlation)
    assert np.corrcoef(x.T)[0, 1] == pytest.approx(0.8, abs=0.02)
    _, by_name = causes(x[:, 0].copy(), x, correlation)
    assert by_name["a"].first == pytest.approx(1.0, abs=0.02)
    assert by_name["b"].first == pytest.approx(0.64, abs=0.02)  # knowing b leaves 1 - 0.8^2 of the variance
    assert by_name["a"].total == pytest.approx(0.36, abs=0.02)
    assert by_name["b"].total == pytest.approx(0.0, abs=1e-9)


def test_noise_that_no_parameter_explains_is_given_to_none() -> None:
    x = drawn()
    random = np.random.default_rng(5)
    for _ in range(10):
        found, by_name = causes(random.normal(size=len(x)), x)
        assert found.explained < 0.2
        assert max(by_name[name].total for name in NAMES) < 0.12
    found, by_name = causes(3.0 * x[:, 1] + random.normal(size=len(x)), x)
    assert by_name["b"].first == pytest.approx(0.9, abs=0.06)
    assert found.explained == pytest.approx(0.9, abs=0.06)


def test_the_confidence_of_an_index_holds_the_truth() -> None:
    inside = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        x = random.normal(size=(128, 5))
        _, by_name = causes(x @ [1.0, 1.0, 0.0, 0.0, 0.0] + random.normal(size=128), x)
        low, high = by_name["a"].first_interval
        inside += low <= 1 / 3 <= high
    assert 15 <= inside <= 20


def test_seeds_and_the_error_of_the_model_take_their_shares() -> None:
    x = drawn(512)
    error = ModelError(sd=0.03, degrees_of_freedom=np.inf, source="test")
    seeded = np.exp(0.04 * student((np.arange(16) + 0.5) / 16, np.inf))
    together = np.eye(5)
    combined = Combined("ttft_s.p50", 10.0 * seeded[0] * np.exp(0.05 * x[:, 2]), 10.0 * seeded, error)
    found = sobol_drivers(combined, x, together, NAMES)
    assert found is not None
    by_name = {cause.name: cause.first for cause in found.causes}
    seeds_variance = np.log(seeded).var(ddof=1)
    whole = 0.05**2 + 0.03**2 + seeds_variance
    assert by_name["c"] == pytest.approx(0.05**2 / whole, abs=0.01)
    assert by_name[MODEL_ERROR] == pytest.approx(0.03**2 / whole, abs=0.01)
    assert by_name[SEEDS] == pytest.approx(seeds_variance / whole, abs=0.01)
    end = 10.0 * np.exp(1.645 * np.sqrt(0.05**2 + 0.03**2 + np.log(seeded).var()))
    assert combined.interval()["p95"] == pytest.approx(end, rel=0.01)


def test_students_t_reaches_further_than_the_normal() -> None:
    y, one = np.full(64, 10.0), np.array([10.0])
    ends = []
    for freedom in (np.inf, 4.0):
        combined = Combined("makespan_s", y, one, ModelError(sd=0.05, degrees_of_freedom=freedom, source="test"))
        ends.append(combined.interval()["p95"])
    # 95 % of the normal lie below 1.645 standard deviations, of Student's t with 4 degrees of freedom below 2.132.
    assert np.log(np.array(ends) / 10.0) / 0.05 == pytest.approx([1.645, 2.132], rel=0.02)


def test_a_rate_falls_where_a_time_rises() -> None:
    names = {
        "ttft_s.p50": 1.0, "makespan_s": 1.0, "ttft_parts_s.load": 1.0, "handover.s.p50": 1.0,
        "throughput.output_tokens_per_s": -1.0, "links.fx100.peak_bytes_per_s": -1.0,
        "hit_ratio_tokens": 0.0, "tiers.dram.read_bytes": 0.0, "slo.attainment": 0.0, "links.nic.busy_fraction": 0.0,
    }  # fmt: skip
    assert {name: error_exponent(name) for name in names} == names


def test_shares_stay_shares_and_what_is_not_negative_stays_so() -> None:
    wide = np.linspace(0.0, 1.0, 64)
    share = Combined("hit_ratio_tokens", wide, np.array([0.9, 1.0, 0.0]), EXACT).interval()
    assert share["p5"] >= 0.0
    assert share["p95"] <= 1.0
    near_nothing = Combined("ttft_parts_s.queue", wide, np.array([1e-6, 2.0, 0.5]), EXACT)
    assert not near_nothing.is_scaled  # 2 s over 1 us is no factor for another run
    assert near_nothing.interval()["p95"] < 4.0


def test_a_figure_that_nothing_moves_has_no_drivers() -> None:
    constant = Combined("requests.completed", np.full(64, 8.0), np.array([8.0, 8.0]), EXACT)
    assert sobol_drivers(constant, drawn(64), np.eye(5), NAMES) is None
    assert set(constant.interval().values()) == {8.0}


def test_the_numbers_of_a_summary_are_named_by_where_they_stand() -> None:
    summary = {"a": {"b": 1, "c": None, "d": "x", "e": True}, "f_s": 2.5, "engine": {"wall_s": 1.0}, "warnings": ["w"],
               "slo": {"limits": {"ttft_s": 2.0}, "attainment": 0.5}}  # fmt: skip
    assert figures_of(summary) == {"a.b": 1.0, "f_s": 2.5, "slo.attainment": 0.5}


def test_draws_are_even_and_repeat() -> None:
    x = drawn(64)
    assert np.array_equal(x, drawn(64))
    assert not np.array_equal(x, distances(64, np.eye(5), seed=4))
    assert np.abs(x.mean(axis=0)).max() < 0.05  # of independent draws it would be 0.125
    for column, end in itertools.product(x.T, (-1.0, 1.0)):
        assert (column * end > 0).sum() == 32


def test_terms_are_few_where_little_is_to_be_told() -> None:
    x = drawn()
    quadratic = fit_quadratic(x, x[:, 0] + 1e-3 * np.sin(50.0 * x[:, 1]))
    assert quadratic.terms[0] == (0,)
    assert len(quadratic.terms) <= 32
