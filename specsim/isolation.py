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
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from specsim._version import __version__
from specsim.judge import Request
from specsim.properties.outcome import Outcome, Report


class RefusedError(Exception):
    """The target cannot be judged as asked; the message is one line for the user."""


@dataclass(frozen=True)
class _End:
    """Why the judge gave no report."""

    reason: str
    kind: str | None


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
        The judge's; or, if the target hung or ended the process, one in which S.returns fails
        and everything that was still open is inconclusive.

    Raises
    ------
    RefusedError
        If the target cannot be loaded or called as asked.
    """
    # Hypothesis keeps caches in the current folder, which is the user's.
    with tempfile.TemporaryDirectory(prefix="specsim-") as folder:
        return _run(request, timeout, on_event, {"HYPOTHESIS_STORAGE_DIRECTORY": folder})


def _run(
    request: Request,
    timeout: float,
    on_event: Callable[[dict[str, Any]], None],
    environment: dict[str, str],
) -> Report:
    started = time.monotonic()
    ours, theirs = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "specsim.judge", str(theirs)],
        stdin=subprocess.PIPE,
        pass_fds=(theirs,),
        start_new_session=True,
        env={**environment, **os.environ},
    )
    os.close(theirs)
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(request.to_json().encode() + b"\n")
        process.stdin.close()
    kind: str | None = None
    report: Report | None = None
    try:
        for event in _events(ours, started + timeout):
            if event["event"] == "report":
                from specsim.report import json_report

                report = json_report.from_dict(event["report"])
            elif event["event"] == "refused":
                raise RefusedError(event["message"])
            else:
                kind = event.get("kind", kind)
                on_event(event)
        if report is not None:
            return report
        code = process.wait(max(1.0, started + timeout - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired):
        end = _End(f"the check did not end within {timeout:g} s (--timeout)", kind)
    else:
        from specsim.workers import ending

        end = _End(ending(code), kind)
    finally:
        os.close(ours)
        _kill(process)
    if end.kind is None:
        # It never got as far as a target that can be called.
        raise RefusedError(f"{request.target} could not be loaded: {end.reason}")
    return _report_of_end(request, end, time.monotonic() - started)


def _events(descriptor: int, deadline: float) -> Iterator[dict[str, Any]]:
    """Yield events until the judge closes its end; TimeoutError at the deadline."""
    pending = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            raise TimeoutError
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            yield json.loads(line)


def _kill(process: subprocess.Popen[bytes]) -> None:
    # The whole group: workers, and whatever the target itself started.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _report_of_end(request: Request, end: _End, seconds: float) -> Report:
    from specsim.properties.registry import select as select_properties

    assert end.kind is not None
    chosen = select_properties(end.kind, request.properties)
    outcomes = []
    for prop in chosen:
        failed = prop.id == "S.returns"
        outcomes.append(
            Outcome(
                property_id=prop.id,
                statement=prop.statement,
                verdict="fail" if failed else "inconclusive",
                required=prop.required,
                seconds=seconds if failed else 0.0,
                detail=end.reason if failed else f"not judged: {end.reason}",
                expected=request.expected_failures.get(prop.id),
            )
        )
    return Report(
        target=request.target,
        kind=end.kind,
        effort=request.effort,
        alpha=request.alpha,
        seed=request.seed,
        coupling=request.coupling,
        outcomes=tuple(outcomes),
        seconds=seconds,
        versions={"specsim": __version__},
    )
