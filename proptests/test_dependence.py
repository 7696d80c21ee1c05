"""Dependence on earlier draws: the counts behind the bets, and the faults that each part sees."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim import AcceptanceDistribution
from specsim.evidence.dependence import LagCounts, LagMixture
from specsim.evidence.law import FloatArray, IntArray
from specsim.evidence.sequential import SHARES, SequentialTest

ALPHA = 1e-6
TWO = AcceptanceDistribution.match_expected(4.7, 8)
EIGHT = AcceptanceDistribution.multinomial(4.7, 8)


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_agreements_and_costs_are_those_of_a_plain_count(cells: list[int], cuts: list[int]) -> None:
    counts = LagCounts(window=50, max_lag=20)
    for block in np.split(np.array(cells, dtype=np.int64), sorted(cuts)):
        counts.update(block)
    window = cells[:50]
    costs = np.array([[0.5, 1.0, 2.0, 4.0], [-3.0, 0.0, 1.0, 7.0]])
    spent = counts.spent(costs)
    assert counts.draws == len(window)
    for lag in range(1, 21):
        pairs = list(zip(window[lag:], window, strict=False))
        assert counts.agreements[lag - 1] == sum(now == before for now, before in pairs)
        before = [before for _, before in pairs]
        assert spent[:, lag - 1] == pytest.approx(costs[:, before].sum(axis=1), abs=1e-9)


def test_lag_weights_are_an_average_and_costs_normalise_each_factor() -> None:
    law = np.array([0.2, 0.3, 0.5])
    bets = LagMixture(law)
    assert np.exp(bets.log_weights).sum() * bets.sizes.size == pytest.approx(1.0)
    factors = np.exp(bets.sizes[:, None, None] * np.eye(3) - bets.costs[:, None, :])
    assert np.einsum("x,txy->ty", law, factors) == pytest.approx(np.ones((bets.sizes.size, 3)))


Fault = Callable[[AcceptanceDistribution, int, np.random.Generator], IntArray]


def inverse(law: AcceptanceDistribution, uniform: FloatArray) -> IntArray:
    return np.asarray(np.searchsorted(np.cumsum(law.pmf)[:-1], uniform, side="right") + 1)


def independent(law: AcceptanceDistribution, draws: int, rng: np.random.Generator) -> IntArray:
    return inverse(law, rng.random(draws))


def frozen(law: AcceptanceDistribution, draws: int, rng: np.random.Generator) -> IntArray:
    return np.full(draws, 5)


def swapped(law: AcceptanceDistribution, draws: int, rng: np.random.Generator) -> IntArray:
    return np.asarray(9 - independent(law, draws, rng))


def narrow(law: AcceptanceDistribution, draws: int, rng: np.random.Generator) -> IntArray:
    return np.clip(np.rint(rng.normal(4.7, 0.8, draws)), 1, 8).astype(np.int64)


def error_diffused(law: AcceptanceDistribution, draws: int, rng: np.random.Generator) -> IntArray:
    sums = np.floor(np.arange(draws + 1) * law.mean + rng.random())
    return np.asarray(np.diff(sums), dtype=np.int64)


def antithetic(size: int) -> Fault:
    def fault(law: AcceptanceDistribution, draws: int, rng: np.random.Generator) -> IntArray:
        fresh = rng.random((-(-draws // (2 * size)), size))
        return inverse(law, np.stack([fresh, 1.0 - fresh], axis=1).ravel()[:draws])

    return fault


def pool(size: int) -> Fault:
    def fault(law: AcceptanceDistribution, draws: int, rng: np.random.Generator) -> IntArray:
        return np.resize(independent(law, size, rng), draws)

    return fault


def held(steps: int) -> Fault:
    def fault(law: AcceptanceDistribution, draws: int, rng: np.random.Generator) -> IntArray:
        return np.repeat(independent(law, -(-draws // steps), rng), steps)[:draws]

    return fault


class Case(NamedTuple):
    part: str
    law: AcceptanceDistribution
    draws: int
    fault: Fault


# Each is missed with probability below 1e-9: at these numbers of draws the part's evidence lies
# more than six standard deviations (of 200 streams each) above what a rejection at 1e-6 takes.
CASES = {
    "frozen": Case("marginal", TWO, 80, frozen),
    "swapped": Case("marginal", TWO, 400, swapped),
    "narrow": Case("marginal", EIGHT, 5_000, narrow),
    "antithetic pairs": Case("transitions", TWO, 5_000, antithetic(1)),
    "antithetic pairs, eight lengths": Case("transitions", EIGHT, 2_000, antithetic(1)),
    "error-diffused": Case("transitions", TWO, 400, error_diffused),
    "held for 2": Case("transitions", TWO, 800, held(2)),
    "held for 2, by agreement": Case("lags", TWO, 800, held(2)),
    "held for 40": Case("lags", EIGHT, 2_000, held(40)),
    "paired at lag 2": Case("lags", TWO, 8_000, antithetic(2)),
    "paired at lag 2, eight lengths": Case("lags", EIGHT, 20_000, antithetic(2)),
    "antithetic blocks of 64": Case("lags", TWO, 8_000, antithetic(64)),
    "antithetic blocks of 64, eight lengths": Case("lags", EIGHT, 20_000, antithetic(64)),
    "pool of 64": Case("lags", TWO, 2_000, pool(64)),
    "pool of 1,000": Case("lags", EIGHT, 20_000, pool(1_000)),
}


@pytest.mark.parametrize("name", CASES)
def test_each_part_catches_its_fault(name: str) -> None:
    case = CASES[name]
    test = SequentialTest(case.law, ALPHA)
    test.update(case.fault(case.law, case.draws, np.random.default_rng()))
    assert test.rejected_by(case.part)
    assert test.rejected


@pytest.mark.parametrize("law", [TWO, EIGHT], ids=["two", "eight"])
def test_no_part_rejects_independent_draws(law: AcceptanceDistribution) -> None:
    """False-alarm rate: at most 1e-6, by Ville's inequality for the whole average."""
    test = SequentialTest(law, ALPHA)
    for block in np.split(independent(law, 22_000, np.random.default_rng()), 100):
        test.update(block)
    assert not test.rejected
    assert not any(test.rejected_by(part) for part in SHARES)


def test_blocks_and_pools_are_invisible_to_the_other_parts() -> None:
    """What the lags are for; false-alarm rate below 1e-6 (antithetic draws have the exact law)."""
    test = SequentialTest(TWO, ALPHA)
    test.update(antithetic(64)(TWO, 20_000, np.random.default_rng()))
    assert test.rejected_by("lags")
    assert not test.rejected_by("transitions")
    assert not test.rejected_by("marginal")


def test_the_strongest_lag_is_that_of_the_fault() -> None:
    """Missed below 1e-9: the pool's lag gains about a nat a draw more than any other."""
    test = SequentialTest(EIGHT, ALPHA)
    test.update(pool(37)(EIGHT, 5_000, np.random.default_rng()))
    lag, share, expected = test.strongest_lag()
    assert lag % 37 == 0
    assert share == 1.0
    assert expected == pytest.approx(float(EIGHT.pmf @ EIGHT.pmf))


def test_a_part_at_its_share_rejects_only_what_the_whole_test_rejects() -> None:
    test = SequentialTest(TWO, 0.05)
    rng = np.random.default_rng()
    for length in held(3)(TWO, 60, rng):
        test.update([int(length)])
        assert test.rejected or not any(test.rejected_by(part) for part in SHARES)
    top = max(math.log(SHARES[part]) + test.part(part) for part in SHARES)
    assert top <= test.log_e
