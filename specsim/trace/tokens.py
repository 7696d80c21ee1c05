"""Judges the tokens that recorded steps committed, up to the commit and no further."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specsim.properties.outcome import Outcome
from specsim.trace.blocks import IntArray
from specsim.trace.header import TraceConfiguration
from specsim.trace.session import TraceSession
from specsim.trace.slots import BoolArray, Slots
from specsim.trace.tallies import Look, Seen, Tallies, outcome, tally

if TYPE_CHECKING:
    from specsim.properties.registry import Property


def judge_real_draft_tokens(prop: Property, session: TraceSession) -> Outcome:
    """Judge T.real-draft-token."""
    return outcome(
        prop,
        session,
        _tallies(session)["real"],
        nothing="out_tokens of gamma + 1 a slot, draft_tokens of gamma and commit_lens were not "
        "recorded together, with token_mode 'real-draft-token'",
        passing="each commits the draft tokens that it accepted",
    )


def judge_fixed(prop: Property, session: TraceSession) -> Outcome:
    """Judge T.fixed."""
    return outcome(
        prop,
        session,
        _tallies(session)["fixed"],
        nothing="out_tokens of gamma + 1 a slot and commit_lens were not recorded together, "
        "with token_mode 'fixed'",
        passing="each commits the fixed token alone",
    )


def judge_bonus(prop: Property, session: TraceSession) -> Outcome:
    """Judge T.bonus."""
    return outcome(
        prop,
        session,
        _tallies(session)["bonus"],
        nothing="out_tokens and target_tokens of gamma + 1 a slot and commit_lens were not "
        "recorded together, with token_mode 'real-draft-token'",
        passing="each commits the target's token at the forced position last",
    )


def _tallies(session: TraceSession) -> dict[str, Tallies]:
    return session.once("trace.tokens", lambda s: tally(s, _LOOKS))


def _table(slots: Slots, name: str, width: int) -> tuple[IntArray, BoolArray]:
    """Return a field of several values a slot, shape (m, width), and of which slots it is."""
    column = slots.block.columns.get(name)
    table = np.zeros((slots.row.size, width), dtype=np.int64)
    if column is None:
        return table, np.zeros(slots.row.size, dtype=np.bool_)
    count = np.bincount(slots.row, minlength=len(slots.block))
    known = (column.sizes == count * width)[slots.row]
    index = (column.starts[slots.row] + slots.slot * width)[:, None] + np.arange(width)
    table[known] = column.values[index[known]]
    return table, known


def _committed(slots: Slots, gamma: int) -> tuple[IntArray, IntArray, BoolArray]:
    """Return committed tokens, how many each slot has of them, and where both are known."""
    out, known = _table(slots, "out_tokens", gamma + 1)
    commit = slots.values["commit_lens"]
    known = known & slots.known["commit_lens"] & (commit >= 1) & (commit <= gamma + 1)
    return out, commit, known


def _real(slots: Slots, configuration: TraceConfiguration) -> Seen | None:
    gamma = configuration.gamma
    if configuration.token_mode != "real-draft-token":
        return None
    out, commit, known = _committed(slots, gamma)
    draft, drafted = _table(slots, "draft_tokens", gamma)
    reached = np.arange(gamma) < (commit - 1)[:, None]
    wrong = reached & (out[:, :gamma] != draft)

    def say(index: int) -> str:
        position = int(np.flatnonzero(wrong[index])[0])
        return (
            f"commits token {out[index, position]} at position {position}, where the draft token "
            f"is {draft[index, position]}"
        )

    return Seen(known & drafted, wrong.any(axis=1), say)


def _fixed(slots: Slots, configuration: TraceConfiguration) -> Seen | None:
    if configuration.token_mode != "fixed":
        return None
    token, width = configuration.fixed_token_id, configuration.gamma + 1
    out, commit, known = _committed(slots, configuration.gamma)
    wrong = (np.arange(width) < commit[:, None]) & (out != token)

    def say(index: int) -> str:
        position = int(np.flatnonzero(wrong[index])[0])
        return f"commits token {out[index, position]} at position {position}; {token} is fixed"

    return Seen(known, wrong.any(axis=1), say)


def _bonus(slots: Slots, configuration: TraceConfiguration) -> Seen | None:
    if configuration.token_mode != "real-draft-token":
        return None
    width = configuration.gamma + 1
    out, commit, known = _committed(slots, configuration.gamma)
    target, given = _table(slots, "target_tokens", width)
    last = np.where(known, commit - 1, 0)
    rows = np.arange(last.size)

    def say(index: int) -> str:
        position = int(last[index])
        return (
            f"its last token is {out[index, position]}, where the target's at position "
            f"{position} is {target[index, position]}"
        )

    return Seen(known & given, out[rows, last] != target[rows, last], say)


_LOOKS: dict[str, Look] = {"real": _real, "fixed": _fixed, "bonus": _bonus}
