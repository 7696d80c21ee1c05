"""The betting confidence sequence: fairness by enumeration, coverage, power, closed form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specsim.evidence.mean import BoundedMeanTest

Branch = list[tuple[float, float]]

lengths = st.lists(st.floats(1.0, 8.0), min_size=1, max_size=30)


def mean_wealth(
    next_law: Callable[[tuple[float, ...]], Branch], mean: float, steps: int, level: float
) -> tuple[float, float, float]:
    """Return E[wealth] after `steps` values, E[wealth when first at `level`], and P(stopped)."""
    at_end, stopped, early = [], [], []

    def walk(past: tuple[float, ...], mass: float, frozen: float | None) -> None:
        test = BoundedMeanTest(1.0, 4.0, 0.05)
        test.update(past)
        wealth = math.exp(test.log_e(mean))
        if frozen is None and wealth >= level:
            frozen = wealth
        if len(past) == steps:
            at_end.append(mass * wealth)
            stopped.append(mass * (wealth if frozen is None else frozen))
            early.append(mass if frozen is not None else 0.0)
            return
        for value, share in next_law(past):
            walk((*past, value), mass * share, frozen)

    walk((), 1.0, None)
    return math.fsum(at_end), math.fsum(stopped), math.fsum(early)


def independent(past: tuple[float, ...]) -> Branch:
    return [(1.0, 0.2), (2.5, 0.5), (4.0, 0.3)]


def dependent(past: tuple[float, ...]) -> Branch:
    """Return a law whose spread depends on the last value and whose mean, 2.65, does not."""
    if past and past[-1] > 2.0:
        return [(2.65, 0.7), (1.65, 0.15), (3.65, 0.15)]
    return [(1.0, 0.45), (4.0, 0.55)]


@pytest.mark.parametrize("law", [independent, dependent])
@pytest.mark.parametrize("level", [1.05, 1.5])
def test_the_wealth_is_fair_stopped_or_not(
    law: Callable[[tuple[float, ...]], Branch], level: float
) -> None:
    mean = math.fsum(value * share for value, share in law(()))
    at_end, stopped, early = mean_wealth(law, mean, 6, level)
    assert 0.01 < early < 0.99
    assert at_end == pytest.approx(1.0, abs=1e-12)
    assert stopped == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("law", [independent, dependent])
def test_the_wealth_is_not_fair_at_another_mean(
    law: Callable[[tuple[float, ...]], Branch],
) -> None:
    # The twin: a wrong mean makes the same expectation grow.
    for wrong in (1.8, 3.4):
        assert mean_wealth(law, wrong, 6, 2.0)[0] > 1.1


@given(lengths, st.floats(1.001, 7.999))
def test_log_e_is_the_product_of_the_bets(values: list[float], mean: float) -> None:
    test = BoundedMeanTest(1.0, 8.0, 0.05)
    test.update(values)
    shares = [2 ** (-j / 2) for j in range(29)]
    weights = [1 / (j + 8) for j in range(29)]
    total = 0.0
    for share, weight in zip(shares, weights, strict=True):
        up = math.prod(1 + share * (x - mean) / (mean - 1.0) for x in values)
        down = math.prod(1 + share * (mean - x) / (8.0 - mean) for x in values)
        total += weight * (up + down) / 2 / math.fsum(weights)
    assert math.exp(test.log_e(mean)) == pytest.approx(total, rel=1e-9, abs=1e-12)


@given(lengths, st.data())
def test_splitting_and_order_do_not_matter(values: list[float], data: st.DataObject) -> None:
    whole, parts, weighted = (BoundedMeanTest(1.0, 8.0, 0.05) for _ in range(3))
    whole.update(values)
    shuffled = data.draw(st.permutations(values))
    cut = data.draw(st.integers(0, len(values)))
    parts.update(shuffled[:cut])
    parts.update(shuffled[cut:])
    distinct = sorted(set(values))
    weighted.update(distinct, [values.count(v) for v in distinct])
    assert whole.draws == parts.draws == weighted.draws == len(values)
    assert whole.log_e(4.7) == parts.log_e(4.7) == weighted.log_e(4.7)
    assert whole.interval() == parts.interval() == weighted.interval()


@given(lengths, st.sampled_from([0.9, 0.05, 1e-6]), st.integers(1, 300))
def test_the_interval_is_the_set_of_means_not_rejected(
    values: list[float], alpha: float, times: int
) -> None:
    test = BoundedMeanTest(1.0, 8.0, alpha)
    test.update(values, [times] * len(values))
    low, high = test.interval()
    assert 1.0 <= low <= min(max(float(np.mean(values)), 1.0), 8.0) <= high <= 8.0
    assert low == 1.0 or test.rejects(low)
    assert high == 8.0 or test.rejects(high)
    for mean in np.linspace(1.0, 8.0, 57).tolist():
        if low + 1e-9 < mean < high - 1e-9:
            assert not test.rejects(mean)
        if not low - 1e-9 <= mean <= high + 1e-9:
            assert test.rejects(mean)
            assert test.log_e(mean) >= math.log(1 / alpha)


def test_bounds_are_means_like_others() -> None:
    test = BoundedMeanTest(1.0, 8.0, 0.05)
    assert (test.interval(), test.log_e(3.0), test.draws) == ((1.0, 8.0), 0.0, 0)
    test.update([8.0] * 5)
    assert test.log_e(8.0) < 0.0
    assert test.log_e(1.0) == math.inf
    test.update([1.0])
    assert test.log_e(8.0) == test.log_e(1.0) == math.inf
    assert math.isfinite(test.log_e(1.0 + 1e-15))
    low, high = test.interval()
    assert 1.0 < low < high < 8.0


def rejections(mean: float, tested: float, streams: int, looks: int, alpha: float) -> int:
    """Count streams of two-valued interval means rejected at any look."""
    rng = np.random.default_rng(20)
    count = 0
    for _ in range(streams):
        test = BoundedMeanTest(1.0, 8.0, alpha)
        values = np.where(rng.random(looks) < (mean - 4.0) / 2.0, 6.0, 4.0)
        for value in values.tolist():
            test.update([value])
            if test.rejects(tested):
                count += 1
                break
    return count


def test_coverage_holds_at_every_look_and_a_shifted_mean_is_found() -> None:
    # At most a share 0.2 may be rejected; 200 streams give more than the 1 - 1e-6 quantile with
    # probability below 1e-6 (false-alarm rate of this assertion).
    most = int(stats.binom.isf(1e-6, 200, 0.2))
    assert rejections(4.7, 4.7, 200, 100, 0.2) <= most
    # The twin: values of mean 5.6 tested for 4.7 are rejected in more streams than that.
    assert rejections(5.6, 4.7, 200, 100, 0.2) > most


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.72, 0.75, 1.0])
def test_draws_stay_within_reach_of_the_limit(q: float) -> None:
    # Median of 60 streams, 0.7 tested at 1e-6. For q < 1 the ratio to log(1/alpha)/KL was
    # between 1.1 and 1.4; a median of 60 beyond 1.8 has a probability far below 1e-6.
    kl = float(stats.entropy([q, 1 - q], [0.7, 0.3]))
    limit = math.log(1e6) / kl
    rng = np.random.default_rng(21)
    step = max(1, int(limit / 50))
    needed = []
    for _ in range(60):
        test = BoundedMeanTest(0.0, 1.0, 1e-6)
        while not test.rejects(0.7):
            ones = int(rng.binomial(step, q))
            test.update([0.0, 1.0], [step - ones, ones])
        needed.append(test.draws)
    assert 1.0 <= np.median(needed) / limit <= 1.8


@pytest.mark.parametrize(
    ("values", "weights", "message"),
    [
        ([0.5], None, r"values must be in \[1.0, 8.0\], got 0.5"),
        ([2.0, 8.5], None, r"values must be in \[1.0, 8.0\], got 8.5"),
        ([math.nan], None, r"values must be in \[1.0, 8.0\], got nan"),
        ([[2.0]], None, r"values must be one-dimensional, got shape \(1, 1\)"),
        ([2.0], [1, 2], r"weights must be 1 integers, got \[1, 2\]"),
        ([2.0], [0.5], r"weights must be 1 integers, got \[0.5\]"),
        ([2.0], [-1], "weights must be >= 0, got -1"),
    ],
)
def test_bad_values_are_named_and_nothing_is_added(values: Any, weights: Any, message: str) -> None:
    test = BoundedMeanTest(1.0, 8.0, 0.05)
    with pytest.raises(ValueError, match=message):
        test.update(values, weights)
    assert test.draws == 0
    test.update([])
    assert test.draws == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8.0, 1.0, 0.05), "lower must be below upper=1.0, got 8.0"),
        ((1.0, math.inf, 0.05), "lower and upper must be finite, got 1.0 and inf"),
        ((math.nan, 8.0, 0.05), "lower and upper must be finite, got nan and 8.0"),
        ((1.0, 8.0, 0.0), "alpha must be strictly between 0 and 1, got 0.0"),
    ],
)
def test_bad_settings_are_named(arguments: tuple[float, float, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BoundedMeanTest(*arguments)


@pytest.mark.parametrize("mean", [0.9, 8.1, math.nan])
def test_a_mean_outside_the_bounds_is_named(mean: float) -> None:
    test = BoundedMeanTest(1.0, 8.0, 0.05)
    for call in (test.log_e, test.rejects):
        with pytest.raises(ValueError, match=r"mean must be in \[1.0, 8.0\], got"):
            call(mean)


def test_enumeration_covers_every_sequence() -> None:
    # The enumerator itself: six steps of three values have total mass 1 at any level.
    paths = list(itertools.product(independent(()), repeat=6))
    assert math.fsum(math.prod(share for _, share in path) for path in paths) == pytest.approx(1.0)
