"""Calls of the code under test: whatever they raise becomes a finding about it."""

from __future__ import annotations

from types import TracebackType

from specsim.loading.failures import TargetError, TargetFailed, TargetRaised, target_frames


class target_call:  # noqa: N801 - reads like the function that it stands for
    """Turn what a ``with`` block raises into `TargetRaised`.

    A class and not a generator: a verify step passes three of these, and a stream has 100,000.

    Raises
    ------
    TargetRaised
        For everything but `KeyboardInterrupt`, `TargetError` and a failure found already;
        `SystemExit` included.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Raise what the block raised as a finding."""
        if exception is None or isinstance(
            exception, (KeyboardInterrupt, TargetError, TargetFailed)
        ):
            return
        raise TargetRaised(exception, target_frames(exception)) from None
