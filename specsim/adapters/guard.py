"""Calls of the code under test: whatever they raise becomes a finding about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from specsim.loading.failures import TargetError, TargetFailed, TargetRaised, target_frames


@contextmanager
def target_call() -> Iterator[None]:
    """Turn what the block raises into `TargetRaised`.

    Raises
    ------
    TargetRaised
        For everything but `KeyboardInterrupt`, `TargetError` and a failure found already;
        `SystemExit` included.
    """
    try:
        yield
    except (KeyboardInterrupt, TargetError, TargetFailed):
        raise
    except BaseException as exception:
        raise TargetRaised(exception, target_frames(exception)) from None
