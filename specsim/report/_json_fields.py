"""The values of a report's JSON document: written as plain JSON types, read with a check.

A reader takes a parsed value and where it stands, and returns it or raises a `ValueError` of one
line that names the place. Standard library only.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar, cast, get_args

from specsim.properties.outcome import Verdict

Document: TypeAlias = dict[str, Any]
T = TypeVar("T")


def encodable(text: str) -> str:
    """Return `text` with each surrogate as its Python escape, which UTF-8 can hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def finite(value: float, where: str) -> float:
    """Return a number that JSON can hold."""
    if not math.isfinite(value):
        raise ValueError(f"{where} must be a finite number, got {value}")
    return float(value)


def plain(value: object, where: str) -> Any:
    """Return `value` as JSON types of its own, non-finite numbers as ``None``."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where} must have strings as keys, got {reprlib.repr(key)}")
        return {encodable(k): plain(v, f"{where}[{reprlib.repr(k)}]") for k, v in value.items()}
    allowed = "None, a bool, int, float or str, or a list or mapping of these"
    raise TypeError(f"{where} must be {allowed}, got {type(value).__name__}")


def read(holder: Document, name: str, where: str, reader: Callable[[object, str], T]) -> T:
    """Return what `reader` makes of one field of the object that stands at `where`."""
    place = f"{where}.{name}" if where else name
    if name not in holder:
        raise ValueError(f"{place} is missing")
    return reader(holder[name], place)


def _refusal(where: str, allowed: str, value: object) -> ValueError:
    return ValueError(f"{where} must be {allowed}, got {reprlib.repr(value)}")


def mapping(value: object, where: str) -> Document:
    """Read an object."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _refusal(where, "an object", value)
    return dict(value)


def array(value: object, where: str) -> list[object]:
    """Read an array."""
    if not isinstance(value, list):
        raise _refusal(where, "an array", value)
    return value


def text(value: object, where: str) -> str:
    """Read a string."""
    if not isinstance(value, str):
        raise _refusal(where, "a string", value)
    return value


def text_or_null(value: object, where: str) -> str | None:
    """Read a string or null."""
    if value is not None and not isinstance(value, str):
        raise _refusal(where, "a string or null", value)
    return value


def line(value: object, where: str) -> str:
    """Read a string of one line."""
    if not isinstance(value, str) or not value or "\n" in value:
        raise _refusal(where, "a string of one line", value)
    return value


def boolean(value: object, where: str) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise _refusal(where, "true or false", value)
    return value


def integer(value: object, where: str) -> int:
    """Read an integer; JSON Schema counts 1.0 as one."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refusal(where, "an integer", value)
    return value


def count(value: object, where: str) -> int:
    """Read an integer, 0 or more."""
    number = integer(value, where)
    if number < 0:
        raise _refusal(where, "an integer, 0 or more", value)
    return number


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:  # an integer beyond every float
        return math.nan


def duration(value: object, where: str) -> float:
    """Read a finite number, 0 or more."""
    number = _number(value)
    if not number >= 0:
        raise _refusal(where, "a number of seconds, 0 or more", value)
    return number


def probability(value: object, where: str) -> float:
    """Read a number in (0, 1)."""
    number = _number(value)
    if not 0 < number < 1:
        raise _refusal(where, "a number between 0 and 1, both excluded", value)
    return number


def verdict(value: object, where: str) -> Verdict:
    """Read a verdict."""
    if value not in get_args(Verdict):
        allowed = ", ".join(map(repr, get_args(Verdict)))
        raise _refusal(where, f"one of {allowed}", value)
    return cast(Verdict, value)


def versions(value: object, where: str) -> dict[str, str]:
    """Read an object of strings."""
    return {k: text(v, f"{where}[{reprlib.repr(k)}]") for k, v in mapping(value, where).items()}


def evidence(value: object, where: str) -> Document:
    """Read an object of any JSON values, non-finite numbers as ``None``."""
    try:
        return cast(Document, plain(mapping(value, where), where))
    except RecursionError as error:
        raise ValueError(f"{where} is nested too deeply") from error
