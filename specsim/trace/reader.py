"""Reads the trace files of one or several runs, a block at a time."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specsim.loading.failures import TargetError, describe
from specsim.trace.blocks import NO_STORAGE, Block, IntArray
from specsim.trace.frames import (
    END,
    HEADER,
    SUFFIX,
    CutShortError,
    DamagedError,
    Frame,
    read_frames,
)
from specsim.trace.header import TraceConfiguration, TraceHeader, read_end

# What decoding can raise; a checksum lets through what a recorder of another version wrote.
_UNREADABLE = (KeyError, OverflowError, RecursionError, TypeError, ValueError, struct.error)
_NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Ending:
    """How a file ends.

    Attributes
    ----------
    closed
        Whether its recorder was closed.
    text
        That in words.
    dropped
        Steps not recorded, as far as its end frame says so.
    """

    closed: bool
    text: str
    dropped: int = 0


@dataclass(frozen=True)
class TraceFile:
    """One process's file; its header has been read.

    Attributes
    ----------
    path
        Where it is.
    header
        Who wrote it, and configured how.
    """

    path: Path
    header: TraceHeader

    @classmethod
    def open(cls, path: Path) -> TraceFile:
        """Read a file's header.

        Raises
        ------
        TargetError
            If the file cannot be read, is no trace, or has no complete header.
        """
        try:
            first = next(_frames(path), None)
        except CutShortError:
            first = None
        if first is None or first.tag != HEADER:
            raise TargetError(f"{path} has no complete header; its process ended at once")
        try:
            return cls(path, TraceHeader.from_bytes(first.payload))
        except _UNREADABLE as error:
            raise TargetError(f"{path} has a header that is not valid: {describe(error)}") from None

    def blocks(self) -> Iterator[Block]:
        """Read the blocks; an incomplete one at the end is left out, see `ending`.

        Raises
        ------
        TargetError
            If the file cannot be read or a block is damaged; names the file and the place.
        """
        last = -1
        for frame in self._complete_frames():
            if frame.tag in (HEADER, END):
                continue
            try:
                block = Block.from_bytes(frame.payload)
            except _UNREADABLE as error:
                raise TargetError(
                    f"{self.path}: the block at byte {frame.offset} is not valid: {describe(error)}"
                ) from None
            if int(block.steps[0]) <= last:
                raise TargetError(f"{self.path}: the block at byte {frame.offset} is out of order")
            last = int(block.steps[-1])
            yield block

    def ending(self) -> Ending:
        """Return how the file ends.

        Raises
        ------
        TargetError
            As `blocks`.
        """
        end: Frame | None = None
        try:
            for frame in _frames(self.path):
                end = frame
        except CutShortError as error:
            return Ending(False, f"{error} and left out: its process was killed while writing")
        if end is None or end.tag != END:
            return Ending(
                False, "its process ended without closing it: its last steps may be missing"
            )
        try:
            steps, dropped = read_end(end.payload)
        except _UNREADABLE as error:
            raise TargetError(f"{self.path}: its end is not valid: {describe(error)}") from None
        return Ending(True, f"closed after {steps:,} steps", dropped)

    def _complete_frames(self) -> Iterator[Frame]:
        try:
            yield from _frames(self.path)
        except CutShortError:
            return


@dataclass(frozen=True)
class TraceRun:
    """The files of one folder.

    Attributes
    ----------
    path
        The folder, as the user named it.
    ranks
        By rank, ascending: its processes' files, in the order in which they were started. A
        worker that was started again goes on with another file of the same rank.
    """

    path: str
    ranks: Mapping[int, tuple[TraceFile, ...]]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> TraceRun:
        """Read the headers of a folder's files.

        Raises
        ------
        TargetError
            If it is no folder, holds no trace, or a header is missing or not valid.
        """
        folder = Path(path)
        if not folder.is_dir():
            raise TargetError(f"{folder} is no folder; a trace is one, made by specsim.record")
        try:
            found = sorted(p for p in folder.iterdir() if p.suffix == SUFFIX)
        except OSError as error:
            raise TargetError(f"{folder} cannot be read: {error.strerror}") from None
        if not found:
            raise TargetError(f"{folder} holds no trace: no file ends in {SUFFIX}")
        files = sorted((TraceFile.open(p) for p in found), key=lambda file: file.header.started)
        ranks: dict[int, list[TraceFile]] = {}
        for file in files:
            ranks.setdefault(file.header.rank, []).append(file)
        return cls(os.fspath(path), {rank: tuple(ranks[rank]) for rank in sorted(ranks)})


@dataclass(frozen=True)
class Step:
    """One recorded step, for looking at.

    Attributes
    ----------
    rank, process, step
        Rank; number of its process, counted from 0; number of the step in that process.
    graph
        Whether it was replayed from a graph.
    storage
        Number of the buffer's storage in that process; None if no buffer was recorded.
    values
        What was recorded, by name: int64 arrays of one dimension.
    configuration
        What the process was configured to do.
    """

    rank: int
    process: int
    step: int
    graph: bool
    storage: int | None
    values: Mapping[str, IntArray]
    configuration: TraceConfiguration

    @property
    def lengths(self) -> list[int]:
        """The step's acceptance lengths, one a slot, without any cap that was recorded.

        Tokens committed and those that a cap took off where both are known, else the accepted
        draft tokens and one, else the tokens committed.
        """
        values = self.values
        if "commit_lens" in values and "cap_trim_lens" in values:
            lengths = values["commit_lens"] + values["cap_trim_lens"]
        elif "correct_len" in values:
            lengths = values["correct_len"] + 1
        else:
            lengths = values.get("commit_lens", _NOTHING)
        return [int(length) for length in lengths]


def read_steps(path: str | os.PathLike[str], *, rank: int | None = None) -> Iterator[Step]:
    """Read a trace step by step.

    Parameters
    ----------
    path
        The folder of one run.
    rank
        Read this rank only.

    Yields
    ------
    Step
        Rank after rank, in the order in which each recorded them.

    Raises
    ------
    TargetError
        If there is no such trace, or a file is damaged.
    """
    for number, files in TraceRun.open(path).ranks.items():
        if rank is not None and number != rank:
            continue
        for process, file in enumerate(files):
            for block in file.blocks():
                for row in range(len(block)):
                    yield _step(block, row, number, process, file.header.configuration)


def _step(
    block: Block, row: int, rank: int, process: int, configuration: TraceConfiguration
) -> Step:
    storage = int(block.storage[row])
    values = {name: column.at(row) for name, column in block.columns.items()}
    return Step(
        rank,
        process,
        int(block.steps[row]),
        bool(block.graph[row]),
        None if storage == NO_STORAGE else storage,
        {name: value for name, value in values.items() if value is not None},
        configuration,
    )


def _frames(path: Path) -> Iterator[Frame]:
    try:
        with path.open("rb") as file:
            yield from read_frames(file)
    except DamagedError as error:
        raise TargetError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}") from None
