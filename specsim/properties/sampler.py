"""S properties that a few calls decide: what a sampler returns, refuses and leaves alone."""

from __future__ import annotations

from specsim.loading.failures import message_of, shown
from specsim.properties.certificates import no_length, reseeding
from specsim.properties.configurations import METHODS
from specsim.properties.generators import (
    GlobalStates,
    comparable_generators,
    own_generators,
    reseeded,
    seed_global_generators,
)
from specsim.properties.lengths import as_length
from specsim.properties.outcome import Outcome
from specsim.properties.registry import Property, register
from specsim.properties.session import Session
from specsim.targets import Configuration, TargetFailed, TargetRaised, TargetReturned, describe

_METHOD_KINDS = ("sampler", "vector-sampler")
# Two that are nothing like a method, and two that a careless comparison takes for one.
_UNKNOWN_METHODS = ("no-such-method", "", "match_expected", "multinomal")


def _answer(session: Session, method: str, acc_len: float, max_len: int) -> TargetFailed | None:
    """Call once; return how that failed, or None if a length came back."""
    configuration = Configuration(acc_len, method, max_len)
    with own_generators(session.settings.seed, "method", method, acc_len):
        try:
            value = session.target.draw_many(configuration, 1)[0]
        except TargetFailed as failed:
            return failed
    return None if as_length(value) is not None else TargetReturned(no_length(value))


def _never_answers(session: Session) -> str | None:
    """Say so if no known method gives a length: refusing everything is no answer to a name."""
    failures = []
    for method in session.settings.methods:
        failed = _answer(session, method, 4.7, 8)
        if failed is None:
            return None
        call = session.target.call_repr(Configuration(4.7, method, 8))
        failures.append(f"{call} {failed.summary}")
    return f"not judged: {failures[0]}"


def _refusals(session: Session) -> tuple[list[str], list[tuple[str, BaseException]]]:
    """Call with unknown methods; return those accepted, and what the others raised."""
    accepted, refused = [], []
    for method in _UNKNOWN_METHODS:
        for acc_len, max_len in ((4.7, 8), (2.0, 4)):
            failed = _answer(session, method, acc_len, max_len)
            if isinstance(failed, TargetRaised):
                refused.append((method, failed.exception))
            else:
                configuration = Configuration(acc_len, method, max_len)
                accepted.append(session.target.call_repr(configuration))
    return accepted, refused


@register(
    "S.method",
    "An unknown method is refused.",
    source="SGLang: a misspelt method must not silently give another law",
    kinds=_METHOD_KINDS,
)
def unknown_method(prop: Property, session: Session) -> Outcome:
    """Judge S.method: any exception is a refusal, if a known method is answered."""
    accepted, refused = _refusals(session)
    if accepted:
        call = accepted[0]
        return prop.outcome(
            "fail",
            f"{call} returned; an unknown method must raise",
            configuration=call,
            snippet=f"{session.import_line}\n\nprint({call})  # should raise\n",
            draws=len(accepted),
        )
    if silent := _never_answers(session):
        return prop.outcome("inconclusive", silent)
    detail = f"refused with {describe(refused[0][1])}"
    for method in METHODS:
        if method not in session.settings.methods and _answer(session, method, 4.7, 8) is None:
            detail += (
                f"\n{method} is accepted, but not among the methods given: its law is not judged"
            )
    return prop.outcome("pass", detail)


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
        return prop.outcome("skip", "no unknown method was refused: see S.method")
    for method, exception in refused:
        if not issubclass(type(exception), ValueError) or method not in message_of(exception):
            detail = f"method {method!r} was refused with {describe(exception)}"
            return prop.outcome("fail", detail)
    if silent := _never_answers(session):
        return prop.outcome("inconclusive", silent)
    return prop.outcome("pass", describe(refused[0][1]))


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
                    values = session.target.draw_many(configuration, 3)
                    draws += sum(as_length(value) is not None for value in values)
                except TargetFailed as failed:
                    return _raised(prop, session, configuration, failed)
                names = reseeded(before, GlobalStates.capture())
            if names:
                call = session.target.call_repr(configuration)
                return prop.outcome(
                    "fail",
                    f"{call} {reseeding(configuration, names).message}",
                    configuration=call,
                    snippet=_reseeding_snippet(session, call, names[0]),
                    draws=draws,
                )
    seen = session.violations(prop.name)
    if seen:
        call = session.target.call_repr(seen[0].configuration)
        return prop.outcome(
            "fail",
            f"one of many calls like {call} {seen[0].message}",
            configuration=call,
            snippet=_reseeding_snippet(session, call, seen[0].values[0], calls=100),
            draws=draws,
        )
    known = ", ".join(comparable_generators())
    return prop.outcome("pass", f"states of {known} advance by drawing alone", draws=draws)


def _reseeding_snippet(session: Session, call: str, name: str, calls: int = 1) -> str:
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
            f"    {call}" if calls == 1 else f"    for _ in range({calls}):\n        {call}",
            f"    print({draw})  # depends on the seed above, unless the call reseeds",
            "",
        ]
    )


def _raised(
    prop: Property, session: Session, configuration: Configuration, failed: TargetFailed
) -> Outcome:
    detail = f"not judged: {session.target.call_repr(configuration)} {failed.summary}"
    return prop.outcome("inconclusive", detail)


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
    strange = [value for value in runs[0] if as_length(value) is None]
    if strange:
        return _raised(prop, session, configuration, TargetReturned(no_length(strange[0])))
    same = [shown(a) == shown(b) for a, b in zip(*runs, strict=True)]
    if all(same):
        return prop.outcome("pass", "64 lengths repeated", draws=128)
    detail = f"lengths differ at draw {same.index(False) + 1} of 64 under the same seed"
    return prop.outcome("fail", detail, draws=128)


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
                    notes.append(f"{acc_len} {method}: returned {shown(value)}")
    if refused and (silent := _never_answers(session)):
        return prop.outcome("inconclusive", silent)
    return prop.outcome("pass" if refused else "fail", "\n".join(notes))
