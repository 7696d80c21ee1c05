"""D, A and T properties of DFlash and EAGLE functions: one length everywhere, and its tokens."""

from __future__ import annotations

import time

from specsim.adapters.batches import FIXED, REAL, CallViolation
from specsim.adapters.consumers import BatchTarget
from specsim.properties import tokens  # noqa: F401 - registers the T properties
from specsim.properties.configurations import LEVELS
from specsim.properties.consumer_calls import Calls, make_calls
from specsim.properties.outcome import Outcome
from specsim.properties.registry import LENGTH_KINDS, Property, register, register_for
from specsim.properties.session import Session
from specsim.properties.single_lengths import by_certificates
from specsim.verify.tokens import TOKEN_MODES

CONSUMER_KINDS = ("dflash", "eagle")
"""The kinds whose functions write a forced length into a batch's outputs."""


def _target(session: Session) -> BatchTarget:
    target = session.target
    assert isinstance(target, BatchTarget)
    return target


def _calls(session: Session) -> tuple[Calls, float]:
    if "calls" not in session.memo:
        started = time.perf_counter()
        settings = session.settings
        examples = LEVELS[settings.effort].examples
        seen = make_calls(_target(session), settings.methods, settings.seed, examples)
        session.memo["calls"] = (seen, time.perf_counter() - started)
    found: tuple[Calls, float] = session.memo["calls"]
    return found


def by_calls(prop: Property, session: Session) -> Outcome:
    """Judge what every call of a draw shows besides its length, and calls on other batches."""
    drawn = by_certificates(prop, session)
    if drawn.verdict == "inconclusive":
        return drawn
    calls, seconds = _calls(session)
    modes = (REAL,) if prop.name == "real-draft-token" else TOKEN_MODES
    draws = drawn.draws + sum(calls.made[mode] for mode in modes)
    seconds += drawn.seconds
    found = [calls.found.get(prop.name), *session.violations(prop.name)]
    for violation in found:
        if isinstance(violation, CallViolation):
            return _refuted(prop, session, violation, draws, seconds)
    detail = (
        f"{drawn.detail}, and {draws - drawn.draws:,} calls on batches of 0 to {calls.largest} "
        "requests"
    )
    return prop.outcome("pass", detail, draws=draws, seconds=seconds)


def real_draft_token(prop: Property, session: Session) -> Outcome:
    """Judge all tokens that a length commits, the target's own and DFlash's bonus included."""
    outcome = by_calls(prop, session)
    if outcome.verdict != "pass" or session.target.kind != "dflash":
        return outcome
    calls, _ = _calls(session)
    given = f"{calls.with_logits:,} of them with logits for the target's tokens"
    if not _target(session).takes("next_token_logits"):
        given = "the function takes no next_token_logits"
    return prop.outcome(
        "pass", f"{outcome.detail}; {given}", draws=outcome.draws, seconds=outcome.seconds
    )


def fixed(prop: Property, session: Session) -> Outcome:
    """Judge T.fixed by calls in mode fixed; whether the token prints takes a tokenizer."""
    target = _target(session)
    if FIXED not in target.modes:
        return prop.outcome("skip", "the function takes no simulate_acc_token_mode")
    calls, seconds = _calls(session)
    made = calls.made[FIXED]
    violation = calls.found.get(prop.name)
    if violation is not None:
        return _refuted(prop, session, violation, made, seconds)
    if target.fixed_id is None:
        return prop.outcome("inconclusive", "not judged: no token was committed")
    which = f"id {target.fixed_id}"
    if not target.takes("fixed_token_id"):
        which += ", the function's own choice: it takes no fixed_token_id"
    return prop.outcome(
        "pass",
        f"{made:,} calls committed {which}; only a tokenizer can tell whether it prints",
        draws=made,
        seconds=seconds,
    )


for _letter, _what in (
    ("D", "accept_len + 1, commit_lens and the tokens written are"),
    ("A", "num_correct_drafts + 1, the accept indices and the tokens written are"),
):
    register(
        f"{_letter}.same-length",
        f"{_what} of one length, in every request and for every batch size.",
        source="SGLang PR 33614: lengths drawn apart made sequence lengths diverge",
        kinds=LENGTH_KINDS[_letter],
    )(by_calls)

register(
    "A.index",
    "Accept indices name a request's own first nodes in turn, and are -1 beyond its length.",
    source="design: -1 beyond the length; a tree's later nodes would be committed as well",
    kinds=LENGTH_KINDS["A"],
)(by_calls)

register_for("T.real-draft-token", *CONSUMER_KINDS)(real_draft_token)
register_for("T.fixed", *CONSUMER_KINDS)(fixed)


def _refuted(
    prop: Property, session: Session, violation: CallViolation, draws: int, seconds: float
) -> Outcome:
    call = session.target.call_repr(violation.configuration)
    detail = f"{call} {violation.message}"
    if violation.frames:
        detail += f"\n{violation.frames.rstrip()}"
    return prop.outcome(
        "fail",
        detail,
        configuration=call,
        snippet=_target(session).call_program(violation, session.import_line),
        evidence={"batch": str(violation.shape)},
        draws=draws,
        seconds=seconds,
    )
