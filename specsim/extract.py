"""Takes one function, and what it needs, out of a file whose imports cannot be met here.

An engine's sampler is a few lines in a file that imports the whole engine. Here only the
statements that the function depends on are executed; an import that fails leaves a stand-in
that says so when it is used. Standard library only.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import os
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from warnings import catch_warnings, simplefilter

from specsim.loading.assignments import as_python, read_assignments
from specsim.loading.failures import TargetError, describe, unknown_attribute, unreadable
from specsim.loading.importing import (
    LoadedTarget,
    callable_or_error,
    existing_file,
    is_file,
    load_object,
    make_importable,
    split_spec,
)
from specsim.loading.missing import MissingAttributeError, MissingName, refuse
from specsim.loading.names import (
    bound_names,
    changed_names,
    imported_as,
    imported_module,
    used_attributes,
    used_names,
)
from specsim.loading.rewrite import compiled, helpers, missing_import, reason_of

__all__ = ["bare_object", "extract", "extract_target", "load_object", "read_assignments"]


def extract(
    path: str | os.PathLike[str],
    attribute: str,
    *,
    attributes: Mapping[str, object] | None = None,
    namespace: Mapping[str, object] | None = None,
) -> Callable[..., object]:
    """Take a function or a method out of a file without importing the file.

    Executed are, in the file's order, the top-level statements that the function depends on,
    directly or through others. Annotations are not evaluated. What cannot be had (a failed
    import, a constant computed from it, such a default of a parameter) is replaced by an object
    that raises `TargetError` at its use; decorators and base classes that cannot be had are left
    out. Line numbers and the file's name stay, so tracebacks point into the original.

    Parameters
    ----------
    path
        A Python file.
    attribute
        The name of a function or ``Class.method``. An instance method is bound to an object
        made without ``__init__``, of a class cut down to what the method needs.
    attributes
        Attributes for that object.
    namespace
        Values for module-level names, used instead of what the file would bind to them.

    Returns
    -------
    callable
        The function, or the bound method.

    Raises
    ------
    TargetError
        If the file does not exist or has a syntax error, or there is no such function.

    Examples
    --------
    >>> sampler = extract("engine/spec_utils.py", "sample_simulated_acc_len")  # doctest: +SKIP
    >>> sampler(4.7, "match-expected", 8)  # doctest: +SKIP
    5
    """
    return _take(existing_file(path), attribute, attributes or {}, namespace or {})[0]


def bare_object(cls: type, attributes: Mapping[str, object]) -> object:
    """Return an object made without ``__init__``, with some attributes set.

    Raises
    ------
    TargetError
        If the class makes none, or an attribute cannot be set.
    """
    bare: object
    try:
        try:
            bare = object.__new__(cls)
        except TypeError:
            # Python wants a class with a built-in base to be made by that base.
            bare = cls.__new__(cls)  # type: ignore[call-overload]
        for name, value in attributes.items():
            object.__setattr__(bare, name, value)
    except (TypeError, AttributeError) as error:
        raise TargetError(f"no bare object of {cls.__name__} can be made: {error}") from None
    return bare


def extract_target(
    spec: str, *, attributes: Sequence[str] = (), namespace: Sequence[str] = ()
) -> tuple[LoadedTarget, tuple[str, ...]]:
    """Take a target out of its file, as the command line names all of it.

    Parameters
    ----------
    spec
        ``path/to/file.py:function`` or ``path/to/file.py:Class.method``.
    attributes, namespace
        ``NAME=VALUE`` texts as `read_assignments` takes them, for `extract`.

    Returns
    -------
    LoadedTarget
        The callable; its `import_line` takes it out of the file again.
    tuple of str
        One line about each decorator or base class that was left out.

    Raises
    ------
    TargetError
        As `extract`, and if `spec` names a module instead of a file, or a text is malformed.
    """
    location, attribute = split_spec(spec)
    if not is_file(location):
        raise TargetError(f"--extract needs path/to/file.py:{attribute}, got {spec!r}")
    path = existing_file(location)
    function, warnings = _take(
        path, attribute, read_assignments(attributes), read_assignments(namespace)
    )
    name = attribute.rpartition(".")[2]
    arguments = [repr(str(path)), repr(attribute)]
    for key, texts in (("attributes", attributes), ("namespace", namespace)):
        if texts:
            arguments.append(f"{key}={as_python(texts)}")
    names = "extract, load_object" if "load_object(" in "".join(arguments) else "extract"
    line = f"from specsim.extract import {names}\n{name} = extract({', '.join(arguments)})"
    return LoadedTarget(spec, name, function, line), warnings


def _take(
    path: Path,
    attribute: str,
    attributes: Mapping[str, object],
    namespace: Mapping[str, object],
) -> tuple[Callable[..., object], tuple[str, ...]]:
    source = _File(path, namespace)
    first, *inner = attribute.split(".")
    if first not in source.index:
        raise unknown_attribute(str(path), first, source.index)
    if attributes and not inner:
        raise TargetError(f"attributes are for a method, and {attribute} is not in a class")
    source.execute(source.needed(first, inner[0] if inner else None, attributes), first)
    value, where = source.names[first], f"{path}:{first}"
    for part in inner:
        if isinstance(value, MissingName):
            break
        owner = value
        if inspect.isclass(owner) and part == inner[-1]:
            owner = source.bare_object(owner, attributes)
        try:
            value = getattr(owner, part)
        except AttributeError:
            if hasattr(type(owner), part):
                raise TargetError(
                    f"{where}.{part} is computed from attributes that were not given; "
                    "pass --attribute NAME=…"
                ) from None
            known = (source.members | set(dir(value))) - {part}
            raise unknown_attribute(where, part, known) from None
        except (KeyboardInterrupt, TargetError):
            raise
        except BaseException as exception:
            raise TargetError(f"reading {part!r} of {where} raised {describe(exception)}") from None
        where += f".{part}"
    if isinstance(value, MissingName):
        refuse(value)
    return callable_or_error(value, where), tuple(source.warnings)


class _File:
    """One file: its top-level statements, and a namespace to execute some of them in."""

    def __init__(self, path: Path, given: Mapping[str, object]) -> None:
        self.path = path
        self.given = given
        self.warnings: list[str] = []
        self.members: set[str] = set()
        try:
            with catch_warnings():
                simplefilter("ignore")
                tree = ast.parse(path.read_bytes(), str(path))
                compile(tree, str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OSError) as error:
            raise unreadable(str(path), error) from None
        self.body = tree.body
        self.bound = [bound_names(statement) for statement in self.body]
        # Which statements a name's value depends on. In-place changes of imported things are
        # left alone: they would act on the process, not on this file.
        self.index: dict[str, list[int]] = {}
        for i, names in enumerate(self.bound):
            for name in sorted(names):
                self.index.setdefault(name, []).append(i)
        own = set[str]().union(
            *(
                names
                for names, statement in zip(self.bound, self.body, strict=True)
                if not isinstance(statement, (ast.Import, ast.ImportFrom))
            )
        )
        for i, statement in enumerate(self.body):
            for name in sorted(changed_names(statement) & own - self.bound[i]):
                self.bound[i] = self.bound[i] | {name}
                self.index[name].append(i)
        package = _package(path)
        if package is None:
            make_importable(str(path.parent))
        make_importable(os.getcwd())
        # Dataclasses look their module up while they are made.
        name = f"specsim_extracted_{zlib.crc32(os.fsencode(path)):08x}_{path.stem}"
        self.module = sys.modules[name] = ModuleType(name)
        self.names = self.module.__dict__
        self.names.update(__file__=str(path), __package__=package or "")
        self.names.update(helpers(given, self.warnings.append))
        self.names.update(given)

    def needed(self, name: str, member: str | None, attributes: Mapping[str, object]) -> list[int]:
        """Return which statements a name depends on, cutting its class down to one member."""
        chosen = self._closure({name})
        at = self.index[name][-1]
        cls = self.body[at]
        if member is None or not isinstance(cls, ast.ClassDef):
            return chosen
        self.members = set[str]().union(*map(bound_names, cls.body))
        wanted, read = set[str](), {member}
        while read != wanted:
            wanted = read
            self.body[at] = _cut_down(cls, wanted - set(attributes))
            chosen = self._closure({name})
            seen = (used_attributes(self.body[i]) | _names(self.body[i]) for i in chosen)
            read = wanted | (set[str]().union(*seen) & self.members)
        return chosen

    def execute(self, chosen: Sequence[int], target: str) -> None:
        """Execute statements in the file's order; names that get no value become stand-ins."""
        needed = {target}.union(*(used_names(self.body[i]) for i in chosen))
        for i in chosen:
            statement = self.body[i]
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                self._import(statement, needed)
                continue
            if isinstance(statement, ast.ClassDef):
                statement = self._without_missing_bases(statement)
            reason = f"is not set by {self.path}:{statement.lineno} here"
            lost = False
            try:
                exec(compiled(statement, str(self.path), self.given), self.names)
            except KeyboardInterrupt:
                raise
            except BaseException as exception:
                reason = f"cannot be computed ({self.path}:{statement.lineno}): "
                reason += reason_of(exception)
                lost = True
            for name in self.bound[i]:
                if lost or name not in self.names:
                    self.names[name] = MissingName(name, f"name {name} {reason}")
            self.names.update(self.given)

    def bare_object(self, cls: type, attributes: Mapping[str, object]) -> object:
        """Return an instance made without ``__init__``, with some attributes set."""
        if cls.__module__ == self.module.__name__:
            if not hasattr(cls, "__getattr__"):
                cls.__getattr__ = _not_given  # type: ignore[attr-defined]
            if inspect.isabstract(cls):
                cls.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
        return bare_object(cls, attributes)

    def _closure(self, names: set[str]) -> list[int]:
        chosen: set[int] = set()
        waiting = set(names)
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in seen or name in self.given:
                continue
            seen.add(name)
            known = self.index.get(name, [] if hasattr(builtins, name) else self.index.get("*", []))
            for i in set(known) - chosen:
                chosen.add(i)
                if not isinstance(self.body[i], (ast.Import, ast.ImportFrom)):
                    waiting |= used_names(self.body[i])
        return sorted(chosen)

    def _import(self, statement: ast.Import | ast.ImportFrom, needed: set[str]) -> None:
        for alias in statement.names:
            name = imported_as(alias)
            if name in self.given or (name not in needed and name != "*"):
                continue
            single = copy.copy(statement)
            single.names = [alias]
            module = imported_module(statement, alias)
            found: dict[str, object] = {k: v for k, v in self.names.items() if k[:2] == "__"}
            try:
                exec(compiled(single, str(self.path), ()), found)
            except KeyboardInterrupt:
                raise
            except BaseException:
                found = {}
            if name != "*":
                # A failed ``import a.c`` takes nothing away from an earlier ``import a.b``.
                known = self.names.get(name)
                if name in found or not isinstance(known, ModuleType):
                    self.names[name] = found.get(name, missing_import(name, module))
                continue
            for unbound in needed - set(self.index) - set(dir(builtins)) - set(self.given):
                if unbound in found:
                    self.names[unbound] = found[unbound]
                elif not found:
                    self.names.setdefault(unbound, missing_import(unbound, module))

    def _without_missing_bases(self, cls: ast.ClassDef) -> ast.ClassDef:
        kept = []
        for base in cls.bases:
            roots = used_names(ast.Expr(base))
            missing = [n for n in sorted(roots) if isinstance(self.names.get(n), MissingName)]
            if missing:
                text = ast.unparse(base)
                self.warnings.append(f"base {text} of class {cls.name} left out: no {missing[0]}")
            else:
                kept.append(base)
        if len(kept) == len(cls.bases):
            return cls
        cut = copy.copy(cls)
        cut.bases, cut.keywords = kept, []
        return cut


def _cut_down(cls: ast.ClassDef, wanted: set[str]) -> ast.ClassDef:
    cut = copy.copy(cls)
    cut.body = [statement for statement in cls.body if bound_names(statement) & wanted]
    cut.body = cut.body or [ast.Pass()]
    return cut


def _names(statement: ast.stmt) -> set[str]:
    """Return every plain name in a statement: within a class body they may be members."""
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _package(path: Path) -> str | None:
    """Return the dotted name of the package that a file lies in, or None."""
    parts: list[str] = []
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts) or None


def _not_given(self: object, name: str) -> object:
    raise MissingAttributeError(
        f"{type(self).__name__} object reads self.{name}, which was not given; "
        f"pass --attribute {name}=…"
    )
