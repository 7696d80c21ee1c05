"""Judges recorded lengths, commits and caps slot by slot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specsim.properties.configurations import law_of
from specsim.properties.outcome import Outcome
from specsim.trace.header import TraceConfiguration
from specsim.trace.laws import slots_apart
from specsim.trace.session import TraceSession, claimed
from specsim.trace.slots import BoolArray, Slots
from specsim.trace.tallies import Look, Seen, Tallies, Tally, failure, outcome, tally

if TYPE_CHECKING:
    from specsim.properties.registry import Property

_NO_LENGTHS = "neither correct_len nor commit_lens was recorded"
_NO_COMMITS = "correct_len and commit_lens were not recorded together"


def judge_range(prop: Property, session: TraceSession) -> Outcome:
    """Judge E.range."""
    return outcome(
        prop,
        session,
        _tallies(session)["range"],
        nothing=_NO_LENGTHS,
        passing="every length is in its range",
    )


def judge_support(prop: Property, session: TraceSession) -> Outcome:
    """Judge E.support."""
    return outcome(
        prop,
        session,
        _tallies(session)["support"],
        nothing=f"no acceptance length was configured, or {_NO_LENGTHS}",
        passing="every length is a possible one",
    )


def judge_coupling(prop: Property, session: TraceSession) -> Outcome:
    """Judge E.coupling: by each step for one draw a step, by pairs of slots for one a slot."""
    tallies = _tallies(session)["coupling"]
    apart = slots_apart(session)
    if tallies.wrong or not apart:
        return outcome(
            prop,
            session,
            tallies,
            nothing="no length is simulated, or no step with two slots or more was recorded",
            passing="all slots of a step have one length",
        )
    for stream in apart:
        aspect = stream.result.aspects["freshness"]
        if aspect.verdict == "fail":
            detail = f"{stream.source.label}: neighbouring slots are not drawn apart: {aspect.text}"
            return prop.outcome(
                "fail",
                detail,
                configuration=f"{stream.source.label}: {stream.configuration.label}",
                snippet=_pairs_snippet(session, stream.source.run.path, stream.source.rank),
                evidence={"counts": stream.result.counts, "expected": stream.result.expected},
                draws=stream.result.draws,
            )
    open_ = [s for s in apart if s.result.aspects["freshness"].verdict != "pass"]
    draws = sum(s.result.draws for s in apart)
    if not draws:
        return prop.outcome("skip", "no step with two slots or more was recorded")
    if open_:
        first = open_[0]
        detail = f"{first.source.label}: {first.result.aspects['freshness'].text}"
        return prop.outcome("inconclusive", detail, draws=draws)
    return prop.outcome("pass", f"{draws:,} pairs of slots: drawn apart", draws=draws)


def judge_commit_lens(prop: Property, session: TraceSession) -> Outcome:
    """Judge F.commit-lens: with the draft lengths taken before a cap, or else after it."""
    tallies = _tallies(session)
    misfits = tallies["misfits"]
    if misfits.first is not None:
        return failure(prop, session, misfits.first, misfits.wrong, misfits.judged, "slots")
    best = _better(tallies)
    return outcome(
        prop, session, best, nothing=_NO_COMMITS, passing="each commits one more than it accepted"
    )


def judge_seq_lens(prop: Property, session: TraceSession) -> Outcome:
    """Judge F.seq-lens."""
    return outcome(
        prop,
        session,
        _tallies(session)["seq-lens"],
        nothing="prefix_lens, new_seq_lens and commit_lens were not recorded together",
        passing="each sequence grows by what was committed",
    )


def judge_caps(prop: Property, session: TraceSession) -> Outcome:
    """Judge F.caps."""
    return outcome(
        prop,
        session,
        _tallies(session)["caps"],
        nothing="caps and commit_lens were not recorded together",
        passing="none commits more than its cap, and none is trimmed without one",
    )


def judge_replay(prop: Property, session: TraceSession) -> Outcome:
    """Judge G.replay: what graph steps commit, where eager steps commit what they were given."""
    best = _better(_tallies(session))
    if best.eager.wrong:
        return prop.outcome("skip", "eager steps commit other lengths too: see F.commit-lens")
    return outcome(
        prop,
        session,
        Tallies(Tally(), best.graph),
        nothing=f"no step was recorded as a graph's, or {_NO_COMMITS}",
        passing="each replay commits the lengths of its own step",
    )


def _tallies(session: TraceSession) -> dict[str, Tallies]:
    return session.once("trace.slots", lambda s: tally(s, _LOOKS))


def _better(tallies: dict[str, Tallies]) -> Tallies:
    """Return how commits fared with draft lengths before a cap or after it, whichever fits."""
    return min((tallies["before"], tallies["after"]), key=lambda t: t.wrong)


def _range(slots: Slots, configuration: TraceConfiguration) -> Seen:
    gamma = configuration.gamma
    correct, commit = slots.values["correct_len"], slots.values["commit_lens"]
    wrong_correct = slots.known["correct_len"] & ((correct < 0) | (correct > gamma))
    wrong_commit = slots.known["commit_lens"] & ((commit < 1) | (commit > gamma + 1))

    def say(index: int) -> str:
        if wrong_correct[index]:
            return f"correct_len is {correct[index]}, outside [0, {gamma}]"
        return f"commit_lens is {commit[index]}, outside [1, {gamma + 1}]"

    judged = slots.known["correct_len"] | slots.known["commit_lens"]
    return Seen(judged, wrong_correct | wrong_commit, say)


def _support(slots: Slots, configuration: TraceConfiguration) -> Seen | None:
    if not configuration.simulating:
        return None
    law = law_of(claimed(configuration))
    lengths, known = slots.lengths(law.max_len)
    inside = (lengths >= 1) & (lengths <= law.max_len)
    possible = law.pmf[np.where(inside, lengths, 1) - 1] > 0.0

    def say(index: int) -> str:
        names = [str(k) for k in law.support]
        shown = ", ".join(names) if len(names) <= 4 else f"{names[0]} … {names[-1]}"
        text = f"acceptance length {lengths[index]}; possible are {shown}"
        if slots.known["cap_trim_lens"][index] or not slots.known["commit_lens"][index]:
            return text
        return f"{text} (a cap, if that is why, was not recorded)"

    return Seen(known, ~(inside & possible), say)


def _coupling(slots: Slots, configuration: TraceConfiguration) -> Seen | None:
    if configuration.coupling != "batch" or not configuration.simulating:
        return None
    lengths, known = slots.lengths(configuration.gamma + 1)
    chosen = np.flatnonzero(known)
    rows, first = np.unique(slots.row[chosen], return_index=True)
    leader = np.zeros(len(slots.block), dtype=np.int64)
    leader[rows] = chosen[first]
    leader = leader[slots.row]
    several = known & (leader != np.arange(slots.row.size))

    def say(index: int) -> str:
        other = int(leader[index])
        return (
            f"acceptance length {lengths[index]}, and {lengths[other]} in slot "
            f"{slots.slot[other]}; one draw a step is shared by all"
        )

    return Seen(several, lengths != lengths[leader], say)


def _misfits(slots: Slots, configuration: TraceConfiguration) -> Seen:
    del configuration
    wrong = np.zeros(slots.row.size, dtype=np.bool_)
    for rows in slots.misfits.values():
        wrong |= rows[slots.row]

    def say(index: int) -> str:
        row = slots.row[index]
        sizes = {name: column.sizes[row] for name, column in slots.block.columns.items()}
        listed = ", ".join(f"{name} {sizes[name]}" for name in slots.misfits if sizes[name] >= 0)
        return f"the fields have different numbers of values: {listed}"

    return Seen(np.ones(slots.row.size, dtype=np.bool_), wrong, say)


def _before(slots: Slots, configuration: TraceConfiguration) -> Seen:
    """Hold commits against draft lengths from before a cap."""
    del configuration
    correct, commit = slots.values["correct_len"], slots.values["commit_lens"]
    trimmed, capped = slots.known["cap_trim_lens"], slots.known["caps"]
    cut = np.minimum(correct + 1, np.maximum(slots.values["caps"], 1))
    expected = np.where(
        trimmed,
        correct + 1 - slots.values["cap_trim_lens"],
        np.where(capped, cut, correct + 1),
    )

    def say(index: int) -> str:
        text = f"commits {commit[index]} tokens, with correct_len {correct[index]}"
        if trimmed[index]:
            return f"{text} and cap_trim_lens {slots.values['cap_trim_lens'][index]}"
        if capped[index]:
            return f"{text} and a cap of {slots.values['caps'][index]}"
        return f"{text}; {expected[index]} expected (a cap, if that is why, was not recorded)"

    wrong = (commit != expected) | _added(slots)
    return Seen(slots.all_known("correct_len", "commit_lens"), wrong, say)


def _after(slots: Slots, configuration: TraceConfiguration) -> Seen:
    """Hold commits against draft lengths from after a cap."""
    del configuration
    correct, commit = slots.values["correct_len"], slots.values["commit_lens"]

    def say(index: int) -> str:
        return (
            f"commits {commit[index]} tokens, with correct_len {correct[index]}; "
            f"{correct[index] + 1} expected"
        )

    wrong = (commit != correct + 1) | _added(slots)
    return Seen(slots.all_known("correct_len", "commit_lens"), wrong, say)


def _added(slots: Slots) -> BoolArray:
    """Say where a cap is recorded to have put tokens on: it can only take some off."""
    return slots.known["cap_trim_lens"] & (slots.values["cap_trim_lens"] < 0)


def _seq_lens(slots: Slots, configuration: TraceConfiguration) -> Seen:
    del configuration
    prefix, new = slots.values["prefix_lens"], slots.values["new_seq_lens"]
    commit = slots.values["commit_lens"]

    def say(index: int) -> str:
        return (
            f"new_seq_lens is {new[index]}, with prefix_lens {prefix[index]} and commit_lens "
            f"{commit[index]}; {prefix[index] + commit[index]} expected"
        )

    judged = slots.all_known("prefix_lens", "new_seq_lens", "commit_lens")
    return Seen(judged, new != prefix + commit, say)


def _caps(slots: Slots, configuration: TraceConfiguration) -> Seen:
    del configuration
    caps, commit = slots.values["caps"], slots.values["commit_lens"]
    trim, trimmed = slots.values["cap_trim_lens"], slots.known["cap_trim_lens"]
    over = commit > np.maximum(caps, 1)
    needless = trimmed & (trim != 0) & (commit != np.maximum(caps, 1))

    def say(index: int) -> str:
        text = f"commits {commit[index]} tokens, with a cap of {caps[index]}"
        return text if over[index] else f"{text} and cap_trim_lens {trim[index]}"

    return Seen(slots.all_known("caps", "commit_lens"), over | needless, say)


_LOOKS: dict[str, Look] = {
    "range": _range,
    "support": _support,
    "coupling": _coupling,
    "misfits": _misfits,
    "before": _before,
    "after": _after,
    "seq-lens": _seq_lens,
    "caps": _caps,
}


def _pairs_snippet(session: TraceSession, path: str, rank: int) -> str:
    return "\n".join(
        [
            "from collections import Counter",
            "",
            session.import_line,
            "",
            "pairs = Counter(",
            "    pair",
            f"    for step in read_steps({path!r}, rank={rank})",
            "    for pair in zip(step.lengths[::2], step.lengths[1::2])",
            ")",
            "print(sorted(pairs.items()))",
            "",
        ]
    )
