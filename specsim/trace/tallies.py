"""Holds every recorded slot against statements that one of them can refute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from specsim.properties.outcome import Outcome
from specsim.trace.header import TraceConfiguration
from specsim.trace.session import Source, TraceSession
from specsim.trace.slots import BoolArray, Slots, slots_of

if TYPE_CHECKING:
    from specsim.properties.registry import Property


@dataclass(frozen=True)
class Seen:
    """What one statement says of the slots of one block.

    Attributes
    ----------
    judged, wrong : ndarray, shape (m,), bool
        The slots that it speaks of, and those of them that refute it.
    say
        Tells what is wrong with a slot, given its index.
    """

    judged: BoolArray
    wrong: BoolArray
    say: Callable[[int], str]


Look: TypeAlias = Callable[[Slots, TraceConfiguration], "Seen | None"]
"""Holds a block's slots against a statement; None if that says nothing of such a worker."""


@dataclass(frozen=True)
class Finding:
    """The first slot that refutes a statement.

    Attributes
    ----------
    source
        Whose it is.
    process, step
        Which of its processes, counted from 0, and which step of that.
    place
        The step and slot, in words.
    text
        What is wrong.
    """

    source: Source
    process: int
    step: int
    place: str
    text: str

    @property
    def where(self) -> str:
        """The place, in words."""
        return f"{self.source.label} {self.place}"


@dataclass
class Tally:
    """How a statement fared, for steps of one sort.

    Attributes
    ----------
    judged, wrong
        How many slots it spoke of, and how many refuted it.
    first
        The first one that did.
    """

    judged: int = 0
    wrong: int = 0
    first: Finding | None = None


@dataclass
class Tallies:
    """How a statement fared.

    Attributes
    ----------
    eager, graph
        For steps that ran eagerly, and for those replayed from a graph.
    """

    eager: Tally
    graph: Tally

    @property
    def judged(self) -> int:
        """How many slots the statement spoke of."""
        return self.eager.judged + self.graph.judged

    @property
    def wrong(self) -> int:
        """How many of them refuted it."""
        return self.eager.wrong + self.graph.wrong

    @property
    def first(self) -> Finding | None:
        """One that did, if there is one."""
        return self.eager.first or self.graph.first


def tally(session: TraceSession, looks: dict[str, Look]) -> dict[str, Tallies]:
    """Hold every slot of a trace against several statements, in one reading."""
    found = {name: Tallies(Tally(), Tally()) for name in looks}
    for source in session.sources():
        for process, file in enumerate(source.files):
            for block in file.blocks():
                slots = slots_of(block)
                for name, look in looks.items():
                    seen = look(slots, file.header.configuration)
                    if seen is not None:
                        _add(found[name], seen, slots, source, process)
    return found


def _add(tallies: Tallies, seen: Seen, slots: Slots, source: Source, process: int) -> None:
    graph = slots.block.graph[slots.row]
    for tally, steps in ((tallies.eager, ~graph), (tallies.graph, graph)):
        tally.judged += int((seen.judged & steps).sum())
        wrong = np.flatnonzero(seen.judged & seen.wrong & steps)
        tally.wrong += wrong.size
        if wrong.size and tally.first is None:
            index = int(wrong[0])
            step = int(slots.block.steps[slots.row[index]])
            tally.first = Finding(source, process, step, slots.place(index), seen.say(index))


def outcome(
    prop: Property, session: TraceSession, tallies: Tallies, *, nothing: str, passing: str
) -> Outcome:
    """Return the outcome of a statement that one slot can refute.

    Parameters
    ----------
    prop, session
        Property and session.
    tallies
        How it fared.
    nothing
        Why it is skipped if it spoke of no slot: what has to be recorded for it.
    passing
        What a pass has seen, after the number of slots.
    """
    if not tallies.judged:
        return prop.outcome("skip", nothing)
    first = tallies.first
    if first is None:
        return prop.outcome("pass", f"{tallies.judged:,} slots: {passing}", draws=tallies.judged)
    return failure(prop, session, first, tallies.wrong, tallies.judged, "slots")


def failure(
    prop: Property,
    session: TraceSession,
    first: Finding,
    wrong: int,
    judged: int,
    unit: str,
) -> Outcome:
    """Return a failure: its first case, how many there are, and a program that shows it."""
    detail = f"{first.where}: {first.text}"
    if wrong > 1:
        detail += f"\n{wrong:,} of {judged:,} {unit}"
    return prop.outcome(
        "fail",
        detail,
        configuration=first.where,
        snippet=show_step(session, first),
        evidence={"wrong": wrong, "judged": judged, "step": first.step},
        draws=judged,
    )


def show_step(session: TraceSession, finding: Finding) -> str:
    """Return a program that prints what was recorded at a step and at the one before."""
    path, rank = finding.source.run.path, finding.source.rank
    last = f"step.step in ({max(finding.step - 1, 0)}, {finding.step})"
    if len(finding.source.files) > 1:
        last = f"step.process == {finding.process} and {last}"
    return "\n".join(
        [
            session.import_line,
            "",
            f"for step in read_steps({path!r}, rank={rank}):",
            f"    if {last}:",
            "        print(step)",
            "",
        ]
    )
