"""Finds and imports the callable that a text such as ``package.module:attribute`` names.

Standard library only, so that a wrong name is answered before anything heavy is imported.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from specsim.loading.failures import (
    TargetError,
    describe,
    own_frames,
    unknown_attribute,
    unreadable,
)


@dataclass(frozen=True)
class LoadedTarget:
    """A callable, and how a snippet gets hold of it.

    Attributes
    ----------
    spec
        The target as the user named it.
    name
        The Python expression for the callable once `import_line` has run.
    function
        The callable itself.
    import_line
        One or more lines of Python that a snippet starts with.
    """

    spec: str
    name: str
    function: Callable[..., object]
    import_line: str


def load_target(spec: str) -> LoadedTarget:
    """Import the callable that a text names.

    The current directory is importable, as with ``python -m``, and so is a file's own folder.
    For an instance method named through its class, the instance is made by calling the class
    without arguments.

    Parameters
    ----------
    spec
        ``package.module:attribute`` or ``path/to/file.py:attribute``; the attribute may be
        dotted.

    Raises
    ------
    TargetError
        If there is no such module, file or attribute, if importing it fails, or if it is not
        callable.
    """
    value, name = load_object(spec)
    return LoadedTarget(spec, name, callable_or_error(value, spec), import_line(spec))


def load_object(spec: str) -> tuple[object, str]:
    """Import whatever a text names, callable or not.

    Returns
    -------
    object
        What was named.
    str
        The Python expression for it once `import_line` has run.

    Raises
    ------
    TargetError
        If there is no such module, file or attribute, or if importing it fails.
    """
    location, attribute = split_spec(spec)
    make_importable(os.getcwd())
    if is_file(location):
        module = _import_file(location, attribute)
    else:
        module = _import_module(location, attribute)
    return _resolve(module, attribute, location)


def split_spec(spec: str) -> tuple[str, str]:
    """Split a target's text into the module or file and the attribute.

    Raises
    ------
    TargetError
        If it is not of the form ``module:attribute`` or ``file.py:attribute``.
    """
    location, colon, attribute = spec.rpartition(":")
    if not colon or not location or not attribute:
        raise TargetError(
            f"target {spec!r} must be package.module:attribute or path/to/file.py:attribute"
        )
    if not is_file(location) and not all(map(str.isidentifier, location.split("."))):
        raise TargetError(
            f"target {spec!r}: {location!r} is neither a module's name nor a path that ends in .py"
        )
    if not all(map(str.isidentifier, attribute.split("."))):
        raise TargetError(f"target {spec!r}: {attribute!r} is not the name of an attribute")
    return location, attribute


def import_line(spec: str) -> str:
    """Return the Python that makes a target's first name available in a snippet.

    Raises
    ------
    TargetError
        If `spec` is not of the form ``module:attribute`` or ``file.py:attribute``.
    """
    location, attribute = split_spec(spec)
    first = attribute.split(".")[0]
    if not is_file(location):
        return f"from {location} import {first}"
    path = Path(location).resolve()
    lines = ["import sys", f"sys.path.insert(0, {str(path.parent)!r})"]
    if path.stem.isidentifier() and _module_name(path) == path.stem:
        lines.append(f"from {path.stem} import {first}")
    else:
        lines += ["import runpy", f"{first} = runpy.run_path({str(path)!r})[{first!r}]"]
    return "\n".join(lines)


def callable_or_error(value: object, spec: str) -> Callable[..., object]:
    """Return `value` if it can be called; a class is for its adapter to judge.

    Raises
    ------
    TargetError
        If it is not callable.
    """
    if not callable(value):
        raise TargetError(f"{spec} is not callable: it is of type {type(value).__name__}")
    return value


def is_file(location: str) -> bool:
    """Tell whether the first half of a target's text names a file instead of a module."""
    return location.endswith(".py") or "/" in location or os.sep in location


def make_importable(folder: str) -> None:
    """Put a folder first on `sys.path` unless it is on it."""
    if folder not in sys.path and not ("" in sys.path and folder == os.getcwd()):
        sys.path.insert(0, folder)


def existing_file(location: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a file.

    Raises
    ------
    TargetError
        If there is no such file.
    """
    path = Path(location).resolve()
    if path.is_dir():
        raise TargetError(f"{location} is a folder, not a file")
    if not path.is_file():
        raise TargetError(f"no such file: {location}")
    return path


def _module_name(path: Path) -> str:
    """Return the name under which a file is imported: its stem, unless that is taken."""
    loaded = sys.modules.get(path.stem)
    if loaded is not None and getattr(loaded, "__file__", None) != str(path):
        return f"specsim_target_{zlib.crc32(os.fsencode(path)):08x}_{path.stem}"
    return path.stem


def _import_file(location: str, attribute: str) -> ModuleType:
    path = existing_file(location)
    make_importable(str(path.parent))
    name = _module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        _run_import(lambda: loader.exec_module(module), location, attribute)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _import_module(name: str, attribute: str) -> ModuleType:
    found: list[ModuleType] = []

    def load() -> None:
        try:
            found.append(importlib.import_module(name))
        except ModuleNotFoundError as error:
            if error.name is not None and f"{name}.".startswith(f"{error.name}."):
                raise TargetError(f"module {name!r} not found: {error}") from None
            raise

    _run_import(load, name, attribute)
    return found[0]


def _run_import(load: Callable[[], None], location: str, attribute: str) -> None:
    try:
        load()
    except (KeyboardInterrupt, TargetError):
        raise
    except SyntaxError as error:
        raise unreadable(location, error) from None
    except BaseException as exception:
        message = f"importing {location} failed: {describe(exception)}"
        frames = own_frames(exception)
        if frames:
            frame, line = frames[-1]
            message += f" ({frame.f_code.co_filename}:{line})"
        if isinstance(exception, ImportError):
            message += f"; --extract takes just {attribute} out of its file, without its imports"
        raise TargetError(message) from None


def _resolve(module: ModuleType, attribute: str, location: str) -> tuple[object, str]:
    value: object = module
    where = location
    name = ""
    for part in attribute.split("."):
        try:
            if inspect.isclass(value) and _needs_instance(value, part):
                value, name = _instance(value, part), f"{name}()"
            value = getattr(value, part)
        except AttributeError:
            raise unknown_attribute(where, part, dir(value)) from None
        except (KeyboardInterrupt, TargetError):
            raise
        except BaseException as exception:
            raise TargetError(f"reading {part!r} of {where} raised {describe(exception)}") from None
        name = f"{name}.{part}" if name else part
        where = f"{location}:{name}"
    return value, name


def _needs_instance(cls: type, attribute: str) -> bool:
    raw = inspect.getattr_static(cls, attribute)
    return hasattr(type(raw), "__get__") and not isinstance(raw, (staticmethod, classmethod))


def _instance(cls: type, attribute: str) -> object:
    try:
        return cls()
    except KeyboardInterrupt:
        raise
    except BaseException as exception:
        raise TargetError(
            f"{cls.__name__}.{attribute} needs an instance, and {cls.__name__}() "
            f"raised {describe(exception)}; name an instance's method, or use --extract with the "
            "attributes that the method reads"
        ) from None
