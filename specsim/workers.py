"""Runs courses in several forked processes, and says which one a target ended.

The executors of the standard library report a worker that died as a broken pool, without its
exit code and without the task that it had; a target that crashes is a finding, so both matter.
"""

from __future__ import annotations

import ctypes
import glob
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from pathlib import Path

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


def obstacle_to_forking() -> str | None:
    """Say why a fork of this process would not be a working copy of it, or return None.

    Threads are not copied, CUDA does not work in a fork, and two copies of a process that talks
    to a child of its own would talk at once.
    """
    if threading.active_count() > 1:
        return "the target has started threads"
    torch = sys.modules.get("torch")
    initialized = getattr(getattr(torch, "cuda", None), "is_initialized", None)
    if callable(initialized) and initialized() is True:
        return "the target has initialised CUDA"
    for children in glob.glob("/proc/self/task/*/children"):
        with suppress(OSError):
            if Path(children).read_text().strip():
                return "the target has started a process"
    return None


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends; Linux only, elsewhere nothing."""
    with suppress(Exception):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def flush_streams() -> None:
    """Flush what can be flushed; a target may have replaced or closed either stream."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()


def ending(code: int | None) -> str:
    """Say in words how a process ended, from its exit code as Python gives it."""
    if code is None:
        return "the process was lost"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"the process was ended by {name}"
    return f"the process exited with status {code}"


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
