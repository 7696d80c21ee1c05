"""E properties of the cached buffer, each decided by single calls, and of a bare device."""

from __future__ import annotations

import time

import torch

from specsim.adapters.executor import Protocol
from specsim.loading.failures import TargetFailed
from specsim.properties.buffer_model import MIN_CAPACITY
from specsim.properties.configurations import LEVELS
from specsim.properties.executor_sequences import Refutation, Sequences, run_sequences
from specsim.properties.executor_snippets import calls_program
from specsim.properties.finalize import configuration_in, target_of
from specsim.properties.generators import own_generators
from specsim.properties.outcome import Outcome
from specsim.properties.registry import Property, register
from specsim.properties.session import Session
from specsim.properties.single_lengths import by_certificates, returns

_KINDS = ("executor",)
# Of the hundreds that are made; one that refuses all of them has shown nothing.
_ENOUGH_CALLS = 30


def _protocol(session: Session) -> Protocol | str:
    """Return the names in use, or how the executor failed to show them."""
    if "protocol" not in session.memo:
        configuration = configuration_in(session)
        try:
            with own_generators(session.settings.seed, "protocol"):
                session.memo["protocol"] = target_of(session).open(configuration).protocol
        except TargetFailed as failed:
            call = session.target.call_repr(configuration)
            session.memo["protocol"] = f"{call} {failed.summary}"
    found: Protocol | str = session.memo["protocol"]
    return found


def _sequences(session: Session) -> tuple[Sequences, float]:
    if "sequences" not in session.memo:
        started = time.perf_counter()
        settings = session.settings
        examples = LEVELS[settings.effort].examples // 4
        protocol = _protocol(session)
        seen = run_sequences(
            target_of(session),
            settings.methods,
            settings.seed,
            examples,
            steps_only=isinstance(protocol, Protocol) and protocol.buffer is None,
        )
        session.memo["sequences"] = (seen, time.perf_counter() - started)
    found: tuple[Sequences, float] = session.memo["sequences"]
    return found


# What the step protocol's one tensor has to do as well.
_OF_STEPS = ("reuse", "written", "range", "coupling")


def _not_judged(prop: Property, session: Session) -> Outcome | None:
    """Return the outcome if there is no buffer to judge."""
    protocol = _protocol(session)
    if isinstance(protocol, str):
        return prop.outcome("inconclusive", f"not judged: {protocol}")
    if protocol.buffer is None and prop.name not in _OF_STEPS:
        return prop.outcome(
            "skip", f"{protocol.step}() fills {protocol.tensor}: there is no cached buffer"
        )
    return None


def _refuted(
    prop: Property, session: Session, refutation: Refutation, calls: int, seconds: float
) -> Outcome:
    made = f"{session.target.call_repr(refutation.configuration)}"
    protocol = _protocol(session)
    detail = f"{made} {refutation.message}"
    if refutation.calls:
        assert isinstance(protocol, Protocol)
        times = f"call {len(refutation.calls)}" if len(refutation.calls) > 1 else "the first call"
        detail = f"{times} of {protocol.buffer or protocol.step} {refutation.message}"
        if refutation.calls[0] is not None:
            listed = "; ".join(map(str, refutation.calls[-5:]))
            detail += f"\ncalls: {'… ' if len(refutation.calls) > 5 else ''}{listed}"
    return prop.outcome(
        "fail",
        detail,
        configuration=made,
        snippet=calls_program(session, refutation, protocol),
        evidence={"calls": [str(call or "step") for call in refutation.calls]},
        draws=calls,
        seconds=seconds,
    )


def _by_sequences(prop: Property, session: Session) -> Outcome:
    """Judge what a sequence of calls can refute."""
    if (outcome := _not_judged(prop, session)) is not None:
        return outcome
    seen, seconds = _sequences(session)
    refutation = seen.refuting(prop.name)
    if refutation is not None:
        return _refuted(prop, session, refutation, seen.calls, seconds)
    broken = seen.refuting("returns")
    if broken is not None and seen.answered < _ENOUGH_CALLS:
        made = session.target.call_repr(broken.configuration)
        return prop.outcome("inconclusive", f"not judged: {made} {broken.message}")
    return prop.outcome(
        "pass",
        f"{seen.answered:,} calls in {seen.sequences:,} sequences"
        + ("; some calls were refused: see E.returns" if broken is not None else ""),
        draws=seen.calls,
        seconds=seconds,
    )


def _by_both(prop: Property, session: Session) -> Outcome:
    """Judge by the sequences' calls, and by every step that lengths were drawn from."""
    outcome = _by_sequences(prop, session)
    if outcome.verdict != "pass":
        return outcome
    drawn = by_certificates(prop, session)
    return outcome if drawn.verdict == "pass" else drawn


for _name, _statement, _source in (
    ("reuse", "The same memory is refreshed at every step until a larger batch, another dtype or "
     "another device needs other.",
     "SGLang PR 33463; a CUDA graph keeps the address that it was captured with"),
    ("growth", "A batch above the buffer's capacity gets one slot for each request.",
     "SGLang PR 33463: the rebuild condition"),
    ("dtype", "The lengths have the dtype that was asked for, also after another one.",
     "SGLang PR 33463: the rebuild condition"),
    ("minimum-capacity", f"A buffer holds at least {MIN_CAPACITY} lengths.",
     "design: capacity max(bs, 512), so that ordinary growth of a batch rebuilds nothing"),
    ("view", "What is returned is a view of the buffer, not a copy.",
     "design: a CUDA graph reads the buffer, and never sees what is copied out of it"),
    ("written", "Every slot of the batch is written at every step.",
     "CUDA-graph reports: a replay reads what an earlier step left"),
):  # fmt: skip
    register(f"E.{_name}", _statement, source=_source, kinds=_KINDS)(
        _by_both if _name == "reuse" else _by_sequences
    )


@register(
    "E.returns",
    "It returns for every length above 0, known method and gamma, and for every batch size.",
    source="design: every finite length is clamped, not refused; a batch may be empty or grow",
    kinds=_KINDS,
)
def executor_returns(prop: Property, session: Session) -> Outcome:
    """Judge E.returns by lengths drawn, and by the sequences' calls."""
    outcome = returns(prop, session)
    protocol = _protocol(session)
    if outcome.verdict != "pass" or not isinstance(protocol, Protocol):
        return outcome
    seen, seconds = _sequences(session)
    refused = seen.refuting(prop.name)
    return outcome if refused is None else _refuted(prop, session, refused, seen.calls, seconds)


@register(
    "E.device",
    "The lengths are on the device that was asked for, also after another one.",
    source="SGLang PR 33463: the device was not part of the rebuild condition",
    kinds=_KINDS,
)
def device(prop: Property, session: Session) -> Outcome:
    """Judge E.device with the real second devices there are, and with ``meta``."""
    outcome = _by_sequences(prop, session)
    if outcome.verdict != "pass":
        return outcome
    seen, _ = _sequences(session)
    refused = "\n".join(f"{name}: {summary}" for name, summary in seen.refused.items())
    if len(seen.devices) == 1:
        return prop.outcome("inconclusive", f"no second device could be tried\n{refused}")
    return prop.outcome(
        "pass",
        f"{outcome.detail}, on {', '.join(seen.devices)}" + (f"\n{refused}" if refused else ""),
        draws=outcome.draws,
        seconds=outcome.seconds,
    )


@register(
    "E.sequence",
    "No sequence of batch sizes, dtypes and devices leads the executor off the buffer's contract.",
    source="a state machine looks for the order of calls that a rebuild condition forgets",
    kinds=_KINDS,
)
def sequence(prop: Property, session: Session) -> Outcome:
    """Judge E.sequence by a Hypothesis rule-based state machine."""
    if (outcome := _not_judged(prop, session)) is not None:
        return outcome
    seen, seconds = _sequences(session)
    found = [refutation for name, refutation in seen.found.items() if name != "returns"]
    if found:
        shortest = min(found, key=lambda found: found.size)
        return _refuted(prop, session, shortest, seen.calls, seconds)
    return _by_sequences(prop, session)


@register(
    "E.coupling",
    "Under batch coupling all slots of a step have one length.",
    source="SGLang draws once a step for the whole batch",
    kinds=_KINDS,
)
def coupling(prop: Property, session: Session) -> Outcome:
    """Judge E.coupling by every step that was made; slots apart are E.freshness' business."""
    if session.settings.coupling == "slot":
        return prop.outcome("skip", "slots have draws of their own here: see E.freshness")
    return _by_both(prop, session)


@register(
    "E.range",
    "Every draft length lies in [0, gamma], so that every length lies in [1, gamma + 1].",
    source="design: the target's own token is always committed, and no more than gamma drafts",
    kinds=_KINDS,
)
def in_range(prop: Property, session: Session) -> Outcome:
    """Judge E.range by every slot of the sequences' calls, and by every length drawn."""
    return _by_both(prop, session)


@register(
    "E.bare-device",
    "A device without an index, the current one, leaves the buffer as it is.",
    source="cuda and cuda:0 compare unequal, so a buffer may be rebuilt at every step",
    required=False,
    kinds=_KINDS,
)
def bare_device(prop: Property, session: Session) -> Outcome:
    """Judge E.bare-device; only a device with an index can tell."""
    if (outcome := _not_judged(prop, session)) is not None:
        return outcome
    if not torch.cuda.is_available():
        return prop.outcome("skip", "only a device with an index can tell, and there is none here")
    running = target_of(session).open(configuration_in(session))
    try:
        with own_generators(session.settings.seed, "bare device"):
            views = [running.correct_len(3, torch.int64, torch.device("cuda")) for _ in range(3)]
    except TargetFailed as failed:
        return prop.outcome("fail", f"on the device cuda it {failed.summary}")
    storages = {view.untyped_storage()._cdata for view in views}
    if len(storages) > 1:
        detail = f"{len(views)} steps on the device cuda gave {len(storages)} buffers"
        return prop.outcome("fail", detail, draws=3)
    return prop.outcome("pass", "the device cuda keeps one buffer", draws=3)
