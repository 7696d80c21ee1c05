"""The part of the sequential test that sees a wrong marginal law: mixtures over counts.

Every component is a likelihood ratio of an alternative against p0, or a Dirichlet average of
such ratios, so under p0 it is a non-negative martingale that starts at 1; a weighted average of
components is one too. Each has a closed form in the counts, whatever the order of the draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln

from specsim.evidence.law import FloatArray, IntArray

# Weights of the Dirichlet(½) over all laws, of Dirichlets centred on p0 by their concentration,
# and of all tilts together. A Dirichlet with concentration c expects deviations of about
# sqrt(p / c) in a cell: 4 looks for gross faults, 4096 for 1.5 %.
DIRICHLET_WEIGHT = 0.05
CENTRED_WEIGHTS = {4.0: 0.04, 32.0: 0.01, 256.0: 0.01, 4096.0: 0.01}
TILT_WEIGHT = 0.88

# Sizes of the tilts, in units of 1 / standard deviation, and their relative weights. A tilt of r
# times the right size keeps 2r − r² of the growth rate: at a spacing of 1.6 that is over 94 %.
# 0.4 and 0.25 are those of a unit normal that is 0.8 or 1.5 wide, in the open and beside a clamp.
_TILT_STEP = 1.6
_TILT_SIZES = 0.4 * _TILT_STEP ** np.arange(-6.0, 5.0)
_SIZE_WEIGHTS = np.array([1.0] * 4 + [2.0] * 7)
# Relative weights of the directions, in their order in `tilt_directions`.
_DIRECTION_WEIGHTS = np.array([0.20, 0.25, 0.12, 0.12, 0.10, 0.10, 0.11])
# The directions after this many are sets of values. Where p0 gives a set little mass, large tilts
# all say that it never or almost always occurs: so their exponents end here, and begin lower.
_SMOOTH_DIRECTIONS = 4
_LARGEST_SET_EXPONENT = 10.0


def tilt_directions(pmf: FloatArray) -> FloatArray:
    """Return the directions in which p0 is tilted, standardised under p0.

    The mean; the spread with the mean's part taken out; halfway between these two; and the mass
    of the lower end, the upper end and both. Shifts, widths, and clamps that are missing or
    replaced by truncation are tilts along these.

    Parameters
    ----------
    pmf : ndarray, shape (K,)
        Strictly positive probabilities of p0's support, in order.

    Returns
    -------
    ndarray, shape (D, K)
        Rows with expectation 0 and variance 1 under `pmf`; D is 0 for one value, 1 for two
        (every law on two values is a tilt in the mean) and 7 for more.
    """
    values = np.arange(pmf.size, dtype=np.float64)
    if pmf.size == 1:
        return np.empty((0, 1))

    def standardised(direction: FloatArray) -> FloatArray:
        centred = direction - pmf @ direction
        # Cut, for values of probability below 1e-150, so that products don't overflow.
        return np.clip(centred / np.sqrt(pmf @ centred**2), -1e75, 1e75)

    mean = standardised(values)
    if pmf.size == 2:
        return mean[None, :]
    spread = mean**2 - 1.0
    spread = standardised(spread - (pmf @ (spread * mean)) * mean)
    # Between the two: a width that changes beside a clamp shows on the open side alone.
    rows = [mean, spread, (mean + spread) / np.sqrt(2.0), (mean - spread) / np.sqrt(2.0)]
    low, high = values == 0, values == pmf.size - 1
    rows += [standardised(ends.astype(np.float64)) for ends in (low, high, low | high)]
    return np.stack(rows)


def _tilts(pmf: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log(q / p0) of each tilt, shape (tilts, K), and the tilts' weights, which sum to 1."""
    if pmf.size == 1:
        return np.empty((0, 1)), np.empty(0)
    directions = tilt_directions(pmf)
    steps = np.zeros(len(directions))
    largest = _TILT_SIZES[-1] * np.abs(directions[_SMOOTH_DIRECTIONS:]).max(axis=1, initial=0.0)
    beyond = np.log(np.maximum(largest / _LARGEST_SET_EXPONENT, 1.0)) / np.log(_TILT_STEP)
    steps[_SMOOTH_DIRECTIONS:] = np.ceil(beyond)
    sizes = _TILT_SIZES * _TILT_STEP ** -steps[:, None]
    exponents = np.stack([sizes, -sizes])[..., None] * directions[:, None, :]
    weights = np.outer(_DIRECTION_WEIGHTS[: len(directions)], _SIZE_WEIGHTS)
    both_signs = np.stack([weights, weights]).ravel()
    log_ratios = log_tilts(np.log(pmf), exponents.reshape(-1, pmf.size))
    return log_ratios, both_signs / both_signs.sum()


class MarginalMixture:
    """Average of likelihood ratios against p0 that are functions of the counts alone.

    Components: a Dirichlet(½) mixture over every law on p0's support (Krichevsky and Trofimov,
    1981); Dirichlets centred on p0, for small deviations of no particular shape; and
    exponential tilts of p0 along `tilt_directions`.

    Parameters
    ----------
    pmf : ndarray, shape (K,)
        Strictly positive probabilities of p0's support.
    """

    def __init__(self, pmf: FloatArray) -> None:
        self._log_pmf = np.log(pmf)
        self._priors = [np.full(pmf.size, 0.5)]
        self._priors += [centred_prior(pmf, c) for c in CENTRED_WEIGHTS]
        self._log_ratios, tilt_weights = _tilts(pmf)
        weights = [DIRICHLET_WEIGHT, *CENTRED_WEIGHTS.values(), *(TILT_WEIGHT * tilt_weights)]
        self._log_weights = np.log(np.array(weights) / sum(weights))

    def log_e(self, counts: IntArray) -> FloatArray:
        """Return the mixture's log e-value for one or many tables of counts.

        Parameters
        ----------
        counts : ndarray, shape (..., K), int64

        Returns
        -------
        ndarray, shape (...), float64, nats
        """
        observed = counts.astype(np.float64)
        null = observed @ self._log_pmf
        total = observed.sum(axis=-1)
        dirichlets = [
            dirichlet_log_marginal(observed, total, prior) - null for prior in self._priors
        ]
        parts = np.concatenate(
            [np.stack(dirichlets, axis=-1), observed @ self._log_ratios.T], axis=-1
        )
        return log_sum_exp(parts + self._log_weights)

    def path(self, cells: IntArray, looks: IntArray) -> FloatArray:
        """Return `log_e` after each of several draws, from each draw's own factor.

        Parameters
        ----------
        cells : ndarray, shape (n,), int64
            Draws as cell numbers 0 … K − 1.
        looks : ndarray, shape (m,), increasing, the last one n
            Numbers of draws after which to look.

        Returns
        -------
        ndarray, shape (m,), float64, nats
        """
        size = self._log_pmf.size
        look = np.searchsorted(looks, np.arange(1, cells.size + 1))
        counts = np.bincount(look * size + cells, minlength=looks.size * size)
        tilts = np.cumsum(counts.reshape(-1, size), axis=0) @ self._log_ratios.T
        factors = dirichlet_log_factors(cells, np.zeros_like(cells), self._priors)
        dirichlets = np.cumsum(factors - self._log_pmf[cells], axis=-1)[:, looks - 1]
        return log_sum_exp(np.concatenate([dirichlets.T, tilts], axis=-1) + self._log_weights)


def log_sum_exp(logs: FloatArray) -> FloatArray:
    """Return log Σ exp of finite numbers over the last axis, in a tenth of SciPy's time."""
    top = logs.max(axis=-1)
    return np.asarray(top + np.log(np.exp(logs - top[..., None]).sum(axis=-1)), dtype=np.float64)


def log_tilts(log_pmf: FloatArray, exponents: FloatArray) -> FloatArray:
    """Return log(q / p0) of the laws q ∝ p0·exp(exponent), normalised over the last axis.

    Parameters
    ----------
    log_pmf : ndarray, shape (K,)
    exponents : ndarray, shape (..., K)
        Cut at ±700, which is still a tilt: beyond, the normalisation would lose its digits.

    Returns
    -------
    ndarray, shape (..., K), float64, nats
    """
    cut = np.clip(exponents, -700.0, 700.0)
    return np.asarray(cut - log_sum_exp(log_pmf + cut)[..., None], dtype=np.float64)


def centred_prior(pmf: FloatArray, concentration: float) -> FloatArray:
    """Return the parameters of a Dirichlet centred on p0, none too small for log Γ."""
    return np.asarray(np.maximum(concentration * pmf, 1e-300), dtype=np.float64)


def dirichlet_log_marginal(counts: FloatArray, total: FloatArray, prior: FloatArray) -> FloatArray:
    """Return the log probability of a sequence with these counts under a Dirichlet prior.

    Parameters
    ----------
    counts : ndarray, shape (..., K), float64
    total : ndarray, shape (...)
        ``counts.sum(-1)``, which callers have at hand.
    prior : ndarray, broadcastable to (..., K)
        The Dirichlet's parameters, all positive.

    Returns
    -------
    ndarray, shape (...), float64, nats
        log ∫ ∏ q_k^n_k dDir(q) = log Γ(A) − log Γ(A + n) + Σ [log Γ(a_k + n_k) − log Γ(a_k)].
    """
    strength = prior.sum(axis=-1)
    gained = (gammaln(prior + counts) - gammaln(prior)).sum(axis=-1)
    return np.asarray(gammaln(strength) - gammaln(strength + total) + gained, dtype=np.float64)


def dirichlet_log_factors(
    cells: IntArray, rows: IntArray, priors: Sequence[FloatArray]
) -> FloatArray:
    """Return the factors, draw by draw, whose products are Dirichlet log probabilities.

    Parameters
    ----------
    cells : ndarray, shape (n,), int64
        Draws as cell numbers 0 … K − 1.
    rows : ndarray, shape (n,), int64
        Which of several independent Dirichlets each draw belongs to, from 0.
    priors : sequence of P ndarrays, shape (K,)

    Returns
    -------
    ndarray, shape (P, n), float64, nats
        log[(a_x + n_x) / (A + n)], with n_x of the n earlier draws of the row equal to x.
    """
    seen, drawn = _earlier(rows * priors[0].size + cells), _earlier(rows)
    return np.stack([np.log((a[cells] + seen) / (a.sum() + drawn)) for a in priors])


def _earlier(codes: IntArray) -> IntArray:
    """Count, for each entry, the earlier entries that equal it."""
    order = np.argsort(codes, kind="stable")
    ranks = np.arange(codes.size)
    is_first = np.diff(codes[order], prepend=-1) != 0
    earlier = np.empty(codes.size, dtype=np.int64)
    earlier[order] = ranks - np.maximum.accumulate(np.where(is_first, ranks, 0))
    return earlier
