"""Every fault is rejected by the property it names; every correct variant passes all of them."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest

import specsim
from specsim.acceptance import AcceptanceDistribution
from specsim.mutants import Correct, all_correct, all_mutants
from specsim.mutants.registry import Law
from specsim.properties.configurations import METHODS
from specsim.properties.registry import UnknownPropertyError, catalogue, select
from specsim.sampler import AcceptanceSampler, Method

FRESH_IN_ALL_BUT_LAW = ("weights-swapped", "weights-squared", "normal-narrow", "normal-floored")
MUTANTS = {mutant.name: mutant for mutant in all_mutants()}
ON_STREAMS = {"S.distribution", "S.mean", "S.freshness"}
law_of = cache(AcceptanceDistribution.from_method)


def method_of(law: Law | None) -> str:
    """Return the method under which a fault has to show on its own: where its law is further off.

    What is not fresh is so under both.
    """
    if law is None:
        return METHODS[0]

    def distance(method: str) -> float:
        lengths = (0.3, 1.2, 4.7, 7.6)
        return max(law(length, method, 8).tv(law_of(length, method, 8)) for length in lengths)

    return max(METHODS, key=distance)


@cache
def judged(name: str) -> specsim.Report:
    """Check a faulty sampler once: its own property, and those that the same draws decide."""
    mutant = MUTANTS[name]
    if mutant.caught_by not in ON_STREAMS:
        return specsim.check(mutant.factory(None), effort="quick", properties=[mutant.caught_by])
    return specsim.check(
        mutant.factory(None),
        effort="quick",
        properties=sorted(ON_STREAMS),
        methods=[method_of(mutant.law)],
    )


@pytest.mark.parametrize("name", MUTANTS)
def test_each_fault_is_rejected_by_its_property(name: str) -> None:
    # Missed with a probability that mutants' deviations make negligible: each is far beyond the
    # 0.05 that quick rules out with an error of 1e-6.
    report = judged(name)
    outcome = report[MUTANTS[name].caught_by]
    assert outcome.verdict == "fail", outcome.detail
    assert not report.ok
    assert outcome.configuration
    assert outcome.snippet
    compile(outcome.snippet, name, "exec")


# Whole checks of these differ from the others' by the generator alone, and the first one makes
# two tensors at each draw, which takes ten times as long.
LONG = {"torch-float32", "numpy-global", "python-generator", "inverse-cdf"}
CORRECT_VARIANTS = [
    pytest.param(correct, id=correct.name, marks=[pytest.mark.slow] * (correct.name in LONG))
    for correct in all_correct()
]


@pytest.mark.parametrize("variant", CORRECT_VARIANTS)
def test_each_correct_variant_passes(variant: Correct) -> None:
    # Rejected with probability at most 1e-6 each.
    report = specsim.check(variant.factory(None), effort="quick")
    assert report.ok, [(o.property_id, o.detail) for o in report.outcomes if o.holds_up_the_run]
    assert all(o.verdict in ("pass", "fail") for o in report.outcomes)


@pytest.mark.parametrize("name", FRESH_IN_ALL_BUT_LAW)
def test_a_wrong_law_is_not_reported_as_lack_of_freshness(name: str) -> None:
    # Wrong with probability at most 1e-6 each.
    outcome = judged(name)["S.freshness"]
    assert outcome.verdict != "fail", outcome.detail


def test_the_fault_that_started_the_project_is_named_by_what_was_seen() -> None:
    report = judged("rounded-length")
    assert "100.0%" in report["S.distribution"].detail
    assert "all" in report["S.freshness"].detail


# Samplers are made once a configuration: at every call they would take the time.
@cache
def sampler(
    acc_len: float, method: str, max_len: int, steps: Method = "independent"
) -> AcceptanceSampler:
    return AcceptanceSampler(law_of(acc_len, method, max_len), method=steps)


@cache
def sampler_of_rates(rates: tuple[float, ...], flat: bool = False) -> AcceptanceSampler:
    """Return a sampler of the rates by position, or of one mean draft rate in their place."""
    if flat:
        law = AcceptanceDistribution.constant_conditional(1 + sum(rates), len(rates))
    else:
        law = AcceptanceDistribution.from_rates(rates)
    return AcceptanceSampler(law)


def systematic(acc_len: float, method: str, max_len: int) -> int:
    """Draw each length with exactly the claimed law, but not independently of the last ones."""
    return sampler(acc_len, method, max_len, "systematic").draw()


def vector(acc_len: float, method: str, max_len: int, n: int) -> list[int]:
    return list(sampler(acc_len, method, max_len).draws(n).tolist())


def rates(unconditional_rates: list[float], n: int) -> list[int]:
    return list(sampler_of_rates(tuple(unconditional_rates)).draws(n).tolist())


def flat_rates(unconditional_rates: list[float], n: int) -> list[int]:
    return list(sampler_of_rates(tuple(unconditional_rates), flat=True).draws(n).tolist())


def test_a_systematic_sampler_fails_freshness_alone() -> None:
    report = specsim.check(systematic, effort="quick", methods=["match-expected"])
    failed = {o.property_id for o in report.outcomes if o.required and o.verdict != "pass"}
    assert failed == {"S.freshness"}
    excused = specsim.check(
        systematic,
        effort="quick",
        methods=["match-expected"],
        expected_failures={"S.freshness": "systematic draws are not independent"},
    )
    assert excused.ok


@pytest.mark.parametrize(("target", "kind"), [(vector, "vector-sampler"), (rates, "rates-sampler")])
def test_vector_and_rates_samplers_are_judged_by_the_same_catalogue(
    target: Callable[..., object], kind: str
) -> None:
    # Rejected with probability at most 1e-6 each.
    report = specsim.check(target, effort="quick")
    assert report.kind == kind
    assert report.ok, [(o.property_id, o.detail) for o in report.outcomes if o.holds_up_the_run]


def test_a_rates_sampler_with_the_right_mean_and_a_wider_spread_fails() -> None:
    report = specsim.check(flat_rates, effort="quick", properties=["S.distribution", "S.mean"])
    assert report["S.distribution"].verdict == "fail"


@cache
def boundaries(acc_len: float, method: str, max_len: int) -> list[float]:
    """Return the cumulative probabilities between the lengths."""
    return list(np.cumsum(law_of(acc_len, method, max_len).pmf)[:-1].tolist())


class SharedUniform:
    """Draws one uniform number for every two calls, whatever their configurations are."""

    def __init__(self) -> None:
        self.random = random.Random()
        self.calls = 0
        self.u = 0.0
        self.last: object = None

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        configuration = (acc_len, method, max_len)
        if self.last == configuration or self.calls % 2 == 0:
            self.u = self.random.random()
            self.calls = 0
        self.calls += 1
        self.last = configuration
        return bisect_right(boundaries(*configuration), self.u) + 1


def test_a_draw_shared_between_configurations_shows_in_pairs_alone() -> None:
    # Fresh and right in each configuration: only pairs drawn in turn depend on each other.
    report = specsim.check(
        SharedUniform(), effort="quick", properties=["S.distribution", "S.freshness"]
    )
    assert report["S.distribution"].verdict == "pass"
    assert report["S.freshness"].verdict == "fail"
    assert "drawn in turn" in report["S.freshness"].detail


def test_the_same_seed_chooses_the_same_configurations() -> None:
    seen: list[list[tuple[float, str, int]]] = []
    for seed in (3, 3, 4):
        calls: list[tuple[float, str, int]] = []

        def noting(
            acc_len: float, method: str, max_len: int, calls: list[tuple[float, str, int]] = calls
        ) -> int:
            calls.append((acc_len, method, max_len))
            return specsim.sample_simulated_acc_len(acc_len, method, max_len)

        specsim.check(noting, kind="sampler", effort="quick", seed=seed, properties=["S.range"])
        seen.append(calls)
    assert seen[0] == seen[1]
    assert seen[0] != seen[2]


def test_ids_and_letters_choose_properties() -> None:
    every = [p.id for p in select("sampler")]
    assert [p.id for p in select("sampler", ["S"])] == every
    assert [p.id for p in select("sampler", ["S.mean", "S.range"])] == ["S.range", "S.mean"]
    with pytest.raises(UnknownPropertyError, match=r"S\.nothing"):
        select("sampler", ["S.nothing"])
    assert len({p.id for p in catalogue()}) == len(catalogue())
    for prop in catalogue():
        assert prop.statement.endswith(".")
        assert prop.source


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"effort": "huge"}, "effort must be one of quick, standard, thorough"),
        ({"alpha": 0.0}, "alpha must lie in"),
        ({"alpha": float("nan")}, "alpha must lie in"),
        ({"seed": -1}, "seed must be an integer >= 0"),
        ({"seed": 1.5}, "seed must be an integer"),
        ({"coupling": "ranks"}, "coupling must be one of batch, slot"),
        ({"methods": []}, "methods must be some of"),
        ({"tolerance": -0.1}, "tolerance must lie in"),
        ({"properties": ["X"]}, "'X' is no property id"),
        ({"expected_failures": {"X": "?"}}, "'X' is no property id"),
    ],
)
def test_settings_outside_what_is_allowed_are_refused(
    arguments: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        specsim.check(specsim.sample_simulated_acc_len, **arguments)  # type: ignore[arg-type]


@cache
def stock(acc_len: float, method: str, max_len: int) -> Iterator[int]:
    """Return independent lengths without end, drawn by thousands."""

    def lengths() -> Iterator[int]:
        while True:
            yield from sampler(acc_len, method, max_len).draws(4_096).tolist()

    return lengths()


@pytest.mark.parametrize(("wrong_by", "beyond"), [(0.0, False), (0.04, True)])
def test_the_whole_check_is_wrong_about_a_correct_sampler_at_most_as_often_as_promised(
    wrong_by: float, beyond: bool
) -> None:
    """At alpha = 0.05, of five quick checks one passes at least; and the twin.

    A promise that holds is found broken with probability 0.05^5, so below 1e-6. The twin's
    weights are off by 0.04: each check of it fails with a probability above 0.99.
    The full-size version is benchmarks/check_false_alarms.py.
    """

    def drawn(acc_len: float, method: str, max_len: int) -> int:
        moved = acc_len + wrong_by if acc_len != int(acc_len) else acc_len
        return next(stock(moved, method, max_len))

    laws = ["S.distribution", "S.mean", "S.freshness"]
    failed = 0
    for seed in range(5):
        report = specsim.check(
            drawn, effort="quick", alpha=0.05, seed=seed, properties=laws, tolerance=0.0
        )
        failed += any(outcome.verdict == "fail" for outcome in report.outcomes)
    assert (failed == 5) is beyond
