"""The process that loads a target and judges it, started by `specsim.isolation`.

It reads a request from its standard input and writes events, one JSON object a line, to a file
descriptor of its own. Everything that the target prints goes to standard error. The process that
started it keeps the time, so a target that hangs or crashes cannot take the verdict with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from specsim.properties.session import Settings

# A progress event for every block of every stream would be most of what is sent.
_PROGRESS_SECONDS = 0.1


@dataclass(frozen=True)
class Request:
    """What the command line asks of the judge; plain types, sent as JSON."""

    target: str
    traces: list[str]
    kind: str | None
    effort: str
    alpha: float
    seed: int
    coupling: str
    methods: list[str]
    tolerance: float
    step_method: str | None
    step_tensor: str | None
    properties: list[str] | None
    expected_failures: dict[str, str]
    jobs: int
    extract: bool
    attributes: list[str]
    namespace: list[str]

    def to_json(self) -> str:
        """Return the request as one line of JSON."""
        return json.dumps(asdict(self))


class _Events:
    """Writes events to the process that asked."""

    def __init__(self, descriptor: int) -> None:
        self._stream: TextIO = os.fdopen(descriptor, "w", encoding="utf-8")
        self._draws = 0
        self._last = 0.0

    def send(self, event: str, **fields: Any) -> None:
        self._stream.write(json.dumps({"event": event, **fields}) + "\n")
        self._stream.flush()

    def drawn(self, draws: int) -> None:
        self._draws += draws
        now = time.monotonic()
        if now - self._last >= _PROGRESS_SECONDS:
            self.send("drawn", draws=self._draws)
            self._draws, self._last = 0, now


def _judge(request: Request, events: _Events) -> None:
    # All of specsim's own imports come first: loading a target puts the current folder on the path,
    # and what lies there must not be taken for a module of the standard library.
    from specsim.checking import judge, open_session
    from specsim.extract_executor import extract_any
    from specsim.processes import obstacle_to_forking
    from specsim.properties.generators import own_generators
    from specsim.properties.session import Session, Settings, run_in_turn
    from specsim.report import json_report
    from specsim.targets import TargetFailed, load_target
    from specsim.workers import forked

    settings = Settings(
        request.effort,  # type: ignore[arg-type]
        request.alpha,
        request.seed,
        request.coupling,
        tuple(request.methods),
        request.tolerance,
        request.step_method,
        request.step_tensor,
    )
    if request.traces:
        _judge_trace(request, settings, events)
        return
    if request.extract:
        loaded, notes = extract_any(
            request.target,
            request.kind,
            attributes=request.attributes,
            namespace=request.namespace,
        )
        for note in notes:
            events.send("note", text=note)
    else:
        loaded = load_target(request.target)
    session = open_session(loaded, request.kind, settings)
    events.send("loaded", kind=session.target.kind, judging="the first call")
    # One call first: what the target imports when it is first called is then in every fork.
    if isinstance(session, Session):
        with own_generators(settings.seed, "first call"), suppress(TargetFailed):
            session.target.draw_many(session.courses[0].configurations[0], 1)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):
        # A fork of a process with a pool of threads can hang in the pool.
        torch.set_num_threads(1)
    obstacle = obstacle_to_forking()
    if obstacle is not None and request.jobs > 1:
        events.send("note", text=f"drawing in one process: {obstacle}")
    runner = run_in_turn if obstacle or request.jobs == 1 else forked(request.jobs)
    report = judge(
        loaded,
        request.kind,
        settings,
        properties=request.properties,
        expected_failures=request.expected_failures,
        runner=runner,
        on_draws=events.drawn,
        on_property=lambda name: events.send("judging", judging=name),
        on_report=lambda so_far: events.send("judged", report=json_report.to_dict(so_far)),
    )
    events.send("report", report=json_report.to_dict(report))


def _judge_trace(request: Request, settings: Settings, events: _Events) -> None:
    """Judge what was recorded: nothing of the user's runs, so nothing has to be kept apart."""
    from specsim.checking import judge_session
    from specsim.report import json_report
    from specsim.trace.session import open_trace

    session = open_trace(request.traces, settings, events.drawn)
    events.send("loaded", kind=session.target.kind, judging="the trace")
    report = judge_session(
        session,
        request.target,
        properties=request.properties,
        expected_failures=request.expected_failures,
        on_property=lambda name: events.send("judging", judging=name),
        on_report=lambda so_far: events.send("judged", report=json_report.to_dict(so_far)),
    )
    events.send("report", report=json_report.to_dict(report))


def main() -> None:
    """Serve one request."""
    from specsim.processes import die_with_parent, flush_streams
    from specsim.targets import TargetError

    die_with_parent()
    # High up, where a target that closes or writes to low descriptors does not find it.
    descriptor = fcntl.fcntl(int(sys.argv[1]), fcntl.F_DUPFD_CLOEXEC, 200)
    os.close(int(sys.argv[1]))
    events = _Events(descriptor)
    request = Request(**json.loads(sys.stdin.buffer.readline()))
    # The target's output is not the verdict, and there is nothing for it to read.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        _judge(request, events)
    except (TargetError, ValueError) as error:
        events.send("refused", message=" ".join(str(error).split()))
    except Exception as error:
        events.send("refused", message=f"internal error: {type(error).__name__}: {error}")
    finally:
        flush_streams()
        # Threads and exit handlers that the target left behind cannot hold the verdict up.
        os._exit(0)
