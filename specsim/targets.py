"""Tells what kind of sampler a callable is, and calls it in one uniform way.

Other kinds of target, executors say, are in `specsim.adapters`; what all that draw lengths have
in common is `LengthTarget`. Standard library only, so that a wrong call is answered before
anything heavy is imported.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from specsim.loading.failures import (
    TargetError,
    TargetFailed,
    TargetRaised,
    TargetReturned,
    describe,
    shown,
    target_frames,
)
from specsim.loading.importing import LoadedTarget, import_line, load_target

__all__ = [
    "ENGINE_NAMES",
    "KINDS",
    "Configuration",
    "LengthTarget",
    "LoadedTarget",
    "Program",
    "Target",
    "TargetError",
    "TargetFailed",
    "TargetRaised",
    "TargetReturned",
    "Violation",
    "adapt",
    "check_callable",
    "describe",
    "detect_kind",
    "import_line",
    "load_target",
    "name_of",
    "target_frames",
]

KINDS: dict[str, tuple[str, ...]] = {
    "sampler": ("acc_len", "method", "max_len"),
    "vector-sampler": ("acc_len", "method", "max_len", "n"),
    "rates-sampler": ("unconditional_rates", "n"),
}
"""The kinds of sampler, and the arguments that each is called with, by position."""

ENGINE_NAMES = ("simulate_acc_len", "simulate_acc_method", "max_len")
"""What engines call a sampler's arguments; used for a target that takes keywords only."""


@dataclass(frozen=True)
class Configuration:
    """One set of arguments for a target.

    Attributes
    ----------
    acc_len
        Configured acceptance length in tokens; ``None`` for a rates sampler.
    method
        For example ``"match-expected"``; ``None`` for a rates sampler.
    max_len
        Largest acceptance length, at least 1.
    rates
        ``max_len − 1`` unconditional per-position rates for a rates sampler.
    """

    acc_len: float | None
    method: str | None
    max_len: int
    rates: tuple[float, ...] | None = None

    def arguments(self, kind: str, n: int) -> tuple[object, ...]:
        """Return the positional arguments of one call; a new list of rates each time.

        Raises
        ------
        ValueError
            If this configuration lacks what that kind of target is called with.
        """
        if kind == "rates-sampler":
            if self.rates is None:
                raise ValueError(f"rates must be given for a rates-sampler, got {self!r}")
            return (list(self.rates), n)
        if self.acc_len is None or self.method is None:
            raise ValueError(f"acc_len and method must be given for a {kind}, got {self!r}")
        head = (self.acc_len, self.method, self.max_len)
        return head if kind == "sampler" else (*head, n)

    def call_repr(self, name: str, kind: str, n: int = 1) -> str:
        """Return the Python call of a target, as text that runs.

        Parameters
        ----------
        name
            Expression for the callable.
        kind
            One of `KINDS`.
        n
            Lengths asked for; a plain sampler has no such argument.
        """
        return f"{name}({', '.join(_literal(value) for value in self.arguments(kind, n))})"

    @property
    def size(self) -> tuple[int, int, float]:
        """Order of simplicity: smaller is easier to read."""
        digits = len(repr(self.rates if self.acc_len is None else self.acc_len))
        return (self.max_len, digits, abs(self.acc_len or 0.0))

    @property
    def label(self) -> str:
        """A short name for reports."""
        if self.rates is None:
            return f"acc_len {self.acc_len!r}, {self.method}, max_len {self.max_len}"
        shown = [repr(rate) for rate in self.rates]
        if len(shown) > 4:
            shown = [*shown[:2], "…", shown[-1]]
        return f"rates {', '.join(shown)}, max_len {self.max_len}"


@dataclass(frozen=True)
class Violation:
    """What a target did, or did not do, that refutes a property by itself.

    Attributes
    ----------
    name
        The refuted property's id without its letter.
    configuration
        What the target was called with.
    message
        What was returned and what was allowed.
    values
        The values returned in that call or block, as text, the offending one among them.
    frames
        The target's own part of the traceback, if it raised.
    """

    name: str
    configuration: Configuration
    message: str
    values: tuple[str, ...] = ()
    frames: str = ""

    @property
    def size(self) -> tuple[int, int, float]:
        """Order of simplicity, its configuration's."""
        return self.configuration.size


@dataclass(frozen=True)
class Program:
    """How a snippet draws lengths from a target.

    Attributes
    ----------
    length
        Expression for one more length.
    setup
        Lines that come before, once.
    many
        Gives the expression for n lengths; by default `length` n times.
    """

    length: str
    setup: tuple[str, ...] = ()
    many: Callable[[int], str] | None = None

    def lengths(self, n: int) -> str:
        """Return an expression for n lengths."""
        if self.many is not None:
            return self.many(n)
        return f"[{self.length} for _ in range({n})]"


class LengthTarget(Protocol):
    """A target that draws acceptance lengths, of whatever kind."""

    @property
    def name(self) -> str:
        """Expression for the target in a snippet."""

    @property
    def kind(self) -> str:
        """What kind of target it is."""

    @property
    def gave(self) -> str:
        """What it does with a length, for messages: ``"returned"``, say."""

    def draw_many(self, config: Configuration, n: int) -> list[object]:
        """Draw n lengths, types unchanged.

        Raises
        ------
        TargetFailed
            If the target raises, or returns what holds no lengths.
        """

    def call_repr(self, config: Configuration, n: int = 1) -> str:
        """Return the Python call that a configuration stands for, as text that runs."""

    def program(self, config: Configuration, number: int = 1) -> Program:
        """Return how a snippet draws lengths; `number` tells several in one snippet apart."""

    def renew(self) -> None:
        """Forget what was kept for drawing: the next draws are from new objects."""

    def noticed(self) -> list[Violation]:
        """Return, once, what draws have shown besides their lengths."""


@dataclass(frozen=True)
class Target:
    """A callable of a known kind.

    Attributes
    ----------
    name
        Expression for the callable in a snippet.
    kind
        One of `KINDS`.
    function
        The callable.
    by_name
        Whether it is called with the engines' keywords instead of by position.
    gave
        What it does with a length, for messages.
    """

    name: str
    kind: str
    function: Callable[..., object]
    by_name: bool = False
    gave: str = "returned"

    def draw_many(self, config: Configuration, n: int) -> list[object]:
        """Draw n lengths and return them as the target gave them, types unchanged.

        Arrays and tensors of a vector kind become Python numbers of the same sort: floats for
        a float dtype, bools for a bool one.

        Raises
        ------
        TargetRaised
            If the target raises anything but `KeyboardInterrupt`, `SystemExit` included.
        TargetReturned
            If a vector kind does not return a list, tuple, array or tensor of n lengths.
        TargetError
            If an extracted target needs something that was not given.
        """
        arguments = config.arguments(self.kind, n)
        function = self.function
        try:
            if self.kind != "sampler":
                return _lengths(function(*arguments), n)
            if self.by_name:
                named = dict(zip(ENGINE_NAMES, arguments, strict=True))
                return [function(**named) for _ in range(n)]
            acc_len, method, max_len = arguments
            return [function(acc_len, method, max_len) for _ in range(n)]
        except (KeyboardInterrupt, TargetError, TargetFailed):
            raise
        except BaseException as exception:
            raise TargetRaised(exception, target_frames(exception)) from None

    def renew(self) -> None:
        """Do nothing: a sampler is called anew for each length."""

    def noticed(self) -> list[Violation]:
        """Return nothing: a sampler gives lengths alone."""
        return []

    def program(self, config: Configuration, number: int = 1) -> Program:
        """Return how a snippet draws lengths."""
        call = self.call_repr(config)
        if self.kind == "sampler":
            return Program(call)
        return Program(f"{call}[0]", many=functools.partial(self.call_repr, config))

    def call_repr(self, config: Configuration, n: int = 1) -> str:
        """Return the Python call of this target, as text that runs."""
        if not self.by_name:
            return config.call_repr(self.name, self.kind, n)
        values = zip(ENGINE_NAMES, config.arguments(self.kind, n), strict=True)
        return f"{self.name}({', '.join(f'{key}={_literal(value)}' for key, value in values)})"


def detect_kind(function: Callable[..., object]) -> str:
    """Tell a target's kind from the number of arguments it must be given.

    Three required positional arguments, or the engines' three names as keywords, make a
    sampler, four a vector sampler, two a rates sampler. Arguments with defaults are counted
    only if the required ones alone fit none of these.

    Raises
    ------
    TargetError
        If the signature fits none or there is none to look at.
    """
    name = name_of(function)
    if not callable(function):
        raise TargetError(f"{name} is not callable; a target must be, got {shown(function)}")
    signature = _signature(function)
    if signature is None:
        raise TargetError(f"{name} has no signature to tell its kind from; name it with --kind")
    by_count = {len(arguments): kind for kind, arguments in KINDS.items()}
    parameters = signature.parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    for count in (len(required), len(positional)):
        kind = by_count.get(count)
        if kind is not None and _binds(signature, count):
            return kind
    if _binds_by_name(signature):
        return "sampler"
    wanted = "; ".join(f"{kind} ({', '.join(names)})" for kind, names in KINDS.items())
    raise TargetError(
        f"the kind of {name}{signature} is not clear from its signature; expected {wanted}; "
        "name it with --kind"
    )


def check_callable(function: Callable[..., object], kind: str, name: str | None = None) -> None:
    """Raise if a target can not be called as its kind is; accept it if nothing is known.

    Raises
    ------
    TargetError
        If `kind` is unknown, the call does not bind, or the target is a coroutine function.
    """
    _must_be_called_by_name(function, kind, name or name_of(function))


def adapt(function: Callable[..., object], kind: str, name: str | None = None) -> Target:
    """Return the target that calls `function` as its kind is called.

    Parameters
    ----------
    function
        The callable.
    kind
        One of `KINDS`.
    name
        Expression for it in snippets; by default its own name.

    Raises
    ------
    TargetError
        As `check_callable`.
    """
    name = name or name_of(function)
    return Target(name, kind, function, _must_be_called_by_name(function, kind, name))


def name_of(function: Callable[..., object]) -> str:
    """Return a callable's own name, or its class's for an object without one."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    return name if isinstance(name, str) and name.isidentifier() else "target"


def _signature(function: Callable[..., object]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _binds(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _binds_by_name(signature: inspect.Signature) -> bool:
    try:
        signature.bind(**dict.fromkeys(ENGINE_NAMES))
    except TypeError:
        return False
    return True


def _must_be_called_by_name(function: Callable[..., object], kind: str, name: str) -> bool:
    if kind not in KINDS:
        raise TargetError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if not callable(function):
        raise TargetError(f"{name} is not callable; a target must be, got {shown(function)}")
    if _is_coroutine_function(function):
        raise TargetError(f"{name} is a coroutine function; a {kind} must return lengths itself")
    signature = _signature(function)
    if signature is None or _binds(signature, len(KINDS[kind])):
        return False
    if kind == "sampler" and _binds_by_name(signature):
        return True
    raise TargetError(
        f"{name}{signature} cannot be called as a {kind}, with ({', '.join(KINDS[kind])}); "
        f"--kind takes {', '.join(KINDS)}"
    )


def _is_coroutine_function(function: Callable[..., object]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    # An object is called through its class, whatever it holds under the same name.
    return inspect.iscoroutinefunction(type(function).__call__)


def _lengths(returned: object, n: int) -> list[object]:
    """Return the n lengths that a vector kind gave, as a list."""
    shape = getattr(returned, "shape", None)
    convert = getattr(returned, "tolist", None)
    if convert is not None:
        lengths = convert()
    elif isinstance(returned, (list, tuple)):
        lengths = list(returned)
    else:
        raise TargetReturned(
            f"returned {type(returned).__name__}, expected a list, tuple, NumPy array or torch "
            f"tensor of {n} lengths"
        )
    if not isinstance(lengths, list) or (shape is not None and len(shape) != 1):
        size = "" if shape is None else f" of shape {tuple(shape)}"
        raise TargetReturned(
            f"returned {type(returned).__name__}{size}, expected one dimension of {n} lengths"
        )
    if len(lengths) != n:
        raise TargetReturned(f"returned {len(lengths)} lengths, expected {n}")
    return lengths


def _literal(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, str) and value.isprintable() and not set(value) & set("\"'\\"):
        return f'"{value}"'
    return repr(value)
