"""Fixed-size tests of acceptance-length counts against a known law, each with its power.

The number of draws is decided before the data are seen and the test is done once: looking
again after more draws breaks the promised error rate, which `SequentialTest` keeps. A value
outside the law's support gives a p-value of 0 in every test.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.special import chdtrc, chdtri, chndtr

from specsim.evidence.classical_mean import (
    dkwm_mean_draws,
    dkwm_mean_power,
    dkwm_mean_test,
    mean_draws,
    mean_power,
    mean_test,
)
from specsim.evidence.design import check_draws, check_error_rate, least_draws
from specsim.evidence.fixed_size import TestResult, as_counts, fixed_size_power, impossible
from specsim.evidence.law import FloatArray, IntArray, Law, as_pmf
from specsim.evidence.tails import band_exit, band_exit_cost, binomial_upper

__all__ = [
    "TestResult",
    "chi_square_draws",
    "chi_square_power",
    "chi_square_test",
    "dkwm_mean_draws",
    "dkwm_mean_power",
    "dkwm_mean_test",
    "ks_draws",
    "ks_power",
    "ks_test",
    "mean_draws",
    "mean_power",
    "mean_test",
]

_LEAST_EXPECTED = 5.0
_EXACT_COST = 3e8  # multiplications; about a second


# --- chi-square -----------------------------------------------------------------------------


def _pools(pmf: FloatArray, draws: int) -> list[IntArray]:
    """Group adjacent values of the support until each group expects 5 draws or more."""
    pools: list[list[int]] = []
    expected = math.inf
    for k in np.flatnonzero(pmf).tolist():
        if expected >= _LEAST_EXPECTED:
            pools.append([])
            expected = 0.0
        pools[-1].append(k)
        expected += draws * float(pmf[k])
    if expected < _LEAST_EXPECTED and len(pools) > 1:
        last = pools.pop()
        pools[-1].extend(last)
    return [np.array(pool) for pool in pools]


def chi_square_test(counts: Sequence[int] | IntArray, p0: Law) -> TestResult:
    """Test counts by Pearson's chi-square, with adjacent values pooled.

    Values are pooled from the smallest up until each cell expects at least 5 draws; a
    remainder joins the last cell. With one cell left nothing is tested and the p-value is 1.

    The p-value is that of the limiting chi-square law (Pearson 1900). It is good near 0.05 and
    wrong far out: at a nominal 1e-6 the true rate can be 6e-5. Don't use it for a promised
    small error rate.

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
    pools = _pools(pmf, draws)
    observed = np.array([known[pool].sum() for pool in pools], dtype=np.float64)
    expected = np.array([draws * pmf[pool].sum() for pool in pools])
    statistic = float(np.sum((observed - expected) ** 2 / expected)) if len(pools) > 1 else 0.0
    p_value = float(chdtrc(len(pools) - 1, statistic)) if len(pools) > 1 else 1.0
    return TestResult(statistic, p_value, draws, "asymptotic", len(pools))


def chi_square_power(p0: Law, q: Law, draws: int, alpha: float) -> float:
    """Return the probability that `chi_square_test` gives a p-value of at most alpha under q.

    Exact for two cells, where the statistic is a function of one binomial count. For more, the
    noncentral chi-square approximation (Patnaik 1949) with noncentrality
    draws · Σ (q − p0)² / p0 over the pooled cells, which is for q near p0.

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
        pools = _pools(null, draws)
        if len(pools) < 2:
            return 0.0
        critical = float(chdtri(len(pools) - 1, alpha))
        p = np.array([null[pool].sum() for pool in pools])
        r = np.array([alternative[pool].sum() for pool in pools])
        if len(pools) == 2:
            reach = math.sqrt(critical * draws * float(p[0] * p[1]))
            up = math.ceil(draws * float(p[0]) + reach)
            down = math.floor(draws * float(p[0]) - reach)
            other = min(max(float(r[1]), 0.0), 1.0)
            rise = float(binomial_upper(up, draws, 1.0 - other))
            return rise + float(binomial_upper(draws - down, draws, other))
        return 1.0 - float(
            chndtr(critical, len(pools) - 1, draws * float(np.sum((r - p) ** 2 / p)))
        )

    return fixed_size_power(p0, q, draws, alpha, inside)


def chi_square_draws(p0: Law, q: Law, alpha: float, power: float) -> int:
    """Return the draws with which `chi_square_test` at level alpha rejects q with a power.

    See `chi_square_power` for what is exact and `least_draws` for the search. The level is
    nominal: see `chi_square_test`.

    Raises
    ------
    ValueError
        If q is p0, or an argument is outside its range.
    """
    wanted = check_error_rate(power, "power")
    return least_draws(lambda n: chi_square_power(p0, q, n, alpha), wanted)


# --- Kolmogorov–Smirnov ---------------------------------------------------------------------


def ks_test(
    counts: Sequence[int] | IntArray,
    p0: Law,
    *,
    method: Literal["auto", "exact", "monte-carlo"] = "auto",
    replicates: int = 9999,
    seed: int | None = None,
) -> TestResult:
    """Test counts by the discrete Kolmogorov–Smirnov statistic max_k |F_n(k) − F_0(k)|.

    The null is that of the discrete law itself: the continuous null is conservative here, the
    more so the fewer the values. Exact by dynamic programming over the cumulative counts
    (`band_exit`), or by Monte Carlo with p = (1 + b) / (1 + B), where b of the B replicates are
    at least as extreme: valid at any B (Davison & Hinkley 1997), and never below 1 / (1 + B).

    Parameters
    ----------
    counts
        How often each of the values 1, 2, … occurred; integers, of any length.
    p0
        The law tested.
    method
        ``"auto"`` is exact where that takes about a second or less.
    replicates
        Monte Carlo's B, at least 1.
    seed
        Seed of Monte Carlo's generator; required when Monte Carlo is used.

    Raises
    ------
    TypeError
        If `counts` is not a one-dimensional array of integers.
    ValueError
        If a count is negative, all are zero, `p0` is not a pmf, `method` is unknown, or `seed`
        is missing.
    """
    pmf = as_pmf(p0)
    known, possible = as_counts(counts, pmf)
    if method not in ("auto", "exact", "monte-carlo"):
        raise ValueError(f"method must be 'auto', 'exact' or 'monte-carlo', got {method!r}")
    check_draws(replicates, "replicates")
    if not possible:
        return impossible(counts, pmf)
    draws, bins = int(known.sum()), int(np.count_nonzero(pmf))
    centre = draws * np.cumsum(pmf)
    width = float(np.max(np.abs(np.cumsum(known) - centre)[:-1], initial=0.0))
    if method == "exact" or (method == "auto" and band_exit_cost(draws, pmf, width) <= _EXACT_COST):
        return TestResult(width / draws, band_exit(draws, pmf, centre, width), draws, "exact", bins)
    if seed is None:
        raise ValueError("seed must be given for a Monte Carlo null, got None")
    samples = np.random.default_rng(seed).multinomial(draws, pmf, size=replicates)
    widths = np.abs(np.cumsum(samples, axis=1) - centre)[:, :-1].max(axis=1, initial=0.0)
    extreme = int(np.count_nonzero(widths >= width - 1e-12 * (draws + 1)))
    p_value = (1 + extreme) / (1 + replicates)
    return TestResult(width / draws, p_value, draws, "monte-carlo", bins)


def ks_power(p0: Law, q: Law, draws: int, alpha: float) -> float:
    """Return the exact probability that the exact `ks_test` gives p ≤ alpha under q.

    Costs some twenty runs of the exact null, so up to minutes for 100,000 draws and many values.

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
        centre = draws * np.cumsum(null)
        # By the inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant no larger
        # width is needed; the next one that can occur is less than a count away.
        most = math.sqrt(draws * math.log(2.0 / alpha) / 2.0) + 1.0
        widths = np.unique(np.abs(np.arange(draws + 1)[:, None] - centre[None, :-1]))
        widths = widths[widths <= most]
        rarest = bisect_left(
            widths, True, key=lambda width: band_exit(draws, null, centre, float(width)) <= alpha
        )
        if rarest == widths.size:
            return 0.0
        return band_exit(draws, alternative, centre, float(widths[rarest]))

    return fixed_size_power(p0, q, draws, alpha, inside)


def ks_draws(p0: Law, q: Law, alpha: float, power: float) -> int:
    """Return the draws with which the exact `ks_test` at level alpha rejects q with a power.

    Raises
    ------
    ValueError
        If q is p0, or an argument is outside its range.
    """
    wanted = check_error_rate(power, "power")
    return least_draws(lambda n: ks_power(p0, q, n, alpha), wanted)
