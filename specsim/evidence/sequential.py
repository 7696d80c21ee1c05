"""The sequential test of a stream of lengths against a law that is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.evidence.dependence import LagCounts, LagMixture, TransitionMixture
from specsim.evidence.law import FloatArray, IntArray, Law, as_pmf
from specsim.evidence.marginal import MarginalMixture, log_sum_exp
from specsim.evidence.region import TVInterval, tv_interval

# Shares of the e-value's weight: what is likelier to be wrong gets more of it, and a part with
# share s finds its fault about log(1/s)/KL draws later than it would alone.
SHARES = {"marginal": 0.8, "transitions": 0.1, "lags": 0.1}

# In-cache blocks: the range check, the pair codes and their counts read each block while it is
# warm instead of reading the whole stream from memory three times.
_BLOCK = 1 << 15


class SequentialTest:
    """Test that lengths are independent draws from p0, and look at any time.

    The evidence is an e-process: a weighted average of likelihood ratios of alternatives against
    p0, each a non-negative martingale under p0 with expectation 1. By Ville's inequality it ever
    reaches 1/alpha with probability at most alpha, so the test may be looked at after every
    draw and stopped at will. Its parts see a wrong marginal law (`MarginalMixture`), dependence
    on the last draw (`TransitionMixture`) and agreement with draws further back (`LagMixture`).

    Parameters
    ----------
    p0
        The claimed law: a distribution, or a float64 pmf over 1 … K. No tolerance is applied.
    alpha
        Probability that independent draws from p0 are ever rejected, in (0, 1).

    Raises
    ------
    ValueError
        If `p0` is no pmf, or `alpha` is outside (0, 1).

    Notes
    -----
    `log_e` depends on the draws alone, not on how they were split into updates. An update with n
    draws costs O(n + K²), plus comparisons with up to 1,024 earlier draws for each of the first
    20,000 draws of the stream.

    References
    ----------
    Ville (1939), Étude critique de la notion de collectif. Ramdas, Grünwald, Vovk and Shafer
    (2023), Game-theoretic statistics and safe anytime-valid inference.
    """

    def __init__(self, p0: Law, alpha: float) -> None:
        if not 0.0 < alpha < 1.0:
            raise ValueError(f"alpha must lie in (0, 1), got {alpha!r}")
        self._pmf = as_pmf(p0)
        self.alpha = float(alpha)
        self._support = np.flatnonzero(self._pmf)
        self._law = self._pmf[self._support]
        self._cell_of = np.full(self._pmf.size + 1, -1, dtype=np.int64)
        self._cell_of[self._support + 1] = np.arange(self._support.size)
        self._marginal = MarginalMixture(self._law)
        self._transitions = TransitionMixture(self._law)
        self._lags = LagMixture(self._law)
        width = self._pmf.size + 1
        self._pairs: IntArray = np.zeros((width, width), dtype=np.int64)
        self._first: int | None = None
        self._last = 0
        self._lag_counts = LagCounts()
        self._out_of_support: int | None = None
        self._parts = dict.fromkeys(SHARES, 0.0)
        self._peak = 0.0
        self._part_peaks = {name: math.log(share) for name, share in SHARES.items()}

    @property
    def pmf(self) -> FloatArray:
        """The claimed probabilities of 1 … K, shape (K,)."""
        return self._pmf.copy()

    @property
    def draws(self) -> int:
        """Lengths counted so far; a block with a value outside the support isn't counted."""
        return int(self._pairs.sum()) + (self._first is not None)

    @property
    def counts(self) -> IntArray:
        """How often each of 1 … K was seen, shape (K,)."""
        counts = self._pairs.sum(axis=0)
        if self._first is not None:
            counts[self._first] += 1
        return np.asarray(counts[1:], dtype=np.int64)

    @property
    def pairs(self) -> IntArray:
        """How often each length came right after each other, shape (K, K), [earlier, later]."""
        return self._pairs[1:, 1:].copy()

    @property
    def out_of_support(self) -> int | None:
        """The first length seen that has probability 0 under p0, or None."""
        return self._out_of_support

    @property
    def log_e(self) -> float:
        """The log of the e-value after the last draw, nats; infinite outside the support."""
        if self._out_of_support is not None:
            return math.inf
        return float(_weighted(self._parts))

    @property
    def rejected(self) -> bool:
        """Whether the e-value has reached 1/alpha at some update; a rejection is final."""
        return self._out_of_support is not None or self._peak >= -math.log(self.alpha)

    def part(self, name: str) -> float:
        """Return the log e-value of one part alone: marginal, transitions or lags; nats."""
        return self._parts[name]

    def rejected_by(self, name: str) -> bool:
        """Say whether one part, at its own share of the weight, has reached 1/alpha."""
        return self._part_peaks[name] >= -math.log(self.alpha)

    def update(self, lengths: Sequence[int] | NDArray[Any]) -> None:
        """Count a block of lengths.

        Parameters
        ----------
        lengths : sequence of int, or integer ndarray of shape (n,)
            In the order in which they were drawn. A value outside p0's support rejects at once
            and for good; the block that holds it is not counted.

        Raises
        ------
        TypeError
            If `lengths` are not integers, or not one-dimensional.
        """
        values = _as_integers(lengths)
        if values.size == 0 or self._out_of_support is not None:
            return
        # The lags need cell numbers, which only values inside the range have: so the range is
        # settled, and the pairs counted, before anything is kept.
        pairs = self._count_pairs(values)
        if pairs is None:
            return
        if self._first is None:
            self._first = int(values[0])
        self._pairs += pairs
        self._last = int(values[-1])
        if self._law.size > 1 and self._lag_counts.room:
            self._lag_counts.update(self._cell_of[values[: self._lag_counts.room]])
            self._parts["lags"] = self.lag_log_e()
        self._weigh()

    def _count_pairs(self, values: IntArray) -> IntArray | None:
        """Count the transitions of a block, or note the value outside the support."""
        top, width = self._pmf.size, self._pmf.size + 1
        pairs = np.zeros(width * width, dtype=np.int64)
        block = max(_BLOCK, width * width)
        codes = np.empty(min(block, values.size), dtype=np.int64)
        seen_first = self._first is not None
        for start in range(0, values.size, block):
            now = values[start : start + block]
            # A negative number read as unsigned is huge: one pass finds both ends.
            if int(now.view(np.uint64).max()) > top:
                self._out_of_support = int(self._outside(values)[0])
                return None
            if start == 0:
                before = np.empty_like(now)
                before[0] = self._last
                before[1:] = now[:-1]
            else:
                before = values[start - 1 : start - 1 + now.size]
            code = codes[: now.size]
            np.multiply(before, width, out=code)
            code += now
            pairs += np.bincount(code, minlength=width * width)
        table = pairs.reshape(width, width)
        if np.any((table.sum(axis=0) > 0) & (self._cell_of < 0)):
            self._out_of_support = int(self._outside(values)[0])
            return None
        if not seen_first:
            table[self._last, values[0]] -= 1
        return table

    def _outside(self, values: IntArray) -> IntArray:
        """Return the values that have probability 0 under p0, in their order."""
        in_range = (values >= 1) & (values <= self._pmf.size)
        return values[self._cell_of[np.where(in_range, values, 0)] < 0]

    def _weigh(self) -> None:
        cells = np.ix_(self._support + 1, self._support + 1)
        counts = self.counts[self._support]
        self._parts["marginal"] = float(self._marginal.log_e(counts))
        self._parts["transitions"] = float(self._transitions.log_e(self._pairs[cells]))
        self._peak = max(self._peak, self.log_e)
        for name, value in self._parts.items():
            weighted = math.log(SHARES[name]) + value
            self._part_peaks[name] = max(self._part_peaks[name], weighted)

    def lag_log_e(self, tolerance: float = 0.0) -> float:
        """Return the log e-value of the bets on agreement with earlier draws.

        Parameters
        ----------
        tolerance
            Total variation within which the law of the next draw may stay around p0 without
            being evidence; 0 for p0 itself.

        Returns
        -------
        float, nats
        """
        lags = self._lags if tolerance == 0.0 else LagMixture(self._law, tolerance=tolerance)
        return lags.log_e(self._lag_counts.agreements, self._lag_counts.spent(lags.costs))

    def strongest_lag(self) -> tuple[int, float, float]:
        """Return the lag whose bets on agreement gained most, and how often draws agreed there.

        Returns
        -------
        lag : int
            How many draws back.
        share, expected : float
            Share of draws equal to the one `lag` back, and the share for independent draws.
        """
        seen = self._lag_counts
        bets = self._lags.exponents(seen.agreements, seen.spent(self._lags.costs))
        lag = int(np.argmax(bets.max(axis=0))) + 1 if bets.size else 1
        share = float(seen.agreements[lag - 1]) / max(seen.draws - lag, 1)
        return lag, share, float(self._law @ self._law)

    @property
    def region_tv(self) -> float:
        """Largest total variation from p0 among the laws that the draws leave standing.

        The laws of a confidence region that misses the truth with probability at most alpha,
        over all looks; 1.0 before the first draw and once p0's support was left.
        """
        return self.tv_interval().upper

    def tv_interval(self, alpha: float | None = None) -> TVInterval:
        """Bound the total variation between p0 and the law drawn from.

        Parameters
        ----------
        alpha
            Probability of ever missing it; the test's own by default.

        Returns
        -------
        TVInterval
            Its lower end excludes tolerated laws, its upper end is what a pass rules out.
        """
        if self._out_of_support is not None:
            return TVInterval(0.0, 1.0)
        level = self.alpha if alpha is None else alpha
        return tv_interval(self.counts[self._support], self._law, level)


def log_e_path(
    p0: Law, lengths: Sequence[int] | NDArray[Any], looks: Sequence[int] | IntArray | None = None
) -> FloatArray:
    """Return `SequentialTest.log_e` after each of several draws, all at once.

    Parameters
    ----------
    p0
        The claimed law.
    lengths : sequence of int, shape (n,)
        All inside p0's support.
    looks : sequence of int, shape (m,), increasing
        Numbers of draws in 1 … n after which to look; by default after every draw.

    Returns
    -------
    ndarray, shape (m,), float64, nats

    Raises
    ------
    TypeError
        If `lengths` are not integers, or not one-dimensional.
    ValueError
        If a length lies outside p0's support, or `looks` are not as above.
    """
    test = SequentialTest(p0, 0.5)
    values = _as_integers(lengths)
    at = np.arange(1, values.size + 1) if looks is None else np.asarray(looks, dtype=np.int64)
    if at.size == 0:
        return np.empty(0)
    if at[0] < 1 or at[-1] > values.size or np.any(np.diff(at) <= 0):
        raise ValueError(f"looks must increase within [1, {values.size}], got {looks!r}")
    outside = test._outside(values)
    if outside.size:
        raise ValueError(f"lengths must lie in p0's support, got {outside[0]}")
    cells = test._cell_of[values[: at[-1]]]
    parts = {
        "marginal": test._marginal.path(cells, at),
        "transitions": test._transitions.path(cells, at),
        "lags": test._lags.path(cells, at),
    }
    return _weighted(parts)


def _weighted(parts: Mapping[str, float | FloatArray]) -> FloatArray:
    """Return the log of the weighted average of the parts' e-values."""
    logs = [math.log(SHARES[name]) + part for name, part in parts.items()]
    return log_sum_exp(np.stack(logs, axis=-1))


def _as_integers(lengths: Sequence[int] | NDArray[Any]) -> IntArray:
    """Return lengths as a contiguous int64 array; numbers beyond 64 bits become the extremes."""
    if isinstance(lengths, (list, tuple)):
        # NumPy would turn a bool beside integers into 0 or 1, and 2⁶³ beside −1 into a float.
        kinds = set(map(type, lengths))
        strays = {k for k in kinds if k is bool or not issubclass(k, (int, np.integer))}
        if strays:
            stray = next(v for v in lengths if type(v) in strays)
            raise TypeError(f"lengths must be integers, got {stray!r}")
        lengths = _within_64_bits(lengths)
    values = np.asarray(lengths)
    if values.ndim != 1:
        raise TypeError(f"lengths must be one-dimensional, got shape {values.shape}")
    if values.size == 0:
        return np.empty(0, dtype=np.int64)
    if not np.issubdtype(values.dtype, np.integer):
        raise TypeError(f"lengths must be integers, got dtype {values.dtype}")
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(np.iinfo(np.int64).max))
    return np.ascontiguousarray(values, dtype=np.int64)


def _within_64_bits(lengths: Sequence[int]) -> IntArray:
    try:
        # NumPy's own integers may wrap around here without a word: they take the other way.
        if set(map(type, lengths)) <= {int}:
            return np.array(lengths, dtype=np.int64)
    except OverflowError:
        pass
    bounds = np.iinfo(np.int64)
    return np.array([min(max(int(v), bounds.min), bounds.max) for v in lengths], dtype=np.int64)
