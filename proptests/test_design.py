"""Experiment design against brute force, and the exact tails that it stands on."""

from __future__ import annotations

import itertools
import math
import operator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specsim.acceptance import AcceptanceDistribution
from specsim.evidence import design
from specsim.evidence.design import (
    draws_needed,
    least_draws,
    smallest_detectable,
    wald_limit,
)
from specsim.evidence.tails import (
    band_exit,
    band_exit_cost,
    binomial_critical,
    binomial_upper,
    sum_lower,
    sum_upper,
)

LAWS = [[1.0], [0.3, 0.7], [0.05, 0.95], [0.0, 0.2, 0.5, 0.3], [0.1, 0.2, 0.3, 0.25, 0.15]]


@st.composite
def pmfs(draw: st.DrawFn, most: int = 5) -> np.ndarray[Any, np.dtype[np.float64]]:
    weights = draw(st.lists(st.integers(0, 9), min_size=1, max_size=most).filter(any))
    return np.array(weights, dtype=np.float64) / sum(weights)


# --- tails ----------------------------------------------------------------------------------


@given(st.integers(1, 3000), st.floats(0, 1), st.integers(-2, 3002))
def test_binomial_upper_matches_scipy(draws: int, p: float, count: int) -> None:
    expected = stats.binom.sf(count - 1, draws, p)
    assert float(binomial_upper(count, draws, p)) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@given(st.integers(1, 5000), st.floats(0, 1), st.floats(1e-9, 0.5))
def test_binomial_critical_is_the_first_rare_count(draws: int, p: float, level: float) -> None:
    c = int(binomial_critical(draws, np.array([p]), level)[0])
    assert float(binomial_upper(c, draws, p)) <= level
    assert 1 <= c <= draws + 1
    assert float(binomial_upper(c - 1, draws, p)) > level


@given(pmfs(), st.integers(1, 12), st.integers(-2, 60))
def test_sum_tails_match_convolution(
    pmf: np.ndarray[Any, np.dtype[np.float64]], draws: int, total: int
) -> None:
    law = np.ones(1)
    for _ in range(draws):
        law = np.convolve(law, pmf)
    assert sum_upper(pmf, draws, total) == pytest.approx(
        math.fsum(law[max(total, 0) :]), rel=1e-11, abs=1e-300
    )
    assert sum_lower(pmf, draws, total) == pytest.approx(
        math.fsum(law[: max(total + 1, 0)]), rel=1e-11, abs=1e-300
    )


@pytest.mark.parametrize("draws", [10**3, 10**5, 10**7])
@pytest.mark.parametrize("sigmas", [-9.0, -2.0, 0.0, 2.0, 9.0, 20.0])
def test_sum_tails_keep_their_digits_far_out(draws: int, sigmas: float) -> None:
    total = int(0.7 * draws + sigmas * math.sqrt(0.21 * draws))
    expected = stats.binom.sf(total - 1, draws, 0.7)
    found = sum_upper(np.array([0.3, 0.7]), draws, total)
    assert found == pytest.approx(expected, rel=1e-14 * draws + 1e-11)


@given(pmfs(4), pmfs(4), st.integers(1, 7), st.floats(0.01, 7.0))
def test_band_exit_matches_enumeration_of_all_counts(
    pmf: np.ndarray[Any, np.dtype[np.float64]],
    centre_law: np.ndarray[Any, np.dtype[np.float64]],
    draws: int,
    width: float,
) -> None:
    centre = draws * np.resize(np.cumsum(centre_law), pmf.size)
    # A width within rounding of a distance that can occur is decided by the rounding.
    distances = np.abs(np.arange(draws + 1)[:, None] - centre)
    if np.min(np.abs(distances - width)) < 1e-9:
        width -= 1e-6
    mass = 0.0
    for counts in itertools.product(range(draws + 1), repeat=pmf.size):
        if sum(counts) == draws and np.any(np.abs(np.cumsum(counts)[:-1] - centre[:-1]) >= width):
            mass += float(stats.multinomial.pmf(counts, draws, pmf))
    assert band_exit(draws, pmf, centre, width) == pytest.approx(mass, rel=1e-9, abs=1e-14)


def test_band_exit_has_the_binomial_law_for_two_values() -> None:
    draws, width = 20_000, 350.0
    pmf = np.array([0.3, 0.7])
    expected = stats.binom.sf(6349, draws, 0.3) + stats.binom.cdf(5650, draws, 0.3)
    assert expected < 1e-6
    found = band_exit(draws, pmf, draws * np.cumsum(pmf), width)
    assert found == pytest.approx(expected, rel=1e-8)
    assert 2e5 < band_exit_cost(draws, pmf, width) < 2e6


# --- the limit ------------------------------------------------------------------------------


def test_wald_limit_is_met_by_a_point_mass() -> None:
    # Under q every draw is 5, so the likelihood ratio after n draws is (1 / 0.7)**n exactly, and
    # no test of level alpha may reject a run of n fives with 0.7**n > alpha.
    p0 = AcceptanceDistribution.match_expected(4.7, 8)
    limit = wald_limit(AcceptanceDistribution.match_expected(5, 8), p0, 1e-6)
    n = math.ceil(limit)
    assert limit == pytest.approx(38.734, abs=1e-3)
    assert (4.7 - 4) ** n <= 1e-6 < (4.7 - 4) ** (n - 1)


def test_wald_limit_at_its_edges() -> None:
    assert wald_limit([0.3, 0.7], [0.3, 0.7], 1e-6) == math.inf
    assert wald_limit([0.3, 0.7, 0.0], [0.3, 0.7], 1e-6) == math.inf
    assert wald_limit([0.3, 0.6, 0.1], [0.3, 0.7], 1e-6) == 0.0
    assert wald_limit([1.0], [0.5, 0.5], 0.5) == pytest.approx(1.0)


@given(pmfs(), pmfs(), st.floats(1e-9, 0.5))
def test_wald_limit_matches_its_formula(
    q: np.ndarray[Any, np.dtype[np.float64]],
    p0: np.ndarray[Any, np.dtype[np.float64]],
    alpha: float,
) -> None:
    size = max(q.size, p0.size)
    law = AcceptanceDistribution(np.pad(q, (0, size - q.size)))
    divergence = law.kl(AcceptanceDistribution(p0))
    expected = math.inf if divergence == 0 else math.log(1 / alpha) / divergence
    assert wald_limit(q, p0, alpha) == pytest.approx(expected, rel=1e-9)


# --- draws and deviations -------------------------------------------------------------------


def event_power(p: float, gained: float, draws: int, alpha: float) -> float:
    """Return the power of a two-sided binomial test, its critical counts found one by one."""
    counts = np.arange(draws + 1)
    high = counts[stats.binom.sf(counts - 1, draws, p) <= alpha / 2]
    low = counts[stats.binom.cdf(counts, draws, p) <= alpha / 2]
    return float(stats.binom.pmf(np.concatenate([low, high]), draws, gained).sum())


def worst_power(pmf: list[float], deviation: float, draws: int, alpha: float) -> float:
    powers = []
    for event in itertools.product([False, True], repeat=len(pmf)):
        p = math.fsum(x for x, e in zip(pmf, event, strict=True) if e)
        if p + deviation <= 1 + 1e-12:
            powers.append(event_power(p, min(p + deviation, 1.0), draws, alpha))
    return min(powers)


@pytest.mark.parametrize("pmf", LAWS)
@pytest.mark.parametrize(("deviation", "alpha"), [(0.3, 0.05), (0.1, 1e-3), (0.25, 1e-6)])
def test_draws_needed_reach_the_power_for_every_event(
    pmf: list[float], deviation: float, alpha: float
) -> None:
    draws = draws_needed(pmf, deviation=deviation, alpha=alpha, power=0.9)
    assert worst_power(pmf, deviation, draws, alpha) >= 0.9 - 1e-12
    if draws > 1:
        assert worst_power(pmf, deviation, draws - 1, alpha) < 0.9


@given(pmfs(4), pmfs(5))
def test_the_test_of_the_best_event_has_the_promised_power(
    p0: np.ndarray[Any, np.dtype[np.float64]], q: np.ndarray[Any, np.dtype[np.float64]]
) -> None:
    size = max(p0.size, q.size)
    x, y = np.pad(p0, (0, size - p0.size)), np.pad(q, (0, size - q.size))
    gain = float(np.maximum(y - x, 0.0).sum())
    draws = draws_needed(p0, deviation=0.2, alpha=0.01, power=0.8)
    if gain >= 0.2:
        event = y > x
        p, gained = min(float(x[event].sum()), 1.0), min(float(y[event].sum()), 1.0)
        assert event_power(p, gained, draws, 0.01) >= 0.8 - 1e-9


def test_a_law_closer_than_the_deviation_is_not_promised() -> None:
    # The twin of the two tests above: at half the deviation the same draws don't suffice.
    draws = draws_needed([0.3, 0.7], deviation=0.1, alpha=1e-3, power=0.9)
    assert worst_power([0.3, 0.7], 0.05, draws, 1e-3) < 0.5


def test_many_values_are_on_the_safe_side(monkeypatch: pytest.MonkeyPatch) -> None:
    law = AcceptanceDistribution.constant_conditional(3.3, 8)
    exact = draws_needed(law, deviation=0.05, alpha=1e-4, power=0.95)
    monkeypatch.setattr(design, "_MOST_ENUMERATED", 0)
    bounded = draws_needed(law, deviation=0.05, alpha=1e-4, power=0.95)
    assert exact <= bounded <= 1.05 * exact
    # The bound holds between the cells' ends too, which a few wide cells make plain.
    monkeypatch.setattr(design, "_CELLS", 24)
    wide = draws_needed(law, deviation=0.2, alpha=1e-3, power=0.9)
    for p in np.linspace(0.0, 0.8, 481).tolist():
        assert event_power(p, p + 0.2, wide, 1e-3) >= 0.9


@pytest.mark.parametrize("pmf", LAWS)
def test_smallest_detectable_inverts_draws_needed(pmf: list[float]) -> None:
    draws = draws_needed(pmf, deviation=0.1, alpha=1e-4, power=0.9)
    smallest = smallest_detectable(pmf, draws=draws, alpha=1e-4, power=0.9)
    assert smallest <= 0.1 + 1e-9
    assert worst_power(pmf, smallest, draws, 1e-4) >= 0.9 - 1e-12
    if smallest < 0.5:
        assert worst_power(pmf, smallest - 1e-6, draws, 1e-4) < 0.9


def test_one_draw_resolves_only_disjoint_laws() -> None:
    assert smallest_detectable([0.5, 0.5], draws=1, alpha=1e-6, power=0.99) > 0.9
    assert smallest_detectable([1.0], draws=1, alpha=1e-6, power=0.99) == pytest.approx(
        0.99, abs=1e-8
    )


def test_least_draws_finds_the_step() -> None:
    for step in (1, 2, 3, 77):
        assert least_draws(partial(operator.le, step), 0.5) == step
    with pytest.raises(ValueError, match="q must differ more from p0"):
        least_draws(lambda n: 0.1, 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"deviation": 0.0}, r"deviation must be in \(0, 1\], got 0.0"),
        ({"deviation": math.nan}, r"deviation must be in \(0, 1\], got nan"),
        ({"alpha": 0.0}, "alpha must be strictly between 0 and 1, got 0.0"),
        ({"power": 1.0}, "power must be strictly between 0 and 1, got 1.0"),
        ({"p0": [0.5, 0.6]}, "p0 must sum to 1"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    call: dict[str, Any] = {"p0": [0.3, 0.7], "deviation": 0.1, "alpha": 0.01, "power": 0.9}
    with pytest.raises(ValueError, match=message):
        draws_needed(**{**call, **arguments})


def test_bad_draws_and_laws_are_named() -> None:
    untyped: Any = smallest_detectable
    for draws in (0, 1.5, math.nan, True):
        with pytest.raises(ValueError, match=f"draws must be an integer >= 1, got {draws}"):
            untyped([1.0], draws=draws, alpha=0.01, power=0.9)
    with pytest.raises(ValueError, match="power must be strictly between 0 and 1, got None"):
        untyped([1.0], draws=1, alpha=0.01, power=None)
    with pytest.raises(ValueError, match="q must hold finite probabilities"):
        wald_limit([1.5, -0.5], [0.5, 0.5], 0.01)
    with pytest.raises(ValueError, match="alpha must be strictly between 0 and 1, got nan"):
        wald_limit([1.0], [0.5, 0.5], math.nan)
