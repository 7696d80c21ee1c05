"""F properties: what an executor says that it commits, and how caps cut it."""

from __future__ import annotations

import time

from specsim.adapters.executor import ExecutorTarget
from specsim.adapters.finalizing import METHOD, Offer, offer_of
from specsim.loading.failures import TargetFailed
from specsim.properties.configurations import LEVELS
from specsim.properties.finalize_snippets import call_of, commits_program
from specsim.properties.finalize_steps import Refutation, Steps, run_steps
from specsim.properties.generators import own_generators
from specsim.properties.outcome import Outcome
from specsim.properties.registry import Property, register
from specsim.properties.session import Session
from specsim.targets import Configuration

KINDS = ("executor",)
_TRACES = "a trace of a live engine shows more (specsim.record)"


def target_of(session: Session) -> ExecutorTarget:
    """Return the session's executor."""
    target = session.target
    assert isinstance(target, ExecutorTarget)
    return target


def configuration_in(session: Session) -> Configuration:
    """Return an ordinary configuration, of a method that the target knows."""
    return Configuration(4.7, session.settings.methods[0], 8)


def offer_in(session: Session) -> Offer | str:
    """Return what the session's executor offers, or how it failed to show it."""
    if "offer" not in session.memo:
        configuration = configuration_in(session)
        try:
            with own_generators(session.settings.seed, "offer"):
                session.memo["offer"] = offer_of(target_of(session), configuration)
        except TargetFailed as failed:
            call = session.target.call_repr(configuration)
            session.memo["offer"] = f"{call} {failed.summary}"
    found: Offer | str = session.memo["offer"]
    return found


def _steps(session: Session, offer: Offer) -> tuple[Steps, float]:
    if "commits" not in session.memo:
        started = time.perf_counter()
        settings = session.settings
        seen = run_steps(
            target_of(session),
            offer,
            settings.methods,
            settings.seed,
            LEVELS[settings.effort].examples,
        )
        session.memo["commits"] = (seen, time.perf_counter() - started)
    found: tuple[Steps, float] = session.memo["commits"]
    return found


def not_offered(prop: Property, session: Session) -> Outcome | None:
    """Return the outcome for an executor that does not commit, or not as a property needs."""
    offer = offer_in(session)
    if isinstance(offer, str):
        return prop.outcome("inconclusive", f"not judged: {offer}")
    reason = offer.missing
    if reason is not None:
        return prop.outcome("skip", f"{reason}; {_TRACES}")
    if prop.name in ("caps", "cap-trim") and not offer.limits:
        return prop.outcome("skip", f"{METHOD} takes neither verify_lens nor caps")
    if prop.name == "fixed" and not offer.fixed:
        reason = "the factory has no parameters token_mode and fixed_token_id"
        return prop.outcome("skip", reason)
    return None


def by_commits(prop: Property, session: Session) -> Outcome:
    """Judge a property that one step's result can refute, for executors that commit."""
    if (outcome := not_offered(prop, session)) is not None:
        return outcome
    offer = offer_in(session)
    assert isinstance(offer, Offer)
    seen, seconds = _steps(session, offer)
    refutation = seen.refutations.get(prop.name)
    if refutation is not None:
        return _refuted(prop, session, offer, refutation, seen.calls, seconds)
    judged = seen.judged[prop.name]
    if not judged:
        return _nothing_seen(prop, session, seen, seconds)
    drew = ", ".join(sorted(seen.drew))
    note = f"; it drew from {drew} all the same" if prop.name == "off" and drew else ""
    return prop.outcome("pass", f"{judged:,} steps{note}", draws=judged, seconds=seconds)


def _nothing_seen(prop: Property, session: Session, seen: Steps, seconds: float) -> Outcome:
    """Return the outcome if no result said anything about the property."""
    more = {"draws": seen.calls, "seconds": seconds}
    for refutation in seen.refutations.values():
        made = call_of(session, refutation.case)
        return prop.outcome(
            "inconclusive", f"not judged: {made} {refutation.finding.message}", **more
        )
    return prop.outcome("skip", f"the results of {METHOD} hold nothing that shows it", **more)


def _refuted(
    prop: Property,
    session: Session,
    offer: Offer,
    refutation: Refutation,
    calls: int,
    seconds: float,
) -> Outcome:
    case, finding = refutation.case, refutation.finding
    made = call_of(session, case)
    detail = f"{made} {finding.message}"
    if case.batches:
        batch = case.batches[-1]
        steps = len(case.batches)
        which = f"step {steps} of {METHOD}" if steps > 1 else f"{METHOD}"
        detail = f"{which}, {_size(batch.bs)}: {finding.message}"
        if finding.slot is not None:
            detail += f"\nrequest {finding.slot}: {batch.requests[finding.slot]}"
    if refutation.frames:
        detail += f"\n{refutation.frames.rstrip()}"
    return prop.outcome(
        "fail",
        detail,
        configuration=made,
        snippet=commits_program(session, refutation, offer.step_method),
        evidence={"steps": len(case.batches), "request": finding.slot},
        draws=calls,
        seconds=seconds,
    )


def _size(bs: int) -> str:
    return f"{bs} request{'s' * (bs != 1)}"


for _name, _statement, _source, _required in (
    ("commit-lens", "Each request commits its accepted draft tokens and one more, 1 … gamma + 1 "
     "tokens, as many as are forced.",
     "engines count commit_lens = correct_len + 1; TensorRT-LLM PR 9608 counted drafts in one path",
     True),
    ("seq-lens", "Each sequence grows by what its request commits, in the dtype of its length.",
     "engines: new_seq_lens = prefix_lens + commit_lens", True),
    ("caps", "A cap or a verified length below the forced one cuts it, to exactly itself.",
     "SGLang DSpark: a forced length is cut by verify_lens, which count the anchor token", True),
    ("cap-trim", "cap_trim_lens is what a cap took off: with commit_lens, the uncapped length.",
     "SGLang DSpark; engines differ in whether it is rewritten", False),
):  # fmt: skip
    register(f"F.{_name}", _statement, source=_source, required=_required, kinds=KINDS)(by_commits)
