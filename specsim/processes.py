"""Forked processes: when a fork is a working copy, how it ends, and what it ends with.

Standard library only.
"""

from __future__ import annotations

import ctypes
import glob
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path


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
