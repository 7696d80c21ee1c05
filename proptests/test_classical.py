"""Fixed-size tests: p-values and powers against enumeration of all possible counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specsim.acceptance import AcceptanceDistribution
from specsim.evidence.classical import (
    TestResult,
    chi_square_draws,
    chi_square_power,
    chi_square_test,
    dkwm_mean_draws,
    dkwm_mean_power,
    dkwm_mean_test,
    ks_draws,
    ks_power,
    ks_test,
    mean_draws,
    mean_power,
    mean_test,
)

Test = Callable[[Any, Any], TestResult]
Power = Callable[[Any, Any, int, float], float]

EXACT: list[tuple[Test, Power]] = [
    (ks_test, ks_power),
    (mean_test, mean_power),
    (dkwm_mean_test, dkwm_mean_power),
]
ALL: list[tuple[Test, Power]] = [(chi_square_test, chi_square_power), *EXACT]
NULLS = [[0.3, 0.7], [0.2, 0.5, 0.3], [0.0, 0.25, 0.6, 0.15]]
FROZEN = AcceptanceDistribution.match_expected(5, 8)
LENGTHS = AcceptanceDistribution.match_expected(4.7, 8)


def all_counts(draws: int, values: int) -> Iterator[tuple[int, ...]]:
    for bars in itertools.combinations(range(draws + values - 1), values - 1):
        edges = (-1, *bars, draws + values - 1)
        yield tuple(b - a - 1 for a, b in itertools.pairwise(edges))


def rejection_share(test: Test, p0: list[float], q: list[float], draws: int, alpha: float) -> float:
    """Return the probability under q of p <= alpha, by enumeration."""
    share = [
        float(stats.multinomial.pmf(counts, draws, q))
        for counts in all_counts(draws, len(q))
        if test(counts, p0).p_value <= alpha
    ]
    return math.fsum(share)


# --- error rates and powers -----------------------------------------------------------------


@pytest.mark.parametrize(("test", "power"), EXACT)
@pytest.mark.parametrize("p0", NULLS)
@pytest.mark.parametrize("alpha", [0.3, 0.05, 0.001])
def test_the_level_holds_exactly(test: Test, power: Power, p0: list[float], alpha: float) -> None:
    share = rejection_share(test, p0, p0, 9, alpha)
    assert share <= alpha * (1 + 1e-9)
    assert power(p0, p0, 9, alpha) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(("test", "power"), EXACT)
@pytest.mark.parametrize("p0", NULLS)
@pytest.mark.parametrize(
    "q", [[0.6, 0.4], [0.1, 0.3, 0.6], [0.0, 0.6, 0.3, 0.1], [0.1, 0.4, 0.4, 0.1]]
)
def test_the_power_is_the_share_rejected(
    test: Test, power: Power, p0: list[float], q: list[float]
) -> None:
    share = rejection_share(test, p0, q, 10, 0.05)
    assert power(p0, q, 10, 0.05) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(
    ("p0", "q"), [([0.3, 0.7], [0.45, 0.55]), ([0.0, 0.5, 0.5], [0.02, 0.4, 0.58])]
)
def test_chi_square_power_is_exact_for_two_cells(p0: list[float], q: list[float]) -> None:
    share = rejection_share(chi_square_test, p0, q, 30, 0.05)
    assert chi_square_power(p0, q, 30, 0.05) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("q", [[0.3, 0.4, 0.3], [0.25, 0.45, 0.3], [0.2, 0.35, 0.45]])
def test_chi_square_power_is_close_for_more_cells(q: list[float]) -> None:
    share = rejection_share(chi_square_test, [0.3, 0.4, 0.3], q, 60, 0.05)
    assert chi_square_power([0.3, 0.4, 0.3], q, 60, 0.05) == pytest.approx(share, abs=0.02)


def test_chi_square_tails_are_wrong_far_out() -> None:
    # The docstring's warning, made exact: a cell of 5 expected draws, nominal level 1e-6.
    share = chi_square_power([0.005, 0.995], [0.005, 0.995], 1000, 1e-6)
    assert 4e-5 < share < 8e-5


# --- statistics and p-values ----------------------------------------------------------------


def test_chi_square_without_pooling_is_pearsons() -> None:
    counts, p0 = [18, 42, 60], [0.2, 0.35, 0.45]
    expected = stats.chisquare(counts, 120 * np.array(p0))
    found = chi_square_test(counts, p0)
    assert found.statistic == pytest.approx(float(expected.statistic))
    assert found.p_value == pytest.approx(float(expected.pvalue))
    assert (found.draws, found.bins, found.method) == (120, 3, "asymptotic")


def test_chi_square_pools_adjacent_values_to_five_expected() -> None:
    # Expected 1, 3, 2 | 0 and 54 | 37, and the last 3 join the cell before them.
    p0 = [0.01, 0.03, 0.02, 0.0, 0.54, 0.37, 0.03]
    counts = [2, 2, 3, 0, 50, 40, 3]
    found = chi_square_test(counts, p0)
    expected = stats.chisquare([7, 50, 43], [6, 54, 40])
    assert found.statistic == pytest.approx(float(expected.statistic))
    assert found.bins == 3


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any), st.integers(1, 400))
def test_chi_square_compares_cells_that_expect_enough(weights: list[int], draws: int) -> None:
    p0 = np.array(weights) / sum(weights)
    found = chi_square_test(np.random.default_rng(0).multinomial(draws, p0), p0)
    assert 1 <= found.bins <= max(1, draws // 5)
    assert 0.0 <= found.p_value <= 1.0
    if found.bins == 1:
        assert (found.statistic, found.p_value) == (0.0, 1.0)


@pytest.mark.parametrize("p0", NULLS)
def test_ks_and_mean_p_values_are_tail_shares(p0: list[float]) -> None:
    draws = 9
    pmf, law = np.array(p0), {}
    for counts in all_counts(draws, pmf.size):
        law[counts] = float(stats.multinomial.pmf(counts, draws, pmf))

    def sup(counts: tuple[int, ...]) -> float:
        return float(np.max(np.abs(np.cumsum(counts) / draws - np.cumsum(pmf))))

    def shift(counts: tuple[int, ...]) -> float:
        return abs(float(np.arange(pmf.size) @ (np.array(counts) / draws - pmf)))

    for test, statistic in ((ks_test, sup), (mean_test, shift)):
        for counts, mass in law.items():
            if mass == 0.0:
                continue
            seen = statistic(counts)
            expected = math.fsum(m for c, m in law.items() if statistic(c) >= seen - 1e-12)
            found = test(counts, p0)
            assert found.p_value == pytest.approx(expected, abs=1e-12)
            assert abs(found.statistic) == pytest.approx(seen)
            assert found.method == "exact"


def test_the_continuous_ks_null_is_conservative() -> None:
    counts = [45, 55]
    found = ks_test(counts, [0.3, 0.7])
    continuous = float(stats.kstwo.sf(found.statistic, 100))
    assert found.p_value < 0.1 * continuous


def test_monte_carlo_agrees_with_the_exact_null() -> None:
    # b ~ Binomial(B, p): outside these bounds with probability below 1e-9 on a right p-value.
    counts, p0, replicates = [50, 95, 105], [0.25, 0.35, 0.4], 4000
    exact = ks_test(counts, p0, method="exact").p_value
    found = ks_test(counts, p0, method="monte-carlo", replicates=replicates, seed=1)
    extreme = round(found.p_value * (replicates + 1)) - 1

    def plausible(p_value: float) -> bool:
        law = stats.binom(replicates, p_value)
        return bool(law.ppf(5e-10) <= extreme <= law.ppf(1 - 5e-10))

    assert plausible(exact)
    assert found.method == "monte-carlo"
    assert ks_test(counts, p0, method="monte-carlo", replicates=replicates, seed=1) == found
    # The twin: the same bounds reject the p-value of a null that is off by a tenth.
    wrong = ks_test(counts, [0.15, 0.35, 0.5], method="exact").p_value
    assert not plausible(wrong)


def test_monte_carlo_never_claims_more_than_its_replicates() -> None:
    found = ks_test([0, 500], [0.3, 0.7], method="monte-carlo", replicates=99, seed=0)
    assert found.p_value == 1 / 100


def test_large_samples_need_a_seed_for_monte_carlo() -> None:
    p0 = AcceptanceDistribution.multinomial(8.0, 16)
    counts = np.round(2e7 * p0.pmf).astype(np.int64)
    counts[:2] += 40_000
    with pytest.raises(ValueError, match="seed must be given for a Monte Carlo null, got None"):
        ks_test(counts, p0)
    assert ks_test(counts, p0, seed=0, replicates=99).p_value == 0.01


def test_dkwm_is_the_bound_it_says() -> None:
    found = dkwm_mean_test([0, 0, 0, 30, 70, 0, 0, 0], LENGTHS)
    assert found.p_value == pytest.approx(1.0)
    found = dkwm_mean_test([0, 0, 0, 0, 4000, 0, 0, 0], LENGTHS)
    assert found.p_value == pytest.approx(2 * math.exp(-2 * 4000 * (0.3 / 7) ** 2))
    assert found.method == "bound"


@pytest.mark.parametrize(("test", "power"), ALL)
def test_a_value_outside_the_support_has_p_value_zero(test: Test, power: Power) -> None:
    for counts in ([0, 0, 1, 30, 69], [0] * 3 + [30, 70] + [0] * 10 + [1]):
        found = test(counts, LENGTHS)
        assert (found.p_value, found.statistic, found.method) == (0.0, math.inf, "exact")
        assert found.draws == sum(counts)
    outside = [0.0, 0.0, 0.0, 0.3, 0.6, 0.0, 0.0, 0.0, 0.1]
    assert power(LENGTHS, outside, 50, 1e-9) == pytest.approx(1 - 0.9**50, abs=1e-3)
    assert power([1.0], [0.0, 1.0], 1, 1e-9) == 1.0


@pytest.mark.parametrize(("test", "power"), ALL)
def test_short_counts_are_padded_and_one_value_is_never_rejected(test: Test, power: Power) -> None:
    assert test([3], [1.0]).p_value == 1.0
    assert test([0, 0, 0, 3, 7], LENGTHS) == test([0, 0, 0, 3, 7, 0, 0, 0], LENGTHS)
    assert power([1.0], [1.0], 10, 0.05) == 0.0


# --- draws ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draws", "power"),
    [
        (chi_square_draws, chi_square_power),
        (ks_draws, ks_power),
        (mean_draws, mean_power),
        (dkwm_mean_draws, dkwm_mean_power),
    ],
)
def test_draws_reach_the_power_and_one_fewer_does_not(
    draws: Callable[[Any, Any, float, float], int], power: Power
) -> None:
    for q in (FROZEN, AcceptanceDistribution.match_expected(4.9, 8)):
        n = draws(LENGTHS, q, 1e-6, 0.99)
        assert power(LENGTHS, q, n, 1e-6) >= 0.99
        assert power(LENGTHS, q, n - 1, 1e-6) < 0.99


def test_a_frozen_length_takes_tens_of_draws_and_thousands_by_the_bound() -> None:
    assert 39 <= mean_draws(LENGTHS, FROZEN, 1e-6, 0.99) <= 80
    assert 39 <= ks_draws(LENGTHS, FROZEN, 1e-6, 0.99) <= 80
    assert 39 <= chi_square_draws(LENGTHS, FROZEN, 1e-6, 0.99) <= 80
    assert dkwm_mean_draws(LENGTHS, FROZEN, 1e-6, 0.99) > 2000


def test_indistinguishable_laws_have_no_number_of_draws() -> None:
    for draws in (mean_draws, dkwm_mean_draws):
        with pytest.raises(ValueError, match="q must have another mean than p0"):
            draws([0.25, 0.5, 0.25], [0.3, 0.4, 0.3], 0.05, 0.9)
    with pytest.raises(ValueError, match="q must differ more from p0"):
        chi_square_draws(LENGTHS, LENGTHS, 0.05, 0.9)


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(("test", "power"), ALL)
@pytest.mark.parametrize(
    ("counts", "error", "message"),
    [
        ([-1, 2], ValueError, "counts must be >= 0, got -1"),
        ([0, 0], ValueError, "counts must hold at least one draw, got none"),
        ([], TypeError, "counts must be a one-dimensional array of integers"),
        ([0.5, 2], TypeError, "counts must be a one-dimensional array of integers"),
        ([[1, 2]], TypeError, "counts must be a one-dimensional array of integers"),
    ],
)
def test_bad_counts_are_named(
    test: Test, power: Power, counts: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        test(counts, [0.3, 0.7])


@pytest.mark.parametrize(("test", "power"), ALL)
def test_bad_arguments_are_named(test: Test, power: Power) -> None:
    with pytest.raises(ValueError, match="p0 must sum to 1"):
        test([1, 2], [0.3, 0.6])
    with pytest.raises(ValueError, match="q must sum to 1"):
        power([0.3, 0.7], [0.3, 0.6], 10, 0.05)
    with pytest.raises(ValueError, match="alpha must be strictly between 0 and 1, got 1"):
        power([0.3, 0.7], [0.3, 0.7], 10, 1)
    with pytest.raises(ValueError, match="draws must be an integer >= 1, got 0"):
        power([0.3, 0.7], [0.3, 0.7], 0, 0.05)


def test_bad_ks_options_are_named() -> None:
    untyped: Any = ks_test
    with pytest.raises(ValueError, match="method must be 'auto', 'exact' or 'monte-carlo', got"):
        untyped([1, 2], [0.3, 0.7], method="fast")
    with pytest.raises(ValueError, match="replicates must be an integer >= 1, got 0"):
        ks_test([1, 2], [0.3, 0.7], replicates=0)
