"""The properties that a trace can show, and how each is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from specsim.properties.outcome import Outcome
from specsim.trace import buffers, commits, laws, ranks, tokens
from specsim.trace.session import TraceSession

if TYPE_CHECKING:
    from specsim.properties.registry import Property

TraceJudge: TypeAlias = "Callable[[Property, TraceSession], Outcome]"
"""Takes a property and the session of a trace, and returns the outcome."""

JUDGES: dict[str, TraceJudge] = {
    "E.range": commits.judge_range,
    "E.support": commits.judge_support,
    "E.distribution": laws.judge_law,
    "E.mean": laws.judge_mean,
    "E.freshness": laws.judge_freshness,
    "E.reuse": buffers.judge_reuse,
    "E.minimum-capacity": buffers.judge_minimum_capacity,
    "E.coupling": commits.judge_coupling,
    "F.commit-lens": commits.judge_commit_lens,
    "F.seq-lens": commits.judge_seq_lens,
    "F.caps": commits.judge_caps,
    "T.real-draft-token": tokens.judge_real_draft_tokens,
    "T.fixed": tokens.judge_fixed,
    "T.bonus": tokens.judge_bonus,
    "G.storage": buffers.judge_graph_storage,
    "G.replay": commits.judge_replay,
    "G.distribution": laws.judge_graph_law,
    "G.freshness": laws.judge_graph_freshness,
    "R.agreement": ranks.judge_agreement,
    "R.complete": ranks.judge_completeness,
}
"""By property id, in the catalogue's order."""


@dataclass(frozen=True)
class Statement:
    """A property that traces alone are judged by.

    Attributes
    ----------
    text
        The property in one sentence.
    source
        Where it comes from.
    required
        Whether a run needs it to hold.
    statistical
        Whether streams of lengths decide it.
    """

    text: str
    source: str
    required: bool = True
    statistical: bool = False


STATEMENTS: dict[str, Statement] = {
    "G.storage": Statement(
        "Graph steps read the storage that eager steps read, and never one that was replaced.",
        "CUDA graphs keep the addresses of their capture; HIP issue 3902 (replay reads a buffer's "
        "earlier content)",
    ),
    "G.replay": Statement(
        "A replayed graph commits the lengths of its own step.",
        "a skipped refresh leaves the captured value; SGLang PR 33463",
    ),
    "G.distribution": Statement(
        "Lengths of steps replayed from a graph have exactly the configured distribution.",
        "scalars are frozen at capture; SGLang PR 33463",
        statistical=True,
    ),
    "G.freshness": Statement(
        "Lengths of steps replayed from a graph are drawn anew at each replay.",
        "host code does not run again at a replay; SGLang PR 33463",
        statistical=True,
    ),
    "R.agreement": Statement(
        "Every rank of a run commits the same lengths at every step.",
        "SGLang PR 33614 (each rank drew its own length, sequence lengths diverged)",
    ),
    "R.complete": Statement(
        "The trace is whole: every file was closed, and every rank has every step.",
        "what is not recorded is not judged",
        required=False,
    ),
}
"""Those of `JUDGES` that no other kind of target has."""
