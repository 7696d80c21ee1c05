"""What a check returns: one outcome a property, and the report that holds them.

Standard library only: the front ends render reports in a process that never imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

Verdict: TypeAlias = Literal["pass", "fail", "inconclusive", "skip"]
Effort: TypeAlias = Literal["quick", "standard", "thorough"]
EFFORTS: tuple[Effort, ...] = get_args(Effort)


@dataclass(frozen=True)
class Outcome:
    """One property's verdict on one target.

    Attributes
    ----------
    property_id
        For example ``"S.distribution"``.
    statement
        The property in one sentence.
    verdict
        ``"pass"``, ``"fail"``, ``"inconclusive"`` (the budget of draws ended before either) or
        ``"skip"`` (nothing of the target that the property speaks of).
    required
        Whether the run's success depends on it; ``False`` for advisory properties.
    draws
        Lengths drawn from the target on this property's behalf; draws shared with other
        properties count for each of them.
    seconds
        Wall-clock time, shared work included.
    detail
        What was seen, what was expected and how sure that is: one line or several.
    snippet
        For a failure: a complete Python program that shows it again; otherwise ``None``.
    configuration
        The smallest configuration known to show the failure, as the call that was made.
    evidence
        Numbers behind the verdict, JSON types only: for example ``log_e`` in nats (``None``
        for a value outside the support), ``log_threshold``, ``tv_upper``, ``counts``.
    expected
        The reason given by the user for an expected failure, or ``None``.
    """

    property_id: str
    statement: str
    verdict: Verdict
    required: bool
    draws: int = 0
    seconds: float = 0.0
    detail: str = ""
    snippet: str | None = None
    configuration: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    expected: str | None = None

    @property
    def holds_up_the_run(self) -> bool:
        """Whether this outcome alone makes the run fail."""
        return self.required and self.expected is None and self.verdict in ("fail", "inconclusive")


def read_reasons(option: str, pairs: Iterable[str]) -> dict[str, str]:
    """Return the expected failures that texts like ``S.range=a reason`` name.

    Parameters
    ----------
    option
        What the user calls the option, for the error.
    pairs
        ``ID=REASON`` texts.

    Raises
    ------
    ValueError
        If an id or a reason is missing.
    """
    reasons = {}
    for pair in pairs:
        property_id, _, reason = pair.partition("=")
        if not (property_id and reason.strip()):
            raise ValueError(f"{option} needs ID=REASON, got {pair!r}")
        reasons[property_id] = reason.strip()
    return reasons


@dataclass(frozen=True)
class Report:
    """All outcomes of one check.

    Attributes
    ----------
    target
        The target as the user named it.
    kind
        ``"sampler"``, ``"vector-sampler"``, ``"rates-sampler"``, …
    effort, alpha, seed, coupling
        The settings of the run; `alpha` bounds the probability that a correct target is
        rejected by the whole run.
    outcomes
        In the catalogue's order.
    seconds
        Wall-clock time of the whole run.
    versions
        Versions of what took part: specsim, Python, NumPy, and torch if it was loaded.
    """

    target: str
    kind: str
    effort: str
    alpha: float
    seed: int
    coupling: str
    outcomes: tuple[Outcome, ...]
    seconds: float
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every required property holds, expected failures aside."""
        return bool(self.judged) and not any(o.holds_up_the_run for o in self.outcomes)

    @property
    def judged(self) -> tuple[Outcome, ...]:
        """The outcomes that say something about the target: all but the skipped ones."""
        return tuple(o for o in self.outcomes if o.verdict != "skip")

    def counts(self) -> dict[Verdict, int]:
        """Return how many outcomes have each verdict."""
        seen = [o.verdict for o in self.outcomes]
        return {verdict: seen.count(verdict) for verdict in get_args(Verdict)}

    def __getitem__(self, property_id: str) -> Outcome:
        """Return the outcome of one property.

        Raises
        ------
        KeyError
            If that property did not take part; names those that did.
        """
        for outcome in self.outcomes:
            if outcome.property_id == property_id:
                return outcome
        known = ", ".join(o.property_id for o in self.outcomes)
        raise KeyError(f"no outcome for {property_id!r}; this report has: {known}")
