"""What the fixed-size tests share: their result, their counts, draws outside the support."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from specsim.evidence.design import check_draws, check_error_rate, pad_laws
from specsim.evidence.law import FloatArray, IntArray, Law, as_pmf


@dataclass(frozen=True)
class TestResult:
    """What a fixed-size test found.

    Attributes
    ----------
    statistic : float
        In the test's own unit; infinite for a value outside the support.
    p_value : float
        In [0, 1].
    draws : int
        Number of draws tested.
    method : str
        Whether the p-value is ``"exact"``, ``"asymptotic"``, ``"monte-carlo"`` or an upper
        ``"bound"``.
    bins : int
        Cells compared: those left after pooling for chi-square, otherwise the support's values.
    """

    __test__: ClassVar[bool] = False  # pytest takes a class named Test… for a test case

    statistic: float
    p_value: float
    draws: int
    method: Literal["exact", "asymptotic", "monte-carlo", "bound"]
    bins: int


def as_counts(counts: Sequence[int] | IntArray, pmf: FloatArray) -> tuple[IntArray, bool]:
    """Return the counts of a law's values, and whether all draws are within its support.

    Parameters
    ----------
    counts
        How often each of the values 1, 2, … occurred; integers, of any length.
    pmf
        The law's probabilities, shape (K,).

    Returns
    -------
    (ndarray, bool)
        int64 counts of shape (K,).

    Raises
    ------
    TypeError
        If `counts` is not a one-dimensional array of integers.
    ValueError
        If a count is negative or all are zero.
    """
    array = np.asarray(counts)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"counts must be a one-dimensional array of integers, got {counts!r}")
    if array.size and array.min() < 0:
        raise ValueError(f"counts must be >= 0, got {int(array.min())}")
    if array.sum() == 0:
        raise ValueError("counts must hold at least one draw, got none")
    padded = np.zeros(max(array.size, pmf.size), dtype=np.int64)
    padded[: array.size] = array
    known = padded[: pmf.size]
    return known, int(padded.sum()) == int(known[pmf > 0].sum())


def impossible(counts: Sequence[int] | IntArray, pmf: FloatArray) -> TestResult:
    """Return the result for counts that hold a value which `pmf` gives no probability."""
    return TestResult(math.inf, 0.0, int(np.sum(counts)), "exact", int(np.count_nonzero(pmf)))


def fixed_size_power(
    p0: Law, q: Law, draws: int, alpha: float, inside: Callable[[FloatArray, FloatArray], float]
) -> float:
    """Return a test's power under q, a draw outside p0's support rejecting by itself.

    Parameters
    ----------
    p0, q
        The law tested and the law drawn from, of any numbers of values.
    draws
        Number of draws, at least 1.
    alpha
        Level of the test, in (0, 1).
    inside
        The power when all draws are within the support: called with p0, and with q restricted
        to p0's support and normalised, both padded to one length.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    check_draws(draws)
    check_error_rate(alpha, "alpha")
    null, alternative = pad_laws(as_pmf(p0), as_pmf(q, "q"))
    within = np.where(null > 0.0, alternative, 0.0)
    share = float(within.sum())
    if share == 0.0:
        return 1.0
    stay = min(share, 1.0) ** draws
    return (1.0 - stay) + stay * inside(null, within / share)
