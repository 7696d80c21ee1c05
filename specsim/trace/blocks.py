"""A block of recorded steps: its columns, and how they are written and read."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.arguments import finite, integer

IntArray = NDArray[np.int64]

FIELDS = (
    "correct_len",
    "commit_lens",
    "cap_trim_lens",
    "caps",
    "prefix_lens",
    "new_seq_lens",
    "out_tokens",
    "draft_tokens",
    "target_tokens",
)
"""What a step may hold: one integer a slot, and for the last three several."""

NO_STORAGE = -1
"""Number of the storage of a step whose buffer was not recorded."""

_LENGTH = struct.Struct("<I")
_DTYPES = ("<i1", "<i2", "<i4", "<i8")
# No recorder writes that many; a file that says so is damaged in a way no checksum sees.
_MOST_VALUES = 1 << 26


@dataclass(frozen=True)
class Column:
    """One field of a block's steps.

    Attributes
    ----------
    sizes : ndarray, shape (n,), int64
        Values of each step; −1 where the field was not recorded.
    values : ndarray, shape (sum of the positive sizes,), int64
        Step after step.
    """

    sizes: IntArray
    values: IntArray

    @cached_property
    def starts(self) -> IntArray:
        """Where each step's values begin, shape (n,)."""
        sizes = np.maximum(self.sizes, 0)
        return np.asarray(np.cumsum(sizes) - sizes, dtype=np.int64)

    def at(self, row: int) -> IntArray | None:
        """Return one step's values, or None if it has none recorded."""
        size, start = int(self.sizes[row]), int(self.starts[row])
        return None if size < 0 else self.values[start : start + size]


@dataclass(frozen=True)
class Storage:
    """A storage that a recorded buffer lived in.

    Attributes
    ----------
    nbytes
        Its size.
    itemsize
        Bytes of one slot.
    dtype, device
        Of the buffer.
    """

    nbytes: int
    itemsize: int
    dtype: str
    device: str

    @property
    def capacity(self) -> int:
        """Slots that the storage has room for."""
        return self.nbytes // self.itemsize


@dataclass(frozen=True)
class Block:
    """Consecutive steps of one process.

    Attributes
    ----------
    steps : ndarray, shape (n,), int64
        Numbers of the steps, increasing; a process counts its calls from 0.
    graph : ndarray, shape (n,), bool
        Whether the step was replayed from a graph.
    storage : ndarray, shape (n,), int64
        Number of the buffer's storage, `NO_STORAGE` where none was recorded.
    offset : ndarray, shape (n,), int64
        First slot of the buffer in its storage.
    columns
        By name, those of `FIELDS` that some step holds.
    storages
        Storages first seen in this block, by number.
    dropped
        Steps that the process has failed to record so far.
    time
        When the block was written, seconds since 1970.
    """

    steps: IntArray
    graph: NDArray[np.bool_]
    storage: IntArray
    offset: IntArray
    columns: Mapping[str, Column]
    storages: Mapping[int, Storage] = field(default_factory=dict)
    dropped: int = 0
    time: float = 0.0

    def __len__(self) -> int:
        return int(self.steps.size)

    def to_bytes(self) -> bytes:
        """Return the block as a table of columns in JSON, followed by the columns."""
        parts: list[bytes] = []

        def add(values: IntArray) -> list[Any]:
            """Write a column in the smallest dtype; one value stands for n equal ones."""
            if values.size > 1 and (values == values[0]).all():
                values = values[:1]
            dtype = _smallest(values)
            parts.append(values.astype(dtype).tobytes())
            return [dtype, int(values.size)]

        first = int(self.steps[0])
        table: dict[str, Any] = {
            "first_step": first,
            "steps": len(self),
            "dropped": self.dropped,
            "time": self.time,
            "storages": {str(k): vars(storage) for k, storage in self.storages.items()},
            "step": add(self.steps - first),
            "graph": add(self.graph.astype(np.int64)),
            "storage": add(self.storage),
            "offset": add(self.offset),
            "columns": {},
        }
        for name, column in self.columns.items():
            shared = _one_a_step(column)
            table["columns"][name] = {
                "sizes": add(column.sizes),
                "shared": shared is not None,
                "values": add(column.values if shared is None else shared),
            }
        text = json.dumps(table, allow_nan=False).encode()
        return b"".join([_LENGTH.pack(len(text)), text, *parts])

    @classmethod
    def from_bytes(cls, payload: bytes) -> Block:
        """Read what `to_bytes` wrote.

        Raises
        ------
        KeyError, OverflowError, TypeError, ValueError, struct.error
            If it is no block.
        """
        (length,) = _LENGTH.unpack_from(payload)
        position = _LENGTH.size + length
        table = json.loads(payload[_LENGTH.size : position])
        n = integer(table["steps"], "steps", 1)

        def take(entry: list[Any], size: int) -> IntArray:
            nonlocal position
            dtype, count = entry
            if dtype not in _DTYPES or count not in (min(1, size), size) or size > _MOST_VALUES:
                raise ValueError(f"a column of {size} values can not be {entry!r}")
            found = np.frombuffer(payload, dtype, count, position).astype(np.int64)
            position += count * np.dtype(dtype).itemsize
            return found if count == size else np.full(size, found[0])

        steps = integer(table["first_step"], "first_step", 0) + take(table["step"], n)
        if np.any(np.diff(steps) <= 0):
            raise ValueError("steps must increase")
        graph = take(table["graph"], n) != 0
        storage, offset = take(table["storage"], n), take(table["offset"], n)
        columns = {}
        for name, entry in table["columns"].items():
            sizes = take(entry["sizes"], n)
            if np.any(sizes < -1):
                raise ValueError(f"{name} must have sizes >= -1")
            filled = np.maximum(sizes, 0)
            # Written beside each other: a field that a later version adds is read past.
            if entry["shared"]:
                values = take(entry["values"], int((filled > 0).sum()))
                if int(filled.sum()) > _MOST_VALUES:
                    raise ValueError(f"{name} has {int(filled.sum())} values")
                values = np.repeat(values, filled[filled > 0])
            else:
                values = take(entry["values"], int(filled.sum()))
            columns[name] = Column(sizes, values)
        if position != len(payload):
            raise ValueError(f"it has {len(payload)} bytes, and columns for {position}")
        return cls(
            steps,
            graph,
            storage,
            offset,
            {name: column for name, column in columns.items() if name in FIELDS},
            {int(number): _storage(entry) for number, entry in table["storages"].items()},
            integer(table["dropped"], "dropped", 0),
            finite(table["time"], "time"),
        )


def _storage(entry: Mapping[str, Any]) -> Storage:
    return Storage(
        integer(entry["nbytes"], "nbytes", 0),
        integer(entry["itemsize"], "itemsize", 1),
        str(entry["dtype"]),
        str(entry["device"]),
    )


def _smallest(values: IntArray) -> str:
    """Return the smallest dtype that holds all values."""
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for dtype in _DTYPES[:-1]:
        bounds = np.iinfo(dtype)
        if bounds.min <= low and high <= bounds.max:
            return dtype
    return _DTYPES[-1]


def _one_a_step(column: Column) -> IntArray | None:
    """Return one value for each step that has any, if every step's values are equal.

    So it is under one draw a step, where a batch of 64 then takes the room of one slot.
    """
    sizes = np.maximum(column.sizes, 0)
    filled = sizes > 0
    first = column.values[column.starts[filled]]
    if column.values.size == first.size:
        return None
    return first if np.array_equal(np.repeat(first, sizes[filled]), column.values) else None
