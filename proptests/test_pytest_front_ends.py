"""The plugin and the decorator, run in pytest sessions of their own."""

from __future__ import annotations

import textwrap

import pytest

import specsim
from specsim.mutants import all_correct
from specsim.parametrize import PropertyFailure, parametrize_with_properties, property_checks
from specsim.properties.session import Settings

SAMPLERS = """
import random

def good(acc_len, method, max_len):
    if method != "match-expected":
        raise ValueError(f"unknown method {method!r}; known: match-expected")
    acc_len = min(max(acc_len, 1.0), float(max_len))
    whole = int(acc_len)
    return whole + (random.random() < acc_len - whole)

def frozen(acc_len, method, max_len):
    if method != "match-expected":
        raise ValueError(f"unknown method {method!r}; known: match-expected")
    return min(max(round(acc_len), 1), max_len)
"""
OPTIONS = ("-p", "no:cacheprovider", "--specsim-methods=match-expected", "-rA")


_correct = next(entry for entry in all_correct() if entry.name == "python-global").factory(None)


def _good(acc_len: float, method: str, max_len: int) -> object:
    return _correct(acc_len, method, max_len)


def _frozen(acc_len: float, method: str, max_len: int) -> int:
    if method not in ("match-expected", "multinomial"):
        raise ValueError(f"unknown method {method!r}")
    return min(max(round(acc_len), 1), max_len)


KNOWN = {f"S.{name}": "frozen on purpose" for name in ("distribution", "mean", "freshness")}


# Both are real uses: a correct sampler, and a known failure that is recorded with its reason.
# A correct sampler is rejected with probability at most 1e-6.
@specsim.parametrize_with_properties([_good])
def test_the_decorator_passes_a_correct_sampler(check: specsim.parametrize.PropertyCheck) -> None:
    check()


@specsim.parametrize_with_properties([_frozen], expected_failures=KNOWN)
def test_the_decorator_records_known_failures(check: specsim.parametrize.PropertyCheck) -> None:
    check()


def test_a_failure_is_an_assertion_with_a_statement_and_a_program() -> None:
    checks = property_checks(_frozen, None, Settings(effort="quick"), ["S.distribution"])
    with pytest.raises(PropertyFailure) as caught:
        checks[0]()
    text = str(caught.value)
    assert text.startswith("S.distribution fail: ")
    assert "_frozen(" in text
    assert "SequentialTest" in text


def test_properties_of_one_target_share_their_draws() -> None:
    calls = 0

    def counting(acc_len: float, method: str, max_len: int) -> object:
        nonlocal calls
        calls += 1
        return _good(acc_len, method, max_len)

    checks = property_checks(counting, None, Settings(effort="quick"), ["S.distribution", "S.mean"])
    draws = checks[0]().draws
    before = calls
    assert checks[1]().draws == draws
    assert calls == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"targets": []}, "targets"),
        ({"targets": [_good], "effort": "huge"}, "effort"),
        ({"targets": [_good], "properties": ["S.nothing"]}, "S.nothing"),
        ({"targets": [_good], "expected_failures": {"S.nothing": "?"}}, "S.nothing"),
        ({"targets": [_good], "methods": ["greedy"]}, "greedy"),
    ],
)
def test_the_decorator_refuses_what_it_cannot_do(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parametrize_with_properties(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"targets": _good}, "targets must be a list"),
        ({"targets": "m:f"}, "targets must be a list"),
        ({"targets": [_good], "methods": "multinomial"}, "methods must be a list"),
        ({"targets": [_good], "expected_failures": {"S.range": 1}}, "expected_failures must map"),
    ],
)
def test_the_decorator_names_arguments_of_a_wrong_type(
    arguments: dict[str, object], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        parametrize_with_properties(**arguments)  # type: ignore[arg-type]


def test_an_advisory_property_fails_only_where_that_is_expected() -> None:
    def refuses_with_another_error(acc_len: float, method: str, max_len: int) -> object:
        if method != "match-expected":
            raise KeyError(method)
        return _good(acc_len, method, max_len)

    wanted = ["S.method-error"]
    settings = Settings(effort="quick", methods=("match-expected",))
    arguments = (refuses_with_another_error, None, settings, wanted)
    with pytest.raises(pytest.skip.Exception):
        property_checks(*arguments)[0]()
    with pytest.raises(PropertyFailure):
        property_checks(*arguments, expected=wanted)[0]()


def test_the_plugin_runs_one_test_for_each_property(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(samplers=SAMPLERS)
    result = pytester.runpytest_subprocess("--specsim-target=samplers.py:good", *OPTIONS)
    outcomes = result.parseoutcomes()
    assert outcomes.get("failed", 0) == 0
    assert outcomes["passed"] >= 12
    result.stdout.fnmatch_lines(["*samplers.py:good::S.distribution*"])
    assert result.ret == 0


def test_the_plugin_reports_a_frozen_length_without_its_own_traceback(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(samplers=SAMPLERS)
    result = pytester.runpytest_inprocess("--specsim-target=samplers.py:frozen", *OPTIONS)
    assert result.ret == 1
    assert result.parseoutcomes()["failed"] == 3
    result.stdout.fnmatch_lines(["S.distribution fail: *", "*SequentialTest*"])
    result.stdout.no_fnmatch_line("*sampler_law.py*")


def test_the_plugin_takes_known_failures_and_a_choice_of_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(samplers=SAMPLERS)
    known = [f"--specsim-expect-failure={id}={reason}" for id, reason in KNOWN.items()]
    chosen = "S.range or S.mean or S.freshness"
    result = pytester.runpytest_inprocess(
        "--specsim-target=samplers.py:frozen", "-k", chosen, *known, *OPTIONS
    )
    assert result.ret == 0
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"], outcomes["xfailed"]) == (1, 2)


@pytest.mark.parametrize(
    "option",
    [
        "--specsim-target=nowhere.py:f",
        "--specsim-target=samplers.py:nothing",
        "--specsim-target=samplers.py:good --specsim-effort=huge",
        "--specsim-target=samplers.py:good --specsim-kind=huge",
        "--specsim-target=samplers.py:good --specsim-expect-failure=S.range",
        "--specsim-target=samplers.py:good --specsim-expect-failure=S.nothing=why",
    ],
)
def test_the_plugin_answers_a_wrong_call_with_a_usage_error(
    pytester: pytest.Pytester, option: str
) -> None:
    pytester.makepyfile(samplers=SAMPLERS)
    result = pytester.runpytest_inprocess(*option.split(" "), *OPTIONS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *"])
    result.stderr.no_fnmatch_line("*Traceback*")


def test_the_plugin_does_nothing_and_loads_nothing_without_a_target(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        textwrap.dedent(
            """
            import sys

            def test_light():
                assert "specsim.pytest_plugin" in sys.modules
                assert not {"torch", "scipy", "numpy"} & set(sys.modules)
            """
        )
    )
    result = pytester.runpytest_subprocess(*OPTIONS)
    result.assert_outcomes(passed=1)
