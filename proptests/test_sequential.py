"""The sequential test: its theorem by exact enumeration, its bookkeeping, its false alarms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from specsim import AcceptanceDistribution
from specsim.evidence.law import FloatArray, IntArray, Law, as_pmf
from specsim.evidence.marginal import MarginalMixture, tilt_directions
from specsim.evidence.sequential import SHARES, SequentialTest, log_e_path

# Every sequence of each law up to this length is enumerated.
TREES = {
    (0.3, 0.7): 9,
    (0.02, 0.98): 7,
    (0.2, 0.3, 0.5): 5,
    (0.6, 0.0, 0.01, 0.39): 5,
    (0.0, 1.0): 4,
}

Value = Callable[[SequentialTest], float]
VALUES: dict[str, Value] = {
    "average": lambda test: test.log_e,
    "marginal": lambda test: test.part("marginal"),
    "transitions": lambda test: test.part("transitions"),
    "lags": lambda test: test.part("lags"),
}


def sequences(size: int, length: int) -> IntArray:
    """Return all sequences of cell numbers, shape (size**length, length), last draw fastest."""
    return np.arange(size**length)[:, None] // size ** np.arange(length)[::-1] % size


def levels(
    law: Law, depth: int, prepare: Callable[[SequentialTest], None] = lambda test: None
) -> dict[str, list[FloatArray]]:
    """Return the e-values of all sequences over the support, by part and length."""
    support = np.flatnonzero(as_pmf(law)) + 1
    found: dict[str, list[FloatArray]] = {name: [] for name in VALUES}
    for length in range(depth + 1):
        tests = []
        for sequence in support[sequences(support.size, length)]:
            test = SequentialTest(law, 0.5)
            prepare(test)
            test.update(sequence)
            tests.append(test)
        for name, value in VALUES.items():
            found[name].append(np.exp([value(test) for test in tests]))
    return found


@cache
def tree_of(law: tuple[float, ...]) -> dict[str, list[FloatArray]]:
    return levels(law, TREES[law])


def expectation(law: FloatArray, values: FloatArray) -> float:
    """Return the mean of a function of a sequence, given as one level of a tree."""
    while values.size > 1:
        values = values.reshape(-1, law.size) @ law
    return float(values[0])


def envelope(law: FloatArray, tree: list[FloatArray], better: Callable[..., FloatArray]) -> float:
    """Return the largest (or smallest) expectation over all stopping rules, looking ahead or not.

    Backward induction: at every sequence the rule takes the better of stopping and going on.
    """
    ahead = tree[-1]
    for level in reversed(tree[:-1]):
        ahead = better(level, ahead.reshape(-1, law.size) @ law)
    return float(ahead[0])


@pytest.mark.parametrize("law", TREES)
def test_expectation_is_one_for_every_length_and_every_stopping_rule(
    law: tuple[float, ...],
) -> None:
    support = np.array([p for p in law if p])
    for name, tree in tree_of(law).items():
        for level in tree:
            assert expectation(support, level) == pytest.approx(1.0, abs=1e-10), name
        for better in (np.maximum, np.minimum):
            assert envelope(support, tree, better) == pytest.approx(1.0, abs=1e-10), name


def test_enumeration_shows_a_factor_that_is_not_normalised() -> None:
    """Betting on agreement against Σ p² isn't a martingale, however close its marginal mean is."""

    def bet_against_sum_of_squares(test: SequentialTest) -> None:
        rate = float(test.pmf @ test.pmf)
        test._lags.costs = np.log1p(rate * np.expm1(test._lags.sizes))[:, None].repeat(2, axis=1)

    law = np.array([0.3, 0.7])
    found = levels(law, 8, bet_against_sum_of_squares)
    assert expectation(law, found["lags"][2]) == pytest.approx(1.0, abs=1e-10)
    assert expectation(law, found["lags"][8]) > 1.01
    assert expectation(law, found["average"][8]) > 1.001
    assert expectation(law, found["marginal"][8]) == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("alpha", [0.3, 0.05])
@pytest.mark.parametrize("law", [(0.3, 0.7), (0.2, 0.3, 0.5)])
def test_exact_probability_of_ever_rejecting_is_at_most_alpha(
    law: tuple[float, ...], alpha: float
) -> None:
    p0 = np.array(law)
    tree = tree_of(law)["average"]
    ever = envelope(p0, [(level >= 1 / alpha).astype(float) for level in tree], np.maximum)
    assert 0.0 < ever <= alpha


def worst_case(law: FloatArray, tolerance: float, tree: list[FloatArray]) -> float:
    """Return the largest expectation over laws that an adversary picks anew before every draw.

    The expectation is linear in the law, so the extreme points of the ball decide: p0 with
    `tolerance` moved from one value to another (all of p0 is larger than `tolerance`).
    """
    size = law.size
    moves = [np.eye(size)[x] - np.eye(size)[y] for x in range(size) for y in range(size)]
    extremes = law + tolerance * np.stack(moves)
    assert extremes.min() >= 0
    ahead = tree[-1]
    for _ in tree[:-1]:
        ahead = (ahead.reshape(-1, size) @ extremes.T).max(axis=1)
    return float(ahead[0])


@pytest.mark.parametrize(("law", "tolerance"), [((0.3, 0.7), 0.05), ((0.2, 0.3, 0.5), 0.1)])
def test_lags_with_a_tolerance_are_a_supermartingale_for_all_laws_within_it(
    law: tuple[float, ...], tolerance: float
) -> None:
    p0 = np.array(law)
    depth = 8 if p0.size == 2 else 5

    def tree(applied: float) -> list[FloatArray]:
        found = []
        for length in range(depth + 1):
            tests = [SequentialTest(law, 0.5) for _ in range(p0.size**length)]
            for test, sequence in zip(tests, sequences(p0.size, length) + 1, strict=True):
                test.update(sequence)
            found.append(np.exp([test.lag_log_e(applied) for test in tests]))
        return found

    assert worst_case(p0, tolerance, tree(tolerance)) <= 1.0 + 1e-10
    assert worst_case(p0, tolerance, tree(0.0)) > 1.001


def stream(length: int) -> IntArray:
    """Return a stream over 2, 4 and 5 with runs and repeats, so that no part stays near 0."""
    rng = np.random.default_rng(length)
    fresh = rng.choice([2, 4, 5], size=length, p=[0.1, 0.3, 0.6])
    fresh[length // 3 : length // 2] = np.repeat(fresh[: length // 12 + 1], 2)[
        : length // 2 - length // 3
    ]
    return np.asarray(fresh, dtype=np.int64)


STREAM_LAW = (0.0, 0.1, 0.0, 0.3, 0.6, 0.0)


def assert_same_evidence(one: SequentialTest, other: SequentialTest) -> None:
    assert one.log_e == pytest.approx(other.log_e, rel=1e-12, abs=1e-9)
    for name in SHARES:
        assert one.part(name) == pytest.approx(other.part(name), rel=1e-12, abs=1e-9)
    assert np.array_equal(one.counts, other.counts)
    assert np.array_equal(one.pairs, other.pairs)
    assert one.draws == other.draws
    assert one.tv_interval() == other.tv_interval()


@given(st.lists(st.one_of(st.integers(0, 20_300), st.integers(19_800, 20_200)), max_size=12))
def test_blocks_do_not_matter(cuts: list[int]) -> None:
    lengths = stream(20_300)
    whole, parts = SequentialTest(STREAM_LAW, 1e-3), SequentialTest(STREAM_LAW, 1e-3)
    whole.update(lengths)
    for block in np.split(lengths, sorted(cuts)):
        parts.update(block)
    assert_same_evidence(whole, parts)


def test_blocks_of_one_draw_across_the_end_of_the_lag_window() -> None:
    lengths = stream(20_300)
    whole, parts = SequentialTest(STREAM_LAW, 1e-3), SequentialTest(STREAM_LAW, 1e-3)
    whole.update(lengths)
    parts.update(lengths[:19_950])
    for length in lengths[19_950:20_050]:
        parts.update([int(length)])
    lags_in_window = parts.part("lags")
    parts.update(lengths[20_050:])
    assert_same_evidence(whole, parts)
    assert parts.part("lags") == lags_in_window


laws = (
    st.lists(st.integers(0, 20), min_size=1, max_size=5)
    .filter(any)
    .map(lambda weights: np.array(weights) / sum(weights))
)


@st.composite
def laws_and_draws(draw: st.DrawFn, most: int = 150) -> tuple[FloatArray, list[int]]:
    law = draw(laws)
    support = [int(k) for k in np.flatnonzero(law) + 1]
    return law, draw(st.lists(st.sampled_from(support), min_size=1, max_size=most))


@given(laws_and_draws(), st.data())
def test_path_equals_update_by_update(
    drawn: tuple[FloatArray, list[int]], data: st.DataObject
) -> None:
    law, lengths = drawn
    looks = sorted(data.draw(st.sets(st.integers(1, len(lengths)), min_size=1)))
    test = SequentialTest(law, 0.5)
    expected = []
    for start, stop in zip([0, *looks[:-1]], looks, strict=True):
        test.update(lengths[start:stop])
        expected.append(test.log_e)
    assert log_e_path(law, lengths, looks) == pytest.approx(expected, rel=1e-11, abs=1e-9)


def test_path_after_every_draw_and_beyond_the_lag_window() -> None:
    lengths = stream(20_300)
    looks = [*range(1, 1_100), 2_000, 15_000, *range(19_960, 20_040), 20_300]
    test = SequentialTest(STREAM_LAW, 0.5)
    path, start = log_e_path(STREAM_LAW, lengths, looks), 0
    for look, value in zip(looks, path, strict=True):
        test.update(lengths[start:look])
        start = look
        assert value == pytest.approx(test.log_e, rel=1e-11, abs=1e-9)
    assert log_e_path(STREAM_LAW, lengths[:50]) == pytest.approx(path[:50], abs=1e-9)


def test_path_of_no_looks_is_empty() -> None:
    assert log_e_path([0.5, 0.5], [1, 2], []).size == 0
    assert log_e_path([0.5, 0.5], []).size == 0


@pytest.mark.parametrize("looks", [[0], [3], [1, 1], [2, 1]])
def test_path_refuses_looks_that_do_not_increase_within_the_stream(looks: list[int]) -> None:
    with pytest.raises(ValueError, match=r"looks must increase within \[1, 2\]"):
        log_e_path([0.5, 0.5], [1, 2], looks)


def test_path_refuses_a_length_outside_the_support() -> None:
    with pytest.raises(ValueError, match="support, got 3"):
        log_e_path([0.5, 0.5], [1, 3, 2])


@given(laws_and_draws(), st.randoms(use_true_random=False))
def test_order_matters_through_transitions_and_lags_only(
    drawn: tuple[FloatArray, list[int]], random: object
) -> None:
    law, lengths = drawn
    shuffled = list(lengths)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = SequentialTest(law, 0.5), SequentialTest(law, 0.5)
    one.update(lengths)
    other.update(shuffled)
    assert one.part("marginal") == pytest.approx(other.part("marginal"), abs=1e-9)
    assert np.array_equal(one.counts, other.counts)
    for test in (one, other):
        average = sum(share * math.exp(test.part(name)) for name, share in SHARES.items())
        assert test.log_e == pytest.approx(math.log(average), abs=1e-9)


def test_order_does_matter() -> None:
    one, other = SequentialTest([0.5, 0.5], 1e-6), SequentialTest([0.5, 0.5], 1e-6)
    one.update([1, 2] * 100)
    other.update([1] * 100 + [2] * 100)
    for part in ("transitions", "lags"):
        assert one.part(part) > 15
        assert other.part(part) > 15
        assert one.part(part) != pytest.approx(other.part(part))
    assert one.part("marginal") < 0


@given(laws_and_draws())
def test_counts_and_pairs_are_those_of_the_stream(drawn: tuple[FloatArray, list[int]]) -> None:
    law, lengths = drawn
    test = SequentialTest(law, 0.5)
    test.update(lengths)
    assert test.draws == len(lengths)
    assert test.counts.tolist() == [lengths.count(k + 1) for k in range(law.size)]
    pairs = np.zeros((law.size, law.size), dtype=int)
    for earlier, later in pairwise(lengths):
        pairs[earlier - 1, later - 1] += 1
    assert np.array_equal(test.pairs, pairs)


STRAYS = (0, -1, 2, 4, 1_000, 2**31, 2**63 - 1, 2**64, -(2**63), -(2**200))


@given(st.lists(st.sampled_from([1, 3]), max_size=40), st.sampled_from(STRAYS), st.data())
def test_a_stray_value_rejects_before_anything_is_counted(
    lengths: list[int], stray: int, data: st.DataObject
) -> None:
    test = SequentialTest([0.4, 0.0, 0.6], 1e-9)
    test.update([1, 3, 3])
    at = data.draw(st.integers(0, len(lengths)))
    test.update([*lengths[:at], stray, *lengths[at:], 7])
    bounds = np.iinfo(np.int64)
    assert test.out_of_support == min(max(stray, bounds.min), bounds.max)
    assert test.rejected
    assert test.log_e == math.inf
    assert test.region_tv == 1.0
    assert test.counts.tolist() == [1, 0, 2]
    test.update(lengths)
    assert test.draws == 3
    assert test.rejected


def test_a_stray_value_is_found_far_into_a_large_block() -> None:
    test = SequentialTest([0.4, 0.0, 0.6], 0.5)
    lengths = np.full(200_000, 3)
    lengths[150_000], lengths[170_000] = 2, -5
    test.update(lengths)
    assert test.out_of_support == 2
    assert test.draws == 0


@pytest.mark.parametrize(
    "lengths",
    [
        [True, False],
        [1, True],
        [1.0, 2.0],
        [1, 2.0],
        ["1"],
        [None],
        [[1, 2], [2, 1]],
        [[1], [1, 2]],
        np.array([True, False]),
        np.array([1.0]),
        np.array([[1, 2]]),
        np.array(1),
        np.array([1, 2], dtype=object),
    ],
    ids=repr,
)
def test_what_is_no_sequence_of_integers_is_refused(lengths: object) -> None:
    test = SequentialTest([0.5, 0.5], 0.5)
    with pytest.raises(TypeError, match="lengths must be"):
        test.update(lengths)  # type: ignore[arg-type]
    assert test.draws == 0


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "uint32", "int64", "uint64"])
def test_integer_arrays_and_lists_are_alike(dtype: str) -> None:
    lengths = [1, 2, 2, 1, 2]
    one, other = SequentialTest([0.5, 0.5], 0.5), SequentialTest([0.5, 0.5], 0.5)
    one.update(lengths)
    for same in (
        np.array(lengths, dtype=dtype),
        np.array([*lengths, *lengths], dtype=dtype).reshape(2, 5)[1],
        np.array([x for k in lengths for x in (k, 9)], dtype=dtype)[::2],
        tuple(np.array(lengths, dtype=dtype)),
    ):
        other = SequentialTest([0.5, 0.5], 0.5)
        other.update(same)
        assert_same_evidence(one, other)


@pytest.mark.parametrize("empty", [[], (), np.empty(0, dtype=np.int64), np.empty(0)], ids=repr)
def test_an_empty_block_changes_nothing(empty: Sequence[int] | NDArray[np.int64]) -> None:
    test = SequentialTest([0.5, 0.5], 0.5)
    test.update(empty)
    assert (test.draws, test.rejected, test.region_tv) == (0, False, 1.0)
    assert test.log_e == pytest.approx(0.0, abs=1e-12)
    test.update([1, 2])
    before = test.log_e
    test.update(empty)
    assert (test.draws, test.log_e) == (2, before)


def test_a_rejection_is_final() -> None:
    test = SequentialTest([0.5, 0.5], 1e-3)
    test.update([1] * 30)
    assert test.rejected
    assert test.rejected_by("marginal")
    rng = np.random.default_rng()
    test.update(rng.integers(1, 3, 100_000))
    assert test.part("marginal") < 0
    assert test.rejected
    assert test.rejected_by("marginal")


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 2.0, math.nan, math.inf])
def test_alpha_outside_its_range_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 1\)"):
        SequentialTest([0.5, 0.5], alpha)
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 1\)"):
        SequentialTest([0.5, 0.5], 0.5).tv_interval(alpha)


@pytest.mark.parametrize(
    "law", [[], [[0.5, 0.5]], [0.5, 0.6], [-0.1, 1.1], [math.nan, 1.0], [0.0, 0.0]], ids=repr
)
def test_what_is_no_law_is_refused(law: list[float]) -> None:
    with pytest.raises(ValueError, match="p0 must"):
        SequentialTest(law, 0.5)


def test_a_point_mass_leaves_nothing_to_bet_on() -> None:
    test = SequentialTest(AcceptanceDistribution.match_expected(4.0, 8), 1e-6)
    test.update([4] * 100_000)
    assert test.log_e == pytest.approx(0.0, abs=1e-12)
    assert test.region_tv < 1e-3
    test.update([5])
    assert test.out_of_support == 5


@pytest.mark.parametrize(
    "law",
    [
        AcceptanceDistribution.multinomial(4.7, 64),
        AcceptanceDistribution.multinomial(-30.0, 64),
        AcceptanceDistribution.from_rates([1e-310]),
        AcceptanceDistribution([5e-324, 0.5, 0.5]),
    ],
    ids=repr,
)
def test_probabilities_near_the_smallest_float_are_no_trouble(law: AcceptanceDistribution) -> None:
    """Warnings are errors here: nothing overflows, and what is drawn rarely is strong evidence."""
    test = SequentialTest(law, 1e-6)
    likely = int(np.argmax(law.pmf)) + 1
    test.update([likely] * 20)
    assert math.isfinite(test.log_e)
    rarest = int(law.support[np.argmin(law.pmf[np.array(law.support) - 1])])
    test.update([rarest])
    assert 100.0 < test.log_e < math.inf
    path = log_e_path(law, [likely] * 20 + [rarest])
    assert path[-1] == pytest.approx(test.log_e, rel=1e-9)


@given(laws)
def test_tilts_are_standardised_and_weights_an_average(law: FloatArray) -> None:
    pmf = law[law > 0]
    directions = tilt_directions(pmf)
    assert len(directions) == {1: 0, 2: 1}.get(pmf.size, 7)
    assert directions @ pmf == pytest.approx(np.zeros(len(directions)), abs=1e-9)
    assert directions**2 @ pmf == pytest.approx(np.ones(len(directions)))
    assert np.exp(MarginalMixture(pmf).log_e(np.zeros_like(pmf, dtype=np.int64))) == pytest.approx(
        1.0
    )


VARIED = [
    AcceptanceDistribution.match_expected(4.7, 8).pmf,
    AcceptanceDistribution.match_expected(1.02, 2).pmf,
    AcceptanceDistribution.multinomial(2.4, 4).pmf,
    AcceptanceDistribution.multinomial(7.6, 8).pmf,
    np.full(16, 1 / 16),
]


def share_rejected(
    streams: int, alpha: float, path: Callable[[FloatArray, IntArray], FloatArray]
) -> tuple[int, int]:
    """Return the rejected streams, and a number that a test at `alpha` reaches once in a million.

    Each stream has 400 draws from one of the varied laws and is looked at after every draw.
    """
    rng = np.random.default_rng()
    rejected = 0
    for number in range(streams):
        law = VARIED[number % len(VARIED)]
        lengths = rng.choice(law.size, size=400, p=law) + 1
        rejected += bool(path(law, lengths).max() >= -math.log(alpha))
    return rejected, int(binom.isf(1e-6, streams, alpha)) + 1


def test_false_alarms_under_optional_stopping() -> None:
    """False-alarm rate of this test: below 1e-6 (exact binomial tail at the nominal alpha)."""
    rejected, limit = share_rejected(120, 0.05, log_e_path)
    assert rejected < limit


def test_false_alarms_of_a_test_that_is_no_martingale() -> None:
    """The twin: evidence that grows by 2 % a draw on average has to break the same limit.

    Its median stream ends at e^8 · e^(-few), past 1/alpha = e^3; missed far below once in 1e6.
    """

    def inflated(law: FloatArray, lengths: IntArray) -> FloatArray:
        return log_e_path(law, lengths) + 0.02 * np.arange(1, lengths.size + 1)

    rejected, limit = share_rejected(120, 0.05, inflated)
    assert rejected >= limit
