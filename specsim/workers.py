"""Runs courses in several forked processes, and says which one a target ended.

The executors of the standard library report a worker that died as a broken pool, without its
exit code and without the task that it had; a target that crashes is a finding, so both matter.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess

from specsim.processes import die_with_parent, ending, flush_streams
from specsim.properties.configurations import Course
from specsim.properties.courses import CourseResult
from specsim.properties.session import Lost, Progress
from specsim.targets import TargetError

Run = Callable[[Course, Progress], CourseResult]


def forked(jobs: int) -> Callable[[Sequence[Course], Run, Progress], Iterator[CourseResult | Lost]]:
    """Return a runner that keeps up to `jobs` forked processes busy.

    Forking keeps the target as it was loaded. Each course starts from the states that the
    session sets, so results do not depend on the number of processes unless the target's own
    state does.
    """

    def run_all(
        courses: Sequence[Course], run: Run, progress: Progress
    ) -> Iterator[CourseResult | Lost]:
        # Mixed courses are the longest, so they go first.
        waiting = deque(sorted(courses, key=lambda course: -len(course.configurations)))
        busy: dict[Connection, _Worker] = {}
        context = multiprocessing.get_context("fork")
        try:
            while waiting or busy:
                while waiting and len(busy) < jobs:
                    worker = _Worker(context, run)
                    worker.give(waiting.popleft())
                    busy[worker.connection] = worker
                for connection in wait(list(busy)):
                    assert isinstance(connection, Connection)
                    worker = busy[connection]
                    try:
                        message = connection.recv()
                    except (EOFError, OSError, pickle.UnpicklingError):
                        del busy[connection]
                        yield Lost(worker.course, ending(worker.join()))
                        continue
                    if isinstance(message, int):
                        progress(message)
                    elif isinstance(message, CourseResult):
                        yield message
                        if waiting:
                            worker.give(waiting.popleft())
                        else:
                            del busy[connection]
                            worker.stop()
                    else:
                        raise message
        finally:
            for worker in busy.values():
                worker.stop()

    return run_all


class _Worker:
    """One forked process and the course that it has."""

    def __init__(self, context: ForkContext, run: Run) -> None:
        self.connection, inner = context.Pipe()
        self.course: Course
        self._process: ForkProcess = context.Process(
            target=_serve, args=(inner, self.connection, run), daemon=False
        )
        with warnings.catch_warnings():
            # Since Python 3.12 a fork with threads about warns. The judge holds no locks, and
            # torch's pool was never started: it runs one thread.
            warnings.simplefilter("ignore", DeprecationWarning)
            # What the target put in their place may not bear being flushed.
            with redirect_stdout(sys.__stdout__), redirect_stderr(sys.__stderr__):
                self._process.start()
        inner.close()

    def give(self, course: Course) -> None:
        self.course = course
        # A process that just died shows as an end of file at the next look.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(course)

    def join(self) -> int | None:
        self.connection.close()
        self._process.join()
        return self._process.exitcode

    def stop(self) -> None:
        self._process.kill()
        self.join()


def _serve(inner: Connection, outer: Connection, run: Run) -> None:
    outer.close()
    die_with_parent()
    try:
        while True:
            inner.send(run(inner.recv(), inner.send))
    except (EOFError, KeyboardInterrupt):
        pass
    except TargetError as error:
        inner.send(error)
    except Exception as error:
        # Any exception may hold what cannot be sent; its text can.
        inner.send(RuntimeError(f"{type(error).__name__}: {error}"))
    finally:
        # A target's exit handlers belong to the process that loaded it, not to its copies.
        flush_streams()
        os._exit(0)
