"""Turning what a target returned into lengths, and saying what is wrong with it otherwise."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from specsim.loading.failures import type_name


def as_length(value: Any) -> int | None:
    """Return the length that a value stands for, or None if it stands for none.

    Integral floats, one-element tensors and bools stand for a length, so that everything else
    about them can be judged; that they are of the wrong type is another property's business.
    """
    if type(value) is int:
        return value
    try:
        return _read(value)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def _read(value: Any) -> int | None:
    try:
        return operator.index(value)
    except TypeError:
        pass
    plain = value.item() if hasattr(value, "item") else value
    if issubclass(type(plain), (str, bytes)):
        return None
    number = float(plain)
    return int(number) if number.is_integer() else None


def wrong_types(values: Iterable[Any]) -> list[str]:
    """Name the types among `values` that are neither int nor a NumPy integer, sorted."""
    kinds = set(map(type, values))
    return sorted(
        type_name(kind) for kind in kinds if kind is not int and not issubclass(kind, np.integer)
    )


def numpy_types(values: Iterable[Any]) -> list[str]:
    """Name the NumPy integer types among `values`, sorted."""
    return sorted(
        type_name(kind) for kind in set(map(type, values)) if issubclass(kind, np.integer)
    )
