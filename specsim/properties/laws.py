"""Properties that many draws decide: the distribution, its mean, and freshness."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specsim.evidence.dependence_power import DependenceClaims
from specsim.properties import snippets
from specsim.properties.configurations import LEVELS, METHODS, Course
from specsim.properties.courses import run_course
from specsim.properties.outcome import Outcome
from specsim.properties.registry import LENGTH_KINDS, Property, register
from specsim.properties.session import Session
from specsim.properties.stream import Aspect, StreamResult
from specsim.targets import Configuration

# Simple configurations that a failure is looked for in afterwards, simplest first.
_SIMPLE = ((1.5, 2), (1.25, 2), (2.5, 4), (2.75, 4), (1.2, 4), (2.0, 3))
# The search for a simpler case may draw this many times what the failure took.
_SEARCH_FACTOR, _SEARCH_LIMIT = 4, 20_000


@dataclass(frozen=True)
class _Judged:
    """A stream, and what one property has to say of it."""

    course: Course
    stream: StreamResult
    aspect: Aspect

    @property
    def rank(self) -> tuple[bool, int, bool]:
        """Order in which failures are reported: alone before mixed, small before large."""
        first = self.course.configurations[0]
        later_method = first.method not in (None, METHODS[0])
        return (self.course.mode != "alone", first.max_len, later_method)


def distribution(prop: Property, session: Session) -> Outcome:
    """Judge the distribution by the sequential test and its confidence region."""
    return _judge(prop, session, "distribution", mixed=False)


def mean(prop: Property, session: Session) -> Outcome:
    """Judge the mean by a betting confidence sequence."""
    return _judge(prop, session, "mean", mixed=False)


def freshness(prop: Property, session: Session) -> Outcome:
    """Judge freshness by transitions, by agreement at up to 1,024 draws back, and by pairs."""
    return _judge(prop, session, "freshness", mixed=True)


for _letter, _kinds in LENGTH_KINDS.items():
    register(
        f"{_letter}.distribution",
        "Lengths have exactly the distribution that the configuration claims.",
        source="SGLang PR 33463 (4.7 became 5 for ever); vLLM PR 39359, ATOM PR 1948 (spread)",
        statistical=True,
        kinds=_kinds,
    )(distribution)
    register(
        f"{_letter}.mean",
        "The running mean of the lengths converges to the distribution's mean.",
        source="published acceptance lengths are means; SGLang PR 33463",
        statistical=True,
        kinds=_kinds,
    )(mean)
    register(
        f"{_letter}.freshness",
        "Every length is drawn anew: none depends on earlier draws or on other configurations.",
        source="SGLang PR 33463: drawn once when a buffer was allocated, then reused",
        statistical=True,
        kinds=_kinds,
    )(freshness)


def _judge(prop: Property, session: Session, name: str, *, mixed: bool) -> Outcome:
    judged = [
        _Judged(course, stream, _aspect(stream, name))
        for course, stream in session.streams
        if mixed or course.mode != "joint"
    ]
    lost = [result.course.name for result in session.lost]
    verdicts = {j.aspect.verdict for j in judged} | ({"inconclusive"} if lost else set())
    common: dict[str, Any] = {
        "seconds": session.timed_courses[1],
        "draws": sum(j.stream.draws for j in judged),
    }
    listed = [_summary(j) for j in judged]
    if "fail" in verdicts:
        worst = min((j for j in judged if j.aspect.verdict == "fail"), key=lambda j: j.rank)
        failing = sum(j.aspect.verdict == "fail" for j in judged)
        worst = _simpler(session, worst, name)
        detail = worst.aspect.text
        if worst.course.mode == "interleaved":
            detail = f"{worst.stream.label}, in turn with others: {detail}"
        if failing > 1:
            detail += f"\n{failing} of {len(judged)} streams fail"
        return prop.outcome(
            "fail",
            detail,
            configuration=_calls(session, worst.course),
            snippet=_snippet(session, worst),
            evidence=_evidence(worst) | {"streams": listed},
            **common,
        )
    if "inconclusive" in verdicts:
        open_ = [j for j in judged if j.aspect.verdict == "inconclusive"]
        lines = [f"{j.stream.label}: {j.stream.broken or j.aspect.text}" for j in open_]
        lines += [f"{course}: the process ended" for course in lost]
        more = f"\nand {len(lines) - 3} more" if len(lines) > 3 else ""
        detail = "\n".join(lines[:3]) + more
        return prop.outcome("inconclusive", detail, evidence={"streams": listed}, **common)
    detail = _passing_detail(session, judged, name)
    return prop.outcome("pass", detail, evidence={"streams": listed}, **common)


def _aspect(stream: StreamResult, name: str) -> Aspect:
    own = stream.aspects[name]
    if stream.broken and own.verdict == "pass":
        return Aspect("inconclusive", stream.broken, None)
    return own


def _summary(judged: _Judged) -> dict[str, Any]:
    return {
        "label": judged.stream.label,
        "mode": judged.course.mode,
        "verdict": judged.aspect.verdict,
        "draws": judged.stream.draws,
        "log_e": judged.aspect.log_e,
        "tv_upper": judged.stream.tv_upper,
        "text": judged.aspect.text,
    }


def _evidence(judged: _Judged) -> dict[str, Any]:
    stream = judged.stream
    return {
        "counts": stream.counts,
        "expected": stream.expected,
        "log_e": judged.aspect.log_e,
        "log_threshold": stream.log_threshold,
        "tv_lower": stream.tv_lower,
        "tv_upper": stream.tv_upper,
        "first_draws": list(stream.first_draws),
    }


def _calls(session: Session, course: Course) -> str:
    calls = [session.target.call_repr(c) for c in course.configurations]
    return ", ".join(calls)


def _snippet(session: Session, judged: _Judged) -> str:
    draws = max(judged.stream.draws, 200)
    if judged.course.mode == "joint":
        return snippets.pairs(session, judged.course.configurations, draws)
    configurations = judged.course.configurations
    tested = next(c for c in configurations if c.label == judged.stream.label)
    others = tuple(c for c in configurations if c is not tested)
    return snippets.stream(session, (tested, *others), draws, session.stream_settings.alpha)


def _simpler(session: Session, failing: _Judged, name: str) -> _Judged:
    """Look for a simpler configuration that fails too, with fresh draws.

    The verdict stands already; this only decides which case the reader is shown.
    """
    shown = failing.course.configurations[0]
    if failing.course.mode != "alone" or shown.acc_len is None:
        return failing
    budget = min(_SEARCH_FACTOR * failing.stream.draws, _SEARCH_LIMIT)
    settings = replace(session.stream_settings, budget=budget)
    for acc_len, max_len in _SIMPLE:
        if max_len >= shown.max_len:
            continue
        candidate = Configuration(acc_len, shown.method, max_len)
        course = Course(f"simpler {candidate.label}", "alone", (candidate,))
        stream = run_course(session.target, course, settings, session.progress).streams[0]
        if stream.aspects[name].verdict == "fail":
            return _Judged(course, stream, stream.aspects[name])
    return failing


def _passing_detail(session: Session, judged: list[_Judged], name: str) -> str:
    level, alpha = LEVELS[session.settings.effort], session.settings.alpha
    draws = sum(j.stream.draws for j in judged)
    head = f"{len(judged)} streams, {draws:,} lengths"
    if name == "mean":
        return (
            f"{head}: no mean is off by {2 * level.delta:g} lengths or standard deviations, "
            f"whichever is more, beyond what the tolerance of {session.settings.tolerance:g} "
            f"allows, error {alpha:g}"
        )
    if name == "distribution":
        text = (
            f"{head}: no deviation of {level.delta:g} or more in total variation, "
            f"error {alpha:g}, if the law does not change later"
        )
        tolerated = [j.stream.label for j in judged if j.aspect.tolerated]
        if tolerated:
            text += (
                f"\nmeasurably different, but within the {session.settings.tolerance:g} "
                f"tolerated: {'; '.join(tolerated)}"
            )
        return text
    claims = [j.stream.claims for j in judged if j.stream.claims is not None]
    if not claims:
        return f"{head}, all fixed by their configuration"
    best, least = max(claims, key=_reach), min(claims, key=_reach)
    text = f"{head}; no dependence seen. What the draws would have shown with 99 % power: "
    if best == least:
        return text + best.describe()
    return f"{text}{best.describe()}; in the least telling stream: {least.describe()}"


def _reach(claims: DependenceClaims) -> tuple[int, int, int]:
    return (claims.held_up_to, claims.pool_up_to, claims.antithetic_up_to)
