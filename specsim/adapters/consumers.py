"""Functions that force one acceptance length on a verify step's outputs: DFlash's and EAGLE's."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import ClassVar

from specsim.adapters.batches import FIXED, FIXED_ID, REAL, BatchShape, CallViolation, ForcedBatch
from specsim.loading.failures import TargetError
from specsim.targets import Configuration, Program, Violation
from specsim.verify.tokens import TOKEN_MODES

OPTIONAL = ("simulate_acc_token_mode", "next_token_logits", "fixed_token_id")
"""Keywords that not every version of these functions takes."""

# Calls that are looked at closely, of one configuration; all are compared with what is expected.
_EXPLAINED = 20
# Calls that show again what a few lengths in a row show.
_SEVERAL = 20


class BatchTarget(ABC):
    """Draws acceptance lengths from a function that writes them into a batch's outputs.

    Parameters
    ----------
    name
        Expression for the function in a snippet.
    function
        The function.

    Attributes
    ----------
    fixed_id : int or None
        What fixed mode commits: as asked for, or as the first call shows where that cannot be.

    Raises
    ------
    TargetError
        If the function does not take what its kind is called with.
    """

    kind: ClassVar[str]
    required: ClassVar[tuple[str, ...]]
    pool: ClassVar[tuple[BatchShape, ...]]
    spare_nodes: ClassVar[bool]
    gave = "forced an acceptance length of"

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        self.name, self.function = name, function
        self._names = _accepted(name, function, self.kind, self.required)
        self.fixed_id = FIXED_ID if self.takes("fixed_token_id") else None
        self._batches: dict[Configuration, Iterator[ForcedBatch]] = {}
        self._explained: dict[Configuration, int] = {}
        self._noticed: dict[tuple[Configuration, str], CallViolation] = {}

    @property
    def modes(self) -> tuple[str, ...]:
        """The token modes that it can be asked for."""
        return TOKEN_MODES if self.takes("simulate_acc_token_mode") else (REAL,)

    def takes(self, name: str) -> bool:
        """Say whether the function takes a keyword."""
        return name in self._names

    @abstractmethod
    def batch(self, config: Configuration, shape: BatchShape) -> ForcedBatch:
        """Make a batch."""

    @abstractmethod
    def call_repr(self, config: Configuration, n: int = 1) -> str:
        """Return the function's call, short enough for a report."""

    @abstractmethod
    def tensors(self, config: Configuration, shape: BatchShape) -> list[str]:
        """Return lines that make a batch's tensors."""

    @abstractmethod
    def call_lines(self, config: Configuration, shape: BatchShape) -> list[str]:
        """Return the lines of one call on them."""

    @abstractmethod
    def printing(self, shape: BatchShape) -> list[str]:
        """Return lines that print each request's outputs, and what they should be."""

    @property
    @abstractmethod
    def first_length(self) -> str:
        """Expression for the first request's length after a call."""

    def mode_lines(self, shape: BatchShape) -> list[str]:
        """Return the lines of a call that give the token mode, and the fixed token."""
        lines = []
        if self.takes("simulate_acc_token_mode"):
            lines.append(f'    simulate_acc_token_mode="{shape.mode}",')
        if self.takes("fixed_token_id"):
            lines.append(f"    fixed_token_id={FIXED_ID},")
        return lines

    def committed(self, shape: BatchShape) -> str:
        """Return the expression for what request b of n tokens should commit."""
        if shape.mode == FIXED:
            return f"[{FIXED_ID if self.takes('fixed_token_id') else 'one id'!r}] * n"
        return "candidates[b, 1:n].tolist() + target_predict[b, n - 1 : n].tolist()"

    def draw_many(self, config: Configuration, n: int) -> list[object]:
        """Draw n acceptance lengths, one a call.

        Raises
        ------
        TargetRaised, TargetReturned
            If a call raises, or returns something else than it should.
        """
        batches = self._batches.get(config)
        if batches is None:
            batches = cycle([self.batch(config, shape) for shape in self.pool])
            self._batches[config] = batches
        drawn: list[object] = []
        for _ in range(n):
            batch = next(batches)
            if not batch.call():
                self._explain(batch)
            drawn.append(batch.length)
        return drawn

    def call(self, config: Configuration, shape: BatchShape) -> list[CallViolation]:
        """Make one call on a new batch, and return what it shows besides the length.

        Raises
        ------
        TargetRaised, TargetReturned
            As `draw_many`.
        """
        batch = self.batch(config, shape)
        return [] if batch.call() else batch.violations(_SEVERAL if _is_drawn(config) else 1)

    def renew(self) -> None:
        """Make new batches for the next draws."""
        self._batches, self._explained, self._noticed = {}, {}, {}

    def noticed(self) -> list[Violation]:
        """Return, once, what calls have shown besides their lengths."""
        found, self._noticed = list(self._noticed.values()), {}
        return list(found)

    def program(self, config: Configuration, number: int = 1) -> Program:
        """Return how a snippet draws lengths: by a function that makes one call."""
        name = "draw" if number == 1 else f"draw_{number}"
        shape = self.pool[0]
        body = [*self.tensors(config, shape), *self.call_lines(config, shape)]
        body.append(f"return {self.first_length}")
        return Program(
            f"{name}()",
            ("import torch", "\n".join([f"def {name}():", *_indented(body)])),
        )

    def call_program(self, violation: CallViolation, import_line: str) -> str:
        """Return a program that shows a violation again.

        It makes one call, or several if the length is drawn.
        """
        config, shape = violation.configuration, violation.shape
        body = [
            *self.tensors(config, shape),
            *self.call_lines(config, shape),
            *self.printing(shape),
        ]
        if violation.calls > 1:
            body = [f"for _ in range({violation.calls}):", *_indented(body)]
        return "\n".join(["import torch", import_line, "", *body, ""])

    def _explain(self, batch: ForcedBatch) -> None:
        config = batch.config
        explained = self._explained.get(config, 0)
        if explained == _EXPLAINED:
            return
        self._explained[config] = explained + 1
        for violation in batch.violations(_SEVERAL):
            self._noticed.setdefault((config, violation.name), violation)


def _is_drawn(config: Configuration) -> bool:
    """Say whether there is more than one length to draw."""
    assert config.acc_len is not None
    within = 1.0 < config.acc_len < config.max_len
    return config.method != "match-expected" or (within and not config.acc_len.is_integer())


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _accepted(
    name: str, function: Callable[..., object], kind: str, required: tuple[str, ...]
) -> frozenset[str]:
    """Return the keywords that a function takes; what `required` names where it cannot be told."""
    if any(map(inspect.iscoroutinefunction, (function, type(function).__call__))):
        raise TargetError(f"{name} is a coroutine function; it must write its outputs by itself")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return frozenset(required)
    parameters = signature.parameters.values()
    taken = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        taken |= {*required, "simulate_acc_token_mode"}
    passed = {*required, *(taken & set(OPTIONAL))}
    try:
        signature.bind(**dict.fromkeys(passed))
    except TypeError as error:
        raise TargetError(
            f"{name}{signature} cannot be called as kind {kind}, with {', '.join(required)} as "
            f"keywords: {error}"
        ) from None
    return frozenset(passed)
