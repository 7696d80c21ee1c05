"""What a pass on freshness claims: the bounds by enumeration, the claims by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from specsim import AcceptanceDistribution
from specsim.evidence import dependence_power
from specsim.evidence.dependence import LagCounts, LagMixture
from specsim.evidence.dependence_power import DependenceClaims, detectable_dependence
from specsim.evidence.law import FloatArray, IntArray
from specsim.evidence.sequential import SequentialTest

Weighted = Iterator[tuple[float, IntArray]]


def tuples(law: FloatArray, size: int) -> Weighted:
    for cells in product(range(law.size), repeat=size):
        yield float(np.prod(law[list(cells)])), np.array(cells)


def held_streams(law: FloatArray, draws: int, steps: int) -> Weighted:
    for mass, fresh in tuples(law, -(-draws // steps)):
        yield mass, np.repeat(fresh, steps)[:draws]


def pool_streams(law: FloatArray, draws: int, size: int) -> Weighted:
    for mass, fresh in tuples(law, size):
        yield mass, np.resize(fresh, draws)


def antithetic_streams(law: FloatArray, draws: int, size: int) -> Weighted:
    """Enumerate the pieces of [0, 1] on which both a uniform's and its reflection's cells hold."""
    edges = np.cumsum(law)[:-1]
    cuts = np.unique(np.concatenate([[0.0, 1.0], edges, 1.0 - edges]))
    middles, masses = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts)
    first = np.searchsorted(edges, middles)
    second = np.searchsorted(edges, 1.0 - middles)
    for pieces in product(range(middles.size), repeat=-(-draws // (2 * size)) * size):
        index = np.array(pieces).reshape(-1, size)
        cells = np.stack([first[index], second[index]], axis=1).ravel()
        yield float(np.prod(masses[list(pieces)])), cells[:draws]


FAULTS: dict[str, tuple[Callable[[FloatArray, int, int], Weighted], bool]] = {
    "_held": (held_streams, True),
    "_pool": (pool_streams, False),
    "_antithetic": (antithetic_streams, False),
}


@pytest.mark.parametrize("tolerance", [0.0, 0.1])
@pytest.mark.parametrize("draws", [4, 5, 7, 8])
@pytest.mark.parametrize("law", [(0.3, 0.7), (0.2, 0.3, 0.5)], ids=["two", "three"])
@pytest.mark.parametrize("name", FAULTS)
def test_bound_holds_for_every_stream_of_the_fault_together(
    name: str, law: tuple[float, ...], draws: int, tolerance: float
) -> None:
    """E e^(−λS), by the bets' own bookkeeping on each possible stream, is at most the bound."""
    streams, at_lag_one = FAULTS[name]
    pmf = np.array(law)
    bets = LagMixture(pmf, tolerance=tolerance)
    signs = [3, 6] if name != "_antithetic" else [0, 2, 3, 6]
    for size in (2, 3):
        lag = 1 if at_lag_one else size
        sums, masses = [], []
        for mass, cells in streams(pmf, draws, size):
            counts = LagCounts()
            counts.update(cells)
            gains = bets.exponents(counts.agreements, counts.spent(bets.costs)) - bets.log_weights
            sums.append(gains[:, lag - 1])
            masses.append(mass)
        assert sum(masses) == pytest.approx(1.0)
        for bet in signs:
            for rate in (0.125, 0.5, 1.0, 4.0):
                exact = math.log(np.array(masses) @ np.exp(-rate * np.array(sums)[:, bet]))
                bound = float(
                    getattr(dependence_power, name)(pmf, bets, draws, np.array([size]), bet, rate)[
                        0
                    ]
                )
                assert exact <= bound + 1e-9


ALPHA = 1e-6
LAWS = {
    "two": AcceptanceDistribution.match_expected(4.7, 8),
    "uneven": AcceptanceDistribution.match_expected(1.05, 3),
    "eight": AcceptanceDistribution.multinomial(4.7, 8),
}


def stream(
    kind: str, law: AcceptanceDistribution, draws: int, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    edges = np.cumsum(law.pmf)[:-1]
    if kind == "antithetic":
        fresh = rng.random((-(-draws // (2 * size)), size))
        uniform = np.stack([fresh, 1.0 - fresh], axis=1).ravel()[:draws]
    elif kind == "held":
        uniform = np.repeat(rng.random(-(-draws // size)), size)[:draws]
    else:
        uniform = np.resize(rng.random(size), draws)
    return np.searchsorted(edges, uniform, side="right") + 1


def share_caught(kind: str, law: AcceptanceDistribution, draws: int, size: int, runs: int) -> int:
    rng, caught = np.random.default_rng(), 0
    for _ in range(runs):
        test = SequentialTest(law, ALPHA)
        test.update(stream(kind, law, draws, size, rng))
        caught += test.rejected_by("lags")
    return caught


def least_draws(kind: str, law: AcceptanceDistribution, size: int) -> int:
    """Return the fewest draws from which on the claim reaches `size`."""
    low, high = 1, 20_000
    while high - low > 1:
        middle = (low + high) // 2
        claims = detectable_dependence(law, middle, ALPHA)
        if getattr(claims, f"{kind}_up_to") >= size:
            high = middle
        else:
            low = middle
    return high


BOUNDARIES = [
    ("two", "held", 2),
    ("two", "held", 40),
    ("two", "pool", 1),
    ("two", "pool", 100),
    ("two", "antithetic", 1),
    ("two", "antithetic", 64),
    ("uneven", "held", 2),
    ("uneven", "pool", 20),
    ("eight", "held", 2),
    ("eight", "pool", 200),
    ("eight", "antithetic", 1),
]


@pytest.mark.parametrize(("law", "kind", "size"), BOUNDARIES)
def test_a_claim_is_kept_at_the_fewest_draws_that_make_it(law: str, kind: str, size: int) -> None:
    """False-alarm rate: 1e-6 a case (exact binomial tail at a power of 0.99)."""
    runs = 60
    draws = least_draws(kind, LAWS[law], size)
    caught = share_caught(kind, LAWS[law], draws, size, runs)
    assert caught >= binom.ppf(1e-6, runs, 0.99)


@pytest.mark.parametrize(("law", "kind", "size"), [BOUNDARIES[0], BOUNDARIES[2], BOUNDARIES[4]])
def test_a_claim_is_not_made_long_after_it_holds(law: str, kind: str, size: int) -> None:
    """The twin: at 40 % of the draws, the power has to break the same limit.

    It is below 0.4 there (measured), so that 53 of 60 are caught with probability below 1e-9.
    """
    runs = 60
    draws = int(0.4 * least_draws(kind, LAWS[law], size))
    caught = share_caught(kind, LAWS[law], draws, size, runs)
    assert caught < binom.ppf(1e-6, runs, 0.99)


def test_claims_are_not_vacuous() -> None:
    assert detectable_dependence([0.3, 0.7], 20_000, 1e-8) == DependenceClaims(1024, 1024, 1024)
    assert detectable_dependence(LAWS["eight"], 20_000, 1e-8) == DependenceClaims(1024, 1024, 1024)
    assert detectable_dependence([0.3, 0.7], 5_000, 1e-8).held_up_to == 1024


def test_what_cannot_be_seen_is_not_claimed() -> None:
    """Antithetic draws at 1.05 agree with probability 0.9, independent ones with 0.905."""
    assert detectable_dependence(LAWS["uneven"], 20_000, 1e-8).antithetic_up_to == 0
    assert detectable_dependence([1e-4, 1 - 1e-4], 20_000, 1e-8) == DependenceClaims(0, 0, 0)


@pytest.mark.parametrize("draws", [0, 1, 2])
def test_no_draws_show_nothing(draws: int) -> None:
    assert detectable_dependence([0.3, 0.7], draws, 1e-6) == DependenceClaims(0, 0, 0)


def test_a_point_mass_has_nothing_to_show() -> None:
    claims = detectable_dependence([0.0, 1.0], 20_000, 1e-6)
    assert claims == DependenceClaims(0, 0, 0)
    assert claims.describe() == "none for sure"


@pytest.mark.parametrize("law", LAWS)
def test_claims_grow_with_draws_and_with_alpha_and_shrink_with_tolerance(law: str) -> None:
    fields = ("held_up_to", "pool_up_to", "antithetic_up_to")
    p0 = LAWS[law]
    for field in fields:
        by_draws = [
            getattr(detectable_dependence(p0, n, ALPHA), field) for n in (50, 400, 3_000, 20_000)
        ]
        assert by_draws == sorted(by_draws)
        by_alpha = [
            getattr(detectable_dependence(p0, 600, alpha), field) for alpha in (1e-12, 1e-6, 0.1)
        ]
        assert by_alpha == sorted(by_alpha)
        exact, loose = (
            getattr(detectable_dependence(p0, 3_000, ALPHA, tolerance=tolerance), field)
            for tolerance in (0.0, 0.1)
        )
        assert loose <= exact


def test_claims_read_as_one_line() -> None:
    assert DependenceClaims(1024, 500, 3).describe() == (
        "draws held for up to 1,024 steps, pools of up to 500 draws used in turn, "
        "antithetic blocks of up to 3"
    )
    assert "held" not in DependenceClaims(0, 5, 0).describe()


@pytest.mark.parametrize(("draws", "alpha"), [(-1, 0.5), (10, 0.0), (10, 1.0), (10, math.nan)])
def test_bad_arguments_are_refused(draws: int, alpha: float) -> None:
    with pytest.raises(ValueError, match="must"):
        detectable_dependence([0.5, 0.5], draws, alpha)
