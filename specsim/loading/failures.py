"""What can go wrong with the code under test, each in one clear line.

Standard library only.
"""

from __future__ import annotations

import difflib
import importlib
import os
import traceback
from collections.abc import Iterable
from types import FrameType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# What of specsim can itself be a target, and so has frames worth showing.
_OWN_TARGETS = tuple(
    _PACKAGE + part
    for part in ("acceptance.py", "sampler.py", "sampling" + os.sep, "mutants" + os.sep)
)
_LAST_FRAMES = 5
_LONGEST_MESSAGE = 300


class TargetError(Exception):
    """The target cannot be loaded or called as asked: one clear line, exit status 2."""


class TargetFailed(Exception):  # noqa: N818 - a finding about the target, not an error here
    """The target itself failed while it was drawn from: a failed property, exit status 1.

    Attributes
    ----------
    summary : str
        What happened, in one line.
    frames_text : str
        The traceback shortened to the target's own frames, or an empty string.
    """

    def __init__(self, summary: str, frames_text: str = "") -> None:
        super().__init__(summary)
        self.summary = summary
        self.frames_text = frames_text


class TargetRaised(TargetFailed):
    """The target raised; `SystemExit` and other exceptions outside `Exception` included.

    Attributes
    ----------
    exception : BaseException
        What it raised.
    """

    def __init__(self, exception: BaseException, frames_text: str) -> None:
        super().__init__(f"raised {describe(exception)}", frames_text)
        self.exception = exception


class TargetReturned(TargetFailed):
    """A target that draws many lengths at once returned something else than n of them."""


def unknown_attribute(where: str, name: str, known: Iterable[str]) -> TargetError:
    """Return the error for a missing name, with the closest of the known ones."""
    close = difflib.get_close_matches(name, list(known), n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return TargetError(f"{where} has no attribute {name!r}{hint}")


def unreadable(location: str, error: Exception) -> TargetError:
    """Return the error for a file that is not Python: its line too, if that is known."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return TargetError(f"{error.filename}:{error.lineno}: syntax error: {error.msg}")
    return TargetError(f"{location} cannot be read as Python: {describe(error)}")


def describe(exception: BaseException) -> str:
    """Return an exception's type and message in one line of bounded length."""
    try:
        message = " ".join(str(exception).split())
    except Exception as error:
        message = f"(its message could not be read: {type(error).__name__})"
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + " …"
    name = type(exception).__name__
    return f"{name}: {message}" if message else name


def target_frames(exception: BaseException) -> str:
    """Return the last frames of a traceback that belong to the target, as Python prints them.

    Frames of specsim and of the import machinery are left out.
    """
    return "".join(traceback.StackSummary.extract(iter(own_frames(exception))).format())


def own_frames(exception: BaseException) -> list[tuple[FrameType, int]]:
    """Return the last frames of a traceback that are the target's own, each with its line."""
    steps = traceback.walk_tb(exception.__traceback__)
    return [step for step in steps if not _is_harness(step[0].f_code.co_filename)][-_LAST_FRAMES:]


def _is_harness(filename: str) -> bool:
    if filename.startswith(_PACKAGE):
        return not filename.startswith(_OWN_TARGETS)
    return filename.startswith("<frozen importlib") or filename == importlib.__file__
