"""Judges the law, the mean and the freshness of recorded lengths."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.acceptance import AcceptanceDistribution
from specsim.evidence.design import least_draws
from specsim.evidence.region import tv_interval
from specsim.properties.configurations import LEVELS, law_of
from specsim.properties.outcome import Outcome
from specsim.properties.stream import Aspect
from specsim.trace.session import TraceSession, claimed
from specsim.trace.streams import Subject, TraceStream, trace_streams

if TYPE_CHECKING:
    from specsim.properties.registry import Property


def judge_law(prop: Property, session: TraceSession) -> Outcome:
    """Judge E.distribution."""
    return _judge(prop, session, "all", "distribution")


def judge_mean(prop: Property, session: TraceSession) -> Outcome:
    """Judge E.mean."""
    return _judge(prop, session, "all", "mean")


def judge_freshness(prop: Property, session: TraceSession) -> Outcome:
    """Judge E.freshness."""
    return _judge(prop, session, "all", "freshness")


def judge_graph_law(prop: Property, session: TraceSession) -> Outcome:
    """Judge G.distribution."""
    return _judge(prop, session, "graph", "distribution")


def judge_graph_freshness(prop: Property, session: TraceSession) -> Outcome:
    """Judge G.freshness."""
    return _judge(prop, session, "graph", "freshness")


def slots_apart(session: TraceSession) -> list[TraceStream]:
    """Return, for workers that draw for each slot, what the pairs of their slots showed."""
    return [s for s in streams_of(session) if s.subject == "slots"]


def streams_of(session: TraceSession) -> list[TraceStream]:
    """Return every stream of the trace, judged."""
    return session.once("trace.streams", trace_streams)


def lengths_for_a_pass(law: AcceptanceDistribution, *, delta: float, alpha: float) -> int:
    """Return about how many lengths a pass takes, if the law is the claimed one.

    Counts as they are expected, and the total variation that chance adds to them on average:
    half the sum over lengths of the mean deviation of a share, √(2p(1 − p)/πn).
    """
    pmf = law.pmf[law.pmf > 0.0]
    spread = 0.5 * float(np.sqrt(2.0 * pmf * (1.0 - pmf) / math.pi).sum())

    def enough(draws: int) -> float:
        counts = np.rint(draws * pmf).astype(np.int64)
        region = tv_interval(counts, pmf, alpha)
        return float(region.upper + spread / math.sqrt(draws) <= delta)

    return least_draws(enough, 1.0)


def _judge(prop: Property, session: TraceSession, subject: Subject, name: str) -> Outcome:
    streams = [s for s in streams_of(session) if s.subject == subject]
    if not streams:
        return prop.outcome("skip", "no acceptance length was configured: the law is not known")
    judged = [s for s in streams if s.result.draws or s.result.aspects[name].verdict == "fail"]
    if not judged:
        if subject == "graph":
            return prop.outcome("skip", "no step was recorded as a graph's")
        return prop.outcome("inconclusive", _nothing(streams))
    listed = [_summary(s, s.result.aspects[name]) for s in judged]
    common: dict[str, Any] = {
        "draws": sum(s.result.draws for s in judged),
        "seconds": sum(s.result.seconds for s in judged),
    }
    failing = [s for s in judged if s.result.aspects[name].verdict == "fail"]
    if failing:
        worst = failing[0]
        detail = f"{worst.result.label}: {worst.result.aspects[name].text}"
        if len(failing) > 1:
            detail += f"\n{len(failing)} of {len(judged)} streams fail"
        return prop.outcome(
            "fail",
            detail,
            configuration=f"{worst.source.label}: {worst.configuration.label}",
            snippet=_snippet(session, worst),
            evidence=_evidence(worst, name) | {"streams": listed},
            **common,
        )
    open_ = [s for s in judged if s.result.aspects[name].verdict == "inconclusive"]
    evidence = {"streams": listed}
    if open_:
        detail = "\n".join(_open_line(session, s, s.result.aspects[name]) for s in open_[:3])
        more = f"\nand {len(open_) - 3} more" if len(open_) > 3 else ""
        return prop.outcome("inconclusive", detail + more, evidence=evidence, **common)
    return prop.outcome("pass", _passing(session, judged, name), evidence=evidence, **common)


def _nothing(streams: list[TraceStream]) -> str:
    capped = sum(s.capped for s in streams)
    if capped:
        return (
            f"all {capped:,} lengths have a cap in force, and what it trimmed was not recorded: "
            "record cap_trim_lens"
        )
    return "no length was recorded: record correct_len or commit_lens"


def _open_line(session: TraceSession, stream: TraceStream, aspect: Aspect) -> str:
    settings = session.settings
    needed = lengths_for_a_pass(
        law_of(claimed(stream.configuration)),
        delta=LEVELS[settings.effort].delta,
        alpha=settings.alpha,
    )
    unit = "lengths" if stream.configuration.coupling == "slot" else "steps"
    line = (
        f"{stream.result.label}: {aspect.text}; {stream.result.draws:,} {unit} recorded, a pass "
        f"takes about {needed:,}"
    )
    return line + _capped(stream)


def _capped(stream: TraceStream) -> str:
    if not stream.capped:
        return ""
    return (
        f"; {stream.capped:,} lengths with a cap in force were not judged, as what it trimmed "
        "was not recorded"
    )


def _passing(session: TraceSession, judged: list[TraceStream], name: str) -> str:
    level, settings = LEVELS[session.settings.effort], session.settings
    draws = sum(s.result.draws for s in judged)
    many = "1 stream" if len(judged) == 1 else f"{len(judged)} streams"
    head = f"{many}, {draws:,} lengths"
    if name == "mean":
        text = (
            f"{head}: no mean is off by {2 * level.delta:g} lengths or standard deviations, "
            f"whichever is more, beyond what the tolerance of {settings.tolerance:g} allows, "
            f"error {settings.alpha:g}"
        )
    elif name == "distribution":
        text = (
            f"{head}: no deviation of {level.delta:g} or more in total variation, error "
            f"{settings.alpha:g}, if the law does not change"
        )
        tolerated = [s.result.label for s in judged if s.result.aspects[name].tolerated]
        if tolerated:
            text += (
                f"\nmeasurably different, but within the {settings.tolerance:g} tolerated: "
                f"{'; '.join(tolerated)}"
            )
    else:
        claims = [s.result.claims for s in judged if s.result.claims is not None]
        if not claims:
            fixed = all(len(s.result.expected) == 1 for s in judged)
            what = (
                "all fixed by their configuration"
                if fixed
                else "no dependence beyond the wrong law"
            )
            return f"{head}; {what}"
        least = min(claims, key=lambda c: (c.held_up_to, c.pool_up_to, c.antithetic_up_to))
        text = (
            f"{head}; no dependence seen. What each stream would have shown with 99 % power: "
            f"{least.describe()}"
        )
    return text + "".join(_capped(s) for s in judged[:1])


def _summary(stream: TraceStream, aspect: Aspect) -> dict[str, Any]:
    return {
        "label": stream.result.label,
        "verdict": aspect.verdict,
        "draws": stream.result.draws,
        "log_e": aspect.log_e,
        "tv_upper": stream.result.tv_upper,
        "text": aspect.text,
    }


def _evidence(stream: TraceStream, name: str) -> dict[str, Any]:
    result = stream.result
    return {
        "counts": result.counts,
        "expected": result.expected,
        "log_e": result.aspects[name].log_e,
        "log_threshold": result.log_threshold,
        "tv_lower": result.tv_lower,
        "tv_upper": result.tv_upper,
        "first_draws": list(result.first_draws),
    }


def _snippet(session: TraceSession, stream: TraceStream) -> str:
    per_slot = stream.configuration.coupling == "slot"
    chosen = "step.lengths" if per_slot else "step.lengths[:1]"
    only = " if step.graph" if stream.subject == "graph" else ""
    path, rank = stream.source.run.path, stream.source.rank
    return "\n".join(
        [
            "from collections import Counter",
            "",
            session.import_line,
            "",
            "lengths = [",
            "    length",
            f"    for step in read_steps({path!r}, rank={rank}){only}",
            f"    for length in {chosen}",
            "]",
            'print("first", lengths[:40])',
            'print("seen", dict(sorted(Counter(lengths).items())))',
            f'print("claimed", {_claim(stream)})',
            "",
        ]
    )


def _claim(stream: TraceStream) -> str:
    law = law_of(claimed(stream.configuration))
    return repr({k: round(float(law.pmf[k - 1]), 4) for k in law.support})
