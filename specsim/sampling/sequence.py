"""One sequence of lengths, made in blocks and read one at a time or as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice

import numpy as np

from specsim.sampling.lookup import BLOCK, BlockFiller, IntArray

# Lengths turned into Python integers at a time.
_CHUNK = 1024


class LengthStream:
    """Lengths whose sequence doesn't depend on how it is split over reads.

    Parameters
    ----------
    make_filler
        Called once, at the first read; what it returns fills one block after another.
    """

    def __init__(self, make_filler: Callable[[], BlockFiller]) -> None:
        self._make_filler = make_filler
        self._block: IntArray = np.empty(BLOCK, dtype=np.int64)
        self._position = BLOCK
        self._pending: Iterator[int] = iter(())

    def chunks(self) -> Iterator[Iterator[int]]:
        """Yield iterators over the next lengths, each to be used up before the next is taken.

        Only one call of this may be in use, and its iterators may be left part-way: `take`
        continues where they stopped.
        """
        chunk = np.empty(_CHUNK, dtype=np.int64)
        while True:
            self._read(chunk)
            self._pending = iter(chunk.tolist())
            yield self._pending

    def take(self, n: int) -> IntArray:
        """Return the next n lengths; shape (n,), int64."""
        out = np.empty(n, dtype=np.int64)
        head = list(islice(self._pending, n))
        out[: len(head)] = head
        self._read(out[len(head) :])
        return out

    @cached_property
    def _fill(self) -> BlockFiller:
        return self._make_filler()

    def _read(self, out: IntArray) -> None:
        """Fill `out` with lengths that no chunk holds, whole blocks in place."""
        filled = 0
        while filled < out.size:
            if self._position == BLOCK and out.size - filled >= BLOCK:
                self._fill(out[filled : filled + BLOCK])
                filled += BLOCK
                continue
            if self._position == BLOCK:
                self._fill(self._block)
                self._position = 0
            count = min(BLOCK - self._position, out.size - filled)
            out[filled : filled + count] = self._block[self._position : self._position + count]
            self._position += count
            filled += count
