"""Checks of arguments that several modules take, with one wording of their errors."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from numbers import Real
from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray


def finite(value: float, name: str) -> float:
    """Return `value` as a finite float, or raise an error that names it."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a real number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return number


def integer(value: SupportsIndex, name: str, least: int) -> int:
    """Return `value` as an int of at least `least`, or raise an error that names it."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {number}")
    return number


def numbers(values: Iterable[float] | NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Return a one-dimensional float64 array, or raise an error that names it."""
    try:
        array = np.array(
            values if isinstance(values, np.ndarray) else list(values), dtype=np.float64
        )
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a sequence of real numbers, got {values!r}") from None
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    return array
