"""Independent draws from another law than match-expected: weights, spread and unit."""

from __future__ import annotations

import math

import numpy as np

from specsim.acceptance import AcceptanceDistribution
from specsim.mutants.base import UniformSampler, clamp, split
from specsim.mutants.registry import mutant


class _TwoLengths(UniformSampler):
    """Draws one of two lengths under match-expected, and multinomial correctly."""

    def match_expected(self, acc_len: float, max_len: int) -> int:
        """Return the longer length with its weight."""
        shorter, longer, weight = self.lengths(acc_len, max_len)
        return longer if self.uniform() < weight else shorter

    @classmethod
    def lengths(cls, acc_len: float, max_len: int) -> tuple[int, int, float]:
        """Return the shorter length, the longer one and the longer one's weight."""
        lower, weight = split(acc_len, max_len)
        return lower, min(lower + 1, max_len), cls.weight(weight)

    @classmethod
    def weight(cls, fraction: float) -> float:
        """Return the longer length's weight, given match-expected's."""
        return fraction

    @classmethod
    def law(cls, acc_len: float, method: str, max_len: int) -> AcceptanceDistribution:
        """Return the law of the draws."""
        if method == "multinomial":
            return AcceptanceDistribution.multinomial(acc_len, max_len)
        shorter, longer, weight = cls.lengths(acc_len, max_len)
        pmf = np.zeros(max_len)
        pmf[shorter - 1] += 1.0 - weight
        pmf[longer - 1] += weight
        return AcceptanceDistribution(pmf)


@mutant(
    "weights-swapped",
    caught_by="S.distribution",
    statement="The two weights are exchanged: 4.7 is 4 in 70 % of all draws.",
    source="stands for a comparison the wrong way round",
)
class WeightsSwapped(_TwoLengths):
    """Gives the longer length the shorter one's weight."""

    @classmethod
    def weight(cls, fraction: float) -> float:
        """Return the other weight; integer lengths stay exact."""
        return 1.0 - fraction if fraction else 0.0


@mutant(
    "weights-to-one-decimal",
    caught_by="S.distribution",
    statement="The fraction is rounded to one decimal: 2.25 has the law of 2.2.",
    source="stands for a length that went through a log or a config file",
)
class WeightsToOneDecimal(_TwoLengths):
    """Rounds the weight to a multiple of 0.1."""

    @classmethod
    def weight(cls, fraction: float) -> float:
        """Return the weight to one decimal."""
        return round(fraction, 1)


@mutant(
    "rounded-length",
    caught_by="S.distribution",
    statement="The length is rounded to an integer: 4.7 is always 5.",
    source="SGLang PR 33463: rounded once when the buffer was allocated",
)
class RoundedLength(_TwoLengths):
    """Rounds the weight to 0 or 1."""

    @classmethod
    def weight(cls, fraction: float) -> float:
        """Return the nearer of 0 and 1."""
        return float(round(fraction))


@mutant(
    "truncated-length",
    caught_by="S.mean",
    statement="The fraction is cut off: 4.7 is always 4.",
    source="TensorRT-LLM's two-model path takes integers only",
)
class TruncatedLength(_TwoLengths):
    """Drops the weight."""

    @classmethod
    def weight(cls, fraction: float) -> float:
        """Return 0."""
        return 0.0


@mutant(
    "weights-squared",
    caught_by="S.distribution",
    statement="Both weights are squared and renormalised.",
    source="stands for probabilities taken twice, or a temperature of one half",
)
class WeightsSquared(_TwoLengths):
    """Sharpens the weights."""

    @classmethod
    def weight(cls, fraction: float) -> float:
        """Return w² / (w² + (1 − w)²)."""
        return fraction**2 / (fraction**2 + (1.0 - fraction) ** 2)


@mutant(
    "spread-to-both-ends",
    caught_by="S.distribution",
    statement="Only 1 and max_len are drawn, with weights that give the right mean.",
    source="the widest law with a given mean",
)
class SpreadToBothEnds(_TwoLengths):
    """Accepts all drafts or none."""

    @classmethod
    def lengths(cls, acc_len: float, max_len: int) -> tuple[int, int, float]:
        """Return 1, max_len and the weight that gives the mean."""
        drafts = clamp(acc_len, max_len) - 1.0
        return 1, max_len, drafts / (max_len - 1) if max_len > 1 else 0.0


@mutant(
    "spread-by-one",
    caught_by="S.support",
    statement="Fractional lengths are drawn from one below and one above the right two, with the "
    "right mean.",
    source="stands for a law that only a test of the mean accepts",
)
class SpreadByOne(_TwoLengths):
    """Widens the support by one on both sides, within [1, max_len]."""

    @classmethod
    def lengths(cls, acc_len: float, max_len: int) -> tuple[int, int, float]:
        """Return floor − 1, ceil + 1 and the weight that gives the mean."""
        lower, weight = split(acc_len, max_len)
        if not weight:
            return lower, lower, 0.0
        shorter, longer = max(lower - 1, 1), min(lower + 2, max_len)
        return shorter, longer, (lower + weight - shorter) / (longer - shorter)


@mutant(
    "integers-jitter",
    caught_by="S.integers",
    statement="An integer length is off by one in 5 % of all draws.",
    source="stands for a length that rounding error puts beside the integer",
)
class IntegersJitter(_TwoLengths):
    """Is exact for fractional lengths only."""

    @classmethod
    def lengths(cls, acc_len: float, max_len: int) -> tuple[int, int, float]:
        """Return the integer and a neighbour for an integer length."""
        lower, weight = split(acc_len, max_len)
        if weight or max_len == 1:
            return lower, min(lower + 1, max_len), weight
        if lower < max_len:
            return lower, lower + 1, 0.05
        return lower - 1, lower, 0.95


@mutant(
    "constant-conditional-rate",
    caught_by="S.distribution",
    statement="Each draft is accepted with one conditional rate: the right mean, a wider spread.",
    source="vLLM PR 39359, ATOM PR 1948; llama.cpp's law under another engine's name",
)
class ConstantConditionalRate(UniformSampler):
    """Walks along the drafts until one is refused."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.rates: dict[tuple[float, int], float] = {}

    def match_expected(self, acc_len: float, max_len: int) -> int:
        """Return 1 and the drafts accepted before the first refusal."""
        key = (clamp(acc_len, max_len), max_len)
        if key not in self.rates:
            self.rates[key] = _constant_rate(*key)
        length = 1
        while length < max_len and self.uniform() < self.rates[key]:
            length += 1
        return length

    @staticmethod
    def law(acc_len: float, method: str, max_len: int) -> AcceptanceDistribution:
        """Return the law of the draws."""
        if method == "multinomial":
            return AcceptanceDistribution.multinomial(acc_len, max_len)
        length = clamp(acc_len, max_len)
        return AcceptanceDistribution.constant_conditional(length, max_len - 1)


def _constant_rate(length: float, max_len: int) -> float:
    """Return p in [0, 1] with 1 + p + … + p^(max_len − 1) = length, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if math.fsum(middle**k for k in range(max_len)) < length:
            low = middle
        else:
            high = middle
    return high


class _ShiftedUnit(UniformSampler):
    """Reads the configured length in another unit."""

    shift: float

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        return super().__call__(acc_len + self.shift, method, max_len)

    @classmethod
    def law(cls, acc_len: float, method: str, max_len: int) -> AcceptanceDistribution:
        """Return the law of the draws."""
        return AcceptanceDistribution.from_method(acc_len + cls.shift, method, max_len)


@mutant(
    "length-read-as-drafts",
    caught_by="S.distribution",
    statement="The configured length is taken for accepted draft tokens: all is one too long.",
    source="TensorRT-LLM PR 9608: total tokens in one path, draft tokens in another",
)
class LengthReadAsDrafts(_ShiftedUnit):
    """Adds the target's own token to a length that has it."""

    shift = 1.0


@mutant(
    "length-read-as-total-plus-bonus",
    caught_by="S.distribution",
    statement="The target's own token is taken off a length that must include it.",
    source="TensorRT-LLM PR 9608: total tokens in one path, draft tokens in another",
)
class LengthReadAsTotalPlusBonus(_ShiftedUnit):
    """Aims at a length one too short."""

    shift = -1.0


@mutant(
    "returns-drafts",
    caught_by="S.range",
    statement="The number of accepted draft tokens is returned, one less than the length.",
    source="engines' buffers hold the length − 1; TensorRT-LLM PR 9608",
)
class ReturnsDrafts(UniformSampler):
    """Returns 0 … max_len − 1."""

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        return super().__call__(acc_len, method, max_len) - 1


@mutant(
    "returns-one-too-many",
    caught_by="S.range",
    statement="The target's own token is counted twice, so max_len + 1 occurs.",
    source="TensorRT-LLM PR 9608",
)
class ReturnsOneTooMany(UniformSampler):
    """Returns 2 … max_len + 1."""

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        return super().__call__(acc_len, method, max_len) + 1


@mutant(
    "method-ignored",
    caught_by="S.distribution",
    statement="Multinomial is accepted and match-expected drawn.",
    source="stands for an option that is parsed and never read",
)
class MethodIgnored(UniformSampler):
    """Knows one method under two names."""

    def multinomial(self, acc_len: float, max_len: int) -> int:
        """Draw as for match-expected."""
        return self.match_expected(acc_len, max_len)

    @staticmethod
    def law(acc_len: float, method: str, max_len: int) -> AcceptanceDistribution:
        """Return the law of the draws."""
        return AcceptanceDistribution.match_expected(acc_len, max_len)
