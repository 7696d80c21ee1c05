"""A correct sampler in a few steps, each of which a mutant may replace."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

METHODS = ("match-expected", "multinomial")
_STANDARD_NORMAL = NormalDist()
_SMALLEST = 2.0**-54
_LARGEST = 1.0 - 2.0**-53


class UniformSampler:
    """Draws an acceptance length by one uniform number a call.

    Parameters
    ----------
    seed
        For a generator of its own; the operating system's entropy if None.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.random = random.Random(seed)

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        check(acc_len, method, max_len)
        if method == "match-expected":
            return self.match_expected(acc_len, max_len)
        return self.multinomial(acc_len, max_len)

    def match_expected(self, acc_len: float, max_len: int) -> int:
        """Return one of the two integers around the clamped length."""
        lower, weight = split(acc_len, max_len)
        return lower + int(self.uniform() < weight)

    def multinomial(self, acc_len: float, max_len: int) -> int:
        """Return a unit normal around the length, clamped and rounded half to even."""
        return round(clamp(acc_len + self.normal(), max_len))

    def normal(self) -> float:
        """Return the standard normal quantile of the next uniform number."""
        return normal_quantile(self.uniform())

    def uniform(self) -> float:
        """Return the next number in [0, 1)."""
        return self.random.random()


def check(acc_len: float, method: str, max_len: int) -> None:
    """Refuse what no sampler should take.

    Raises
    ------
    ValueError
        If `acc_len` is not finite, `method` unknown or `max_len` below 1.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if not math.isfinite(acc_len):
        raise ValueError(f"acc_len must be a finite number, got {acc_len!r}")
    if max_len < 1:
        raise ValueError(f"max_len must be at least 1, got {max_len!r}")


def clamp(length: float, max_len: int) -> float:
    """Return the length, or the end of [1, max_len] that it is beyond."""
    return min(max(length, 1.0), float(max_len))


def split(acc_len: float, max_len: int) -> tuple[int, float]:
    """Return the integer below the clamped length, and the weight of the one above."""
    length = clamp(acc_len, max_len)
    lower = math.floor(length)
    return lower, length - lower


def normal_quantile(uniform: float) -> float:
    """Return Φ⁻¹ of a number in [0, 1], its ends moved inside by less than 2⁻⁵²."""
    return _STANDARD_NORMAL.inv_cdf(min(max(uniform, _SMALLEST), _LARGEST))
