"""Public names that are imported when they are used, so that importing a package stays light."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` (PEP 562) that looks names up where they live.

    Parameters
    ----------
    package
        The module's own name.
    homes
        For each name, the module that defines it.

    Returns
    -------
    callable
        Takes a name and returns its value, which is then an ordinary attribute of the package;
        raises AttributeError for any other name.
    """

    def look_up(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return look_up
