"""Ends of the range that are missing, or that no length reaches."""

from __future__ import annotations

import math

import numpy as np

from specsim.acceptance import AcceptanceDistribution
from specsim.mutants.base import UniformSampler
from specsim.mutants.registry import mutant


class _Unclamped(UniformSampler):
    """Clamps match-expected's length to other ends than 1 and max_len."""

    low = 1.0
    high: float | None = None

    def match_expected(self, acc_len: float, max_len: int) -> int:
        """Return one of the two integers around a length that may be out of range."""
        high = float(max_len) if self.high is None else self.high
        length = min(max(acc_len, self.low), high)
        lower = math.floor(length)
        return lower + int(self.uniform() < length - lower)


@mutant(
    "match-expected-unclamped-below",
    caught_by="S.clamping",
    statement="Under match-expected a length below 1 is used as it is.",
    source="stands for a clamp that is missing at one end",
)
class MatchExpectedUnclampedBelow(_Unclamped):
    """Knows no lower end."""

    low = -math.inf


@mutant(
    "match-expected-unclamped-above",
    caught_by="S.clamping",
    statement="Under match-expected a length above max_len is used as it is.",
    source="stands for a clamp that is missing at one end",
)
class MatchExpectedUnclampedAbove(_Unclamped):
    """Knows no upper end."""

    high = math.inf


@mutant(
    "multinomial-unclamped-below",
    caught_by="S.range",
    statement="The normal is not clamped at 1.",
    source="stands for a clamp that is missing at one end",
)
class MultinomialUnclampedBelow(UniformSampler):
    """Knows no lower end."""

    def multinomial(self, acc_len: float, max_len: int) -> int:
        """Return the rounded normal, at most max_len."""
        return round(min(acc_len + self.normal(), float(max_len)))


@mutant(
    "multinomial-unclamped-above",
    caught_by="S.range",
    statement="The normal is not clamped at max_len.",
    source="stands for a clamp that is missing at one end",
)
class MultinomialUnclampedAbove(UniformSampler):
    """Knows no upper end."""

    def multinomial(self, acc_len: float, max_len: int) -> int:
        """Return the rounded normal, at least 1."""
        return round(max(acc_len + self.normal(), 1.0))


@mutant(
    "never-one",
    caught_by="S.clamping",
    statement="Lengths are clamped to [2, max_len] where max_len allows it: 1 never occurs.",
    source="stands for an exclusive end: at least one draft always accepted",
)
class NeverOne(UniformSampler):
    """Moves 1 to 2."""

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        return max(super().__call__(acc_len, method, max_len), min(2, max_len))

    @staticmethod
    def law(acc_len: float, method: str, max_len: int) -> AcceptanceDistribution:
        """Return the law of the draws."""
        pmf = np.array(AcceptanceDistribution.from_method(acc_len, method, max_len).pmf)
        if max_len > 1:
            pmf[1] += pmf[0]
            pmf[0] = 0.0
        return AcceptanceDistribution(pmf)


@mutant(
    "never-max-len",
    caught_by="S.clamping",
    statement="Lengths are clamped to [1, max_len − 1] where max_len allows it: max_len never "
    "occurs.",
    source="stands for an exclusive end: range(1, max_len)",
)
class NeverMaxLen(UniformSampler):
    """Moves max_len to max_len − 1."""

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        return min(super().__call__(acc_len, method, max_len), max(max_len - 1, 1))

    @staticmethod
    def law(acc_len: float, method: str, max_len: int) -> AcceptanceDistribution:
        """Return the law of the draws."""
        pmf = np.array(AcceptanceDistribution.from_method(acc_len, method, max_len).pmf)
        if max_len > 1:
            pmf[-2] += pmf[-1]
            pmf[-1] = 0.0
        return AcceptanceDistribution(pmf)
