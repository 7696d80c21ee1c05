"""Hands the catalogue to other people's test suites: one test for each target and property."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from specsim.checking import describe_callable, open_session
from specsim.loading.failures import shown
from specsim.properties.configurations import METHODS
from specsim.properties.outcome import Effort, Outcome
from specsim.properties.registry import Property, must_be_judged, select
from specsim.properties.session import (
    DEFAULT_TOLERANCE,
    AcceptSession,
    Session,
    Settings,
    as_names,
    as_reasons,
)
from specsim.targets import load_target

if TYPE_CHECKING:
    import pytest

_Test = TypeVar("_Test", bound=Callable[..., object])


class PropertyFailure(AssertionError):  # noqa: N818 - a failed assertion, named for what failed
    """A required property does not hold, or could not be settled; the text is the report."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(failure_text(outcome))
        self.outcome = outcome


@dataclass(frozen=True)
class PropertyCheck:
    """One property of one target, ready to be judged by calling it.

    Attributes
    ----------
    prop
        The property.
    session
        The target and its draws, shared by all properties of that target.
    expected
        Whether its failure is expected: then an advisory property's is a failure too.
    """

    prop: Property
    session: Session | AcceptSession
    expected: bool = False

    def __call__(self) -> Outcome:
        """Judge the property.

        Returns
        -------
        Outcome
            Of a property that holds.

        Raises
        ------
        PropertyFailure
            If it fails or stays inconclusive, and is required or its failure expected.
        pytest.skip.Exception
            If it does not apply, or is advisory and does not hold.
        """
        import pytest

        outcome = self.prop.check(self.session)
        if outcome.verdict == "pass":
            return outcome
        if outcome.verdict != "skip" and (outcome.required or self.expected):
            raise PropertyFailure(outcome)
        reason = "does not apply" if outcome.verdict == "skip" else "advisory, does not hold"
        pytest.skip(f"{outcome.property_id} {reason}: {outcome.detail}")


def property_checks(
    target: str | Callable[..., object],
    kind: str | None,
    settings: Settings,
    properties: Iterable[str] | None = None,
    expected: Iterable[str] = (),
) -> list[PropertyCheck]:
    """Return the checks of one target, which share its draws; failures of some are expected.

    Raises
    ------
    TargetError
        If the target cannot be loaded or called.
    ValueError
        If a property id is unknown.
    """
    loaded = load_target(target) if isinstance(target, str) else describe_callable(target)
    session = open_session(loaded, kind, settings)
    chosen = select(session.target.kind, properties)
    if isinstance(session, Session):
        session.wants_streams = any(prop.statistical for prop in chosen)
    known = set(expected)
    return [PropertyCheck(prop, session, prop.id in known) for prop in chosen]


def failure_text(outcome: Outcome) -> str:
    """Return what a reader of a test log needs: the statement, what was seen, and a program."""
    lines = [f"{outcome.property_id} {outcome.verdict}: {outcome.statement}"]
    if outcome.configuration:
        lines.append(f"call: {outcome.configuration}")
    lines.append(outcome.detail)
    if outcome.snippet:
        lines += ["reproduce with:", "", outcome.snippet]
    return "\n".join(lines)


def parametrize_with_properties(
    targets: Iterable[str | Callable[..., object]],
    *,
    expected_failures: Mapping[str, str] | None = None,
    kind: str | None = None,
    effort: Effort = "quick",
    alpha: float = 1e-6,
    seed: int = 0,
    coupling: str = "batch",
    properties: Iterable[str] | None = None,
    methods: Iterable[str] = METHODS,
    tolerance: float = DEFAULT_TOLERANCE,
    step_method: str | None = None,
    step_tensor: str | None = None,
) -> Callable[[_Test], _Test]:
    """Return a decorator that runs a test once for each target and property.

    The test takes one argument, ``check``, and calls it. Properties of one target share its
    draws and one `alpha`: a correct target fails any of its tests with probability at most
    `alpha`.

    Parameters
    ----------
    targets
        Callables, or texts that name them.
    expected_failures
        Ids of properties known to fail, with the reason: these tests are strict xfails, for
        each of the targets. Targets with different known failures take a decorator each.
    kind, effort, alpha, seed, coupling, properties, methods, tolerance, step_method, step_tensor
        As in `specsim.check`; the effort is ``"quick"`` by default, the one for every commit.

    Returns
    -------
    decorator

    Raises
    ------
    TargetError
        If a target cannot be loaded or called.
    ValueError
        If a setting or a property id is not allowed, or there is no target.
    TypeError
        If `targets` is a single one, or another argument not of the kind described.

    Examples
    --------
    >>> @parametrize_with_properties([my_sampler])  # doctest: +SKIP
    ... def test_simulated_acceptance_length(check):
    ...     check()
    """
    import pytest

    if isinstance(targets, str) or not isinstance(targets, Iterable):
        raise TypeError(f"targets must be a list of callables or texts, got {shown(targets)}")
    names = as_names("methods", methods)
    settings = Settings(effort, alpha, seed, coupling, names, tolerance, step_method, step_tensor)
    wanted = None if properties is None else as_names("properties", properties)
    reasons = as_reasons(expected_failures)
    checks = [
        check
        for target in targets
        for check in property_checks(target, kind, settings, wanted, reasons)
    ]
    must_be_judged(reasons, [check.prop for check in checks])
    if not checks:
        raise ValueError("targets must name at least one target with a property to judge")
    cases = [
        pytest.param(
            check,
            id=f"{check.session.target.name}-{check.prop.id}",
            marks=expected_failure_marks(check.prop.id, reasons),
        )
        for check in checks
    ]
    return pytest.mark.parametrize("check", cases)


def expected_failure_marks(
    property_id: str, expected_failures: Mapping[str, str]
) -> list[pytest.MarkDecorator]:
    """Return the marks of a property's test: a strict xfail if its failure is expected."""
    import pytest

    if property_id not in expected_failures:
        return []
    reason = expected_failures[property_id]
    return [pytest.mark.xfail(reason=reason, strict=True, raises=PropertyFailure)]
