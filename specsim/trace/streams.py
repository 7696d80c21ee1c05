"""Reads the lengths of every rank, and feeds the streams that judge them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from specsim.acceptance import AcceptanceDistribution
from specsim.properties.configurations import LEVELS, law_of
from specsim.properties.pairs import PairStream
from specsim.properties.stream import Stream, StreamResult, StreamSettings
from specsim.trace.blocks import IntArray
from specsim.trace.header import TraceConfiguration
from specsim.trace.reader import TraceFile
from specsim.trace.session import Source, TraceSession, claimed
from specsim.trace.slots import BoolArray, Slots, slots_of

Subject: TypeAlias = Literal["all", "graph", "slots"]
"""All steps; those replayed from a graph; the first two slots of each, as pairs."""

# Blocks grow: a frozen length shows after dozens, and each look costs milliseconds.
_FIRST_BLOCK, _GROWTH, _LARGEST_BLOCK = 32, 1.5, 50_000
_MOST_PAIR_VALUES = 1_024


@dataclass(frozen=True)
class TraceStream:
    """A stream of recorded lengths, and what it showed.

    Attributes
    ----------
    source
        Whose lengths.
    configuration
        What that worker was configured to do.
    subject
        Which of its lengths.
    result
        What they showed.
    capped
        Lengths left out since a cap may have cut them.
    """

    source: Source
    configuration: TraceConfiguration
    subject: Subject
    result: StreamResult
    capped: int


class _Feed:
    """Collects lengths, and hands them to a stream in growing blocks."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.capped = 0
        self._kept: list[IntArray] = []
        self._size, self._block = 0, float(_FIRST_BLOCK)

    def add(self, values: IntArray) -> None:
        self._kept.append(values)
        self._size += values.size
        if self._size >= self._block:
            self.flush()

    def flush(self) -> None:
        values = np.concatenate([*self._kept, np.empty(0, dtype=np.int64)])
        self._kept, self._size = [], 0
        while values.size:
            size = int(self._block)
            self.stream.update(values[:size])
            values = values[size:]
            self._block = min(self._block * _GROWTH, _LARGEST_BLOCK)


def _groups(source: Source) -> Iterator[tuple[TraceConfiguration, list[TraceFile]]]:
    """Return the files of a rank that were configured alike, one after the other."""
    for configuration, files in itertools.groupby(
        source.files, key=lambda file: file.header.configuration
    ):
        if configuration.simulating:
            yield configuration, list(files)


def _subjects(configuration: TraceConfiguration) -> tuple[Subject, ...]:
    law = law_of(claimed(configuration))
    # Pairs of 64 lengths would be a law of 4,096 values, which no trace is long enough for.
    apart = configuration.coupling == "slot" and law.max_len**2 <= _MOST_PAIR_VALUES
    return ("all", "graph", "slots") if apart else ("all", "graph")


def trace_streams(session: TraceSession) -> list[TraceStream]:
    """Read the lengths of every rank, and judge them.

    The headers alone say how many streams there are, so that alpha's shares are fixed before a
    length is read. Ranks that agree are judged several times over, which costs a little of
    alpha's share, and no assumption.
    """
    settings = session.settings
    plan = [
        (source, configuration, files)
        for source in session.sources()
        for configuration, files in _groups(source)
    ]
    shares = sum(len(_subjects(configuration)) for _, configuration, _ in plan)
    streams = StreamSettings(
        seed=settings.seed,
        alpha_run=settings.alpha,
        alpha=settings.alpha / max(shares, 1),
        delta=LEVELS[settings.effort].delta,
        tolerance=settings.tolerance,
        budget=LEVELS[settings.effort].budget,
    )
    return [
        found
        for source, configuration, files in plan
        for found in _judged(session, source, configuration, files, streams)
    ]


def _judged(
    session: TraceSession,
    source: Source,
    configuration: TraceConfiguration,
    files: list[TraceFile],
    settings: StreamSettings,
) -> list[TraceStream]:
    started = time.perf_counter()
    law = law_of(claimed(configuration))
    feeds = {subject: _feed(source, law, subject, settings) for subject in _subjects(configuration)}
    per_slot = configuration.coupling == "slot"
    for file in files:
        for block in file.blocks():
            session.progress(_feed_block(feeds, slots_of(block), law, per_slot=per_slot))
    for feed in feeds.values():
        feed.flush()
    seconds = (time.perf_counter() - started) / len(feeds)
    return [
        TraceStream(
            source,
            configuration,
            subject,
            feed.stream.result(seconds, None),
            feed.capped,
        )
        for subject, feed in feeds.items()
    ]


def _feed(
    source: Source, law: AcceptanceDistribution, subject: Subject, settings: StreamSettings
) -> _Feed:
    if subject == "slots":
        return _Feed(PairStream(source.label, law, law, settings))
    label = source.label if subject == "all" else f"{source.label}, graph steps"
    names = tuple(str(k + 1) for k in range(law.max_len))
    return _Feed(Stream(label, law, names, settings))


def _feed_block(
    feeds: dict[Subject, _Feed],
    slots: Slots,
    law: AcceptanceDistribution,
    *,
    per_slot: bool,
) -> int:
    """Hand a block's lengths to its streams, one a step or one a slot; return how many."""
    lengths, known = slots.lengths(law.max_len)
    chosen = np.flatnonzero(known)
    if not per_slot:
        # A step's one draw is read off its first slot that no cap can have cut.
        chosen = chosen[np.unique(slots.row[chosen], return_index=True)[1]]
    graph = slots.block.graph[slots.row]
    feeds["all"].add(lengths[chosen])
    feeds["graph"].add(lengths[chosen[graph[chosen]]])
    left_out = (slots.known["correct_len"] | slots.known["commit_lens"]) & ~known
    feeds["all"].capped += int(left_out.sum())
    feeds["graph"].capped += int((left_out & graph).sum())
    if "slots" in feeds:
        feeds["slots"].add(_pairs(slots, lengths, known, law.max_len))
    return int(chosen.size)


def _pairs(slots: Slots, lengths: IntArray, known: BoolArray, top: int) -> IntArray:
    """Return the lengths of slots 0 and 1, 2 and 3, and so on, each pair as one number.

    The pairs are disjoint, so that they are independent of each other if the slots are.
    """
    if lengths.size < 2:
        return np.empty(0, dtype=np.int64)
    neighbours = known[:-1] & known[1:] & (np.diff(slots.row) == 0)
    first = np.flatnonzero(neighbours & (slots.slot[:-1] % 2 == 0))
    one, other = lengths[first], lengths[first + 1]
    inside = (np.minimum(one, other) >= 1) & (np.maximum(one, other) <= top)
    return np.asarray(((one - 1) * top + other)[inside], dtype=np.int64)
