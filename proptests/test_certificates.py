"""Properties that one value decides: no pass without a length, whatever the target returns."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import specsim
from specsim.loading.failures import describe, shown, type_name
from specsim.properties.certificates import violations
from specsim.properties.configurations import METHODS, plan
from specsim.properties.lengths import as_length
from specsim.targets import Configuration, TargetError

ORDINARY = Configuration(4.7, "match-expected", 8)
SINGLE = ["S.type", "S.range", "S.support", "S.integers", "S.clamping"]


def good(acc_len: float, method: str, max_len: int) -> int:
    if method != "match-expected":
        raise ValueError(f"unknown method {method!r}")
    length = min(max(acc_len, 1.0), float(max_len))
    lower = int(length)
    return lower + (1 if random.random() < length - lower else 0)


def judged(target: Callable[..., object], properties: list[str], **more: Any) -> specsim.Report:
    """Check one method with the fewest draws."""
    more = {"kind": "sampler", "methods": ["match-expected"], **more}
    return specsim.check(target, effort="quick", properties=properties, **more)


def always_raises(acc_len: float, method: str, max_len: int) -> int:
    raise RuntimeError("broken")


def test_a_target_that_always_raises_passes_nothing() -> None:
    names = [*SINGLE, "S.plain-int", "S.method", "S.method-error", "S.non-finite"]
    report = judged(always_raises, [*names, "S.generators", "S.reproducible"])
    assert {o.property_id for o in report.outcomes if o.verdict == "pass"} == set()
    assert not report.ok
    assert "not judged: always_raises(" in report["S.range"].detail
    assert "raised RuntimeError: broken" in report["S.method"].detail


def test_a_target_that_returns_none_fails_returns_and_type_and_passes_nothing() -> None:
    report = judged(lambda *_: None, ["S.returns", *SINGLE, "S.reproducible"])
    assert report["S.returns"].verdict == report["S.type"].verdict == "fail"
    assert "returned None, which is no length" in report["S.returns"].detail
    assert {report[name].verdict for name in SINGLE[1:]} == {"inconclusive"}
    assert report["S.reproducible"].verdict == "inconclusive"
    assert report["S.returns"].draws == 0


def test_a_length_as_text_fails_returns_and_type() -> None:
    report = judged(lambda *given: str(good(*given)), ["S.returns", "S.type"])
    assert {o.verdict for o in report.outcomes} == {"fail"}


def test_the_twin_a_correct_sampler_passes_them_all() -> None:
    names = ["S.returns", *SINGLE, "S.method", "S.method-error", "S.generators", "S.reproducible"]
    report = judged(good, names)
    assert {o.verdict for o in report.outcomes} == {"pass"}


@pytest.mark.parametrize("returned", [3, None, np.array(3), [1, 2, 3, 4, 5]])
def test_a_vector_sampler_that_gives_no_vector_does_not_refuse_methods(returned: object) -> None:
    def vector(acc_len: float, method: str, max_len: int, n: int) -> object:
        return returned

    report = judged(vector, ["S.method", "S.method-error"], kind="vector-sampler")
    assert report["S.method"].verdict == "fail"
    assert report["S.method-error"].verdict == "skip"


@pytest.mark.parametrize("accepted", ["match_expected", "multinomal"])
def test_a_near_miss_of_a_method_has_to_be_refused(accepted: str) -> None:
    def lenient(acc_len: float, method: str, max_len: int) -> int:
        return good(acc_len, "match-expected" if method == accepted else method, max_len)

    outcome = judged(lenient, ["S.method"])["S.method"]
    assert outcome.verdict == "fail"
    assert accepted in outcome.detail


def test_a_method_left_out_is_reported_if_it_is_accepted() -> None:
    report = judged(specsim.sample_simulated_acc_len, ["S.method"])
    assert report["S.method"].verdict == "pass"
    assert "multinomial is accepted" in report["S.method"].detail
    assert "accepted" not in judged(good, ["S.method"])["S.method"].detail


class ReprRaises(int):
    def __repr__(self) -> str:
        raise SystemExit(3)


class IndexRaises:
    def __index__(self) -> int:
        raise SystemExit(3)


class _NoModule(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise SystemExit(3)


class ClassRaises(metaclass=_NoModule):
    pass


class LongRepr:
    def __repr__(self) -> str:
        return "x" * 1_000_000


HOSTILE = [10**6000, -(10**6000), ReprRaises(9), IndexRaises(), ClassRaises(), LongRepr(),
           "x" * 1_000_000, ["x"] * 100_000, float("nan"), "\ud800\x1b[31m"]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_any_value_is_shown_in_one_short_line(value: object) -> None:
    text = shown(value)
    assert 0 < len(text) <= 80
    assert text.isprintable()
    assert type_name(type(value))
    for violation in violations(ORDINARY, [value]):
        assert len(violation.message) < 200
        assert all(len(part) <= 80 for part in violation.values)


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_any_value_is_judged(value: object) -> None:
    report = judged(lambda *_: value, ["S.returns", "S.type", "S.range", "S.distribution"])
    failed = {o.property_id for o in report.outcomes if o.verdict == "fail"}
    expected = "S.returns" if as_length(value) is None else "S.range"
    assert expected in failed


def test_ordinary_values_are_shown_as_they_are() -> None:
    assert [shown(v) for v in (4, 4.5, "a", None, (1, 2))] == ["4", "4.5", "'a'", "None", "(1, 2)"]
    assert shown(np.int64(4)) == repr(np.int64(4))


def test_interrupts_are_passed_on() -> None:
    class Interrupts:
        def __index__(self) -> int:
            raise KeyboardInterrupt

        def __repr__(self) -> str:
            raise KeyboardInterrupt

    for read in (as_length, shown):
        with pytest.raises(KeyboardInterrupt):
            read(Interrupts())


class _NoName(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError


class StrExits(Exception, metaclass=_NoName):  # noqa: N818
    def __str__(self) -> str:
        raise SystemExit(3)


def test_any_exception_is_described() -> None:
    assert describe(StrExits()) == "StrExits: (its message could not be read: SystemExit)"
    assert describe(ValueError("a\ud800\x00b")) == "ValueError: a\\ud800\\x00b"

    def raises(*given: object) -> int:
        raise StrExits

    outcome = judged(raises, ["S.returns", "S.method-error"])["S.returns"]
    assert "raised StrExits" in outcome.detail


def test_numpy_set_to_raise_does_not_reach_the_verdict() -> None:
    seen = []

    def noting(acc_len: float, method: str, max_len: int) -> int:
        seen.append(np.geterr()["under"])
        return good(acc_len, method, max_len)

    with np.errstate(all="raise"):
        # Rejected with probability at most 1e-6.
        report = judged(noting, ["S.range", "S.distribution", "S.mean", "S.freshness"])
    assert report.ok
    assert set(seen) == {"raise"}


@hypothesis.given(st.integers(0, 3))
@hypothesis.settings(max_examples=2, deadline=None, database=None)
def test_a_check_inside_a_hypothesis_test(seed: int) -> None:
    assert judged(good, ["S.range"], seed=seed).ok


def test_two_configurations_depend_on_the_seed_and_their_number_does_not() -> None:
    for kind in ("sampler", "rates-sampler"):
        first, again, other = (plan(kind, "quick", METHODS, seed=s) for s in (1, 1, 2))
        assert first == again
        assert len({course.name for course in first}) == len(first)
        assert sum(c.streams for c in first) == sum(c.streams for c in other)
        assert len(set(first) - set(other)) == 2


async def asynchronous(acc_len: float, method: str, max_len: int) -> int:
    return 1


class Asynchronous:
    async def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        return 1


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (None, "is not callable"),
        (3, "is not callable"),
        (asynchronous, "is a coroutine function"),
        (Asynchronous(), "is a coroutine function"),
    ],
)
@pytest.mark.parametrize("kind", ["sampler", None])
def test_what_cannot_be_called_for_a_length_is_refused(
    target: Any, said: str, kind: str | None
) -> None:
    with pytest.raises(TargetError, match=said):
        specsim.check(target, kind=kind)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"alpha": "x"}, ValueError, "alpha must lie in .* got 'x'"),
        ({"alpha": None}, ValueError, "alpha must lie in .* got None"),
        ({"tolerance": None}, ValueError, "tolerance must lie in .* got None"),
        ({"tolerance": 0.05}, ValueError, r"tolerance must lie in \[0, 0.05\).* quick .*got 0.05"),
        ({"methods": None}, TypeError, "methods must be a list .* got None"),
        ({"methods": "multinomial"}, TypeError, "methods must be a list .* got 'multinomial'"),
        ({"methods": [3]}, TypeError, "methods must hold strings only, got 3"),
        ({"properties": "S.range"}, TypeError, "properties must be a list .* got 'S.range'"),
        ({"expected_failures": {"S.range": 3}}, TypeError, "expected_failures must map .* 3"),
        ({"expected_failures": ["S.range"]}, TypeError, "expected_failures must map"),
        (
            {"properties": ["S.mean"], "expected_failures": {"S.range": "?"}},
            ValueError,
            r"expected_failures names no judged property: S\.range; judged are S\.mean",
        ),
    ],
)
def test_wrong_arguments_are_named(
    arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        specsim.check(good, effort="quick", **arguments)
