"""Lines the fields of a block up slot by slot, and says which slots tell an uncapped length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specsim.trace.blocks import Block, Column, IntArray

BoolArray = NDArray[np.bool_]

PER_SLOT = (
    "correct_len",
    "commit_lens",
    "cap_trim_lens",
    "caps",
    "prefix_lens",
    "new_seq_lens",
)
"""Fields that hold one integer a slot."""


@dataclass(frozen=True)
class Slots:
    """The slots of a block's steps, one after the other.

    Attributes
    ----------
    block
        Where they are from.
    row : ndarray, shape (m,), int64
        Of each slot the step, as an index into the block.
    slot : ndarray, shape (m,), int64
        Its place in the batch.
    values : dict of str to ndarray of shape (m,), int64
        What was recorded of each slot.
    known : dict of str to ndarray of shape (m,), bool
        Whether it was.
    misfits : dict of str to ndarray of shape (n,), bool
        Steps at which a field's number of values is neither that of the slots nor 1.
    """

    block: Block
    row: IntArray
    slot: IntArray
    values: Mapping[str, IntArray]
    known: Mapping[str, BoolArray]
    misfits: Mapping[str, BoolArray]

    def all_known(self, *names: str) -> BoolArray:
        """Return of which slots all these fields were recorded, shape (m,)."""
        found = np.ones(self.row.size, dtype=np.bool_)
        for name in names:
            found &= self.known[name]
        return found

    def lengths(self, max_len: int) -> tuple[IntArray, BoolArray]:
        """Return the acceptance lengths that the slots were given before any cap.

        Parameters
        ----------
        max_len
            Largest acceptance length; a cap at or above it cuts nothing.

        Returns
        -------
        lengths : ndarray, shape (m,), int64
            Tokens committed and tokens trimmed, where both are known; else the accepted draft
            tokens and one; else the tokens committed.
        known : ndarray, shape (m,), bool
            Where one of these is known. A slot with a cap below `max_len`, and no record of
            what it trimmed, is left out whatever its length: to leave out only those that were
            cut would change the law of the rest.
        """
        trimmed = self.all_known("commit_lens", "cap_trim_lens")
        lengths = np.where(
            trimmed,
            self.values["commit_lens"] + self.values["cap_trim_lens"],
            np.where(
                self.known["correct_len"],
                self.values["correct_len"] + 1,
                self.values["commit_lens"],
            ),
        )
        known = self.known["correct_len"] | self.known["commit_lens"]
        capped = self.known["caps"] & (self.values["caps"] < max_len) & ~trimmed
        return lengths, known & ~capped

    def place(self, index: int) -> str:
        """Name the step and slot of an entry."""
        step = int(self.block.steps[self.row[index]])
        return f"step {step}, slot {int(self.slot[index])}"


def slots_of(block: Block) -> Slots:
    """Return the slots of a block's steps.

    A step has as many slots as the longest of its fields; a field with one value is meant for
    all of them, as a scalar of the step protocol is.
    """
    present = {name: block.columns[name] for name in PER_SLOT if name in block.columns}
    count = np.zeros(len(block), dtype=np.int64)
    for column in present.values():
        count = np.maximum(count, column.sizes)
    # A step without any slot recorded says so in every field.
    empty = np.zeros(len(block), dtype=np.bool_)
    for column in present.values():
        empty |= column.sizes == 0
    count[empty & (count == 1)] = 0
    row = np.repeat(np.arange(len(block)), count)
    starts = np.cumsum(count) - count
    slot = np.arange(row.size) - starts[row]
    values, known, misfits = {}, {}, {}
    for name in PER_SLOT:
        if name not in present:
            values[name] = np.zeros(row.size, dtype=np.int64)
            known[name] = np.zeros(row.size, dtype=np.bool_)
            continue
        column = present[name]
        fits = (column.sizes == count) | (column.sizes == 1) | (column.sizes < 0)
        misfits[name] = ~fits
        values[name], known[name] = _spread(column, fits, row, slot)
    return Slots(block, row, slot, values, known, misfits)


def _spread(
    column: Column, fits: BoolArray, row: IntArray, slot: IntArray
) -> tuple[IntArray, BoolArray]:
    """Return a column's value of each slot, and whether there is one."""
    known = fits[row] & (column.sizes[row] > 0)
    index = column.starts[row] + np.where(column.sizes[row] == 1, 0, slot)
    values = np.zeros(row.size, dtype=np.int64)
    values[known] = column.values[index[known]]
    return values, known
