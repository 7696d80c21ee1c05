"""Independent draws from another law than multinomial: cut, rounded, scaled or placed wrongly."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import truncnorm

from specsim.acceptance import AcceptanceDistribution
from specsim.mutants.base import UniformSampler, clamp
from specsim.mutants.registry import mutant


@mutant(
    "normal-truncated",
    caught_by="S.distribution",
    statement="The normal is conditioned on [1, max_len] instead of clamped to it.",
    source="stands for rejecting what is out of range, where engines clamp",
)
class NormalTruncated(UniformSampler):
    """Draws the truncated normal by its inverse distribution function."""

    def multinomial(self, acc_len: float, max_len: int) -> int:
        """Return the rounded truncated normal."""
        low, high = 1.0 - acc_len, max_len - acc_len
        # Φ keeps its precision in the lower tail only, so an upper tail is mirrored.
        sign = -1.0 if low > 0.0 else 1.0
        if sign < 0.0:
            low, high = -high, -low
        below = float(ndtr(low))
        between = float(ndtr(high)) - below
        if between <= 0.0:
            return round(clamp(acc_len, max_len))
        deviation = float(ndtri(below + self.uniform() * between))
        return round(clamp(acc_len + sign * deviation, max_len))

    @staticmethod
    def law(acc_len: float, method: str, max_len: int) -> AcceptanceDistribution:
        """Return the law of the draws."""
        if method == "match-expected" or max_len == 1:
            return AcceptanceDistribution.from_method(acc_len, method, max_len)
        edges = np.concatenate([[1.0], np.arange(1, max_len) + 0.5, [float(max_len)]])
        truncated = truncnorm(1.0 - acc_len, max_len - acc_len, loc=acc_len)
        return AcceptanceDistribution(np.diff(truncated.cdf(edges)))


@mutant(
    "normal-floored",
    caught_by="S.distribution",
    statement="The clamped normal is cut down to an integer instead of rounded.",
    source="stands for int() in place of round()",
)
class NormalFloored(UniformSampler):
    """Returns the integer below."""

    def multinomial(self, acc_len: float, max_len: int) -> int:
        """Return the integer part of the clamped normal."""
        return math.floor(clamp(acc_len + self.normal(), max_len))

    @staticmethod
    def law(acc_len: float, method: str, max_len: int) -> AcceptanceDistribution:
        """Return the law of the draws."""
        if method == "match-expected":
            return AcceptanceDistribution.match_expected(acc_len, max_len)
        return _clamped_normal(acc_len, 1.0, np.arange(2.0, max_len + 1.0))


class _OtherWidth(UniformSampler):
    """Scales the normal."""

    width: float

    def normal(self) -> float:
        """Return a normal of another standard deviation."""
        return self.width * super().normal()

    @classmethod
    def law(cls, acc_len: float, method: str, max_len: int) -> AcceptanceDistribution:
        """Return the law of the draws."""
        if method == "match-expected":
            return AcceptanceDistribution.match_expected(acc_len, max_len)
        return _clamped_normal(acc_len, cls.width, np.arange(1.5, max_len))


@mutant(
    "normal-narrow",
    caught_by="S.distribution",
    statement="The normal's standard deviation is 0.8 instead of 1.",
    source="stands for another width, or a variance passed as a deviation",
)
class NormalNarrow(_OtherWidth):
    """Spreads too little."""

    width = 0.8


@mutant(
    "normal-wide",
    caught_by="S.distribution",
    statement="The normal's standard deviation is 1.5 instead of 1.",
    source="stands for another width, or a variance passed as a deviation",
)
class NormalWide(_OtherWidth):
    """Spreads too much."""

    width = 1.5


@mutant(
    "normal-about-clamped-length",
    caught_by="S.distribution",
    statement="The normal is centred on the clamped length, so lengths beyond the range are not "
    "as certain as they should be.",
    source="stands for a clamp moved before the draw",
)
class NormalAboutClampedLength(UniformSampler):
    """Clamps the centre too."""

    def multinomial(self, acc_len: float, max_len: int) -> int:
        """Draw about the clamped length."""
        return super().multinomial(clamp(acc_len, max_len), max_len)

    @staticmethod
    def law(acc_len: float, method: str, max_len: int) -> AcceptanceDistribution:
        """Return the law of the draws."""
        return AcceptanceDistribution.from_method(clamp(acc_len, max_len), method, max_len)


def _clamped_normal(
    mean: float, width: float, edges: NDArray[np.float64]
) -> AcceptanceDistribution:
    """Return the law of a normal sorted into the cells that max_len − 1 edges divide."""
    normal = NormalDist(mean, width)
    cumulative = np.array([0.0, *map(normal.cdf, edges.tolist()), 1.0])
    return AcceptanceDistribution(np.diff(cumulative))
