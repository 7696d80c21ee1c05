"""Correct executors: other capacities, other sources of randomness, and both protocols."""

from __future__ import annotations

import random
from bisect import bisect_right

import numpy as np
import torch
from torch import Tensor

from specsim.acceptance import AcceptanceDistribution
from specsim.mutants.base import UniformSampler
from specsim.mutants.executor_base import (
    MIN_CAPACITY,
    PER_SLOT,
    BufferExecutor,
    Configured,
    SlotExecutor,
    SlotStepExecutor,
    StepExecutor,
)
from specsim.mutants.verify_registry import EXECUTORS, Options

_POOL_SEED = 20260804
_POOL_SIZE = 65_536

EXECUTORS.correct(
    "torch-global",
    statement="Draws from torch's global CPU generator; capacity is the batch, or 512.",
)(BufferExecutor)

EXECUTORS.correct(
    "torch-global-per-slot",
    statement="Draws a length for each slot from torch's global CPU generator.",
    options=PER_SLOT,
)(SlotExecutor)

EXECUTORS.correct(
    "step-one-element",
    statement="The step protocol under the names of SGLang 0.5.23, with a tensor of shape (1,).",
)(StepExecutor)

EXECUTORS.correct(
    "step-per-slot",
    statement="The step protocol with a draw for each of 512 slots.",
    options=PER_SLOT,
)(SlotStepExecutor)


@EXECUTORS.correct("power-of-two", statement="Capacity is a power of two, at least 512.")
class PowerOfTwo(BufferExecutor):
    """Doubles."""

    def capacity(self, bs: int) -> int:
        """Return the next power of two."""
        return int(max(MIN_CAPACITY, 1 << max(bs - 1, 0).bit_length()))


@EXECUTORS.correct(
    "half-as-much-again",
    statement="Capacity is one and a half times the batch that outgrew the buffer, at least 512.",
)
class HalfAsMuchAgain(BufferExecutor):
    """Grows by half."""

    def capacity(self, bs: int) -> int:
        """Return the batch size and half of it."""
        return max(MIN_CAPACITY, bs + bs // 2)


@EXECUTORS.correct("multiple-of-1024", statement="Capacity is a multiple of 1,024, at least one.")
class MultipleOf1024(BufferExecutor):
    """Rounds up."""

    def capacity(self, bs: int) -> int:
        """Return the next multiple."""
        return 1_024 * max(-(-bs // 1_024), 1)


@EXECUTORS.correct(
    "never-smaller-on-change",
    statement="A buffer rebuilt for another dtype or device keeps the capacity it had.",
)
class NeverSmallerOnChange(BufferExecutor):
    """Takes over its capacity."""

    def capacity(self, bs: int) -> int:
        """Return the batch size, the capacity or 512."""
        return max(bs, MIN_CAPACITY, 0 if self.buffer is None else self.buffer.shape[0])


@EXECUTORS.correct(
    "copied-from-a-scalar", statement="The draw is copied from a tensor of no dimension."
)
class CopiedFromAScalar(BufferExecutor):
    """Broadcasts a scalar tensor."""

    def refresh(self, bs: int) -> None:
        """Copy the draft length."""
        self.view(bs).copy_(torch.tensor(self.draw() - 1, dtype=torch.int64, device="cpu"))


@EXECUTORS.correct("whole-buffer-written", statement="All slots of the buffer are written.")
class WholeBufferWritten(BufferExecutor):
    """Writes beyond the batch too."""

    def refresh(self, bs: int) -> None:
        """Write the buffer."""
        assert self.buffer is not None
        self.buffer.fill_(self.draw() - 1)


@EXECUTORS.correct(
    "buffer-per-dtype-and-device",
    statement="Every dtype and device has a buffer, which is found again when they come back.",
)
class BufferPerDtypeAndDevice(BufferExecutor):
    """Keeps a dict of buffers."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        self.buffers: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def outdated(self, bs: int, dtype: torch.dtype, device: torch.device) -> bool:
        """Look the buffer up, then at its capacity."""
        self.buffer = self.buffers.get((dtype, device))
        return super().outdated(bs, dtype, device)

    def allocate(self, bs: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Keep the new buffer."""
        buffer = self.buffers[dtype, device] = super().allocate(bs, dtype, device)
        return buffer


@EXECUTORS.correct(
    "inference-mode",
    statement="Runs under torch.inference_mode, as engines' steps do: its tensors can be written "
    "only there, and its views don't say that they are views.",
)
class InferenceMode(BufferExecutor):
    """Makes inference tensors."""

    @torch.inference_mode()
    def _simulated_correct_len(
        self, *, bs: int, dtype: torch.dtype, device: torch.device | str
    ) -> Tensor:
        """Return this step's draft lengths."""
        return super()._simulated_correct_len(bs=bs, dtype=dtype, device=device)


@EXECUTORS.correct("public-name", statement="Its method is called simulated_correct_len.")
class PublicName(Configured):
    """Has an executor inside."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        self.inner = BufferExecutor(gamma, simulate_acc_len, simulate_acc_method)

    def simulated_correct_len(
        self, *, bs: int, dtype: torch.dtype, device: torch.device | str
    ) -> Tensor:
        """Return this step's draft lengths."""
        return self.inner._simulated_correct_len(bs=bs, dtype=dtype, device=device)


@EXECUTORS.correct("raises-when-off", statement="Refuses a call while simulation is off.")
class RaisesWhenOff(BufferExecutor):
    """Looks at the configured length, which engines do where they call it."""

    def refresh(self, bs: int) -> None:
        """Write the draft lengths of a length above 0."""
        if self.simulate_acc_len <= 0.0:
            raise RuntimeError(f"simulation is off: length {self.simulate_acc_len}")
        super().refresh(bs)


@EXECUTORS.correct(
    "inverse-cdf",
    statement="Looks a uniform number of Python's generator up in a table made beforehand.",
)
class InverseCdf(BufferExecutor):
    """Computes its law once."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        law = AcceptanceDistribution.from_method(
            simulate_acc_len, simulate_acc_method, self.max_len
        )
        self.table = np.cumsum(law.pmf)[:-1].tolist()
        self.random = random.Random()

    def draw(self) -> int:
        """Return the length in whose part of [0, 1) the number lies."""
        return 1 + bisect_right(self.table, self.random.random())


class _FromUniforms(BufferExecutor):
    """Draws from a source of uniform numbers, which gives one a call."""

    sampler: UniformSampler

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        self.sampler = self.source()

    def source(self) -> UniformSampler:
        """Return the source."""
        raise NotImplementedError

    def draw(self) -> int:
        """Return one acceptance length."""
        return self.sampler(self.simulate_acc_len, self.simulate_acc_method, self.max_len)


@EXECUTORS.correct("python-global", statement="Draws from Python's global generator.")
class PythonGlobal(_FromUniforms):
    """Draws from the random module."""

    def source(self) -> UniformSampler:
        """Return a sampler of the module's numbers."""
        return _GlobalNumbers()


class _GlobalNumbers(UniformSampler):
    def uniform(self) -> float:
        return random.random()


@EXECUTORS.correct("os-entropy", statement="Draws from the operating system's entropy.")
class OsEntropy(_FromUniforms):
    """Draws from random.SystemRandom."""

    def source(self) -> UniformSampler:
        """Return a sampler of entropy."""
        sampler = UniformSampler()
        sampler.random = random.SystemRandom()
        return sampler


@EXECUTORS.correct(
    "own-torch-generator",
    statement="Draws from a CPU generator of its own, seeded by the operating system.",
)
class OwnTorchGenerator(_FromUniforms):
    """Draws from torch.rand with a generator."""

    def source(self) -> UniformSampler:
        """Return a sampler of the generator's numbers."""
        return _GeneratorNumbers()


class _GeneratorNumbers(UniformSampler):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator(device="cpu")
        self.generator.seed()

    def uniform(self) -> float:
        drawn = torch.rand((), generator=self.generator, dtype=torch.float64, device="cpu")
        return float(drawn.item())


class _PoolNumbers(UniformSampler):
    def __init__(self) -> None:
        super().__init__()
        self.pool = np.random.default_rng(_POOL_SEED).random(_POOL_SIZE).tolist()
        self.position = 0

    def uniform(self) -> float:
        number: float = self.pool[self.position]
        self.position = (self.position + 1) % _POOL_SIZE
        return number


@EXECUTORS.correct(
    "pool-of-65536",
    statement="Draws from a pool of 65,536 numbers of a constant seed, used in turn: within "
    "tolerance.",
)
class PoolOf65536(_FromUniforms):
    """Starts at the pool's beginning, as every other instance does."""

    def source(self) -> UniformSampler:
        """Return a sampler of the pool's numbers."""
        return _PoolNumbers()


@EXECUTORS.correct(
    "pool-of-65536-per-slot",
    statement="Draws a length for each slot from a pool of 65,536 numbers of a constant seed, as "
    "TensorRT-LLM does.",
    options=PER_SLOT,
)
class PoolOf65536PerSlot(SlotExecutor):
    """Takes one number a slot."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        self.sampler = _PoolNumbers()

    def draws(self, n: int) -> Tensor:
        """Return n lengths."""
        call = (self.simulate_acc_len, self.simulate_acc_method, self.max_len)
        return torch.tensor([self.sampler(*call) for _ in range(n)], dtype=torch.int64)


@EXECUTORS.correct("step-no-dimension", statement="The step protocol with a 0-dim tensor.")
class StepNoDimension(StepExecutor):
    """Holds a scalar tensor."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        self._simulated_correct_len = torch.zeros((), dtype=torch.int64, device="cpu")


@EXECUTORS.correct("step-int32", statement="The step protocol with an int32 tensor.")
class StepInt32(StepExecutor):
    """Holds 32-bit lengths."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        self._simulated_correct_len = torch.zeros(1, dtype=torch.int32, device="cpu")


@EXECUTORS.correct(
    "step-made-at-first", statement="The step protocol with a tensor that the first step makes."
)
class StepMadeAtFirst(Configured):
    """Has no tensor at first."""

    step_correct_len: Tensor | None = None

    def begin_step(self) -> None:
        """Draw a step's length; nothing if simulation is off."""
        if self.simulate_acc_len <= 0.0:
            return
        if self.step_correct_len is None:
            self.step_correct_len = torch.zeros(1, dtype=torch.int64, device="cpu")
        self.step_correct_len.fill_(self.draw() - 1)


@EXECUTORS.correct(
    "step-other-names",
    statement="The step protocol under names of its own.",
    options=Options(step_method="draw_ahead", step_tensor="forced_drafts"),
)
class StepOtherNames(Configured):
    """Calls its method and tensor otherwise."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        self.forced_drafts = torch.zeros(1, dtype=torch.int64, device="cpu")

    def draw_ahead(self) -> None:
        """Draw a step's length; nothing if simulation is off."""
        if self.simulate_acc_len > 0.0:
            self.forced_drafts.fill_(self.draw() - 1)


@EXECUTORS.correct(
    "match-expected-only",
    statement="Knows no other method than match-expected.",
    options=Options(methods=("match-expected",)),
)
class MatchExpectedOnly(BufferExecutor):
    """Refuses other methods when it is made."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        if simulate_acc_method != "match-expected":
            raise ValueError(f"method must be match-expected, got {simulate_acc_method!r}")
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
