"""Sequences of calls of an executor's cached buffer: a few known ones, and Hypothesis' own.

Which batch sizes, dtypes and devices follow each other decides whether a buffer is built anew.
The sequences here start from the ones that broke engines; a rule-based state machine looks for
others, and shrinks what it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import hypothesis
import torch
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from specsim.adapters.executor import ExecutorTarget
from specsim.loading.failures import TargetFailed
from specsim.properties.buffer_model import MIN_CAPACITY, BufferModel, Call, StepModel
from specsim.properties.exploration import acceptance_lengths
from specsim.properties.generators import own_generators, seed_global_generators
from specsim.properties.hypothesis_runs import outside_tests, search_settings
from specsim.targets import Configuration

DTYPES = ("int64", "int32")
CPU = "cpu"
_LONGEST = 30
# Enough for memory that is given up now and then.
_MANY_STEPS = 300
# The batch sizes of each sequence; None is the buffer's capacity, whatever it is.
_SIZES: dict[str, tuple[int | None, ...]] = {
    "the same batch": (3, 3, 3, 3),
    "smaller and larger batches": (3, 7, 1, 512, 511, 2, 64, 3),
    "a batch as large as the buffer": (3, None, None, 1, None),
    "growth": (3, 600, 600, 513, 3, 600, 2_000, 600, 3),
    "an empty batch": (0, 3, 0, 0, 3),
    "a large first batch": (700, 700, 3, 512, 700),
    "many steps": (3, 1, 64) * (_MANY_STEPS // 3),
}


@dataclass(frozen=True)
class Refutation:
    """A sequence of calls whose last one refutes a property.

    Attributes
    ----------
    name
        The property's id without its letter.
    configuration
        What the executor was made with.
    calls
        The calls; None for the beginning of a step.
    message
        What the last one gave, and what was allowed.
    """

    name: str
    configuration: Configuration
    calls: tuple[Call | None, ...]
    message: str

    @property
    def size(self) -> tuple[object, ...]:
        """Order of simplicity: smaller is easier to read."""
        slots = sum(call.bs for call in self.calls if call is not None)
        return (len(self.calls), slots, self.configuration.size)


@dataclass
class Sequences:
    """What all sequences showed.

    Attributes
    ----------
    calls, answered, sequences
        How many calls were made, how many of them returned, and in how many sequences.
    devices
        Devices that took part.
    refused
        What calls on devices raised that could not take part, by device.
    known
        The first refutation of each property by the known sequences.
    found
        The shortest refutation of each property by the state machine.
    """

    calls: int = 0
    answered: int = 0
    sequences: int = 0
    devices: tuple[str, ...] = (CPU,)
    refused: dict[str, str] = field(default_factory=dict)
    known: dict[str, Refutation] = field(default_factory=dict)
    found: dict[str, Refutation] = field(default_factory=dict)

    def count(self, refuted: dict[str, str]) -> dict[str, str]:
        """Count one call, and return what it refuted."""
        self.calls += 1
        self.answered += "returns" not in refuted
        return refuted

    def refuting(self, name: str) -> Refutation | None:
        """Return a refutation of one property, of a known sequence if there is one."""
        return self.known.get(name) or self.found.get(name)


def second_devices() -> tuple[str, ...]:
    """Return the devices that a buffer can be asked for here besides the CPU."""
    real = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return (*real, "meta")


def run_sequences(
    target: ExecutorTarget, methods: Sequence[str], seed: int, examples: int, *, steps_only: bool
) -> Sequences:
    """Call an executor in many sequences.

    Parameters
    ----------
    target
        The executor.
    methods
        Methods that it knows.
    seed
        Decides the state machine's sequences and the generators' states.
    examples
        Sequences that the state machine makes.
    steps_only
        Whether it has the step protocol, in whose calls there is nothing to choose.
    """
    seen = Sequences()
    configuration = Configuration(4.7, methods[0], 8)
    if steps_only:
        with own_generators(seed, "steps"):
            _begin_steps(target, configuration, seen)
        return seen
    for device in second_devices():
        try:
            with own_generators(seed, "device", device):
                target.open(configuration).correct_len(1, torch.int64, torch.device(device))
        except TargetFailed as failed:
            seen.refused[device] = failed.summary
        else:
            seen.devices = (*seen.devices, device)
    for name, calls in _known_sequences(seen.devices):
        with own_generators(seed, "sequence", name):
            _run(target, configuration, calls, seen)
    _search(target, methods, seed, examples, seen)
    return seen


def _known_sequences(
    devices: Sequence[str],
) -> list[tuple[str, list[Callable[[int], Call]]]]:
    """Return named sequences; each call is told the buffer's capacity."""

    def fixed(bs: int | None, dtype: str, device: str) -> Callable[[int], Call]:
        return lambda capacity: Call(capacity if bs is None else bs, dtype, device)

    sequences = [
        (f"{name}, {dtype}", [fixed(bs, dtype, CPU) for bs in sizes])
        for dtype in DTYPES
        for name, sizes in _SIZES.items()
    ]
    first, second = DTYPES
    sequences.append(
        ("another dtype", [fixed(3, d, CPU) for d in (first, first, second, second, first)])
    )
    for device in devices[1:]:
        there = [CPU, CPU, device, device, CPU]
        sequences.append((f"another device, {device}", [fixed(3, first, d) for d in there]))
    return sequences


def _run(
    target: ExecutorTarget,
    configuration: Configuration,
    calls: Sequence[Callable[[int], Call]],
    seen: Sequences,
) -> None:
    """Make one known sequence of calls."""
    seen.sequences += 1
    try:
        model = BufferModel(target.open(configuration), configuration.max_len)
    except TargetFailed as failed:
        seen.known.setdefault("returns", Refutation("returns", configuration, (), failed.summary))
        return
    made: list[Call] = []
    for choose in calls:
        call = choose(0)
        call = choose(model.capacity(call) or MIN_CAPACITY)
        made.append(call)
        refuted = seen.count(model.call(call))
        for name, message in refuted.items():
            seen.known.setdefault(name, Refutation(name, configuration, tuple(made), message))
        if "returns" in refuted:
            return


def _begin_steps(target: ExecutorTarget, configuration: Configuration, seen: Sequences) -> None:
    """Begin a number of steps of one executor."""
    seen.sequences += 1
    try:
        model = StepModel(target.open(configuration), configuration.max_len)
    except TargetFailed as failed:
        seen.known["returns"] = Refutation("returns", configuration, (), failed.summary)
        return
    for _ in range(_MANY_STEPS):
        for name, message in seen.count(model.call()).items():
            found = Refutation(name, configuration, (None,) * seen.calls, message)
            seen.known.setdefault(name, found)


def _search(
    target: ExecutorTarget, methods: Sequence[str], seed: int, examples: int, seen: Sequences
) -> None:
    """Let a state machine look for sequences that refute something, and shorten these."""
    sizes = st.one_of(st.integers(0, 8), st.integers(0, 2 * MIN_CAPACITY))
    dtypes, devices = st.sampled_from(DTYPES), st.sampled_from(seen.devices)

    class Machine(RuleBasedStateMachine):
        """Calls an executor as the rules say, against the model."""

        model: BufferModel | None

        @initialize(data=st.data(), max_len=st.integers(1, 16), method=st.sampled_from(methods))
        def start(self, data: Any, max_len: int, method: str) -> None:
            acc_len = data.draw(acceptance_lengths(max_len, forced=True))
            self.configuration = Configuration(acc_len, method, max_len)
            self.made: list[Call] = []
            seen.sequences += 1
            # Hypothesis has put the generators into a state of its own, the same every time.
            seed_global_generators(seed, self.configuration)
            try:
                running = target.open(self.configuration)
            except TargetFailed as failed:
                self.model = None
                self.refuted({"returns": failed.summary})
                return
            self.model = BufferModel(running, max_len)

        @rule(bs=sizes, dtype=dtypes, device=devices)
        def step(self, bs: int, dtype: str, device: str) -> None:
            self.call(Call(bs, dtype, device))

        @rule(more=st.integers(-1, 1), dtype=dtypes, device=devices)
        def step_near_capacity(self, more: int, dtype: str, device: str) -> None:
            if self.model is not None:
                capacity = self.model.capacity(Call(0, dtype, device)) or MIN_CAPACITY
                self.call(Call(capacity + more, dtype, device))

        def call(self, call: Call) -> None:
            if self.model is None:
                return
            self.made.append(call)
            self.refuted(seen.count(self.model.call(call)))

        def refuted(self, found: dict[str, str]) -> None:
            for name, message in found.items():
                this = Refutation(name, self.configuration, tuple(self.made), message)
                best = seen.found.get(name)
                if best is None or this.size < best.size:
                    seen.found[name] = this

    settings = search_settings(examples, [Phase.generate], stateful_step_count=_LONGEST)
    with own_generators(seed, "state machine"):
        outside_tests(
            lambda: run_state_machine_as_test(hypothesis.seed(seed)(Machine), settings=settings)
        )
    for name, found in seen.found.items():
        seen.found[name] = _shortened(target, found, seed, seen)


def _shortened(target: ExecutorTarget, found: Refutation, seed: int, seen: Sequences) -> Refutation:
    """Return the refutation by fewer calls, if leaving some out leaves it a refutation.

    Hypothesis' own shrinking stops after 500 steps, at ten calls where four would do, and
    takes an object with memory for flaky; each of these sequences is tried on a new object.
    """
    best, at = found, 0
    while at < len(best.calls) - 1:
        fewer = best.calls[:at] + best.calls[at + 1 :]
        shorter = _refuted_again(target, best, fewer, seed, seen)
        # What could not be left out before may be now, so it starts again.
        best, at = (best, at + 1) if shorter is None else (shorter, 0)
    simple = Configuration(4.7, best.configuration.method, 8)
    return (
        _refuted_again(target, replace(best, configuration=simple), best.calls, seed, seen) or best
    )


def _refuted_again(
    target: ExecutorTarget,
    like: Refutation,
    calls: tuple[Call | None, ...],
    seed: int,
    seen: Sequences,
) -> Refutation | None:
    """Make calls on a new object; return the refutation if their last one is a like one."""
    seen.sequences += 1
    refuted: dict[str, str] = {}
    try:
        with own_generators(seed, like.configuration, calls):
            model = BufferModel(target.open(like.configuration), like.configuration.max_len)
            for call in calls:
                assert call is not None
                refuted = seen.count(model.call(call))
    except TargetFailed:
        return None
    if like.name not in refuted:
        return None
    return replace(like, calls=calls, message=refuted[like.name])
