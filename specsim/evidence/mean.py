"""Mean-only evidence: a betting confidence sequence for the mean of bounded values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from specsim.evidence.design import check_error_rate
from specsim.evidence.law import FloatArray, IntArray

# Bets as shares of the largest one that can't lose more than everything: 1, 2^-1/2, … 2^-14.
# The best share for a deviation δ of values with variance σ² is near δ/σ² (in units of the
# largest bet), so this covers deviations that one draw shows and ones that take 10⁸; half an
# octave between bets loses at most 4 % of the best one's growth.
_SHARES = 2.0 ** (-0.5 * np.arange(29))
_WEIGHTS = 1.0 / (np.arange(29) + 8.0)
_LOG_WEIGHTS = np.log(_WEIGHTS / _WEIGHTS.sum())


class BoundedMeanTest:
    """Sequential test and confidence sequence for the mean of values in a known interval.

    For a hypothetical mean m, a gambler bets a fixed share of what can be bet, on values above
    m or below it, and every bet is fair if m is the mean; the wealth averaged over a fixed grid
    of 2 × 29 bets is the e-process for m (Waudby-Smith & Ramdas 2024, "Estimating means of
    bounded random variables by betting", with a fixed mixture in place of predicted bets). The
    wealth depends only on which values occurred how often, so it is the same however a stream
    is split into updates, and in whatever order a block's values come.

    **Validity.** If every value has conditional mean m given those before it (independence and
    equal laws are not needed), then with probability at least 1 − alpha, at all times at once,
    m is in `interval` (Ville 1939). Stopping when one likes keeps this error rate, and so does
    intersecting the intervals seen. Values rounded before they were logged have the rounded
    values' mean: allow for half the last digit.

    **Efficiency.** It must hold for every law on [lower, upper], so it bets at most as if a
    value could fall on either bound. Values of small spread (interval means of many steps)
    would allow much larger bets than that, and shift its mean unnoticed for longer than a test
    that knows their law.

    Parameters
    ----------
    lower, upper
        The interval in which every value lies, lower < upper; for acceptance lengths 1 and
        max_len.
    alpha
        Probability of ever excluding the true mean, in (0, 1).

    Raises
    ------
    ValueError
        If an argument is not finite, lower ≥ upper, or `alpha` is outside (0, 1).
    """

    def __init__(self, lower: float, upper: float, alpha: float) -> None:
        self.lower, self.upper = float(lower), float(upper)
        if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
            raise ValueError(f"lower and upper must be finite, got {lower!r} and {upper!r}")
        if not self.lower < self.upper:
            raise ValueError(f"lower must be below upper={upper!r}, got {lower!r}")
        self.alpha = check_error_rate(alpha, "alpha")
        self._counts: dict[float, int] = {}
        self._tables: tuple[FloatArray, FloatArray] | None = None

    @property
    def draws(self) -> int:
        """Number of values seen."""
        return sum(self._counts.values())

    def update(
        self,
        values: Sequence[float] | FloatArray,
        weights: Sequence[int] | IntArray | None = None,
    ) -> None:
        """Add values, each as often as its weight says.

        Parameters
        ----------
        values
            Numbers in [lower, upper], shape (n,).
        weights
            How often each of the values occurred, integers ≥ 0, shape (n,); once each if None.

        Raises
        ------
        ValueError
            If a value is outside [lower, upper] or not a number, or `weights` doesn't fit.
            Nothing is then added.
        """
        array = np.asarray(values, dtype=np.float64)
        if array.ndim != 1:
            raise ValueError(f"values must be one-dimensional, got shape {array.shape}")
        wrong = ~((array >= self.lower) & (array <= self.upper))
        if wrong.any():
            bounds = f"[{self.lower!r}, {self.upper!r}]"
            raise ValueError(f"values must be in {bounds}, got {float(array[wrong][0])!r}")
        times = np.ones(array.size, np.int64) if weights is None else np.asarray(weights)
        if times.shape != array.shape or (times.size and times.dtype.kind not in "iu"):
            raise ValueError(f"weights must be {array.size} integers, got {weights!r}")
        if times.size and times.min() < 0:
            raise ValueError(f"weights must be >= 0, got {int(times.min())}")
        distinct, where = np.unique(array, return_inverse=True)
        totals = np.zeros(distinct.size, dtype=np.int64)
        np.add.at(totals, where, times.astype(np.int64))
        for value, count in zip(distinct.tolist(), totals.tolist(), strict=True):
            if count:
                self._counts[value] = self._counts.get(value, 0) + count
        self._tables = None

    def log_e(self, mean: float) -> float:
        """Return the evidence against a mean, in nats.

        Parameters
        ----------
        mean
            The hypothetical mean, in [lower, upper].

        Returns
        -------
        float
            Log wealth of the mixture of bets; infinite if `mean` is a bound and some value was
            not on it.

        Raises
        ------
        ValueError
            If `mean` is outside [lower, upper].
        """
        if not self.lower <= mean <= self.upper:
            bounds = f"[{self.lower!r}, {self.upper!r}]"
            raise ValueError(f"mean must be in {bounds}, got {mean!r}")
        if not self._counts:
            return 0.0
        above, below = mean - self.lower, self.upper - mean
        values, counts = self._sorted()
        # On value x a bet of share c multiplies the wealth by 1 + c (x - mean) / above, or by
        # 1 + c (mean - x) / below: the first is (1 - c) + c (x - lower) / above.
        return float(
            np.logaddexp(
                _log_wealth(values - self.lower, counts, above),
                _log_wealth(self.upper - values, counts, below),
            )
            - math.log(2.0)
        )

    def rejects(self, mean: float) -> bool:
        """Return whether a mean is excluded at level alpha: ``log_e(mean) >= log(1/alpha)``."""
        return self.log_e(mean) >= math.log(1.0 / self.alpha)

    def interval(self) -> tuple[float, float]:
        """Return the smallest and largest mean not excluded, in the values' unit.

        The means not excluded are an interval: each bet's wealth is log-convex in the mean, so
        the mixture is, and at the average of the values it is at most 1. The bounds are right
        to 4e-12 · (upper − lower), rounded outwards.
        """
        if not self._counts:
            return self.lower, self.upper
        values, counts = self._sorted()
        average = float(np.average(values, weights=counts))
        average = min(max(average, self.lower), self.upper)
        return self._edge(average, self.lower), self._edge(average, self.upper)

    def _edge(self, kept: float, bound: float) -> float:
        """Return where, between a mean not excluded and a bound, exclusion begins."""
        if not self.rejects(bound):
            return bound
        limit = math.log(1.0 / self.alpha)
        tolerance = 1e-12 * (self.upper - self.lower)

        def excess(mean: float) -> float:
            # Infinite at a bound; the root finder needs a number.
            return min(self.log_e(mean), 2.0 * limit) - limit

        from scipy.optimize import brentq  # 0.2 s that most users need not wait for

        root = brentq(excess, kept, bound, xtol=tolerance, maxiter=500)
        outwards = root + math.copysign(2.0 * tolerance, bound - kept)
        return min(max(outwards, self.lower), self.upper)

    def _sorted(self) -> tuple[FloatArray, FloatArray]:
        """Return the distinct values, ascending, and their counts."""
        if self._tables is None:
            values = np.array(sorted(self._counts))
            counts = np.array([self._counts[v] for v in values.tolist()], dtype=np.float64)
            self._tables = values, counts
        return self._tables


def _log_wealth(heights: FloatArray, counts: FloatArray, fair: float) -> float:
    """Return the log of the mean wealth of bets that pay height / fair for what they stake."""
    if fair <= 0.0:
        if np.any(heights > 0.0):
            return math.inf
        ratio = np.zeros_like(heights)
    else:
        # Capped, so that a mean just above a bound can't make inf − inf; less wealth is safe.
        with np.errstate(over="ignore"):
            ratio = np.minimum(heights / fair, 1e300)
    kept = 1.0 - _SHARES
    with np.errstate(divide="ignore"):
        growth = np.log(kept[:, None] + _SHARES[:, None] * ratio[None, :])
    parts = growth @ counts + _LOG_WEIGHTS
    top = float(parts.max())
    return top + math.log(float(np.exp(parts - top).sum()))
