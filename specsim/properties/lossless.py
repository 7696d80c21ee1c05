"""L properties: an accept rule emits tokens as sampling from the target alone would.

A case is drawn, judged and settled once, for all L properties of a run. A planted fault, the
chain rule with its bonus drawn from p after a rejection, is judged by the same evidence on the
same drafts in some of the cases: without its rejection nothing passes.

The modules that run a case need torch: they are imported when a property is judged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from specsim.adapters.accept import ACCEPT_KINDS, AcceptTarget
from specsim.properties.lossless_cases import (
    LARGEST_JOINT,
    LosslessCase,
    lossless_cases,
    simple_cases,
)
from specsim.properties.outcome import Effort, Outcome, Verdict
from specsim.properties.registry import Property, register

if TYPE_CHECKING:
    from specsim.properties.lossless_evidence import LawTest, LosslessSettings
    from specsim.properties.lossless_runs import CaseResult
    from specsim.properties.session import AcceptSession

# Total variation that a pass rules out, and requests of one case after which it stays open. A
# table of 256 sequences takes about ten times the draws of a table of 8, and rules the more out.
LOSSLESS_LEVELS: dict[Effort, tuple[float, int]] = {
    "quick": (0.05, 200_000),
    "standard": (0.03, 500_000),
    "thorough": (0.02, 1_200_000),
}
"""Of each effort: the total variation that a pass rules out, and the requests of one case."""

# Requests of one case in the search for a simpler failure, which decides nothing.
_SEARCH_BUDGET = 20_000
_MEMO = "lossless"


@dataclass(frozen=True)
class LosslessRun:
    """All cases of a run.

    Attributes
    ----------
    settings
        What they had in common.
    results
        In the order of the plan.
    seconds
        Wall-clock time.
    left_out
        Cases that the rule cannot be asked for, since it has no `verify_lens`.
    """

    settings: LosslessSettings
    results: tuple[CaseResult, ...]
    seconds: float
    left_out: int = 0

    @property
    def requests(self) -> int:
        """Requests judged."""
        return sum(result.requests for result in self.results)


def run_cases(
    target: AcceptTarget, cases: Sequence[LosslessCase], session: AcceptSession
) -> LosslessRun:
    """Run a rule on cases, alpha divided equally among their streams.

    Parameters
    ----------
    target
        The rule.
    cases
        Fixed before anything is drawn.
    session
        Gives the settings, and is told of progress.
    """
    from specsim.properties.lossless_evidence import LosslessSettings
    from specsim.properties.lossless_runs import run_case

    started = time.perf_counter()
    wanted = session.settings
    delta, budget = LOSSLESS_LEVELS[wanted.effort]
    counted = target.kind == "chain-accept"
    kept = [case for case in cases if target.takes_verify_lens or not case.ragged]
    settings = LosslessSettings(
        seed=wanted.seed,
        alpha_run=wanted.alpha,
        alpha=wanted.alpha / sum(case.token_streams + counted for case in kept),
        delta=delta,
        tolerance=wanted.tolerance,
        budget=budget,
    )
    results = tuple(run_case(target, case, settings, session.progress) for case in kept)
    return LosslessRun(settings, results, time.perf_counter() - started, len(cases) - len(kept))


@register(
    "L.returns",
    "Every call returns, for each request, a number of accepted drafts and a token.",
    source="the accept rule's contract: 0 … the request's drafts, and a token of the vocabulary",
    kinds=ACCEPT_KINDS,
)
def returns(prop: Property, session: AcceptSession) -> Outcome:
    """Judge L.returns by all calls of the run."""
    target, run = session.target, _run(session)
    calls = sum(result.calls for result in run.results)
    common: dict[str, Any] = {"draws": run.requests, "seconds": run.seconds}
    broken = [result for result in run.results if result.failed is not None]
    if not broken:
        return prop.outcome("pass", f"{calls:,} calls, {run.requests:,} requests", **common)
    worst = min(broken, key=_complexity)
    worst = _simpler(session, run, worst, lambda result: result.failed is not None)
    assert worst.failed is not None
    detail = f"{worst.failed.summary}\n{worst.case.name}"
    if worst.failed.frames_text:
        detail += f"\n{worst.failed.frames_text.rstrip()}"
    return prop.outcome(
        "fail",
        detail,
        configuration=target.call_repr(ragged=worst.case.ragged),
        snippet=_program(session, worst, calls=1),
        evidence={"case": worst.case.name, "cases_failing": len(broken)},
        **common,
    )


@register(
    "L.distribution",
    "The emitted tokens have the distribution of sampling from the target alone, for each "
    "request independently.",
    source="Leviathan, Kalman and Matias (2023); Chen et al. (2023); Sun et al. (2024) for blocks",
    statistical=True,
    kinds=ACCEPT_KINDS,
)
def distribution(prop: Property, session: AcceptSession) -> Outcome:
    """Judge L.distribution by sequential tests of tokens completed from p to a fixed length."""
    return _judge(prop, session, _Tokens())


@register(
    "L.accepted",
    "The number of accepted drafts has the distribution that p and q imply for chain rejection "
    "sampling.",
    source="Leviathan et al. (2023): a draft token is accepted with probability min(1, p/q)",
    statistical=True,
    kinds=("chain-accept",),
)
def accepted(prop: Property, session: AcceptSession) -> Outcome:
    """Judge L.accepted by a sequential test of each case's counts."""
    return _judge(prop, session, _Counts())


class _Tokens:
    """What L.distribution looks at."""

    claim = "sampling from p alone"

    def tests(self, result: CaseResult) -> list[LawTest]:
        return result.tokens.laws

    def verdict(self, result: CaseResult) -> Verdict:
        if result.stray is not None:
            return "fail"
        verdict = result.tokens.verdict
        if verdict == "pass" and result.case.control and result.control is None:
            return "inconclusive"
        return verdict

    def explain(self, result: CaseResult) -> list[str]:
        from specsim.properties.lossless_report import bonus_remark, deviation

        if result.stray is not None:
            return [deviation(result)]
        if not any(test.excluded for test in self.tests(result)):
            return []
        length = result.case.gamma + 1
        lines = [f"of the emitted tokens, completed from p to {length}: {deviation(result)}"]
        remark = bonus_remark(result)
        return lines if remark is None else [*lines, remark]

    def open_text(self, result: CaseResult, delta: float) -> str:
        if result.tokens.verdict == "pass":
            return "the planted fault was not rejected, so that a pass would prove nothing"
        return _open_text(self.tests(result), delta)

    def passing(self, run: LosslessRun) -> str:
        apart = sum(not result.case.joint for result in run.results)
        text = (
            "no dependence between requests seen\n"
            f"{apart} of the cases, with more than {LARGEST_JOINT} sequences, position by "
            "position: by where a token falls in p given the tokens before it"
        )
        rejected = [r.control for r in run.results if r.control is not None]
        if rejected:
            text += (
                "\ncontrol: a planted rule that draws the bonus from p after a rejection was "
                f"rejected after {' and '.join(f'{n:,}' for n in rejected)} requests"
            )
        return text


class _Counts:
    """What L.accepted looks at."""

    claim = "what p and q imply"

    def tests(self, result: CaseResult) -> list[LawTest]:
        return [] if result.accepted is None else [result.accepted]

    def verdict(self, result: CaseResult) -> Verdict:
        return "inconclusive" if result.accepted is None else result.accepted.verdict

    def explain(self, result: CaseResult) -> list[str]:
        from specsim.properties.lossless_report import accepted_text

        return [accepted_text(result)]

    def open_text(self, result: CaseResult, delta: float) -> str:
        if result.stray is not None:
            return "not judged further: a token outside the target's support"
        return _open_text(self.tests(result), delta)

    def passing(self, run: LosslessRun) -> str:
        return ""


def _judge(prop: Property, session: AcceptSession, subject: _Tokens | _Counts) -> Outcome:
    target, run = session.target, _run(session)
    verdicts = [_verdict(subject, result) for result in run.results]
    common: dict[str, Any] = {"draws": run.requests, "seconds": run.seconds}
    listed = [_summary(subject, result, v) for result, v in zip(run.results, verdicts, strict=True)]
    failing = [r for r, v in zip(run.results, verdicts, strict=True) if v == "fail"]
    if failing:
        worst = min(failing, key=_complexity)
        worst = _simpler(session, run, worst, lambda result: subject.verdict(result) == "fail")
        lines = subject.explain(worst)
        depends = [text for test in subject.tests(worst) if (text := test.dependence())]
        # Counts of requests that depend on each other are off for that reason already.
        lines = [*depends[:1], *lines]
        lines[0] = f"{worst.case.name}: {lines[0]}"
        lines.append(f"{len(failing)} of {len(run.results)} cases fail")
        return prop.outcome(
            "fail",
            "\n".join(lines),
            configuration=target.call_repr(ragged=worst.case.ragged),
            snippet=_program(session, worst, calls=_calls(worst)),
            evidence=_evidence(subject, worst, run) | {"cases": listed},
            **common,
        )
    delta = run.settings.delta
    if "inconclusive" in verdicts:
        lines = []
        for result, verdict in zip(run.results, verdicts, strict=True):
            if verdict == "inconclusive":
                why = (
                    f"not judged: {result.failed.summary}"
                    if result.failed is not None
                    else subject.open_text(result, delta)
                )
                lines.append(f"{result.case.name}: {why}")
        more = [f"and {len(lines) - 3} more"] if len(lines) > 3 else []
        detail = "\n".join([*lines[:3], *more])
        return prop.outcome("inconclusive", detail, evidence={"cases": listed}, **common)
    detail = (
        f"{len(run.results)} cases, {run.requests:,} requests: no deviation of {delta:g} or more "
        f"in total variation from {subject.claim}, error {run.settings.alpha_run:g}, if the law "
        "does not change later"
    )
    further = [subject.passing(run)] if subject.passing(run) else []
    tolerated = [
        result.case.name
        for result in run.results
        if any(test.tolerated for test in subject.tests(result))
    ]
    if tolerated:
        further.append(
            f"measurably different, but within the {run.settings.tolerance:g} tolerated: "
            + "; ".join(tolerated)
        )
    if run.left_out:
        further.append(
            f"{run.left_out} cases left out: the rule has no verify_lens, so that all requests "
            "have the same number of drafts"
        )
    return prop.outcome("pass", "\n".join([detail, *further]), evidence={"cases": listed}, **common)


def _run(session: AcceptSession) -> LosslessRun:
    """Return the session's run, made when the first property asks for it."""
    if _MEMO not in session.memo:
        cases = lossless_cases(session.settings.effort, session.settings.seed)
        session.memo[_MEMO] = run_cases(session.target, cases, session)
    run: LosslessRun = session.memo[_MEMO]
    return run


def _verdict(subject: _Tokens | _Counts, result: CaseResult) -> Verdict:
    verdict = subject.verdict(result)
    return "inconclusive" if result.failed is not None and verdict == "pass" else verdict


def _complexity(result: CaseResult) -> tuple[bool, int, bool, int]:
    """Return the order in which failures are shown: one row of tables before many."""
    case = result.case
    return (case.ragged, case.sequences, len(case.batches) > 1, case.gamma)


def _simpler(
    session: AcceptSession,
    run: LosslessRun,
    failing: CaseResult,
    fails: Callable[[CaseResult], bool],
) -> CaseResult:
    """Look for a simpler case that fails too, with fresh draws.

    The verdict stands already; this only decides which case the reader is shown.
    """
    from specsim.properties.lossless_runs import run_case

    target = session.target
    settings = replace(run.settings, budget=_SEARCH_BUDGET)
    for case in simple_cases():
        if case.ragged and not target.takes_verify_lens:
            continue
        result = run_case(target, case, settings, session.progress)
        if fails(result):
            return result
    return failing


def _calls(result: CaseResult) -> int:
    """Return how many of the largest batches a program needs to show a failure."""
    return max(math.ceil(result.requests / max(result.case.batches)), 20)


def _program(session: AcceptSession, result: CaseResult, *, calls: int) -> str:
    from specsim.properties.lossless_report import program

    return program(result, session.target, session.import_line, session.settings.seed, calls=calls)


def _open_text(tests: list[LawTest], delta: float) -> str:
    upper = max((test.interval.upper for test in tests), default=1.0)
    return f"the law is within {upper:.3g} of the claim in total variation; {delta:g} was asked for"


def _summary(subject: _Tokens | _Counts, result: CaseResult, verdict: Verdict) -> dict[str, Any]:
    tests = subject.tests(result)
    logs = [test.log_e for test in tests]
    known = [log_e for log_e in logs if log_e is not None]
    return {
        "label": result.case.name,
        "verdict": verdict,
        "draws": result.requests,
        "log_e": max(known) if known and len(known) == len(logs) else None,
        "tv_upper": max((test.interval.upper for test in tests), default=1.0),
        "control": result.control,
    }


def _evidence(subject: _Tokens | _Counts, result: CaseResult, run: LosslessRun) -> dict[str, Any]:
    tests = subject.tests(result)
    worst = max(tests, key=lambda test: math.inf if test.log_e is None else test.log_e)
    return {
        "case": result.case.name,
        "log_e": None if result.stray is not None else worst.log_e,
        "log_threshold": -math.log(run.settings.alpha),
        "tv_lower": worst.share_interval.lower,
        "tv_upper": worst.interval.upper,
        "first_emitted": [list(tokens) for tokens in result.first],
    }
