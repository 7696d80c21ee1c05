"""What can go wrong with the code under test, each in one clear line.

Standard library only.
"""

from __future__ import annotations

import difflib
import importlib
import os
import reprlib
import traceback
from collections.abc import Iterable
from types import FrameType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# What of specsim can itself be a target, and so has frames worth showing.
_OWN_TARGETS = tuple(
    _PACKAGE + part
    for part in (
        "acceptance.py",
        "sampler.py",
        "sampling" + os.sep,
        "verify" + os.sep,
        "mutants" + os.sep,
    )
)
_LAST_FRAMES = 5
_LONGEST_MESSAGE = 300
_LONGEST_VALUE = 80
# Past Python's own limit of 4,300 digits an int has no decimal text at all.
_LARGEST_SHOWN = 10**40


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
    message = _one_line(message_of(exception), _LONGEST_MESSAGE)
    name = _own_name(type(exception))
    return f"{name}: {message}" if message else name


def message_of(exception: BaseException) -> str:
    """Return an exception's message, or a remark if it has none that can be read."""
    try:
        return str(exception)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"(its message could not be read: {_own_name(type(error))})"


def shown(value: object) -> str:
    """Return a value's repr in one line of at most 80 characters, whatever its class does."""
    if type(value) is int and abs(value) >= _LARGEST_SHOWN:
        sign = "-" if value < 0 else ""
        return f"{sign}{hex(abs(value) >> (value.bit_length() - 32))}… of {value.bit_length()} bits"
    try:
        return _one_line(_SHORT.repr(value), _LONGEST_VALUE)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        failed, kind = _own_name(type(error)), type_name(type(value))
        return _one_line(f"<{kind}, whose repr raises {failed}>", _LONGEST_VALUE)


def type_name(kind: type) -> str:
    """Return a type's full name, read around whatever its metaclass does."""
    name = str(_QUALNAME.__get__(kind))
    try:
        module = _MODULE.__get__(kind)
    except AttributeError:
        module = None
    return f"{module}.{name}" if isinstance(module, str) and module != "builtins" else name


_NAME, _QUALNAME, _MODULE = (
    type.__dict__[key] for key in ("__name__", "__qualname__", "__module__")
)


def _own_name(kind: type) -> str:
    return str(_NAME.__get__(kind))


def _one_line(text: str, longest: int) -> str:
    """Return text as one line that any encoding of Unicode can hold."""
    # What is left over from surrogates and controls is written as an escape, up to ten characters.
    line = " ".join(text[: 4 * longest].split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    return line if len(line) <= longest else line[: longest - 2] + " …"


class _Short(reprlib.Repr):
    """Cuts containers before they are written out, and leaves the rest to the value."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = self.maxlong = _LONGEST_VALUE

    def repr_instance(self, x: object, level: int) -> str:
        """Return the value's own repr: its errors are answered where all are."""
        return repr(x)


_SHORT = _Short()


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
