"""Reads the ``NAME=VALUE`` texts of a command line, and writes them back as Python.

Standard library only.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from specsim.loading.failures import TargetError, describe
from specsim.loading.importing import load_object

_CALL = "()"
_NONE: Mapping[str, object] = MappingProxyType({})


def read_assignments(
    texts: Sequence[str], placeholders: Mapping[str, object] = _NONE
) -> dict[str, object]:
    """Read ``NAME=VALUE`` texts.

    Parameters
    ----------
    texts
        Each value is a Python literal, strings quoted; or ``module:attribute`` or
        ``file.py:attribute`` for something to import, with ``()`` after it for what a call of it
        returns; or ``{placeholder}``.
    placeholders
        Values that a text may name in braces.

    Raises
    ------
    TargetError
        If a text is of another form, or an import or a call fails.
    """
    values: dict[str, object] = {}
    for text in texts:
        name, value = _split(text, placeholders)
        if value.startswith("{") and value[1:-1] in placeholders:
            values[name] = placeholders[value[1:-1]]
        elif _is_literal(value):
            values[name] = ast.literal_eval(value)
        elif value.endswith(_CALL):
            values[name] = _called(value)
        else:
            values[name] = load_object(value)[0]
    return values


def names_placeholder(text: str, placeholder: str) -> bool:
    """Say whether the value of a ``NAME=VALUE`` text is this placeholder."""
    return text.partition("=")[2].strip() == f"{{{placeholder}}}"


def _called(value: str) -> object:
    function = load_object(value.removesuffix(_CALL))[0]
    if not callable(function):
        raise TargetError(f"{value}: {value.removesuffix(_CALL)} is not callable")
    try:
        return function()
    except KeyboardInterrupt:
        raise
    except BaseException as exception:
        raise TargetError(f"calling {value} raised {describe(exception)}") from None


def as_python(texts: Sequence[str]) -> str:
    """Return a dict display with what `read_assignments` reads; it may call `load_object`.

    Raises
    ------
    TargetError
        If a text is malformed.
    """
    items = []
    for name, value in map(_split, texts):
        called = _CALL if value.endswith(_CALL) else ""
        loaded = f"load_object({value.removesuffix(_CALL)!r})[0]{called}"
        expression = value if _is_literal(value) else loaded
        items.append(f"{name!r}: {expression}")
    return "{" + ", ".join(items) + "}"


def _split(text: str, placeholders: Mapping[str, object] = _NONE) -> tuple[str, str]:
    name, _, value = (part.strip() for part in text.partition("="))
    if not (name.isidentifier() and value):
        raise TargetError(f"expected NAME=VALUE, got {text!r}")
    if value.startswith("{") and value[1:-1] in placeholders:
        return name, value
    if not _is_literal(value) and ":" not in value:
        known = ", ".join(f"{{{placeholder}}}" for placeholder in placeholders)
        raise TargetError(
            f"{text!r}: {value} is neither a Python literal (quote a string) nor module:attribute"
            + (f" nor one of {known}" if known else "")
        )
    return name, value


def _is_literal(value: str) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
