"""The two-sample test: a slow twin, normalisation by enumeration, error rate and power."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specsim.acceptance import AcceptanceDistribution
from specsim.evidence.two_sample import TwoSampleTest

Sequences = tuple[tuple[int, ...], tuple[int, ...]]


def slow_wealths(
    old: tuple[int, ...], new: tuple[int, ...], values: int, block: tuple[int, int], peek: bool
) -> list[float]:
    """Return the evidence after every block, one draw at a time, from the definition.

    With `peek`, the planted fault: a block's estimates use the block's own draws.
    """
    wealth = [1.0] * 8
    after = []
    for t in range(len(old) // block[0]):
        parts = (old[t * block[0] : (t + 1) * block[0]], new[t * block[1] : (t + 1) * block[1]])
        seen = t + 1 if peek else t
        n_old = [old[: seen * block[0]].count(v) for v in range(values)]
        n_new = [new[: seen * block[1]].count(v) for v in range(values)]
        total = sum(n_old) + sum(n_new)
        common = [(n_old[v] + n_new[v] + 0.5) / (total + 0.5 * values) for v in range(values)]
        for i in range(8):
            trust = 4.0 ** (i + 1)
            a = [(n_old[v] + trust * common[v]) / (sum(n_old) + trust) for v in range(values)]
            b = [(n_new[v] + trust * common[v]) / (sum(n_new) + trust) for v in range(values)]
            assert sum(a) == pytest.approx(1.0)
            mixed = [
                (block[0] * a[v] + block[1] * b[v]) / (block[0] + block[1]) for v in range(values)
            ]
            for v in parts[0]:
                wealth[i] *= a[v] / mixed[v]
            for v in parts[1]:
                wealth[i] *= b[v] / mixed[v]
        after.append(math.fsum(wealth) / 8)
    return after


def pairs(values: int, n_old: int, n_new: int) -> list[Sequences]:
    return [
        (old, new)
        for old in itertools.product(range(values), repeat=n_old)
        for new in itertools.product(range(values), repeat=n_new)
    ]


@given(st.data(), st.sampled_from([(1, 1), (2, 1), (1, 3)]), st.integers(2, 4))
def test_log_e_matches_the_definition(
    data: st.DataObject, block: tuple[int, int], values: int
) -> None:
    blocks = data.draw(st.integers(1, 12))
    draws = [
        tuple(
            data.draw(
                st.lists(st.integers(0, values - 1), min_size=m * blocks, max_size=m * blocks)
            )
        )
        for m in block
    ]
    expected = slow_wealths(draws[0], draws[1], values, block, peek=False)
    test = TwoSampleTest(range(values), 0.3, block=block)
    test.update(draws[0], draws[1])
    assert test.log_e == pytest.approx(math.log(expected[-1]), abs=1e-10)
    assert test.draws == (len(draws[0]), len(draws[1]))
    assert test.rejected == (max(expected) >= 1 / 0.3)


@pytest.mark.parametrize(
    ("values", "block", "blocks"), [(2, (1, 1), 5), (3, (1, 1), 3), (2, (2, 1), 3)]
)
@pytest.mark.parametrize("first", [0.02, 0.3, 0.5, 0.9])
def test_the_evidence_has_mean_at_most_one_under_any_common_law(
    values: int, block: tuple[int, int], blocks: int, first: float
) -> None:
    law = [first, *[(1 - first) / (values - 1)] * (values - 1)]
    at_end, stopped, peeking, different = [], [], [], []
    other = law[::-1]
    for old, new in pairs(values, blocks * block[0], blocks * block[1]):
        mass = math.prod(law[v] for v in (*old, *new))
        wealths = slow_wealths(old, new, values, block, peek=False)
        at_end.append(mass * wealths[-1])
        stopped.append(mass * next((w for w in wealths if w >= 1.02), wealths[-1]))
        peeking.append(mass * slow_wealths(old, new, values, block, peek=True)[-1])
        unlike = math.prod(law[v] for v in old) * math.prod(other[v] for v in new)
        different.append(unlike * wealths[-1])
    assert math.fsum(at_end) <= 1 + 1e-12
    assert math.fsum(stopped) <= 1 + 1e-12
    # The twins: estimates that see the block's own draws, and two laws in place of one.
    assert math.fsum(peeking) > 1 + 1e-3
    if first in (0.02, 0.9):
        assert math.fsum(different) > 1 + 1e-3


@given(st.data())
def test_cutting_the_streams_does_not_matter(data: st.DataObject) -> None:
    old = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=40))
    new = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=40))
    whole = TwoSampleTest(range(1, 5), 0.05, block=(2, 1))
    whole.update(old, new)
    parts = TwoSampleTest(range(1, 5), 0.05, block=(2, 1))
    i = j = 0
    while i < len(old) or j < len(new):
        di, dj = data.draw(st.integers(0, 9)), data.draw(st.integers(1, 9))
        parts.update(old[i : i + di], new[j : j + dj])
        i, j = i + di, j + dj
        if j >= len(new):
            parts.update(old[i:], [])
            break
    assert parts.draws == whole.draws
    assert parts.draws[0] == 2 * min(len(old) // 2, len(new))
    assert parts.log_e == pytest.approx(whole.log_e, abs=1e-9)
    assert parts.rejected == whole.rejected


def test_a_long_block_is_the_same_as_many_short_ones() -> None:
    rng = np.random.default_rng(30)
    old, new = rng.integers(1, 9, 10_000), rng.integers(1, 9, 10_000)
    whole, parts = TwoSampleTest(range(1, 9), 0.05), TwoSampleTest(range(1, 9), 0.05)
    whole.update(old, new)
    for start in range(0, 10_000, 97):
        parts.update(old[start : start + 97], new[start : start + 97])
    assert parts.log_e == pytest.approx(whole.log_e, abs=1e-9)


def share_rejected(
    p: AcceptanceDistribution, q: AcceptanceDistribution, streams: int, draws: int, alpha: float
) -> int:
    rng = np.random.default_rng(31)
    count = 0
    for _ in range(streams):
        test = TwoSampleTest(range(1, p.max_len + 1), alpha)
        test.update(
            rng.choice(p.max_len, draws, p=p.pmf) + 1, rng.choice(q.max_len, draws, p=q.pmf) + 1
        )
        count += test.rejected
    return count


@pytest.mark.parametrize(
    "law", [AcceptanceDistribution.match_expected(4.7, 8), AcceptanceDistribution.multinomial(3, 8)]
)
def test_equal_laws_are_rejected_at_most_at_alpha_at_any_look(law: AcceptanceDistribution) -> None:
    # `rejected` looks after every block. At most a share 0.2 may be rejected; false-alarm rate
    # of this assertion below 1e-6.
    most = int(stats.binom.isf(1e-6, 400, 0.2))
    assert share_rejected(law, law, 400, 400, 0.2) <= most


def test_a_changed_law_is_found() -> None:
    # The twin. Known laws would need 59 pairs at 1e-6 for the first and 49 for the second.
    old = AcceptanceDistribution.match_expected(4.7, 8)
    for new in (
        AcceptanceDistribution.match_expected(5, 8),
        AcceptanceDistribution.multinomial(4.7, 8),
    ):
        assert share_rejected(old, new, 30, 200, 1e-6) == 30


def test_a_rejection_is_final() -> None:
    test = TwoSampleTest([1, 2], 0.05)
    test.update([1] * 60, [2] * 60)
    assert test.rejected
    for _ in range(100):
        test.update([1, 2] * 20, [2, 1] * 20)
    assert test.log_e < math.log(20)
    assert test.rejected
    at_once = TwoSampleTest([1, 2], 0.05)
    at_once.update([1] * 60 + [1, 2] * 2000, [2] * 60 + [2, 1] * 2000)
    assert at_once.log_e == pytest.approx(test.log_e, abs=1e-9)
    assert at_once.rejected


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ([1, 9], [1, 2], ValueError, r"old must hold draws among \[1, 2, 3\], got 9"),
        ([1, 2], [0, 2], ValueError, r"new must hold draws among \[1, 2, 3\], got 0"),
        ([1.0, 2.0], [1, 2], TypeError, "old must be a one-dimensional sequence of integers"),
        ([1, 2], [[1, 2]], TypeError, "new must be a one-dimensional sequence of integers"),
        ([True], [1], TypeError, "old must be a one-dimensional sequence of integers"),
    ],
)
def test_bad_draws_are_named_and_nothing_is_added(
    old: Any, new: Any, error: type[Exception], message: str
) -> None:
    test = TwoSampleTest([3, 1, 2], 0.05)
    with pytest.raises(error, match=message):
        test.update(old, new)
    test.update([], [1, 2])
    assert test.draws == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"values": []}, ValueError, "values must hold at least one integer, got none"),
        ({"values": [1, 1]}, ValueError, r"values must be distinct, got \[1, 1\]"),
        ({"values": [1.5]}, TypeError, "values must be a one-dimensional sequence of integers"),
        ({"alpha": 1.0}, ValueError, "alpha must be strictly between 0 and 1, got 1.0"),
        ({"block": (0, 1)}, ValueError, r"block\[0\] must be an integer >= 1, got 0"),
        ({"block": (1, 1.5)}, ValueError, r"block\[1\] must be an integer >= 1, got 1.5"),
        ({"block": (1,)}, ValueError, r"block must be two integers >= 1, got \(1,\)"),
    ],
)
def test_bad_settings_are_named(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        TwoSampleTest(**{"values": [1, 2], "alpha": 0.05, **arguments})
