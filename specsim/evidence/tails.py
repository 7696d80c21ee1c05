"""Exact tail probabilities that fixed-size tests need: binomials, sums, cumulative counts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import betainc, gammaln, logsumexp, xlogy

from specsim.evidence.law import FloatArray, IntArray

_NEGLIGIBLE = 1e-60  # Poisson masses below this are left out of a convolution


def binomial_upper(count: ArrayLike, draws: int, p: ArrayLike) -> FloatArray:
    """Return P(S ≥ count) for S ~ Binomial(draws, p), with the digits of small tails kept.

    Parameters
    ----------
    count, p
        Integers and probabilities, broadcast against each other.
    draws
        Number of trials, at least 1.

    Returns
    -------
    ndarray, float64
        From P(S ≥ c) = I_p(c, draws − c + 1), the regularised incomplete beta function.
    """
    c, probability = np.broadcast_arrays(
        np.asarray(count, dtype=np.float64), np.asarray(p, dtype=np.float64)
    )
    inside = (c >= 1) & (c <= draws)
    a = np.where(inside, c, 1.0)
    tail = betainc(a, draws - a + 1.0, probability)
    found: FloatArray = np.where(inside, tail, np.where(c < 1, 1.0, 0.0))
    return found


def binomial_critical(draws: int, p: FloatArray, level: float) -> IntArray:
    """Return the smallest c with P(Binomial(draws, p) ≥ c) ≤ level, for each p.

    Parameters
    ----------
    draws
        Number of trials, at least 1.
    p
        Probabilities, shape (m,).
    level
        Largest tail probability allowed, in (0, 1).

    Returns
    -------
    ndarray, shape (m,), int64
        ``draws + 1`` where no count is rare enough.
    """
    low = np.floor(draws * p).astype(np.int64)
    # Hoeffding 1963: P(S >= draws p + t) <= exp(-2 t^2 / draws).
    reach = math.ceil(math.sqrt(draws * math.log(1.0 / level) / 2.0)) + 1
    high = np.minimum(low + reach, draws + 1)
    low = np.where(binomial_upper(low, draws, p) <= level, 0, low)
    while np.any(low < high):
        middle = (low + high) // 2
        rare = binomial_upper(middle, draws, p) <= level
        high = np.where(rare, middle, high)
        low = np.where(rare, low, np.minimum(middle + 1, high))
    return high


def sum_upper(pmf: FloatArray, draws: int, total: int) -> float:
    """Return P(X₁ + … + X_draws ≥ total) for independent X with P(X = k) = pmf[k], k = 0 … K−1.

    The law is tilted exponentially until its mean is total / draws, the sum's law is found by
    a discrete Fourier transform, and the tilt is undone: so tails far below the transform's
    absolute error keep their digits (Keich 2005 uses the same device for p-values). The
    transform is cyclic with a period that the tilted sum overruns with probability at most
    2·e⁻⁸⁰ (Hoeffding 1963).

    Parameters
    ----------
    pmf
        Probabilities of 0 … K − 1, shape (K,).
    draws
        Number of summands, at least 1.
    total
        Sum at and above which the tail begins.

    Returns
    -------
    float
        Relative error of the order of draws · 2⁻⁵².
    """
    support = np.flatnonzero(pmf)
    law = pmf[support[0] : support[-1] + 1]
    span = law.size - 1
    excess = total - draws * int(support[0])
    if excess <= 0:
        return 1.0
    if excess > draws * span:
        return 0.0
    if excess == draws * span:
        return float(law[-1]) ** draws
    values = np.arange(span + 1, dtype=np.float64)
    if excess <= draws * float(values @ law):
        return 1.0 - sum_upper(law[::-1].copy(), draws, draws * span - excess + 1)
    with np.errstate(divide="ignore"):
        log_law = np.log(law)

    def tilted(theta: float) -> FloatArray:
        weights = log_law + theta * values
        bent: FloatArray = np.exp(weights - logsumexp(weights))
        return bent

    def shortfall(theta: float) -> float:
        return float(values @ tilted(theta)) - excess / draws

    top = 1.0
    while shortfall(top) < 0.0:
        top *= 2.0
    from scipy.optimize import brentq  # 0.2 s that most users need not wait for

    theta = float(brentq(shortfall, 0.0, top))
    reach = math.ceil(span * math.sqrt(40.0 * draws))
    size = next_fast_len(min(draws * span, 2 * reach) + 1, real=True)
    mass = irfft(rfft(tilted(theta), size) ** draws, size)
    beyond = np.arange(draws * span - excess + 1 if draws * span < size else reach + 1)
    terms = np.maximum(mass[(excess + beyond) % size], 0.0) * np.exp(-theta * beyond)
    log_scale = draws * float(logsumexp(log_law + theta * values)) - theta * excess
    return min(1.0, math.exp(log_scale + math.log(max(math.fsum(terms), 5e-324))))


def sum_lower(pmf: FloatArray, draws: int, total: int) -> float:
    """Return P(X₁ + … + X_draws ≤ total) for the variables of `sum_upper`."""
    return sum_upper(pmf[::-1].copy(), draws, draws * (pmf.size - 1) - total)


def _poisson(counts: ArrayLike, mean: float) -> FloatArray:
    k = np.asarray(counts, dtype=np.float64)
    mass: FloatArray = np.exp(xlogy(k, mean) - mean - gammaln(k + 1.0))
    return mass


def _poisson_range(mean: float, most: int) -> tuple[int, int]:
    """Return the first and last count up to `most` that can matter for a Poisson number."""
    # Bernstein's inequality for the Poisson law, solved for a tail of _NEGLIGIBLE.
    log_tail = -math.log(_NEGLIGIBLE)
    reach = log_tail / 3.0 + math.sqrt(log_tail**2 / 9.0 + 2.0 * mean * log_tail)
    return max(0, math.floor(mean - reach)), min(most, math.ceil(mean + reach))


def band_exit_cost(draws: int, pmf: FloatArray, width: float) -> float:
    """Return about how many multiplications `band_exit` takes for these arguments."""
    inside = min(draws + 1.0, 2.0 * width + 1.0)
    spans = (_poisson_range(draws * float(p), draws) for p in pmf[:-1])
    return sum(inside * (last - first + 1) for first, last in spans)


def band_exit(draws: int, pmf: FloatArray, centre: FloatArray, width: float) -> float:
    """Return the probability that cumulative counts leave a band, by dynamic programming.

    With C_k the number of `draws` independent values from `pmf` that are at most k: the
    probability that |C_k − centre_k| ≥ width for some k < K. The counts are taken as
    independent Poisson numbers conditioned on their sum, which makes one step a convolution;
    the paths that leave are summed as they leave, so small probabilities keep their digits.

    Parameters
    ----------
    draws
        Number of values drawn, at least 1.
    pmf
        Probabilities of the K values, shape (K,).
    centre
        The band's centre at each value in counts, shape (K,).
    width
        Half the band's width in counts; a distance within 1e-12 · (draws + 1) of it counts as
        having left, and a band of no width as left by every path.

    Returns
    -------
    float
        Absolute error below 1e-50, relative error about 1e-9 for a million draws.
    """
    rest = np.append(np.cumsum(pmf[::-1])[::-1][1:], 0.0)
    limit = width - 1e-12 * (draws + 1)
    if limit <= 0.0:
        return 1.0
    inside, lowest, left = np.ones(1), 0, 0.0
    for k in range(pmf.size - 1):
        first, last = _poisson_range(draws * float(pmf[k]), draws)
        moved = np.convolve(inside, _poisson(np.arange(first, last + 1), draws * float(pmf[k])))
        moved = moved[: draws - lowest - first + 1]
        counts = np.arange(lowest + first, lowest + first + moved.size)
        out = np.abs(counts - centre[k]) >= limit
        ends = _poisson(draws - counts[out], draws * float(rest[k]))
        left += math.fsum(moved[out] * ends)
        if out.all():
            break
        inside, lowest = moved[~out], int(counts[~out][0])
    return min(1.0, left / float(_poisson(draws, float(draws))))
