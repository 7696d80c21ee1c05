"""Executors: objects that force the acceptance length of a verify step.

An executor target is a class or a factory, called as ``(gamma, simulate_acc_len,
simulate_acc_method)``. Its object offers one of two protocols, or both.

*Cached buffer*: a method ``_simulated_correct_len`` or ``simulated_correct_len``, called with the
keywords ``bs``, ``dtype`` and ``device``, that returns a tensor of ``bs`` draft lengths.

*Step protocol*: a method that draws once, ``begin_step`` or ``begin_simulated_step``, into a
tensor attribute, ``step_correct_len``, ``_simulated_correct_len`` or ``simulated_correct_len``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from specsim.adapters.guard import target_call
from specsim.adapters.kinds import BUFFER_METHODS, STEP_METHODS, STEP_TENSORS
from specsim.loading.failures import TargetFailed, TargetReturned, shown
from specsim.targets import Configuration, Program, Violation

_CPU = torch.device("cpu")
# What lengths are drawn with: batch sizes in turn, for a while in each dtype and below and above
# the least capacity. Only for a while, since a buffer built anew at every step could hide that it
# is never refreshed.
_PHASES: tuple[tuple[tuple[int, ...], str], ...] = (
    ((3, 1, 64, 8), "int64"),
    ((3, 1, 64, 8), "int32"),
    ((3, 1, 600, 8), "int64"),
    ((3, 1, 600, 8), "int32"),
)
_ROUNDS = 64


def _requests() -> list[tuple[int, torch.dtype]]:
    return [
        (bs, getattr(torch, dtype))
        for sizes, dtype in _PHASES
        for _ in range(_ROUNDS)
        for bs in sizes
    ]


_REQUESTS = _requests()
_REQUESTS_PROGRAM = (
    "import itertools",
    "import torch",
    f"phases = {_PHASES!r}",
    "requests = [(bs, getattr(torch, dtype)) for sizes, dtype in phases "
    f"for _ in range({_ROUNDS}) for bs in sizes]",
)


@dataclass(frozen=True)
class Protocol:
    """Which names of an executor's object are used.

    Attributes
    ----------
    buffer
        Method that returns a view of the cached buffer, or None.
    step, tensor
        Method that draws a step's lengths, and the attribute that it fills; None without one.
    """

    buffer: str | None
    step: str | None = None
    tensor: str | None = None


@dataclass
class Running:
    """An executor's object, and how it is made to give lengths.

    Attributes
    ----------
    executor
        The object.
    protocol
        Its names in use.
    per_slot
        Whether each slot has a draw of its own.
    """

    executor: Any
    protocol: Protocol
    per_slot: bool
    waiting: list[int] = field(default_factory=list)
    noticed: dict[str, str] = field(default_factory=dict)
    _steps: int = 0
    # The last step's tensor, kept so that its memory is not used again, and where that is.
    _last: torch.Tensor | None = None
    _place: tuple[object, ...] = ()
    _served: int = 0

    def correct_len(self, bs: int, dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
        """Return one step's draft lengths from the cached buffer.

        Raises
        ------
        TargetRaised, TargetReturned
            If it raises, or returns no tensor.
        """
        assert self.protocol.buffer is not None
        with target_call():
            method = getattr(self.executor, self.protocol.buffer)
            returned = method(bs=bs, dtype=dtype, device=device)
        return _tensor(returned, self.protocol.buffer)

    def begin(self) -> None:
        """Draw a step's lengths by the step protocol.

        Raises
        ------
        TargetRaised
            If it raises.
        """
        assert self.protocol.step is not None
        with target_call():
            getattr(self.executor, self.protocol.step)()

    def held(self) -> torch.Tensor:
        """Return the tensor that holds the step's draft lengths by the step protocol.

        Raises
        ------
        TargetRaised, TargetReturned
            If the attribute cannot be read, or holds no tensor.
        """
        assert self.protocol.tensor is not None
        with target_call():
            held = getattr(self.executor, self.protocol.tensor)
        return _tensor(held, self.protocol.tensor)

    def step(self) -> list[int]:
        """Return one step's draft lengths, one a slot.

        Raises
        ------
        TargetRaised, TargetReturned
            If there are none.
        """
        if self.protocol.buffer is None:
            self.begin()
            drafts = self.held()
            self._look_at_place(drafts, drafts.numel())
        else:
            bs, dtype = _REQUESTS[self._steps % len(_REQUESTS)]
            self._steps += 1
            drafts = self.correct_len(bs, dtype, _CPU)
            if drafts.shape != (bs,):
                raise TargetReturned(
                    f"returned a tensor of shape {tuple(drafts.shape)}, expected ({bs},)"
                )
            self._look_at_place(drafts, bs)
        with target_call():
            values = drafts.reshape(-1).tolist()
        if set(map(type, values)) != {int}:
            raise TargetReturned(f"returned {shown(values)}, expected integer draft lengths")
        return values

    def draw(self, n: int) -> list[object]:
        """Return n acceptance lengths: one a step, or one a slot."""
        drawn: list[object] = []
        while len(drawn) < n:
            if self.per_slot:
                self.waiting = self.waiting or [value + 1 for value in self.step()]
                wanted = n - len(drawn)
                drawn += self.waiting[:wanted]
                self.waiting = self.waiting[wanted:]
                continue
            values = self.step()
            if values.count(values[0]) != len(values):
                shown_values = values if len(values) <= 8 else [*values[:8], ...]
                self.noticed.setdefault(
                    "coupling", f"wrote other draft lengths to slots of one step: {shown_values}"
                )
            drawn.append(values[0] + 1)
        return drawn

    def _look_at_place(self, drafts: torch.Tensor, size: int) -> None:
        """Note if a step reads other memory than the one before, which was large enough."""
        last, self._last = self._last, drafts
        before, self._place = self._place, place_of(drafts)
        if last is None or last.dtype != drafts.dtype:
            self._served = size
            return
        if size <= self._served and before != self._place:
            self.noticed.setdefault(
                "reuse",
                f"gave other memory for {size} slots after {self._steps or 'some'} steps; the step "
                f"before it, and {self._served} slots, had been served from the memory kept so far",
            )
        self._served = max(self._served, size)


def place_of(view: torch.Tensor) -> tuple[object, ...]:
    """Return what tells a tensor's memory from another's, as long as both are kept."""
    return view.untyped_storage()._cdata, view.storage_offset(), view.stride()


class ExecutorTarget:
    """Draws acceptance lengths from executors, one object a configuration.

    Parameters
    ----------
    name
        Expression for the class or factory in a snippet.
    factory
        The class or factory.
    coupling
        ``"batch"`` or ``"slot"``.
    step_method, step_tensor
        Names of the step protocol; either chooses it, where the object has both protocols.
    """

    kind = "executor"
    gave = "forced an acceptance length of"

    def __init__(
        self,
        name: str,
        factory: Callable[..., object],
        *,
        coupling: str = "batch",
        step_method: str | None = None,
        step_tensor: str | None = None,
    ) -> None:
        self.name = name
        self.factory = factory
        self.per_slot = coupling == "slot"
        self._step_method, self._step_tensor = step_method, step_tensor
        self._running: dict[Configuration, Running] = {}
        # Of the object made last.
        self._last_protocol: Protocol | None = None

    def open(self, config: Configuration, **more: object) -> Running:
        """Make an object of a configuration; `more` are further keywords of the factory.

        Raises
        ------
        TargetRaised, TargetReturned
            If the factory raises, or the object has neither protocol.
        """
        with target_call():
            executor = self.factory(config.max_len - 1, config.acc_len, config.method, **more)
        protocol = self._last_protocol = self._protocol(executor)
        return Running(executor, protocol, self.per_slot)

    def draw_many(self, config: Configuration, n: int) -> list[object]:
        """Draw n acceptance lengths, draft lengths plus one, from this configuration's object."""
        running = self._running.get(config)
        if running is None:
            running = self._running[config] = self.open(config)
        return running.draw(n)

    def renew(self) -> None:
        """Give up the objects made so far."""
        self._running = {}

    def noticed(self) -> list[Violation]:
        """Return, once, where slots differed that share a draw, and where memory moved."""
        found = []
        for config, running in self._running.items():
            for name, message in running.noticed.items():
                found.append(Violation(name, config, message, (message,)))
            running.noticed = {}
        return found

    def call_repr(self, config: Configuration, n: int = 1) -> str:
        """Return the call of the factory."""
        return f"{self.name}({config.max_len - 1}, {config.acc_len!r}, {config.method!r})"

    def program(self, config: Configuration, number: int = 1) -> Program:
        """Return how a snippet draws from one object."""
        name = "executor" if number == 1 else f"executor_{number}"
        made = f"{name} = {self.call_repr(config)}"
        if self._last_protocol is None:
            with suppress(TargetFailed):
                self.open(config)
        protocol = self._last_protocol
        if protocol is None:
            return Program(f"vars({name})", (made,))
        if protocol.buffer is None:
            length = f"({name}.{protocol.step}(), {name}.{protocol.tensor})[1].flatten()"
            setup: tuple[str, ...] = (made,)
        else:
            given = f"asked_{number}"
            length = (
                f"{name}.{protocol.buffer}(**dict(zip(('bs', 'dtype'), next({given}))), "
                "device=torch.device('cpu'))"
            )
            setup = (*_REQUESTS_PROGRAM, made, f"{given} = itertools.cycle(requests)")
        many = None
        if self.per_slot:

            def many(n: int) -> str:
                return f"[int(k) + 1 for _ in range({n}) for k in {length}]"

        return Program(f"{length}[0].item() + 1", setup, many)

    def _protocol(self, executor: object) -> Protocol:
        """Return which of the object's names are used."""
        with target_call():
            wants_step = self._step_method is not None or self._step_tensor is not None
            buffer = next((n for n in BUFFER_METHODS if _is_method(executor, n)), None)
            if buffer is not None and not wants_step:
                return Protocol(buffer)
            steps = STEP_METHODS if self._step_method is None else (self._step_method,)
            step = next((n for n in steps if _is_method(executor, n)), None)
            tensors = STEP_TENSORS if self._step_tensor is None else (self._step_tensor,)
            tensor = _first_tensor(executor, tensors)
            if step is not None and tensor is None:
                # Some make their tensor at the first step.
                getattr(executor, step)()
                tensor = _first_tensor(executor, tensors)
        if step is None or tensor is None:
            kind = type(executor).__name__
            raise TargetReturned(
                f"made a {kind}, which has neither a method {' or '.join(BUFFER_METHODS)} nor a "
                f"method {' or '.join(steps)} with a tensor {' or '.join(tensors)}"
            )
        return Protocol(None, step, tensor)


def _first_tensor(executor: object, names: tuple[str, ...]) -> str | None:
    """Return the first attribute that holds a tensor."""
    return next((n for n in names if isinstance(getattr(executor, n, None), torch.Tensor)), None)


def _is_method(executor: object, name: str) -> bool:
    return callable(getattr(executor, name, None))


def _tensor(value: object, name: str) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TargetReturned(f"{name} gave {shown(value)}, expected a tensor")
    return value
