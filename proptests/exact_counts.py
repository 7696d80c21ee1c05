"""Compares counts of lengths with a law, at an exact bound on the false-alarm rate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from specsim.acceptance import AcceptanceDistribution

ALPHA = 1e-9


def agrees(
    observed: Sequence[int] | NDArray[np.int64], law: AcceptanceDistribution | NDArray[np.float64]
) -> bool:
    """Whether counts of 1 … K fit a law of independent draws; wrongly False at most ALPHA often.

    Each count is binomial, so the exact two-sided tails, divided among the K lengths
    (Bonferroni), bound the error without any approximation.
    """
    pmf = law.pmf if isinstance(law, AcceptanceDistribution) else law
    values = np.asarray(observed)
    if values.min() < 1 or values.max() > pmf.size:
        return False
    counts = np.bincount(values, minlength=pmf.size + 1)[1:]
    below = binom.cdf(counts, values.size, pmf)
    above = binom.sf(counts - 1, values.size, pmf)
    return bool(np.all(2.0 * np.minimum(below, above) >= ALPHA / pmf.size))


def pairs(observed: NDArray[np.int64], max_len: int) -> NDArray[np.int64]:
    """Return disjoint neighbours (first, second) as one number of 1 … max_len²."""
    first, second = observed[: observed.size // 2 * 2].reshape(-1, 2).T
    return (first - 1) * max_len + second
