"""Judges whether the ranks of a run committed the same lengths at every step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from specsim.properties.outcome import Outcome
from specsim.trace.blocks import IntArray
from specsim.trace.reader import TraceFile, TraceRun
from specsim.trace.session import TraceSession

if TYPE_CHECKING:
    from specsim.properties.registry import Property

_Values: TypeAlias = "dict[str, IntArray]"
_COMPARED = ("commit_lens", "correct_len")
# Clocks of one machine agree better than this; two processes of one rank do not overlap by less.
_CLOCK_SECONDS = 1.0


@dataclass
class Ranks:
    """What the ranks of one run showed.

    Attributes
    ----------
    run
        Which.
    compared, differing
        Steps of which all ranks recorded the lengths, and how many differ between ranks.
    missing
        Steps that some rank recorded and some did not.
    first
        Process and step of the first difference, and what the ranks had there, in words.
    configured
        How the ranks' configurations differ, in words; empty if they don't.
    overlapping
        Ranks of which two processes recorded at the same time.
    """

    run: TraceRun
    compared: int = 0
    differing: int = 0
    missing: int = 0
    first: tuple[int, int, str] | None = None
    configured: str = ""
    overlapping: list[int] = field(default_factory=list)


def judge_agreement(prop: Property, session: TraceSession) -> Outcome:
    """Judge R.agreement."""
    ranks = _ranks(session)
    compared = sum(r.compared for r in ranks)
    for run in ranks:
        if run.first is not None or run.configured:
            return _failure(prop, session, run)
    lines = [line for run in ranks for line in _doubts(run)]
    if lines:
        return prop.outcome("inconclusive", "\n".join(lines), draws=compared)
    several = [run for run in ranks if len(run.run.ranks) > 1]
    if not several:
        return prop.outcome("skip", "only one rank was recorded")
    parts = [_passing(run) for run in several]
    return prop.outcome("pass", "\n".join(parts), draws=compared)


def judge_completeness(prop: Property, session: TraceSession) -> Outcome:
    """Judge R.complete."""
    faults = []
    files = 0
    for run in _ranks(session):
        if run.missing:
            faults.append(f"{run.run.path}: {run.missing:,} steps are missing in some rank")
        processes = {rank: len(files) for rank, files in run.run.ranks.items()}
        if len(set(processes.values())) > 1:
            faults.append(f"{run.run.path}: processes of each rank: {processes}")
    for source in session.sources():
        for file in source.files:
            files += 1
            faults += [f"{file.path}: {fault}" for fault in _faults(file)]
    if faults:
        more = f"\nand {len(faults) - 5} more" if len(faults) > 5 else ""
        return prop.outcome("fail", "\n".join(faults[:5]) + more, evidence={"faults": faults})
    return prop.outcome("pass", f"{files} files, each closed, and no step missing")


def _ranks(session: TraceSession) -> list[Ranks]:
    return session.once("trace.ranks", lambda s: [_compare(run) for run in s.target.runs])


def _faults(file: TraceFile) -> list[str]:
    ending = file.ending()
    faults = [] if ending.closed else [ending.text]
    dropped = max(ending.dropped, max((block.dropped for block in file.blocks()), default=0))
    if dropped:
        faults.append(f"{dropped:,} steps were dropped while others waited for the device")
    return faults


def _compare(run: TraceRun) -> Ranks:
    found = Ranks(run)
    configurations = {
        rank: [file.header.configuration for file in files] for rank, files in run.ranks.items()
    }
    first_rank = next(iter(run.ranks))
    for rank, mine in configurations.items():
        for one, other in zip(configurations[first_rank], mine, strict=False):
            if one != other and not found.configured:
                found.configured = (
                    f"rank {first_rank} is configured with {one.label}, rank {rank} with "
                    f"{other.label}"
                )
    found.overlapping = [rank for rank, files in run.ranks.items() if _overlap(files)]
    if len(run.ranks) < 2 or found.overlapping:
        return found
    # A run that was started again has one more process of each rank.
    for process in range(min(map(len, run.ranks.values()))):
        files = {rank: own[process] for rank, own in run.ranks.items()}
        _compare_processes(found, process, files)
    return found


def _overlap(files: tuple[TraceFile, ...]) -> bool:
    for earlier, later in itertools.pairwise(files):
        last = 0.0
        for block in earlier.blocks():
            last = max(last, block.time)
        if last > later.header.started + _CLOCK_SECONDS:
            return True
    return False


def _compare_processes(found: Ranks, process: int, files: dict[int, TraceFile]) -> None:
    """Go through the steps of all ranks side by side."""
    readers = {rank: _lengths(file) for rank, file in files.items()}
    heads = {rank: next(reader, None) for rank, reader in readers.items()}
    while any(head is not None for head in heads.values()):
        lowest = min(head[0] for head in heads.values() if head is not None)
        here = {rank: head[1] for rank, head in heads.items() if head and head[0] == lowest}
        if len(here) < len(files):
            found.missing += 1
        else:
            names = [name for name in _COMPARED if all(name in v for v in here.values())]
            found.compared += bool(names)
            difference = _difference(here, names)
            if difference:
                found.differing += 1
                found.first = found.first or (process, lowest, difference)
        for rank in here:
            heads[rank] = next(readers[rank], None)


def _lengths(file: TraceFile) -> Iterator[tuple[int, _Values]]:
    for block in file.blocks():
        columns = {name: block.columns[name] for name in _COMPARED if name in block.columns}
        for row, step in enumerate(block.steps.tolist()):
            values = {name: column.at(row) for name, column in columns.items()}
            yield step, {name: value for name, value in values.items() if value is not None}


def _difference(here: dict[int, _Values], names: list[str]) -> str:
    """Say which rank differs from the lowest one at a step, and in what; empty if none does."""
    lowest = min(here)
    for name in names:
        mine = here[lowest][name]
        for rank, values in here.items():
            if not np.array_equal(values[name], mine):
                return (
                    f"{name} is {_short(mine)} on rank {lowest}, {_short(values[name])} on rank "
                    f"{rank}"
                )
    return ""


def _short(values: IntArray) -> str:
    shown = [int(v) for v in values[:8]]
    return f"{shown[:-1]} … of {values.size}" if values.size > 8 else str(shown)


def _failure(prop: Property, session: TraceSession, run: Ranks) -> Outcome:
    if run.first is None:
        return prop.outcome("fail", f"{run.run.path}: {run.configured}", configuration=run.run.path)
    process, step, difference = run.first
    where = f"{run.run.path} step {step}"
    if max(map(len, run.run.ranks.values())) > 1:
        where += f" of process {process}"
    detail = (
        f"{where}: {difference}\n{run.differing:,} of {run.compared:,} steps differ between ranks"
    )
    snippet = "\n".join(
        [
            session.import_line,
            "",
            f"for step in read_steps({run.run.path!r}):",
            f"    if (step.process, step.step) == ({process}, {step}):",
            "        print(step.rank, step.lengths)",
            "",
        ]
    )
    return prop.outcome(
        "fail",
        detail,
        configuration=where,
        snippet=snippet,
        evidence={"differing": run.differing, "compared": run.compared, "missing": run.missing},
        draws=run.compared,
    )


def _doubts(run: Ranks) -> list[str]:
    if run.overlapping:
        listed = ", ".join(map(str, run.overlapping))
        return [
            f"{run.run.path}: two processes recorded as rank {listed} at the same time, so ranks "
            "cannot be told apart: pass rank= to specsim.record, and give each data-parallel "
            "replica a folder of its own"
        ]
    if len(run.run.ranks) > 1 and not run.compared:
        return [
            f"{run.run.path}: its {len(run.run.ranks)} ranks have no step with lengths in common"
        ]
    return []


def _passing(run: Ranks) -> str:
    text = f"{run.run.path}: {len(run.run.ranks)} ranks agree at all {run.compared:,} steps"
    if run.missing:
        text += f" that all recorded; {run.missing:,} more are missing in some rank"
    return text
