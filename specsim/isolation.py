"""Starts the judge in a process of its own, keeps the time, and turns its end into a report.

Nothing here imports torch, NumPy or the target: a target that hangs, exits or crashes ends
another process than this one.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from specsim._version import __version__
from specsim.judge import Request
from specsim.processes import ending
from specsim.properties.outcome import Report, Verdict
from specsim.report import json_report


class RefusedError(Exception):
    """The target cannot be judged as asked; the message is one line for the user."""


# The current folder is left out of the path until the target is loaded: a file there named like a
# module of the standard library must not be taken for it.
_START = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; sys.path.append(sys.argv[2]); "
    "from specsim.judge import main; main()"
)


def run(
    request: Request,
    timeout: float,
    on_event: Callable[[dict[str, Any]], None] = lambda event: None,
) -> Report:
    """Judge a target in another process.

    Parameters
    ----------
    request
        What to judge, and how.
    timeout
        Seconds after which the judge and everything that it started are killed.
    on_event
        Given each event: ``loaded``, ``note``, ``drawn``, ``judged``.

    Returns
    -------
    Report
        The judge's; or, if the target hung or ended the process, one in which ``returns`` fails
        and everything that was still open is inconclusive.

    Raises
    ------
    RefusedError
        If the target cannot be loaded or called as asked.
    """
    # Hypothesis keeps caches in the current folder, which is the user's.
    with tempfile.TemporaryDirectory(prefix="specsim-") as folder, _ends_on_signals():
        return _Run(request, timeout, on_event).report(folder)


class _Run:
    """One judge's life, as seen from outside."""

    def __init__(
        self, request: Request, timeout: float, on_event: Callable[[dict[str, Any]], None]
    ) -> None:
        self._request, self._timeout, self._on_event = request, timeout, on_event
        self._started = time.monotonic()
        self._kind: str | None = None
        self._judging: str | None = None
        self._so_far: Report | None = None
        self._drawn = 0
        self._last_drawn = self._started

    def report(self, folder: str) -> Report:
        """Run the judge, and return its report or one about its end."""
        ours, theirs = os.pipe()
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        process = subprocess.Popen(
            [sys.executable, "-c", _START, str(theirs), root],
            stdin=subprocess.PIPE,
            pass_fds=(theirs,),
            start_new_session=True,
            env={"HYPOTHESIS_STORAGE_DIRECTORY": folder, **os.environ},
        )
        os.close(theirs)
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(self._request.to_json().encode() + b"\n")
                process.stdin.close()
            for event in _events(ours, process, self._started + self._timeout):
                if event["event"] == "refused":
                    raise RefusedError(event["message"])
                # Whatever the target left running may keep the pipe open: the report is the end.
                if event["event"] == "report":
                    return json_report.from_dict(event["report"])
                self._note(event)
            reason, slow = self._reason(process), False
        except TimeoutError:
            reason, slow = self._overdue()
        finally:
            os.close(ours)
            _kill(process)
        if self._kind is None:
            # It never got as far as a target that can be called.
            raise RefusedError(f"{self._request.target} could not be loaded: {reason}")
        return self._report_of_end(reason, "inconclusive" if slow else "fail")

    def _note(self, event: dict[str, Any]) -> None:
        self._kind = event.get("kind", self._kind)
        self._judging = event.get("judging", self._judging)
        if event["event"] == "judged":
            self._so_far = json_report.from_dict(event["report"])
        elif event["event"] == "drawn":
            self._drawn += event["draws"]
            self._last_drawn = time.monotonic()
        self._on_event(event)

    def _reason(self, process: subprocess.Popen[bytes]) -> str:
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        doing = f" while {self._judging} was judged" if self._judging else ""
        return ending(process.returncode) + doing

    def _overdue(self) -> tuple[str, bool]:
        """Say what a check that ran out of time was doing, and whether it was just slow."""
        doing = f" while {self._judging} was judged" if self._judging else ""
        reason = f"the check did not end within {self._timeout:g} s (--timeout){doing}"
        slow = self._drawn > 0 and time.monotonic() - self._last_drawn < self._timeout / 2
        if slow:
            reason += f"; {self._drawn:,} lengths were drawn, and more were coming: allow it longer"
        return reason, slow

    def _report_of_end(self, reason: str, verdict: Verdict) -> Report:
        """Return a report in which `returns` has a verdict, and what was open stays open."""
        from specsim.properties.registry import catalogue
        from specsim.properties.registry import select as select_properties

        assert self._kind is not None
        request = self._request
        judged = {} if self._so_far is None else {o.property_id: o for o in self._so_far.outcomes}
        chosen = {prop.id for prop in select_properties(self._kind, request.properties)}
        outcomes = []
        for prop in catalogue(self._kind):
            ends = prop.name == "returns"
            if prop.id in judged and not ends:
                outcomes.append(judged[prop.id])
            elif ends or prop.id in chosen:
                # A target that hangs or ends its process fails, whatever was asked for.
                outcomes.append(
                    prop.outcome(
                        verdict if ends else "inconclusive",
                        reason if ends else f"not judged: {reason}",
                        expected=request.expected_failures.get(prop.id),
                    )
                )
        return Report(
            target=request.target,
            kind=self._kind,
            effort=request.effort,
            alpha=request.alpha,
            seed=request.seed,
            coupling=request.coupling,
            outcomes=tuple(outcomes),
            seconds=time.monotonic() - self._started,
            versions={"specsim": __version__},
        )


@contextmanager
def _ends_on_signals() -> Iterator[None]:
    """Let a request to terminate unwind the stack, so that the judge ends and its folder goes."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    try:
        before = {name: signal.signal(name, stop) for name in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:
        # Not the main thread: whoever owns the process owns its signals.
        before = {}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _events(
    descriptor: int, process: subprocess.Popen[bytes], deadline: float
) -> Iterator[dict[str, Any]]:
    """Yield events until the judge ends; TimeoutError at the deadline."""
    pending = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if not select.select([descriptor], [], [], min(left, 0.5))[0]:
            if process.poll() is not None:
                return
            continue
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            # A target that writes to every descriptor it finds has spoilt a line, not the run.
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and "event" in event:
                    yield event


def _kill(process: subprocess.Popen[bytes]) -> None:
    # The whole group: workers, and whatever the target itself started.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
