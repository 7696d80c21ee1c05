"""Integer laws: how uniform random words become lengths, one at a time and in blocks.

A law is held as its thresholds T_k = ⌈P(L ≤ k) · 2³²⌉, k = 1 … max_len − 1. The length of a
uniform 32-bit word u is 1 + #{k : T_k ≤ u}, so P(L ≤ k) = T_k / 2³²: above the configured
value by less than 2⁻³², and exactly 0 or 1 where the configured value is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from specsim.acceptance import AcceptanceDistribution

IntArray: TypeAlias = NDArray[np.int64]
BlockFiller: TypeAlias = Callable[[IntArray], None]

# Draws per block, a multiple of 4: its int64 lengths and cells stay in a core's second-level
# cache, and the cost of a NumPy call is spread over enough of them.
BLOCK = 1 << 15

_WORD_BITS = 32
_CELL_BITS = 16
_LOW_MASK = (1 << (_WORD_BITS - _CELL_BITS)) - 1


def integer_thresholds(distribution: AcceptanceDistribution) -> IntArray:
    """Return T_k = ⌈P(L ≤ k) · 2³²⌉ for k = 1 … max_len − 1.

    Parameters
    ----------
    distribution
        The law.

    Returns
    -------
    ndarray, shape (max_len - 1,), int64
        Non-decreasing, in [0, 2³²].
    """
    cdf = distribution.cdf(np.arange(1, distribution.max_len))
    # Multiplying by a power of two is exact, so this is the ceiling of the float64 value itself.
    return np.ceil(cdf * 2.0**_WORD_BITS).astype(np.int64)


class LookupTable:
    """Lengths indexed by the 16 leading bits of a word.

    A cell is the set of words with the same leading bits. Where a threshold falls inside a cell,
    its words differ in length: such a crossed cell is resolved with the 16 bits that follow.

    Parameters
    ----------
    thresholds : ndarray, shape (max_len - 1,), int64
        As returned by `integer_thresholds`.

    Attributes
    ----------
    lengths : ndarray, shape (65536,), int64
        The length of every word of a cell, or 0 for a crossed cell.
    """

    def __init__(self, thresholds: IntArray) -> None:
        self._thresholds = thresholds
        cells = 1 << _CELL_BITS
        borders = thresholds >> (_WORD_BITS - _CELL_BITS)
        starts = np.bincount(borders, minlength=cells + 1)[:cells]
        self.lengths: IntArray = np.cumsum(starts, dtype=np.int64) + 1
        self.lengths[borders[(thresholds & _LOW_MASK) != 0]] = 0

    def resolve(self, cells: IntArray, low: IntArray) -> IntArray:
        """Return the lengths of the words with the given 16 leading and 16 trailing bits.

        Parameters
        ----------
        cells, low : ndarray, shape (n,), int64
            In [0, 65536).

        Returns
        -------
        ndarray, shape (n,), int64
        """
        words = (cells << (_WORD_BITS - _CELL_BITS)) | low
        return np.searchsorted(self._thresholds, words, side="right").astype(np.int64) + 1


def independent_filler(thresholds: IntArray, bits: np.random.BitGenerator) -> BlockFiller:
    """Return a function that fills a block with independent lengths.

    Parameters
    ----------
    thresholds : ndarray, shape (max_len - 1,), int64
        As returned by `integer_thresholds`.
    bits
        Source of uniform 64-bit words.

    Returns
    -------
    callable
        Takes an int64 array of shape (BLOCK,) and overwrites it.
    """
    lengths = np.flatnonzero(np.diff(thresholds, prepend=0, append=1 << _WORD_BITS)) + 1
    if lengths.size == 1:
        only = int(lengths[0])
        return lambda out: out.fill(only)
    if lengths.size == 2:
        shorter, longer = (int(length) for length in lengths)
        threshold = np.uint32(thresholds[shorter - 1])

        def fill_two(out: IntArray) -> None:
            words = bits.random_raw(BLOCK // 2).view(np.uint32)
            _choose(words, threshold, shorter, longer, out)

        return fill_two

    table = LookupTable(thresholds)
    cells = np.empty(BLOCK, dtype=np.int64)

    def fill_many(out: IntArray) -> None:
        cells[:] = bits.random_raw(BLOCK // 4).view(np.uint16)
        # No cell is out of range: "clip" is named because "raise" would copy through a buffer.
        np.take(table.lengths, cells, out=out, mode="clip")
        crossed = np.flatnonzero(out == 0)
        low = bits.random_raw(crossed.size).astype(np.int64) & _LOW_MASK
        out[crossed] = table.resolve(cells[crossed], low)

    return fill_many


def systematic_filler(
    shorter: int, longer: int, stride: int, bits: np.random.BitGenerator
) -> BlockFiller:
    """Return a function that fills a block with the next lengths of one systematic sequence.

    Draw t is the longer length where (U + t · stride) mod 2³² ≥ 2³² − stride, with U one
    uniform word: systematic sampling with unequal probabilities (Madow, "On the theory of
    systematic sampling, II", 1949), over steps instead of a population.

    Parameters
    ----------
    shorter, longer
        The two lengths.
    stride
        P(L = longer) · 2³², in (0, 2³²).
    bits
        Source of uniform 64-bit words; one is used.

    Returns
    -------
    callable
        Takes an int64 array of shape (BLOCK,) and overwrites it.
    """
    # Arrays, not scalars: NumPy lets only arrays wrap modulo 2³² without a warning.
    step = np.array([stride], dtype=np.uint32)
    ramp = np.arange(BLOCK, dtype=np.uint32) * step
    block_step = np.array([BLOCK], dtype=np.uint32) * step
    phase = bits.random_raw(1).astype(np.uint32)
    threshold = np.uint32((1 << _WORD_BITS) - stride)

    def fill_systematic(out: IntArray) -> None:
        _choose(ramp + phase, threshold, shorter, longer, out)
        np.add(phase, block_step, out=phase)

    return fill_systematic


def _choose(
    words: NDArray[np.uint32], threshold: np.uint32, shorter: int, longer: int, out: IntArray
) -> None:
    """Write `shorter` where a word is below the threshold and `longer` elsewhere."""
    np.greater_equal(words, threshold, out=out, casting="unsafe")
    if longer - shorter > 1:
        out *= longer - shorter
    out += shorter
