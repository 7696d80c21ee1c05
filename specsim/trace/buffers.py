"""Judges which storages recorded steps read their lengths from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from specsim.properties.outcome import Outcome
from specsim.trace.blocks import NO_STORAGE, Block, Storage
from specsim.trace.reader import TraceFile
from specsim.trace.session import Source, TraceSession
from specsim.trace.slots import PER_SLOT
from specsim.trace.tallies import Finding, Tally, failure

if TYPE_CHECKING:
    from specsim.properties.registry import Property

LEAST_CAPACITY = 512
"""Fewest slots that a cached buffer is made for."""

_NO_BUFFER = "no step was recorded with its buffer"


@dataclass
class Buffers:
    """What the buffers of a trace showed.

    Attributes
    ----------
    steps, graph_steps
        Steps recorded with a buffer, and how many of them were a graph's.
    reuse
        Steps that read another storage than the one before, with nothing that called for it.
    shared
        Steps at which graphs and eager code read different storages.
    small
        Storages too small for a cached buffer, where they are one.
    storages
        How many storages there were.
    """

    steps: int = 0
    graph_steps: int = 0
    reuse: Tally = field(default_factory=Tally)
    shared: Tally = field(default_factory=Tally)
    small: Tally = field(default_factory=Tally)
    storages: int = 0


def judge_reuse(prop: Property, session: TraceSession) -> Outcome:
    """Judge E.reuse."""
    buffers = _buffers(session)
    if not buffers.steps:
        return prop.outcome("skip", _NO_BUFFER)
    if buffers.reuse.first is not None:
        tally = buffers.reuse
        return failure(prop, session, buffers.reuse.first, tally.wrong, buffers.steps, "steps")
    many = "one storage" if buffers.storages == 1 else f"{buffers.storages} storages"
    detail = f"{buffers.steps:,} steps in {many}, each new one for a reason"
    return prop.outcome("pass", detail, draws=buffers.steps)


def judge_minimum_capacity(prop: Property, session: TraceSession) -> Outcome:
    """Judge E.minimum-capacity."""
    buffers = _buffers(session)
    if not buffers.steps:
        return prop.outcome("skip", _NO_BUFFER)
    if not buffers.small.judged:
        return prop.outcome("skip", "the buffers are scalars of the step protocol")
    if buffers.small.first is not None:
        tally = buffers.small
        return failure(prop, session, buffers.small.first, tally.wrong, tally.judged, "storages")
    detail = f"{buffers.small.judged} storages of {LEAST_CAPACITY} slots or more"
    return prop.outcome("pass", detail, draws=buffers.steps)


def judge_graph_storage(prop: Property, session: TraceSession) -> Outcome:
    """Judge G.storage."""
    buffers = _buffers(session)
    if not buffers.graph_steps:
        return prop.outcome("skip", "no graph step was recorded with its buffer")
    if buffers.shared.first is not None:
        tally = buffers.shared
        return failure(prop, session, buffers.shared.first, tally.wrong, buffers.steps, "steps")
    eager = buffers.steps - buffers.graph_steps
    beside = f" and {eager:,} eager ones" if eager else ""
    detail = f"{buffers.graph_steps:,} graph steps{beside}: all read the newest storage"
    return prop.outcome("pass", detail, draws=buffers.graph_steps)


def _buffers(session: TraceSession) -> Buffers:
    return session.once("trace.buffers", _look)


def _look(session: TraceSession) -> Buffers:
    found = Buffers()
    for source in session.sources():
        for process, file in enumerate(source.files):
            _look_at_file(found, source, process, file)
    return found


@dataclass(frozen=True)
class _At:
    """One step that was recorded with its buffer."""

    step: int
    graph: bool
    number: int
    offset: int
    slots: int


def _steps(block: Block) -> Iterator[_At]:
    slots = np.zeros(len(block), dtype=np.int64)
    for name in PER_SLOT:
        if name in block.columns:
            slots = np.maximum(slots, block.columns[name].sizes)
    for row in np.flatnonzero(block.storage != NO_STORAGE).tolist():
        yield _At(
            int(block.steps[row]),
            bool(block.graph[row]),
            int(block.storage[row]),
            int(block.offset[row]),
            int(slots[row]),
        )


def _look_at_file(found: Buffers, source: Source, process: int, file: TraceFile) -> None:
    storages: dict[int, Storage] = {}
    # By mode: the storage of its last step, and the place in it.
    last: dict[bool, tuple[int, int]] = {}
    # Of each dtype and device, since one buffer for each is as good as one that is rebuilt: the
    # newest storage, and whether a graph was the first to read it.
    newest: dict[tuple[str, str], tuple[int, bool]] = {}
    for block in file.blocks():
        storages.update(block.storages)
        for at in _steps(block):
            found.steps += 1
            found.graph_steps += at.graph
            place = f"step {at.step}"
            storage = storages.get(at.number)
            key = ("", "") if storage is None else (storage.dtype, storage.device)
            latest, made_by = newest.get(key, (NO_STORAGE, False))
            before, offset = last.get(at.graph, (NO_STORAGE, 0))
            missing = None
            if before == at.number and offset != at.offset:
                missing = (
                    f"reads its storage from {at.offset} on, and the step before from {offset}"
                )
            elif before not in (NO_STORAGE, at.number) and at.number != latest:
                missing = _reason_missing(storages, before, at)
            if missing:
                _note(found.reuse, Finding(source, process, at.step, place, missing))
            if at.number < latest and (at.graph or made_by):
                _note(found.shared, Finding(source, process, at.step, place, _apart(at, latest)))
            if at.number > latest:
                newest[key] = (at.number, at.graph)
                _look_at_capacity(found.small, source, process, at, storages)
            last[at.graph] = (at.number, at.offset)
    found.storages += len(storages)


def _note(tally: Tally, finding: Finding) -> None:
    tally.wrong += 1
    tally.first = tally.first or finding


def _reason_missing(storages: dict[int, Storage], before: int, at: _At) -> str | None:
    """Say what is wrong with a change of storage; None if the step called for another one."""
    old, new = storages.get(before), storages.get(at.number)
    if old is None or new is None:
        return None
    if old.dtype != new.dtype or old.device != new.device:
        return None
    if old.capacity < at.slots <= new.capacity:
        return None
    return (
        f"reads another storage than the step before, though that had room for {old.capacity} "
        f"slots of {old.dtype} on {old.device}, and the step has {at.slots}"
    )


def _apart(at: _At, newest: int) -> str:
    if at.graph:
        return (
            f"the graph reads storage {at.number}, which storage {newest} had replaced: a graph "
            "captured before then is replayed"
        )
    return f"eager code reads storage {at.number}, where graphs read storage {newest}"


def _look_at_capacity(
    tally: Tally, source: Source, process: int, at: _At, storages: dict[int, Storage]
) -> None:
    storage = storages.get(at.number)
    if storage is None or storage.capacity <= 1:
        return
    tally.judged += 1
    if storage.capacity < LEAST_CAPACITY:
        text = f"a new storage for {storage.capacity} slots; at least {LEAST_CAPACITY} expected"
        _note(tally, Finding(source, process, at.step, f"step {at.step}", text))
