"""Confidence regions: exact coverage at every draw, distances against a search of the region."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import betaln, xlog1py, xlogy

from specsim import AcceptanceDistribution
from specsim.evidence import region
from specsim.evidence.law import FloatArray, IntArray
from specsim.evidence.region import MERGED_MASS, TVInterval, rows_exclude, tv_interval
from specsim.evidence.sequential import SequentialTest

Interval = Callable[[IntArray, FloatArray, float], TVInterval]


def probability_of_ever_missing(
    p0: FloatArray, q: FloatArray, draws: int, alpha: float, interval: Interval = tv_interval
) -> float:
    """Return, exactly, how likely the interval misses the truth at some of the first draws.

    Counts are a Markov chain: the mass that reaches counts whose interval misses is taken out.
    """
    truth = 0.5 * float(np.abs(p0 - q).sum())
    alive = {(0,) * p0.size: 1.0}
    missed = 0.0
    for _ in range(draws):
        reached: dict[tuple[int, ...], float] = {}
        for counts, mass in alive.items():
            for k in np.flatnonzero(q):
                after = (*counts[:k], counts[k] + 1, *counts[k + 1 :])
                reached[after] = reached.get(after, 0.0) + mass * float(q[k])
        alive = {}
        for counts, mass in reached.items():
            bounds = interval(np.array(counts), p0, alpha)
            if bounds.lower <= truth + 1e-12 and bounds.upper >= truth - 1e-12:
                alive[counts] = mass
            else:
                missed += mass
    return missed


COVERED = [
    ([0.5, 0.5], [0.5, 0.5], 50),
    ([0.5, 0.5], [0.35, 0.65], 50),
    ([0.3, 0.7], [0.0, 1.0], 50),
    ([0.05, 0.95], [0.15, 0.85], 50),
    ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5], 14),
    ([0.2, 0.3, 0.5], [0.5, 0.3, 0.2], 14),
    ([0.6, 0.3996, 0.0004], [0.6, 0.39, 0.01], 14),
]


@pytest.mark.parametrize(("p0", "q", "draws"), COVERED)
def test_exact_probability_of_ever_missing_is_at_most_alpha(
    p0: list[float], q: list[float], draws: int
) -> None:
    assert probability_of_ever_missing(np.array(p0), np.array(q), draws, 0.1) <= 0.1


def test_the_same_computation_shows_an_interval_that_is_good_for_one_look_only() -> None:
    """The twin: a 90 % normal interval for the share, looked at after every draw."""

    def normal(counts: IntArray, pmf: FloatArray, alpha: float) -> TVInterval:
        total = counts.sum()
        share = counts[0] / total
        half = 1.645 * math.sqrt(max(share * (1 - share), 0.25 / total) / total)
        low, high = share - half - pmf[0], share + half - pmf[0]
        lower = max(low, -high, 0.0)
        return TVInterval(lower, max(abs(low), abs(high)))

    p0 = np.array([0.5, 0.5])
    missed = probability_of_ever_missing(p0, np.array([0.35, 0.65]), 50, 0.1, normal)
    assert missed > 0.1


@cache
def simplex(cells: int, steps: int) -> FloatArray:
    """Return the laws on a grid of step 1/steps, shape (n, cells)."""
    heads = np.indices((steps + 1,) * (cells - 1)).reshape(cells - 1, -1).T
    heads = heads[heads.sum(axis=1) <= steps]
    return np.asarray(np.column_stack([heads, steps - heads.sum(axis=1)]) / steps)


def searched(counts: IntArray, p0: FloatArray, alpha: float, steps: int) -> tuple[float, float]:
    """Return the least and largest distance from p0 among a grid's laws inside the region.

    The region is written down anew: the laws to which no event's mixture over Beta(½, ½) gives
    2^(cells − 1)/alpha or more, the event "outside the support" included.
    """
    seen, law = np.append(counts, 0), np.append(p0, 0.0)
    grid, total = simplex(seen.size, steps), int(counts.sum())
    inside = np.ones(len(grid), dtype=bool)
    for event in product([0, 1], repeat=seen.size):
        hits, probability = int(seen @ event), np.clip(grid @ event, 0.0, 1.0)
        mixture = betaln(hits + 0.5, total - hits + 0.5) - betaln(0.5, 0.5)
        ratio = mixture - xlogy(hits, probability) - xlog1py(total - hits, -probability)
        inside &= ratio < (seen.size - 1) * math.log(2.0) - math.log(alpha)
    distances = 0.5 * np.abs(grid[inside] - law).sum(axis=1)
    return float(distances.min()), float(distances.max())


@pytest.mark.parametrize("alpha", [0.1, 1e-6])
@pytest.mark.parametrize(
    ("p0", "counts"),
    [
        ([1.0], [40]),
        ([0.3, 0.7], [9, 21]),
        ([0.3, 0.7], [40, 10]),
        ([0.5, 0.5], [0, 60]),
        ([0.2, 0.3, 0.5], [20, 30, 50]),
        ([0.2, 0.3, 0.5], [70, 30, 0]),
        ([0.2, 0.3, 0.5], [1, 0, 1]),
    ],
)
def test_bounds_are_those_of_a_search_of_the_region(
    p0: list[float], counts: list[int], alpha: float
) -> None:
    steps = 400 if len(p0) < 3 else 60
    bounds = tv_interval(np.array(counts), np.array(p0), alpha)
    nearest, furthest = searched(np.array(counts), np.array(p0), alpha, steps)
    assert bounds.lower <= nearest + 1e-9
    assert bounds.upper >= furthest - 1e-9
    # Every event's own limit is met by some law of the region, up to the grid.
    assert bounds.lower >= nearest - 2.0 / steps
    assert bounds.upper <= furthest + 2.0 / steps


@st.composite
def counts_and_laws(draw: st.DrawFn, most: int = 9) -> tuple[IntArray, FloatArray]:
    size = draw(st.integers(1, most))
    weights = draw(st.lists(st.integers(1, 5_000), min_size=size, max_size=size))
    counts = draw(st.lists(st.integers(0, 10_000), min_size=size, max_size=size))
    assume(sum(counts) > 0)
    return np.array(counts), np.array(weights) / sum(weights)


@given(counts_and_laws(), st.floats(1e-9, 0.5))
def test_bound_for_many_cells_contains_the_enumerated_interval(
    drawn: tuple[IntArray, FloatArray], alpha: float
) -> None:
    counts, pmf = drawn
    exact = tv_interval(counts, pmf, alpha)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(region, "_ENUMERATED_CELLS", 0)
        wide = tv_interval(counts, pmf, alpha)
    assert wide.lower <= exact.lower + 1e-12
    assert wide.upper >= exact.upper - 1e-12


@given(counts_and_laws(most=20), st.floats(1e-9, 0.5), st.floats(1e-9, 0.5))
def test_smaller_alpha_gives_a_wider_interval(
    drawn: tuple[IntArray, FloatArray], one: float, other: float
) -> None:
    small = tv_interval(*drawn, min(one, other))
    large = tv_interval(*drawn, max(one, other))
    assert 0.0 <= small.lower <= large.lower + 1e-12
    assert large.lower <= large.upper
    assert large.upper - 1e-12 <= small.upper <= 1.0


@given(counts_and_laws(most=8), st.lists(st.floats(1e-9, 1e-4), max_size=3))
def test_merged_values_cost_at_most_their_mass(
    drawn: tuple[IntArray, FloatArray], tail: list[float]
) -> None:
    counts, pmf = drawn
    counts = np.append(counts, np.zeros(len(tail), dtype=np.int64))
    pmf = np.append(pmf, tail) / (1.0 + sum(tail))
    merged = tv_interval(counts, pmf, 1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(region, "MERGED_MASS", 0.0)
        apart = tv_interval(counts, pmf, 1e-6)
    assert merged.upper <= apart.upper + MERGED_MASS + 1e-12


def test_no_draws_bound_nothing() -> None:
    assert tv_interval(np.zeros(3, dtype=np.int64), np.full(3, 1 / 3), 0.1) == TVInterval(0.0, 1.0)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.0, math.nan])
def test_alpha_outside_its_range_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 1\)"):
        tv_interval(np.array([1, 1]), np.array([0.5, 0.5]), alpha)


@pytest.mark.parametrize(
    ("law", "draws", "upper"),
    [
        (AcceptanceDistribution.match_expected(4.7, 8), 1_000_000, 0.01),
        (AcceptanceDistribution.multinomial(4.7, 8), 1_000_000, 0.02),
        (AcceptanceDistribution(np.full(16, 1 / 16)), 1_000_000, 0.01),
    ],
    ids=["two", "eight", "sixteen"],
)
def test_the_region_shrinks_onto_the_law_that_is_drawn_from(
    law: AcceptanceDistribution, draws: int, upper: float
) -> None:
    expected = np.rint(draws * law.pmf).astype(np.int64)
    bounds = tv_interval(expected[law.pmf > 0], law.pmf[law.pmf > 0], 1e-8)
    assert bounds.lower == 0.0
    assert bounds.upper < upper


def probability_of_ever_excluding(
    p0: FloatArray, reached: float, tolerance: float, alpha: float, draws: int
) -> float:
    """Return the largest chance of an exclusion that any law of the next draw can reach.

    The law may be chosen anew before each draw, with knowledge of the past, within total
    variation `reached` of p0 = (p, 1 − p): its extremes decide. Exact backward induction over
    the transitions seen, for two values.
    """
    shares = (p0[1] - reached, p0[1] + reached)

    @cache
    def excluded(pairs: tuple[int, int, int, int]) -> bool:
        return rows_exclude(np.array(pairs).reshape(2, 2), p0, tolerance, alpha)

    @cache
    def value(last: int, pairs: tuple[int, int, int, int]) -> float:
        if excluded(pairs):
            return 1.0
        if sum(pairs) == draws:
            return 0.0
        after = []
        for cell in (0, 1):
            code = 2 * last + cell
            after.append(value(cell, (*pairs[:code], pairs[code] + 1, *pairs[code + 1 :])))
        return float(max(share * after[1] + (1.0 - share) * after[0] for share in shares))

    return max(value(first, (0, 0, 0, 0)) for first in (0, 1))


def test_exclusion_by_rows_keeps_its_error_against_an_adversary_within_the_tolerance() -> None:
    p0 = np.array([0.5, 0.5])
    worst = probability_of_ever_excluding(p0, 0.05, 0.05, 0.4, 14)
    assert 0.0 < worst <= 0.4


def test_the_same_induction_shows_an_adversary_beyond_the_tolerance() -> None:
    """The twin: the bound has to break for laws that go further than what is tolerated."""
    p0 = np.array([0.5, 0.5])
    assert probability_of_ever_excluding(p0, 0.45, 0.05, 0.4, 14) > 0.4


def sticky(draws: int, stay: float) -> IntArray:
    """Return draws over 1 and 2, each with probability ½, that repeat the last one at times."""
    rng = np.random.default_rng()
    changes = rng.random(draws) >= stay
    return np.cumsum(changes) % 2 + 1


def test_exclusion_by_rows_sees_a_chain_that_repeats_itself() -> None:
    """Missed with probability below 1e-12.

    In a row of 4,000 draws a share of 0.561 is beyond 0.51 at this error rate; the chain's share
    is 0.6 ± 0.0077, five standard deviations above, and both rows would have to fall short.
    """
    test = SequentialTest([0.5, 0.5], 0.5)
    test.update(sticky(8_000, 0.6))
    assert rows_exclude(test.pairs, test.pmf, 0.01, 1e-6)


def test_exclusion_by_rows_tolerates_a_chain_within_the_tolerance() -> None:
    """False-alarm rate: 1e-6 by the theorem above."""
    test = SequentialTest([0.5, 0.5], 0.5)
    test.update(sticky(8_000, 0.505))
    assert not rows_exclude(test.pairs, test.pmf, 0.01, 1e-6)
