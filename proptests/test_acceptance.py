"""AcceptanceDistribution against independent computations of each constructor's law."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate, optimize, stats

from specsim.acceptance import AcceptanceDistribution as Dist

EPS = float(np.finfo(np.float64).eps)


@st.composite
def length_and_gamma(draw: st.DrawFn, most: int = 24) -> tuple[float, int]:
    """Draw a feasible length (both ends and integers included) and a gamma."""
    gamma = draw(st.integers(0, most))
    return draw(st.floats(1.0, gamma + 1.0)), gamma


@st.composite
def rate_lists(draw: st.DrawFn) -> list[float]:
    """Draw non-increasing rates in [0, 1], with ties and both ends among them."""
    rates = draw(st.lists(st.sampled_from([0.0, 1.0]) | st.floats(0.0, 1.0), max_size=12))
    return sorted(rates, reverse=True)


pmfs = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=9).filter(lambda w: sum(w) > 1e-3)


def normalised(weights: list[float]) -> Dist:
    return Dist(np.array(weights) / math.fsum(weights))


def check_is_a_law(law: Dist, max_len: int) -> None:
    assert law.max_len == max_len == law.pmf.size
    assert law.gamma == max_len - 1
    assert law.pmf.dtype == np.float64
    assert np.all(law.pmf >= 0.0)
    assert abs(math.fsum(law.pmf) - 1.0) <= 1e-12
    assert abs(law.pmf.sum() - 1.0) <= 1e-12
    assert 1 <= law.support[0] <= law.support[-1] <= max_len
    assert law.support == tuple(k for k in range(1, max_len + 1) if law.pmf[k - 1] > 0)


# --- constructors ---------------------------------------------------------------------------


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 64))
def test_match_expected_is_the_clamped_mean_on_adjacent_lengths(acc: float, most: int) -> None:
    law = Dist.match_expected(acc, most)
    check_is_a_law(law, most)
    t = min(max(acc, 1.0), most)
    assert law.mean == pytest.approx(t, rel=4 * EPS)
    assert len(law.support) == (1 if t == int(t) else 2)
    assert law.support[-1] - law.support[0] == len(law.support) - 1
    assert law.var == pytest.approx((t - math.floor(t)) * (1 - t + math.floor(t)), abs=1e-12)


def test_match_expected_keeps_every_bit_of_the_fraction() -> None:
    law = Dist.match_expected(4.7, 8)
    assert law.pmf.tolist() == [0, 0, 0, 1 - (4.7 - 4), 4.7 - 4, 0, 0, 0]


@pytest.mark.parametrize("acc", [-3.0, 0.5, 1.2, 2.5, 4.7, 7.9, 8.0, 11.0])
@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_multinomial_matches_the_integral_of_the_normal(acc: float, most: int) -> None:
    def density(z: float) -> float:
        return math.exp(-0.5 * (z - acc) ** 2) / math.sqrt(2 * math.pi)

    # Each length is the image of an interval under round(clamp(z)), found here by bisection of
    # Python's own round(): no edge is taken from the formula under test.
    def length(z: float) -> int:
        return round(min(max(z, 1.0), float(most)))

    def edge(k: int) -> float:
        low, high = float(k), float(k + 1)
        while high - low > 1e-13:
            middle = (low + high) / 2
            low, high = (middle, high) if length(middle) <= k else (low, middle)
        return low

    edges = [min(acc, 0) - 40.0, *(edge(k) for k in range(1, most)), max(acc, most) + 40.0]
    expected = []
    for low, high in itertools.pairwise(edges):
        inside = [low, *(p for p in (acc - 8, acc, acc + 8) if low < p < high), high]
        pieces = [
            integrate.quad(density, a, b, epsabs=0, epsrel=1e-11)[0]
            for a, b in itertools.pairwise(inside)
        ]
        expected.append(math.fsum(pieces))
    law = Dist.multinomial(acc, most)
    np.testing.assert_allclose(law.pmf, expected, rtol=1e-9)


@given(st.floats(-1e3, 1e3) | st.sampled_from([1e17, -1e17, 1.7e308, -1.7e308]), st.integers(1, 64))
def test_multinomial_is_a_law_with_its_own_mean(acc: float, most: int) -> None:
    law = Dist.multinomial(acc, most)
    check_is_a_law(law, most)
    # E[round(clamp(Z))] = 1 + sum over k of P(Z > k + 1/2): not acc, and not acc clamped.
    own = 1.0 + math.fsum(stats.norm.sf(np.arange(1, most) + 0.5 - acc))
    assert law.mean == pytest.approx(own, rel=1e-12)


def test_multinomial_mean_is_biased_near_the_ends_only() -> None:
    assert Dist.multinomial(1.2, 16).mean == pytest.approx(1.4901, abs=1e-4)
    assert Dist.multinomial(8.0, 8).mean < 7.7
    assert Dist.multinomial(8.0, 16).mean == pytest.approx(8.0, abs=1e-9)


@pytest.mark.parametrize(("acc", "most", "far"), [(1.2, 64, 35), (60.0, 64, 25), (-20.0, 16, 2)])
def test_multinomial_far_bins_are_not_empty(acc: float, most: int, far: int) -> None:
    law = Dist.multinomial(acc, most)
    expected = stats.norm.logsf(abs(far - acc) - 0.5)
    assert law.pmf[far - 1] > 0
    assert math.log(law.pmf[far - 1]) == pytest.approx(expected, rel=1e-6)


def test_multinomial_is_symmetric_about_the_middle() -> None:
    low, high = Dist.multinomial(3.3, 9), Dist.multinomial(10 - 3.3, 9)
    np.testing.assert_allclose(low.pmf, high.pmf[::-1], rtol=1e-12)


def chain_by_enumeration(conditional: list[float]) -> list[float]:
    """Return P(L = k) by summing over all 2^gamma accept/reject outcomes of the positions."""
    gamma = len(conditional)
    mass = [0.0] * (gamma + 1)
    for outcome in itertools.product([True, False], repeat=gamma):
        accepted = next((i for i, ok in enumerate(outcome) if not ok), gamma)
        mass[accepted] += math.prod(
            c if ok else 1 - c for c, ok in zip(conditional, outcome, strict=True)
        )
    return mass


@given(st.lists(st.floats(0.0, 1.0), max_size=7))
def test_from_rates_matches_enumeration_of_the_conditional_chain(conditional: list[float]) -> None:
    rates = np.cumprod(conditional)
    law = Dist.from_rates(rates)
    check_is_a_law(law, len(conditional) + 1)
    np.testing.assert_allclose(law.pmf, chain_by_enumeration(conditional), atol=1e-14)


@given(rate_lists())
def test_rates_come_back(rates: list[float]) -> None:
    law = Dist.from_rates(rates)
    check_is_a_law(law, len(rates) + 1)
    np.testing.assert_allclose(law.per_position_rates, rates, atol=1e-14)
    assert law.mean == pytest.approx(1.0 + math.fsum(rates), rel=1e-13)


@given(length_and_gamma())
def test_minimum_variance_is_match_expected(case: tuple[float, int]) -> None:
    acc, gamma = case
    law = Dist.minimum_variance(acc, gamma)
    check_is_a_law(law, gamma + 1)
    assert law == Dist.match_expected(acc, gamma + 1)


@given(st.floats(-5.0, 40.0), st.integers(0, 24))
def test_forced_drafts_is_match_expected_of_one_more(x: float, gamma: int) -> None:
    law = Dist.forced_drafts(x, gamma)
    check_is_a_law(law, gamma + 1)
    # x + 1 rounds where x does not, by at most half of its last place.
    assert law.tv(Dist.match_expected(x + 1, gamma + 1)) <= 2 * EPS * (abs(x) + 2)
    assert law.mean == pytest.approx(1 + min(max(x, 0.0), gamma), rel=4 * EPS)


@given(length_and_gamma())
def test_constant_conditional_solves_its_equation(case: tuple[float, int]) -> None:
    acc, gamma = case
    law = Dist.constant_conditional(acc, gamma)
    check_is_a_law(law, gamma + 1)
    assert law.mean == pytest.approx(acc, rel=1e-12)
    if gamma:
        p = float(law.conditional_rates[0])
        residual = math.fsum(p**k for k in range(1, gamma + 1)) - (acc - 1)
        assert abs(residual) <= 1e-12 * acc
        powers = p ** np.arange(1, gamma + 1)
        np.testing.assert_allclose(law.per_position_rates, powers, rtol=1e-9, atol=1e-300)
        if gamma <= 7:
            np.testing.assert_allclose(law.pmf, chain_by_enumeration([p] * gamma), atol=1e-13)


@given(length_and_gamma(), st.sampled_from([0.0, 1.0]) | st.floats(0.0, 1.0))
def test_geometric_decay_solves_its_equation_or_says_what_is_feasible(
    case: tuple[float, int], decay: float
) -> None:
    acc, gamma = case
    weights = [decay ** (k * (k - 1) // 2) for k in range(1, gamma + 1)]
    most = 1 + math.fsum(weights)
    assume(abs(acc - most) > 1e-12 * acc)
    if acc > most:
        with pytest.raises(ValueError, match=r"acc_len must be in \[1, .*decay=.*got"):
            Dist.geometric_decay(acc, gamma, decay)
        return
    law = Dist.geometric_decay(acc, gamma, decay)
    check_is_a_law(law, gamma + 1)
    assert law.mean == pytest.approx(acc, rel=1e-12)
    if gamma:
        r = float(law.conditional_rates[0])
        residual = math.fsum(w * r**k for k, w in enumerate(weights, start=1)) - (acc - 1)
        assert abs(residual) <= 1e-12 * acc
        if gamma <= 7:
            expected = chain_by_enumeration([r * decay**k for k in range(gamma)])
            np.testing.assert_allclose(law.pmf, expected, atol=1e-13)


def test_geometric_decay_without_decay_is_constant_conditional() -> None:
    assert Dist.geometric_decay(3.3, 5, 1.0) == Dist.constant_conditional(3.3, 5)


def test_geometric_decay_takes_its_own_stated_maximum() -> None:
    with pytest.raises(ValueError, match="acc_len") as error:
        Dist.geometric_decay(5.0, 6, 0.7)
    most = float(str(error.value).split("[1, ")[1].split("]")[0])
    law = Dist.geometric_decay(most, 6, 0.7)
    np.testing.assert_allclose(law.conditional_rates, 0.7 ** np.arange(6), rtol=1e-12)


# --- least variance -------------------------------------------------------------------------


@given(length_and_gamma(most=9), st.data())
def test_no_law_with_the_same_mean_has_less_variance(
    case: tuple[float, int], data: st.DataObject
) -> None:
    acc, gamma = case
    least = Dist.minimum_variance(acc, gamma)
    # Any law with this mean is a mixture of pairs around it, so random pairs reach all of them.
    weights, pmf = [], np.zeros(gamma + 1)
    for _ in range(data.draw(st.integers(1, 4))):
        low = data.draw(st.integers(1, math.floor(acc)))
        high = data.draw(st.integers(math.ceil(acc), gamma + 1))
        up = (acc - low) / (high - low) if high > low else 0.0
        weights.append(data.draw(st.floats(0.01, 1.0)))
        pmf[low - 1] += weights[-1] * (1 - up)
        pmf[high - 1] += weights[-1] * up
    other = Dist(pmf / math.fsum(weights))
    assert other.mean == pytest.approx(acc, rel=1e-12)
    assert least.var <= other.var + 1e-11


@pytest.mark.parametrize("acc", [1.0, 1.2, 3.0, 4.7, 7.95, 8.0])
def test_linear_programming_finds_no_smaller_variance(acc: float) -> None:
    gamma = 7
    lengths = np.arange(1, gamma + 2)
    # Given the mean, the variance is linear in the pmf.
    best = optimize.linprog(
        (lengths - acc) ** 2,
        A_eq=np.vstack([np.ones(gamma + 1), lengths]),
        b_eq=[1.0, acc],
        bounds=(0, 1),
    )
    law = Dist.minimum_variance(acc, gamma)
    assert best.x is not None
    assert law.var == pytest.approx(best.fun, abs=1e-9)
    assert law.pmf.tolist() == pytest.approx(list(best.x), abs=1e-9)


# --- what it says about L -------------------------------------------------------------------


@given(pmfs)
def test_summaries_agree_with_scipy(weights: list[float]) -> None:
    law = normalised(weights)
    twin = law.to_scipy()
    assert law.mean == pytest.approx(twin.mean(), rel=1e-9)
    assert law.var == pytest.approx(twin.var(), abs=1e-9)
    assert law.std == pytest.approx(twin.std(), abs=1e-6)
    assert law.entropy == pytest.approx(stats.entropy(law.pmf), abs=1e-12)
    grid = np.arange(-1, law.max_len + 2)
    np.testing.assert_allclose(law.cdf(grid), twin.cdf(grid), atol=1e-12)
    np.testing.assert_allclose(law.sf(grid), twin.sf(grid), atol=1e-12)
    assert [law.cdf(int(k)) for k in grid] == law.cdf(grid).tolist()
    np.testing.assert_allclose(law.cdf(grid + 0.5), law.cdf(grid))


@given(pmfs, st.floats(0.0, 1.0))
def test_ppf_is_the_smallest_length_of_the_support_that_reaches_u(
    weights: list[float], u: float
) -> None:
    law = normalised(weights)
    length = law.ppf(u)
    assert isinstance(length, int)
    assert length in law.support
    assert law.cdf(length) >= u
    assert all(law.cdf(k) < u for k in law.support if k < length)
    assert law.ppf([u, 0.0]).tolist() == [length, law.support[0]]
    assert law.cdf(law.ppf(1.0)) == 1.0


def test_ppf_of_zero_is_the_least_length_that_occurs() -> None:
    assert Dist.match_expected(4.7, 8).ppf(0.0) == 4


@given(st.lists(st.floats(0.0, 1.0), max_size=7))
def test_conditional_rates_are_quotients_of_survival(conditional: list[float]) -> None:
    law = Dist.from_rates(np.cumprod(conditional))
    for k in range(1, law.max_len):
        reached = math.fsum(law.pmf[k - 1 :])
        rate = law.conditional_rates[k - 1]
        if reached == 0.0:
            assert math.isnan(rate)
        else:
            assert rate == pytest.approx(math.fsum(law.pmf[k:]) / reached, abs=1e-12)


@given(pmfs, pmfs)
def test_kl_and_tv_match_their_definitions_across_sizes(a: list[float], b: list[float]) -> None:
    p, q = normalised(a), normalised(b)
    size = max(p.max_len, q.max_len)
    x, y = np.zeros(size), np.zeros(size)
    x[: p.max_len], y[: q.max_len] = p.pmf, q.pmf
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    if any(s > 0 and t == 0 for s, t in pairs):
        assert p.kl(q) == math.inf
    else:
        expected = math.fsum(s * (math.log(s) - math.log(t)) for s, t in pairs if s > 0)
        assert p.kl(q) == pytest.approx(expected, abs=1e-12)
    events = itertools.product([False, True], repeat=size)
    best = max(
        math.fsum(s - t for (s, t), e in zip(pairs, event, strict=True) if e) for event in events
    )
    assert p.tv(q) == pytest.approx(best, abs=1e-12)
    assert p.tv(q) == q.tv(p)
    assert p.kl(p) == p.tv(p) == 0.0
    assert p.kl(q) >= 2 * p.tv(q) ** 2 - 1e-12  # Pinsker


def test_from_method_knows_the_engines_names() -> None:
    assert Dist.from_method(4.7, "match-expected", 8) == Dist.match_expected(4.7, 8)
    assert Dist.from_method(4.7, "multinomial", 8) == Dist.multinomial(4.7, 8)
    with pytest.raises(ValueError, match=r"'match-expected', 'multinomial', got 'poisson'"):
        Dist.from_method(4.7, "poisson", 8)


# --- value semantics ------------------------------------------------------------------------


@given(pmfs)
def test_copies_are_equal_and_immutable(weights: list[float]) -> None:
    law = normalised(weights)
    for twin in (pickle.loads(pickle.dumps(law)), copy.deepcopy(law), Dist(law.pmf)):
        assert twin == law
        assert hash(twin) == hash(law)
        assert not twin.pmf.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            twin.pmf.setflags(write=True)


def test_is_frozen_and_does_not_share_memory() -> None:
    given_pmf: NDArray[np.float64] = np.array([0.25, -0.0, 0.75])
    law = Dist(given_pmf)
    given_pmf[0] = 9.0
    assert law.pmf.tolist() == [0.25, 0.0, 0.75]
    assert law == Dist([0.25, 0.0, 0.75])
    assert hash(law) == hash(Dist(np.array([0.25, 0.0, 0.75])))
    with pytest.raises(AttributeError):
        law.pmf = given_pmf  # type: ignore[misc]
    assert law != Dist.match_expected(2.5, 4)
    assert law != "law"
    assert repr(law) == "AcceptanceDistribution(max_len=3, pmf={1: 0.25, 3: 0.75})"


def test_a_slightly_unnormalised_pmf_is_divided_by_its_sum() -> None:
    law = Dist(np.array([0.5, 0.5 + 5e-10]))
    assert math.fsum(law.pmf) == pytest.approx(1.0, abs=1e-15)


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 10**400])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: Dist.match_expected(x, 8),
        lambda x: Dist.multinomial(x, 8),
        lambda x: Dist.minimum_variance(x, 7),
        lambda x: Dist.constant_conditional(x, 7),
        lambda x: Dist.geometric_decay(x, 7, 0.9),
        lambda x: Dist.geometric_decay(2.0, 7, x),
        lambda x: Dist.forced_drafts(x, 7),
    ],
)
def test_non_finite_numbers_are_named(make: Callable[[float], Dist], bad: float) -> None:
    with pytest.raises(ValueError, match=r"(acc_len|decay|x) must be a finite number, got"):
        make(bad)


@pytest.mark.parametrize(
    "make",
    [
        Dist.minimum_variance,
        Dist.constant_conditional,
        lambda a, g: Dist.geometric_decay(a, g, 1.0),
    ],
)
@pytest.mark.parametrize("acc", [0.999, 8.001, -1.0])
def test_infeasible_lengths_give_the_range(make: Callable[[float, int], Dist], acc: float) -> None:
    with pytest.raises(ValueError, match=r"acc_len must be in \[1, gamma \+ 1\] = \[1, 8\], got"):
        make(acc, 7)


UNTYPED: Any = Dist  # the calls below are wrong on purpose


@pytest.mark.parametrize(
    ("name", "args", "error", "message"),
    [
        ("match_expected", (2.0, 0), ValueError, "max_len must be an integer >= 1, got 0"),
        ("multinomial", (2.0, -3), ValueError, "max_len must be an integer >= 1, got -3"),
        ("forced_drafts", (2.0, -1), ValueError, "gamma must be an integer >= 0, got -1"),
        ("match_expected", (2.0, 2.5), TypeError, "max_len must be an integer, got 2.5"),
        ("match_expected", (2.0, True), TypeError, "max_len must be an integer, got True"),
        ("match_expected", ("2", 8), TypeError, "acc_len must be a real number, got '2'"),
        ("multinomial", (None, 8), TypeError, "acc_len must be a real number, got None"),
        ("multinomial", (True, 8), TypeError, "acc_len must be a real number, got True"),
        ("geometric_decay", (2.0, 3, 1.5), ValueError, r"decay must be in \[0, 1\], got 1.5"),
        ("from_rates", ([0.5, 0.6],), ValueError, "non-increasing, got 0.6 at position 2"),
        ("from_rates", ([1.1],), ValueError, r"rates must be in \[0, 1\], got 1.1 at position 1"),
        ("from_rates", ([0.5, math.nan],), ValueError, r"in \[0, 1\], got nan at position 2"),
        ("from_rates", (["a"],), TypeError, "rates must be a sequence of real numbers, got"),
    ],
)
def test_constructors_name_bad_arguments(
    name: str, args: tuple[object, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        getattr(UNTYPED, name)(*args)


@pytest.mark.parametrize(
    ("pmf", "error", "message"),
    [
        ([], ValueError, "pmf must have at least one entry"),
        ([[1.0]], ValueError, "pmf must be one-dimensional, got shape"),
        ([0.5, 0.6], ValueError, r"pmf must sum to 1 within 1e-09, got a sum of 1.1"),
        ([1.5, -0.5], ValueError, "pmf must hold finite probabilities >= 0, got -0.5"),
        ([math.nan, 1.0], ValueError, "pmf must hold finite probabilities >= 0, got nan"),
        (None, TypeError, "pmf must be a sequence of real numbers, got None"),
    ],
)
def test_a_bad_pmf_is_refused(pmf: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        UNTYPED(pmf)


@pytest.mark.parametrize("u", [1.5, -0.1, math.nan])
def test_ppf_and_cdf_refuse_what_is_no_probability_or_number(u: float) -> None:
    with pytest.raises(ValueError, match=r"u must be in \[0, 1\], got"):
        Dist([1.0]).ppf(u)
    with pytest.raises(ValueError, match="k must be a number, got nan"):
        Dist([1.0]).cdf(math.nan)
