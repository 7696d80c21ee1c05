"""A gloo process group of forked copies of this process, and the lengths that each rank draws.

Results come through pipes and not through the group: a rank that raises, dies or hangs takes
nobody's lengths with it. Every wait has an end, and no rank outlives the call.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext
from pathlib import Path
from typing import Any, Literal, TypeAlias

from specsim.processes import die_with_parent, ending, flush_streams, obstacle_to_forking
from specsim.properties.certificates import no_length
from specsim.properties.generators import seed_global_generators
from specsim.properties.lengths import as_length
from specsim.targets import (
    Configuration,
    LengthTarget,
    TargetError,
    TargetFailed,
    TargetReturned,
    describe,
)

State: TypeAlias = Literal["joining", "drawing", "finished", "raised", "died"]
End: TypeAlias = Literal["finished", "ended early", "hung", "late"]

_TELL_S = 0.1


class NoGroupError(Exception):
    """No process group can be had here; the message says why."""


@dataclass(frozen=True)
class Limits:
    """Seconds that ranks are given.

    Attributes
    ----------
    collective
        After which a collective that waits for another rank raises.
    stall
        After which ranks that draw nothing are taken to hang.
    total
        For the whole group, however well it goes.
    grace
        After the early end of one rank, so that the ends of others are known too.
    """

    collective: float = 20.0
    stall: float = 45.0
    total: float = 240.0
    grace: float = 1.0


@dataclass
class RankRun:
    """What one rank did.

    Attributes
    ----------
    rank
        Its number.
    lengths
        What it drew, one list a configuration; a rank that ended early may have drawn a tenth
        of a second more.
    state
        ``"drawing"`` if it was interrupted.
    summary
        How it ended early, in one line: what it raised, or how its process ended.
    frames_text
        The target's frames in which it raised.
    when
        When it ended early, in seconds of the clock that all ranks share.
    """

    rank: int
    lengths: list[list[int]]
    state: State = "joining"
    summary: str = ""
    frames_text: str = ""
    when: float = math.inf


@dataclass(frozen=True)
class GroupRun:
    """What all ranks did, and why it ended."""

    ranks: tuple[RankRun, ...]
    end: End

    @property
    def cause(self) -> RankRun | None:
        """The rank whose early end came first, if one did.

        A process that was ended shows later than the broken connections that it leaves behind.
        """
        early = [run for run in self.ranks if run.state in ("raised", "died")]
        return min(early, key=lambda run: (run.state != "died", run.when), default=None)


def obstacle_to_ranks() -> str | None:
    """Say why this process cannot be forked into ranks, or return None."""
    if not hasattr(os, "fork"):
        return "this platform cannot fork a process"
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_gloo_available()):
        return "this build of torch has no gloo"
    if dist.is_initialized():
        return "this process belongs to a process group"
    obstacle = obstacle_to_forking()
    return None if obstacle is None else f"this process cannot be forked: {obstacle}"


def draw_on_ranks(
    target: LengthTarget,
    configurations: Sequence[Configuration],
    steps: int,
    world_size: int,
    *,
    seed: int,
    alike: bool,
    limits: Limits,
    progress: Callable[[int], None],
) -> GroupRun:
    """Draw the same lengths on every rank of a group.

    Parameters
    ----------
    target
        Renewed on each rank, after the generators are seeded.
    configurations, steps
        What is drawn one after the other, and how many lengths of each.
    world_size
        Number of ranks.
    seed
        What the states of the global generators are derived from.
    alike
        Whether all ranks have these in one state, or each in another.
    limits
        How long to wait for what.
    progress
        Called with the number of lengths just drawn.

    Raises
    ------
    NoGroupError
        If gloo does not connect the ranks.
    TargetError
        If the target cannot be called as asked.
    """
    job = _Job(target, tuple(configurations), steps, world_size, seed, alike, limits.collective)
    context = multiprocessing.get_context("fork")
    ranks: list[_Rank] = []
    with tempfile.TemporaryDirectory(prefix="specsim-ranks-") as folder:
        try:
            for number in range(world_size):
                ranks.append(_Rank(context, job, number, folder, [r.connection for r in ranks]))
            _assemble(ranks, limits)
            end = _watch(ranks, limits, progress)
        finally:
            for rank in ranks:
                rank.stop()
    return GroupRun(tuple(rank.run for rank in ranks), end)


def _assemble(ranks: list[_Rank], limits: Limits) -> None:
    """Let the ranks draw once all are connected.

    A rank whose target ended it before would break the connection of the others, and look like
    a machine without one.
    """
    deadline = time.monotonic() + limits.stall
    while joining := [rank for rank in ranks if rank.run.state == "joining"]:
        left = deadline - time.monotonic()
        if left <= 0:
            raise NoGroupError(f"gloo did not connect {len(ranks)} processes in {limits.stall:g} s")
        _wait(joining, left)
        for rank in joining:
            rank.take()
            if rank.run.state == "died":
                raise NoGroupError(
                    f"{rank.run.summary} while gloo connected {len(ranks)} processes"
                )
    for rank in ranks:
        with suppress(OSError):
            rank.connection.send(None)


def _watch(ranks: list[_Rank], limits: Limits, progress: Callable[[int], None]) -> End:
    """Take what the ranks send until all have ended or there is no more to wait for."""
    started = last_news = time.monotonic()
    while drawing := [rank for rank in ranks if rank.run.state == "drawing"]:
        early = [r.run.when for r in ranks if r.run.state in ("raised", "died")]
        deadlines: dict[End, float] = {
            "hung": last_news + limits.stall,
            "late": started + limits.total,
            "ended early": min(early, default=math.inf) + limits.grace,
        }
        end = min(deadlines, key=lambda name: deadlines[name])
        left = deadlines[end] - time.monotonic()
        if left <= 0:
            return end
        _wait(drawing, left)
        for rank in drawing:
            drawn = rank.take()
            if drawn:
                last_news = time.monotonic()
                progress(drawn)
    return "finished" if all(rank.run.state == "finished" for rank in ranks) else "ended early"


def _wait(ranks: list[_Rank], seconds: float) -> None:
    """Wait until one of the ranks sent something or ended."""
    wait([o for rank in ranks for o in (rank.connection, rank.process.sentinel)], seconds)


@dataclass(frozen=True)
class _Job:
    target: LengthTarget
    configurations: tuple[Configuration, ...]
    steps: int
    world_size: int
    seed: int
    alike: bool
    timeout: float


@dataclass(frozen=True)
class _Drew:
    index: int
    lengths: list[int]


@dataclass(frozen=True)
class _Raised:
    summary: str
    frames_text: str
    when: float = field(default_factory=time.monotonic)


class _Joined:
    pass


class _Finished:
    pass


class _Rank:
    """One forked process, as seen from outside."""

    def __init__(
        self, context: ForkContext, job: _Job, rank: int, folder: str, others: list[Connection]
    ) -> None:
        self.connection, inner = context.Pipe()
        self.run = RankRun(rank, [[] for _ in job.configurations])
        arguments = (job, rank, folder, inner, [*others, self.connection])
        self.process = context.Process(target=_serve, args=arguments, daemon=False)
        with warnings.catch_warnings():
            # Since Python 3.12 a fork with threads about warns; obstacle_to_ranks has looked.
            warnings.simplefilter("ignore", DeprecationWarning)
            # What the target put in their place may not bear being flushed.
            with redirect_stdout(sys.__stdout__), redirect_stderr(sys.__stderr__):
                self.process.start()
        inner.close()

    def take(self) -> int:
        """Take all that has arrived, and return the number of lengths among it."""
        alive, drawn = self.process.is_alive(), 0
        try:
            while self.run.state in ("joining", "drawing") and self.connection.poll():
                drawn += self._take(self.connection.recv())
        except (EOFError, OSError, pickle.UnpicklingError):
            alive = False
        if not alive and self.run.state in ("joining", "drawing"):
            self.process.join(1.0)
            self.run.state, self.run.when = "died", time.monotonic()
            self.run.summary = ending(self.process.exitcode)
        return drawn

    def _take(self, message: object) -> int:
        if isinstance(message, _Drew):
            self.run.lengths[message.index] += message.lengths
            return len(message.lengths)
        if isinstance(message, _Raised):
            self.run.state, self.run.when = "raised", message.when
            self.run.summary, self.run.frames_text = message.summary, message.frames_text
        elif isinstance(message, _Joined):
            self.run.state = "drawing"
        elif isinstance(message, _Finished):
            self.run.state = "finished"
        elif isinstance(message, Exception):
            raise message
        return 0

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()
        self.process.close()


def _serve(
    job: _Job, rank: int, folder: str, connection: Connection, others: list[Connection]
) -> None:
    for other in others:
        other.close()
    die_with_parent()
    try:
        _join_group(job, rank, folder)
        connection.send(_Joined())
        connection.recv()
        result = _work(job, rank, connection.send)
        # The process is killed once all ranks are done.
        flush_streams()
        connection.send(result)
        # Others may still wait for this rank in a collective.
        connection.recv()
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        pass
    except (TargetError, NoGroupError) as error:
        connection.send(error)
    except Exception as error:
        # Any exception may hold what cannot be sent; its text can.
        connection.send(RuntimeError(describe(error)))
    finally:
        # A target's exit handlers belong to the process that loaded it, not to its copies.
        flush_streams()
        os._exit(0)


def _work(job: _Job, rank: int, send: Callable[[Any], None]) -> _Finished | _Raised:
    job.target.renew()
    seed_global_generators(job.seed, "ranks", "all" if job.alike else rank)
    for index, configuration in enumerate(job.configurations):
        drawn: list[int] = []
        told = time.monotonic()
        try:
            for _ in range(job.steps):
                drawn.append(_length(job.target, configuration))
                if time.monotonic() - told > _TELL_S:
                    send(_Drew(index, drawn))
                    drawn, told = [], time.monotonic()
        except TargetFailed as failed:
            send(_Drew(index, drawn))
            return _Raised(failed.summary, failed.frames_text)
        send(_Drew(index, drawn))
    return _Finished()


def _join_group(job: _Job, rank: int, folder: str) -> None:
    import torch
    import torch.distributed as dist

    # What gloo and the target print goes where progress does.
    with suppress(OSError):
        os.dup2(2, 1)
    # A fork of a process with a pool of threads can hang in the pool.
    torch.set_num_threads(1)
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job.world_size}
    os.environ.update({name: str(value) for name, value in names.items()})
    try:
        dist.init_process_group(
            "gloo",
            init_method=Path(folder, "store").as_uri(),
            rank=rank,
            world_size=job.world_size,
            timeout=timedelta(seconds=job.timeout),
        )
    except Exception as error:
        raise NoGroupError(
            f"gloo does not connect {job.world_size} processes: {describe(error)}"
        ) from None


def _length(target: LengthTarget, configuration: Configuration) -> int:
    [value] = target.draw_many(configuration, 1)
    length = as_length(value)
    if length is None:
        raise TargetReturned(no_length(value))
    return length
