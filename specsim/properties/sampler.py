"""S properties that a few calls decide: what a sampler returns, refuses and leaves alone."""

from __future__ import annotations

import sys

from specsim.properties import snippets
from specsim.properties.generators import (
    GlobalStates,
    own_generators,
    reseeded,
    seed_global_generators,
)
from specsim.properties.outcome import Outcome, Verdict
from specsim.properties.registry import Property, register
from specsim.properties.session import Session
from specsim.targets import Configuration, TargetFailed, TargetRaised, describe

_METHOD_KINDS = ("sampler", "vector-sampler")
_UNKNOWN_METHODS = ("no-such-method", "")


def _by_certificates(prop: Property, session: Session) -> Outcome:
    """Judge a property that one length can refute."""
    refuting = session.violations(prop.id)
    configurations, draws, seconds = session.observed
    common = {"draws": draws, "seconds": seconds}
    if not refuting:
        detail = f"{draws:,} lengths of {configurations:,} configurations"
        return _outcome(prop, "pass", detail, **common)
    violation = refuting[0]
    call = session.target.call_repr(violation.configuration)
    detail = f"{call} {violation.message}"
    if violation.frames:
        detail += f"\n{violation.frames.rstrip()}"
    return _outcome(
        prop,
        "fail",
        detail,
        configuration=call,
        snippet=snippets.one_call(session, violation.configuration, 50),
        evidence={"values": list(violation.values), "violations": len(refuting)},
        **common,
    )


def _outcome(prop: Property, verdict: Verdict, detail: str, **more: object) -> Outcome:
    return Outcome(
        property_id=prop.id,
        statement=prop.statement,
        verdict=verdict,
        required=prop.required,
        detail=detail,
        **more,  # type: ignore[arg-type]
    )


@register(
    "S.returns",
    "The sampler returns for every finite length, known method and max_len of at least 1.",
    source="design: every finite length is clamped, not refused",
)
def returns(prop: Property, session: Session) -> Outcome:
    """Judge S.returns: a target that raises, exits or ends its process fails it."""
    outcome = _by_certificates(prop, session)
    if not session.lost:
        return outcome
    lost = session.lost[0]
    call = session.target.call_repr(lost.course.configurations[0])
    return _outcome(
        prop,
        "fail",
        f"{lost.reason} while drawing {call} ({lost.course.name})",
        configuration=call,
        snippet=snippets.one_call(session, lost.course.configurations[0], 1_000),
        draws=outcome.draws,
        seconds=outcome.seconds,
    )


for _id, _required, _statement, _source in (
    ("S.type", True, "Every length is an integer, not a tensor, float or bool.",
     "engines index tensors and count tokens with it"),
    ("S.plain-int", False, "Every length is a plain int, not a NumPy integer.",
     "NumPy integers are not JSON serialisable and overflow"),
    ("S.range", True, "Every length lies in [1, max_len].",
     "design: the target's own token is always committed, and no more than gamma drafts"),
    ("S.support", True, "Every length has a positive probability under the configured law.",
     "vLLM PR 39359: right mean, wider spread"),
    ("S.integers", True, "An integer length under match-expected is returned exactly.",
     "design: the fraction is 0, so there is nothing to draw"),
    ("S.clamping", True, "A length outside [1, max_len] is clamped to the nearer end.",
     "design: a sampler clamps whatever finite length it is given"),
):  # fmt: skip
    register(_id, _statement, required=_required, source=_source)(_by_certificates)


def _refusals(session: Session) -> tuple[list[str], list[tuple[str, BaseException]]]:
    """Call with unknown methods; return those accepted, and what the others raised."""
    accepted, refused = [], []
    for method in _UNKNOWN_METHODS:
        for acc_len, max_len in ((4.7, 8), (2.0, 4)):
            configuration = Configuration(acc_len, method, max_len)
            with own_generators(session.settings.seed, "unknown method", method, acc_len):
                try:
                    session.target.draw_many(configuration, 1)
                except TargetRaised as raised:
                    refused.append((method, raised.exception))
                except TargetFailed:
                    pass
                else:
                    accepted.append(session.target.call_repr(configuration))
    return accepted, refused


@register(
    "S.method",
    "An unknown method is refused.",
    source="SGLang: a misspelt method must not silently give another law",
    kinds=_METHOD_KINDS,
)
def unknown_method(prop: Property, session: Session) -> Outcome:
    """Judge S.method: any exception is a refusal."""
    accepted, refused = _refusals(session)
    if accepted:
        call = accepted[0]
        return _outcome(
            prop,
            "fail",
            f"{call} returned; an unknown method must raise",
            configuration=call,
            snippet=f"{session.import_line}\n\nprint({call})  # should raise\n",
            draws=len(accepted),
        )
    return _outcome(prop, "pass", f"refused with {describe(refused[0][1])}")


@register(
    "S.method-error",
    "An unknown method is refused with a ValueError that names it.",
    source="design: errors name the argument, its value and what was allowed",
    required=False,
    kinds=_METHOD_KINDS,
)
def unknown_method_error(prop: Property, session: Session) -> Outcome:
    """Judge S.method-error."""
    _, refused = _refusals(session)
    if not refused:
        return _outcome(prop, "skip", "no unknown method was refused: see S.method")
    for method, exception in refused:
        if not isinstance(exception, ValueError) or method not in str(exception):
            detail = f"method {method!r} was refused with {describe(exception)}"
            return _outcome(prop, "fail", detail)
    return _outcome(prop, "pass", describe(refused[0][1]))


def _ordinary(session: Session) -> list[Configuration]:
    """Return a few configurations with something to draw."""
    if session.target.kind == "rates-sampler":
        return [Configuration(None, None, 4, (0.9, 0.5, 0.2)), Configuration(None, None, 2, (0.7,))]
    return [
        Configuration(acc_len, method, max_len)
        for method in session.settings.methods
        for acc_len, max_len in ((4.7, 8), (2.5, 4), (1.3, 2))
    ]


@register(
    "S.generators",
    "The global random generators are not reseeded.",
    source="design: a benchmark's knob must not repeat the draws of everything around it",
)
def generators_left_alone(prop: Property, session: Session) -> Outcome:
    """Judge S.generators: the states after a call must come from drawing alone."""
    draws = 0
    for configuration in _ordinary(session):
        # Twice, since reseeding with the number that was there already shows nothing.
        for attempt in range(2):
            with own_generators(session.settings.seed, "generators", attempt):
                before = GlobalStates.capture()
                try:
                    draws += len(session.target.draw_many(configuration, 3))
                except TargetFailed as failed:
                    return _raised(prop, session, configuration, failed)
                names = reseeded(before, GlobalStates.capture())
            if names:
                call = session.target.call_repr(configuration)
                return _outcome(
                    prop,
                    "fail",
                    f"{call} reseeded the global generator of {' and '.join(names)}",
                    configuration=call,
                    snippet=_reseeding_snippet(session, call, names[0]),
                    draws=draws,
                )
    known = "random, numpy.random" + (", torch" if "torch" in sys.modules else "")
    return _outcome(prop, "pass", f"states of {known} advance by drawing alone", draws=draws)


def _reseeding_snippet(session: Session, call: str, name: str) -> str:
    seed, draw = {
        "random": ("random.seed({})", "random.random()"),
        "numpy.random": ("numpy.random.seed({})", "numpy.random.random()"),
        "torch": ("torch.manual_seed({})", "torch.initial_seed()"),
    }[name]
    return "\n".join(
        [
            f"import {name}",
            session.import_line,
            "",
            "for seed in (1, 2):",
            f"    {seed.format('seed')}",
            f"    {call}",
            f"    print({draw})  # depends on the seed above, unless the call reseeds",
            "",
        ]
    )


def _raised(
    prop: Property, session: Session, configuration: Configuration, failed: TargetFailed
) -> Outcome:
    detail = f"not judged: {session.target.call_repr(configuration)} {failed.summary}"
    return _outcome(prop, "inconclusive", detail)


@register(
    "S.reproducible",
    "The same seed of the global generators gives the same lengths.",
    source="engines draw on the CPU from torch's generator",
    required=False,
)
def reproducible(prop: Property, session: Session) -> Outcome:
    """Judge S.reproducible, under torch.manual_seed, random.seed and numpy.random.seed."""
    configuration = _ordinary(session)[0]
    runs = []
    for _ in range(2):
        with own_generators(session.settings.seed, "reproducible"):
            seed_global_generators(session.settings.seed, "the same")
            try:
                runs.append(session.target.draw_many(configuration, 64))
            except TargetFailed as failed:
                return _raised(prop, session, configuration, failed)
    same = [repr(a) == repr(b) for a, b in zip(*runs, strict=True)]
    if all(same):
        return _outcome(prop, "pass", "64 lengths repeated", draws=128)
    detail = f"lengths differ at draw {same.index(False) + 1} of 64 under the same seed"
    return _outcome(prop, "fail", detail, draws=128)


@register(
    "S.non-finite",
    "A length that is NaN or infinite is refused.",
    source="design: non-finite lengths are a ValueError",
    required=False,
    kinds=_METHOD_KINDS,
)
def non_finite(prop: Property, session: Session) -> Outcome:
    """Judge S.non-finite."""
    notes: list[str] = []
    refused = True
    for method in session.settings.methods:
        for acc_len in (float("nan"), float("inf"), float("-inf")):
            configuration = Configuration(acc_len, method, 8)
            with own_generators(session.settings.seed, "non-finite", method, repr(acc_len)):
                try:
                    value = session.target.draw_many(configuration, 1)[0]
                except TargetFailed as failed:
                    notes.append(f"{acc_len} {method}: {failed.summary}")
                else:
                    refused = False
                    notes.append(f"{acc_len} {method}: returned {value!r}")
    return _outcome(prop, "pass" if refused else "fail", "\n".join(notes))
