"""Records the steps of a live engine, and judges the record.

Names are looked up when they are used, so that ``import specsim.trace`` does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim.lazy import lazy_names

if TYPE_CHECKING:
    from specsim.trace.judges import JUDGES
    from specsim.trace.reader import Step, read_steps
    from specsim.trace.recorder import Recorder, record
    from specsim.trace.session import TraceSession, TraceTarget, open_trace

__all__ = [
    "JUDGES",
    "Recorder",
    "Step",
    "TraceSession",
    "TraceTarget",
    "open_trace",
    "read_steps",
    "record",
]

_HOMES = {
    "JUDGES": "specsim.trace.judges",
    "Recorder": "specsim.trace.recorder",
    "Step": "specsim.trace.reader",
    "TraceSession": "specsim.trace.session",
    "TraceTarget": "specsim.trace.session",
    "open_trace": "specsim.trace.session",
    "read_steps": "specsim.trace.reader",
    "record": "specsim.trace.recorder",
}


__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
