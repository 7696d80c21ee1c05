"""What every test of a known law starts from: a checked float64 pmf over 1 … K."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from specsim.acceptance import AcceptanceDistribution

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
Law: TypeAlias = "AcceptanceDistribution | Sequence[float] | FloatArray"


def as_pmf(p0: Law, name: str = "p0") -> FloatArray:
    """Return the probabilities of the values 1 … K as a float64 array.

    Parameters
    ----------
    p0
        A distribution, or K non-negative numbers that sum to 1 within 1e-9; entry k − 1 is
        the probability of the value k.
    name
        What to call the argument in an error.

    Returns
    -------
    ndarray, shape (K,), float64
        A copy, divided by its sum.

    Raises
    ------
    ValueError
        If `p0` is empty, not one-dimensional, has a negative or non-finite entry, or does not
        sum to 1.
    """
    if isinstance(p0, AcceptanceDistribution):
        return np.array(p0.pmf, dtype=np.float64)
    pmf = np.array(p0, dtype=np.float64)
    if pmf.ndim != 1 or pmf.size == 0:
        raise ValueError(f"{name} must be a non-empty one-dimensional pmf, got shape {pmf.shape}")
    if not np.all(np.isfinite(pmf)) or np.any(pmf < 0):
        bad = pmf[~(np.isfinite(pmf) & (pmf >= 0))][0]
        raise ValueError(f"{name} must hold finite probabilities >= 0, got {bad!r}")
    total = float(pmf.sum())
    if abs(total - 1.0) > 1e-9:
        raise ValueError(f"{name} must sum to 1 within 1e-9, got a sum of {total!r}")
    return pmf / total
