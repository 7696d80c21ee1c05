"""Reads the ``NAME=VALUE`` texts of a command line, and writes them back as Python.

Standard library only.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from specsim.loading.failures import TargetError
from specsim.loading.importing import load_object


def read_assignments(texts: Sequence[str]) -> dict[str, object]:
    """Read ``NAME=VALUE`` texts.

    Parameters
    ----------
    texts
        Each value is a Python literal, strings quoted, or ``module:attribute`` or
        ``file.py:attribute`` for something to import.

    Raises
    ------
    TargetError
        If a text is of another form, or an import fails.
    """
    values: dict[str, object] = {}
    for text in texts:
        name, value = _split(text)
        values[name] = ast.literal_eval(value) if _is_literal(value) else load_object(value)[0]
    return values


def as_python(texts: Sequence[str]) -> str:
    """Return a dict display with what `read_assignments` reads; it may call `load_object`.

    Raises
    ------
    TargetError
        If a text is malformed.
    """
    items = []
    for name, value in map(_split, texts):
        expression = value if _is_literal(value) else f"load_object({value!r})[0]"
        items.append(f"{name!r}: {expression}")
    return "{" + ", ".join(items) + "}"


def _split(text: str) -> tuple[str, str]:
    name, _, value = (part.strip() for part in text.partition("="))
    if not (name.isidentifier() and value):
        raise TargetError(f"expected NAME=VALUE, got {text!r}")
    if not _is_literal(value) and ":" not in value:
        raise TargetError(
            f"{text!r}: {value} is neither a Python literal (quote a string) nor module:attribute"
        )
    return name, value


def _is_literal(value: str) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
