"""A trace as a target, and the session in which it is judged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from specsim.properties.session import Progress, Settings
from specsim.targets import Configuration, TargetError
from specsim.trace.header import TraceConfiguration
from specsim.trace.reader import TraceFile, TraceRun

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class TraceTarget:
    """The recorded steps of one or several runs.

    Attributes
    ----------
    runs
        One a folder.
    """

    runs: tuple[TraceRun, ...]
    kind: str = "trace"

    @property
    def name(self) -> str:
        """The folders, as the user named them."""
        return " ".join(run.path for run in self.runs)


@dataclass(frozen=True)
class Source:
    """The files of one rank of one run.

    Attributes
    ----------
    run, rank
        Which.
    files
        Its processes' files, in order.
    """

    run: TraceRun
    rank: int
    files: tuple[TraceFile, ...]

    @property
    def label(self) -> str:
        """A short name for reports."""
        return f"{self.run.path} rank {self.rank}"


@dataclass
class TraceSession:
    """The judging of one trace.

    Attributes
    ----------
    target
        The trace.
    settings
        What the run was asked for.
    progress
        Called with the number of lengths just judged.
    memo
        What properties of one subject share, worked out by the first of them.
    import_line
        What a snippet starts with.
    """

    target: TraceTarget
    settings: Settings
    progress: Progress = field(default=lambda draws: None)
    memo: dict[str, Any] = field(default_factory=dict)
    import_line: str = "from specsim.trace import read_steps"

    def sources(self) -> Iterator[Source]:
        """Return every rank of every run."""
        for run in self.target.runs:
            for rank, files in run.ranks.items():
                yield Source(run, rank, files)

    def once(self, key: str, work: Callable[[TraceSession], _Found]) -> _Found:
        """Return what `work` returns for this session, worked out the first time only."""
        if key not in self.memo:
            self.memo[key] = work(self)
        found: _Found = self.memo[key]
        return found


def open_trace(
    paths: Iterable[str | os.PathLike[str]],
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> TraceSession:
    """Open the traces of one or several runs.

    Parameters
    ----------
    paths
        Folders that `specsim.record` wrote to, one a run; the files in one are its ranks'.
    settings
        What the run was asked for; coupling and methods are the trace's own.
    progress
        Called with the number of lengths just judged.

    Raises
    ------
    TargetError
        If there is no folder, one is named twice or holds no trace, or a file's header is
        missing or not valid.
    """
    runs = tuple(TraceRun.open(path) for path in paths)
    if not runs:
        raise TargetError("name at least one folder with a trace")
    places = [os.path.realpath(run.path) for run in runs]
    twice = [run.path for run, place in zip(runs, places, strict=True) if places.count(place) > 1]
    if twice:
        raise TargetError(f"{twice[0]} is named twice")
    session = TraceSession(TraceTarget(runs), settings or Settings())
    if progress is not None:
        session.progress = progress
    return session


def claimed(configuration: TraceConfiguration) -> Configuration:
    """Return the configuration whose law a recorded worker's lengths should have.

    `configuration` must have one: its `simulating` is true.
    """
    top = configuration.gamma + 1
    if configuration.rates is not None:
        return Configuration(None, None, top, configuration.rates)
    return Configuration(configuration.simulate_acc_len, configuration.simulate_acc_method, top)
