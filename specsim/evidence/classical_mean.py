"""Fixed-size tests of the mean: by the exact law of the sum, and by a distribution-free bound."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from specsim.evidence.design import check_error_rate, least_draws, pad_laws
from specsim.evidence.fixed_size import TestResult, as_counts, fixed_size_power, impossible
from specsim.evidence.law import FloatArray, IntArray, Law, as_pmf
from specsim.evidence.tails import sum_lower, sum_upper

# The exact tail takes memory and time as the square root of the draws: here 0.5 GB and seconds.
_MOST_DRAWS = 2**32


def _beyond(law: FloatArray, null: FloatArray, draws: int, distance: float) -> float:
    """Return P(|S − E₀S| ≥ distance) for the sum S of draws from `law`, with E₀ under `null`."""
    centre = draws * float(np.arange(null.size) @ null)
    slack = 1e-12 * (1.0 + draws * null.size)
    up = math.ceil(centre + distance - slack)
    down = math.floor(centre - distance + slack)
    return min(1.0, sum_upper(law, draws, up) + sum_lower(law, draws, down))


def mean_test(counts: Sequence[int] | IntArray, p0: Law) -> TestResult:
    """Test the mean of the draws, two-sided, against the exact law of the sum under p0.

    The statistic is the draws' mean less p0's, in tokens; the p-value is the probability under
    p0 of a mean at least as far away on either side, from the exact law of a sum of independent
    draws (`sum_upper`), small tails included. It sees no fault that leaves the mean alone.

    Parameters
    ----------
    counts
        How often each of the values 1, 2, … occurred; integers, of any length.
    p0
        The law tested.

    Raises
    ------
    TypeError
        If `counts` is not a one-dimensional array of integers.
    ValueError
        If a count is negative, all are zero, or `p0` is not a pmf.
    """
    pmf = as_pmf(p0)
    known, possible = as_counts(counts, pmf)
    if not possible:
        return impossible(counts, pmf)
    draws = int(known.sum())
    values = np.arange(pmf.size)
    distance = int(values @ known) - draws * float(values @ pmf)
    p_value = _beyond(pmf, pmf, draws, abs(distance))
    return TestResult(distance / draws, p_value, draws, "exact", int(np.count_nonzero(pmf)))


def mean_power(p0: Law, q: Law, draws: int, alpha: float) -> float:
    """Return the exact probability that `mean_test` gives a p-value of at most alpha under q.

    Parameters
    ----------
    p0, q
        The law tested and the law drawn from.
    draws
        Number of draws, at least 1.
    alpha
        Level of the test, in (0, 1).

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """

    def inside(null: FloatArray, alternative: FloatArray) -> float:
        centre = draws * float(np.arange(null.size) @ null)
        # By Hoeffding's inequality (1963) no larger distance is needed.
        reach = math.ceil((null.size - 1) * math.sqrt(draws * math.log(2.0 / alpha) / 2.0)) + 2

        def rare(total: int) -> bool:
            return _beyond(null, null, draws, abs(total - centre)) <= alpha

        first, last = math.ceil(centre), math.floor(centre)
        up = first + bisect_left(range(reach), True, key=lambda step: rare(first + step))
        down = last - bisect_left(range(reach), True, key=lambda step: rare(last - step))
        return sum_upper(alternative, draws, up) + sum_lower(alternative, draws, down)

    return fixed_size_power(p0, q, draws, alpha, inside)


def mean_draws(p0: Law, q: Law, alpha: float, power: float) -> int:
    """Return the draws with which `mean_test` at level alpha rejects q with a power.

    Raises
    ------
    ValueError
        If q has p0's mean and support, or an argument is outside its range.
    """
    wanted = check_error_rate(power, "power")
    _check_means_differ(p0, q)
    return least_draws(lambda n: mean_power(p0, q, n, alpha), wanted, _MOST_DRAWS)


def _check_means_differ(p0: Law, q: Law) -> None:
    """Refuse a pair of laws that no test of the mean can tell apart."""
    null, alternative = pad_laws(as_pmf(p0), as_pmf(q, "q"))
    difference = float(np.arange(null.size) @ (alternative - null))
    if abs(difference) < 1e-9 and not np.any(alternative[null == 0.0]):
        raise ValueError(f"q must have another mean than p0, got a difference of {difference!r}")


def dkwm_mean_test(counts: Sequence[int] | IntArray, p0: Law) -> TestResult:
    """Test the mean by the Dvoretzky–Kiefer–Wolfowitz–Massart bound on the distribution.

    If a cumulative distribution on 1 … K moves by at most ε, its mean, which is
    K − Σ_{k<K} F(k), moves by at most (K − 1)·ε. With P(sup |F_n − F| ≥ ε) ≤ 2·exp(−2nε²)
    (Massart 1990), a mean at distance t from p0's has a p-value of at most
    2·exp(−2n·(t / (K − 1))²). A bound for every law on 1 … K at once, so it takes many more
    draws than `mean_test`; it is here as the yardstick that general-purpose testing libraries
    use.

    Parameters
    ----------
    counts
        How often each of the values 1, 2, … occurred; integers, of any length.
    p0
        The law tested; K is the number of its values, those of probability zero included.

    Raises
    ------
    TypeError
        If `counts` is not a one-dimensional array of integers.
    ValueError
        If a count is negative, all are zero, or `p0` is not a pmf.
    """
    pmf = as_pmf(p0)
    known, possible = as_counts(counts, pmf)
    if not possible:
        return impossible(counts, pmf)
    draws, bins = int(known.sum()), int(np.count_nonzero(pmf))
    distance = float(np.arange(pmf.size) @ (known / draws - pmf))
    epsilon = distance / max(pmf.size - 1, 1)
    p_value = min(1.0, 2.0 * math.exp(-2.0 * draws * epsilon**2))
    return TestResult(distance, p_value, draws, "bound", bins)


def dkwm_mean_power(p0: Law, q: Law, draws: int, alpha: float) -> float:
    """Return the exact probability that `dkwm_mean_test` gives p ≤ alpha under q.

    Parameters
    ----------
    p0, q
        The law tested and the law drawn from.
    draws
        Number of draws, at least 1.
    alpha
        Level of the test, in (0, 1).

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    span = as_pmf(p0).size - 1

    def inside(null: FloatArray, alternative: FloatArray) -> float:
        distance = span * math.sqrt(draws * math.log(2.0 / alpha) / 2.0)
        return _beyond(alternative, null, draws, distance) if span else 0.0

    return fixed_size_power(p0, q, draws, alpha, inside)


def dkwm_mean_draws(p0: Law, q: Law, alpha: float, power: float) -> int:
    """Return the draws with which `dkwm_mean_test` at level alpha rejects q with a power.

    Raises
    ------
    ValueError
        If q has p0's mean and support, or an argument is outside its range.
    """
    wanted = check_error_rate(power, "power")
    _check_means_differ(p0, q)
    return least_draws(lambda n: dkwm_mean_power(p0, q, n, alpha), wanted, _MOST_DRAWS)
