"""Properties of every target that draws lengths, each of which one length can refute."""

from __future__ import annotations

from specsim.properties import snippets
from specsim.properties.outcome import Outcome
from specsim.properties.registry import LENGTH_KINDS, Property, register
from specsim.properties.session import Session


def by_certificates(prop: Property, session: Session) -> Outcome:
    """Judge a property that one length can refute."""
    refuting = session.violations(prop.name)
    configurations, draws, seconds = session.observed
    common = {"draws": draws, "seconds": seconds}
    if not refuting:
        unreturned = session.violations("returns")
        if unreturned:
            call = session.target.call_repr(unreturned[0].configuration)
            return prop.outcome(
                "inconclusive", f"not judged: {call} {unreturned[0].message}", **common
            )
        if not draws:
            return prop.outcome("inconclusive", "not judged: no length was drawn", **common)
        detail = f"{draws:,} lengths of {configurations:,} configurations"
        return prop.outcome("pass", detail, **common)
    violation = refuting[0]
    call = session.target.call_repr(violation.configuration)
    detail = f"{call} {violation.message}"
    if violation.frames:
        detail += f"\n{violation.frames.rstrip()}"
    return prop.outcome(
        "fail",
        detail,
        configuration=call,
        snippet=snippets.one_call(session, violation.configuration, 50),
        evidence={"values": list(violation.values), "violations": len(refuting)},
        **common,
    )


def returns(prop: Property, session: Session) -> Outcome:
    """Judge a property `returns`: a target that raises, exits or ends its process fails it."""
    outcome = by_certificates(prop, session)
    if not session.lost:
        return outcome
    lost = session.lost[0]
    call = session.target.call_repr(lost.course.configurations[0])
    return prop.outcome(
        "fail",
        f"{lost.reason} while drawing {call} ({lost.course.name})",
        configuration=call,
        snippet=snippets.one_call(session, lost.course.configurations[0], 1_000),
        draws=outcome.draws,
        seconds=outcome.seconds,
    )


for _letter, _kinds in LENGTH_KINDS.items():
    if _letter != "E":  # where calls are refused that no length is drawn from
        register(
            f"{_letter}.returns",
            {
                "S": "The sampler returns for every finite length, known method and max_len of at "
                "least 1."
            }.get(_letter, "It returns for every length above 0, known method and gamma."),
            source="design: every finite length is clamped, not refused",
            kinds=_kinds,
        )(returns)
    for _name, _statement, _source in (
        ("range", "Every length lies in [1, max_len].",
         "design: the target's own token is always committed, and no more than gamma drafts"),
        ("support", "Every length has a positive probability under the configured law.",
         "vLLM PR 39359: right mean, wider spread"),
        ("integers", "An integer length under match-expected is returned exactly.",
         "design: the fraction is 0, so there is nothing to draw"),
        ("clamping", "A length outside [1, max_len] is clamped to the nearer end.",
         "design: a sampler clamps whatever finite length it is given"),
    ):  # fmt: skip
        if (_letter, _name) != ("E", "range"):  # whose buffer shows more than lengths
            register(f"{_letter}.{_name}", _statement, source=_source, kinds=_kinds)(
                by_certificates
            )

register(
    "S.type",
    "Every length is an integer, not a tensor, float or bool.",
    source="engines index tensors and count tokens with it",
)(by_certificates)
register(
    "S.plain-int",
    "Every length is a plain int, not a NumPy integer.",
    source="NumPy integers are not JSON serialisable and overflow",
    required=False,
)(by_certificates)
