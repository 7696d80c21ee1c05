"""Recorded steps before they are a block: one row each, with its values as bytes."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specsim.trace.blocks import FIELDS, Column, IntArray

_INTEGERS = "bhilqBHIL"

Cell: TypeAlias = "tuple[str, int, str]"
"""What a field holds at one step: its name, how many values, and NumPy's letter of their dtype."""

Head: TypeAlias = "tuple[int, bool, int, int]"
"""A step's number, whether it was a graph's, its buffer's storage and offset in it."""


@dataclass(slots=True)
class Row:
    """One step: its head, what its fields are, and their values as bytes."""

    head: Head
    cells: list[Cell]
    contents: list[bytes]

    def add(self, name: str, array: NDArray[Any]) -> None:
        """Copy a field's values.

        Raises
        ------
        TypeError
            If they are no integers.
        """
        letter = array.dtype.char
        if letter not in _INTEGERS:
            raise TypeError(f"{name} must hold integers, got dtype {array.dtype}")
        self.cells.append((name, array.size, letter))
        self.contents.append(array.tobytes())


def columns_of(rows: Sequence[Row]) -> dict[str, Column]:
    """Turn the values of n steps into the columns of the fields that some step holds."""
    sizes: dict[str, IntArray] = {}
    parts: dict[str, list[IntArray]] = {}
    first = 0
    # Most steps hold the same fields of the same size, and are then turned all at once.
    for cells, alike in itertools.groupby(rows, key=operator.attrgetter("cells")):
        contents = [row.contents for row in alike]
        last = first + len(contents)
        for number, (name, size, letter) in enumerate(cells):
            if name not in sizes:
                sizes[name], parts[name] = np.full(len(rows), -1, dtype=np.int64), []
            sizes[name][first:last] = size
            joined = b"".join([each[number] for each in contents])
            parts[name].append(np.frombuffer(joined, letter).astype(np.int64))
        first = last
    return {
        name: Column(sizes[name], np.concatenate(parts[name])) for name in FIELDS if name in sizes
    }
