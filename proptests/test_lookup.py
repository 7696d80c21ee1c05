"""The integer law is judged by counting words, not by sampling."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from specsim.acceptance import AcceptanceDistribution
from specsim.sampling.lookup import (
    BLOCK,
    LookupTable,
    independent_filler,
    integer_thresholds,
    systematic_filler,
)

WORDS = 1 << 32
CELLS = 1 << 16

# Neighbours, cell borders and both ends, beside anything else.
threshold = st.integers(0, WORDS) | st.builds(
    lambda cell, shift: min(max(cell * CELLS + shift, 0), WORDS),
    st.integers(0, CELLS),
    st.sampled_from([-1, 0, 1, 2]),
)
threshold_arrays = st.lists(threshold, min_size=1, max_size=6).map(
    lambda values: np.array(sorted(values), dtype=np.int64)
)


class ScriptedBits:
    """Stands in for a bit generator: hands out given 64-bit words."""

    def __init__(self, words: Iterable[int]) -> None:
        self._words = iter(words)

    def random_raw(self, size: int) -> NDArray[np.uint64]:
        return np.array([next(self._words) for _ in range(size)], dtype=np.uint64)


def scripted(words: Iterable[int]) -> np.random.BitGenerator:
    return cast(np.random.BitGenerator, ScriptedBits(words))


def rule(thresholds: NDArray[np.int64], word: int) -> int:
    return 1 + sum(int(value) <= word for value in thresholds)


def masses(table: LookupTable, thresholds: NDArray[np.int64]) -> list[int]:
    """Count the words of every length: whole cells, and each word of the crossed cells."""
    count = np.bincount(table.lengths, minlength=thresholds.size + 2) * CELLS
    for cell in np.flatnonzero(table.lengths == 0):
        resolved = table.resolve(np.full(CELLS, cell), np.arange(CELLS))
        count += np.bincount(resolved, minlength=count.size)
    count[0] = 0
    return cast("list[int]", count[1:].tolist())


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20).filter(lambda w: sum(w) > 1e-3))
def test_thresholds_round_the_cdf_up_to_a_multiple_of_2_32(weights: list[float]) -> None:
    law = AcceptanceDistribution(np.array(weights) / sum(weights))
    thresholds = integer_thresholds(law)
    assert thresholds.shape == (law.max_len - 1,)
    for k, value in enumerate(thresholds.tolist(), start=1):
        assert 0 <= value - Fraction(float(law.cdf(k))) * WORDS < 1
    mass = np.diff(thresholds, prepend=0, append=WORDS)
    assert (mass >= 0).all()
    assert set(np.flatnonzero(mass) + 1) <= set(law.support)


@settings(deadline=None)
@given(threshold_arrays)
def test_table_and_resolver_together_have_exactly_the_law(thresholds: NDArray[np.int64]) -> None:
    table = LookupTable(thresholds)
    inside = {value // CELLS for value in thresholds.tolist() if value % CELLS}
    assert set(np.flatnonzero(table.lengths == 0)) == inside
    assert masses(table, thresholds) == np.diff(thresholds, prepend=0, append=WORDS).tolist()
    for value in thresholds.tolist():
        for word in {max(value - 1, 0), min(value, WORDS - 1)}:
            cell, low = divmod(word, CELLS)
            length = int(table.lengths[cell])
            if length == 0:
                length = int(table.resolve(np.array([cell]), np.array([low]))[0])
            assert length == rule(thresholds, word)


def test_a_table_without_the_resolver_is_caught() -> None:
    thresholds = np.array([WORDS // 3, WORDS // 2 + 1])
    table = LookupTable(thresholds)
    crossed = np.flatnonzero(table.lengths == 0)
    assert crossed.size == 2
    table.lengths[crossed] = table.resolve(crossed, np.zeros(2, dtype=np.int64))
    assert masses(table, thresholds) != np.diff(thresholds, prepend=0, append=WORDS).tolist()


def test_many_lengths_are_filled_from_every_cell_once() -> None:
    law = AcceptanceDistribution([1 / 15] * 15)
    thresholds = integer_thresholds(law)
    crossed = sorted({int(value) >> 16 for value in thresholds if int(value) % CELLS})
    assert len(crossed) == 14
    # Four cells a word; after each block's cells come the low bits of its crossed ones, here
    # alternately the last below the threshold and the threshold itself.
    lows = {
        cell: (int(value) % CELLS) - index % 2
        for index, value in enumerate(thresholds)
        for cell in [int(value) >> 16]
    }
    script: list[int] = []
    for start in range(0, CELLS, BLOCK):
        cells = np.arange(start, start + BLOCK, dtype=np.uint16)
        script += cells.view(np.uint64).tolist()
        script += [lows[cell] | 0xABC0000 for cell in crossed if start <= cell < start + BLOCK]
    fill = independent_filler(thresholds, scripted(script))
    out = np.empty((CELLS // BLOCK, BLOCK), dtype=np.int64)
    for block in out:
        fill(block)
    expected = [rule(thresholds, cell * CELLS + lows.get(cell, 0)) for cell in range(CELLS)]
    assert out.ravel().tolist() == expected


@pytest.mark.parametrize("pmf", [[0.3, 0.7], [0.0, 0.3, 0.7], [0.3, 0.0, 0.0, 0.7, 0.0]])
def test_two_lengths_change_exactly_at_the_threshold(pmf: list[float]) -> None:
    law = AcceptanceDistribution(pmf)
    shorter, longer = law.support
    border = int(integer_thresholds(law)[shorter - 1])
    words = np.tile(np.array([0, border - 1, border, WORDS - 1], dtype=np.uint32), BLOCK // 4)
    fill = independent_filler(integer_thresholds(law), scripted(words.view(np.uint64).tolist()))
    out = np.empty(BLOCK, dtype=np.int64)
    fill(out)
    assert out.tolist() == [shorter, shorter, longer, longer] * (BLOCK // 4)


def test_one_length_needs_no_random_bits() -> None:
    # 1e-12 < 2⁻³²: the longer length has no word left.
    for pmf, only in (([1.0], 1), ([0.0, 1.0, 0.0], 2), ([1.0 - 1e-12, 1e-12], 1)):
        out = np.empty(BLOCK, dtype=np.int64)
        independent_filler(integer_thresholds(AcceptanceDistribution(pmf)), scripted([]))(out)
        assert (out == only).all()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, WORDS - 1), st.integers(1, WORDS - 1))
@example(offset=WORDS - 1000, stride=1000)
@example(offset=WORDS - 1001, stride=1000)
def test_systematic_blocks_continue_one_exact_sequence(offset: int, stride: int) -> None:
    fill = systematic_filler(2, 5, stride, scripted([offset | 7 << 32]))
    out = np.empty((3, BLOCK), dtype=np.int64)
    for block in out:
        fill(block)
    phases = (offset + t * stride for t in range(3 * BLOCK))
    expected = [5 if phase % WORDS >= WORDS - stride else 2 for phase in phases]
    assert out.ravel().tolist() == expected
