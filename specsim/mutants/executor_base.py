"""Correct executors as engines write them, in a few steps, each of which another may replace."""

from __future__ import annotations

import torch
from torch import Tensor

from specsim.mutants.base import check, split
from specsim.mutants.verify_registry import Options
from specsim.sampler import sample_simulated_acc_len

MIN_CAPACITY = 512

PER_SLOT = Options(coupling="slot")
"""Options of an executor that draws a length for each slot."""


class Configured:
    """Holds a configuration and draws lengths of it from torch's global generator.

    Parameters
    ----------
    gamma
        Draft tokens per step.
    simulate_acc_len
        Acceptance length to force, in tokens, the target's own one included.
    simulate_acc_method
        ``"match-expected"`` or ``"multinomial"``.
    """

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        self.gamma = gamma
        self.simulate_acc_len = simulate_acc_len
        self.simulate_acc_method = simulate_acc_method
        self.max_len = gamma + 1

    def draw(self) -> int:
        """Return one acceptance length, 1 … max_len."""
        return sample_simulated_acc_len(
            self.simulate_acc_len, self.simulate_acc_method, self.max_len
        )

    def draws(self, n: int) -> Tensor:
        """Return independent acceptance lengths, shape (n,), int64, on the CPU."""
        check(self.simulate_acc_len, self.simulate_acc_method, self.max_len)
        if self.simulate_acc_method == "multinomial":
            noise = torch.randn(n, dtype=torch.float64, device="cpu")
            lengths = (self.simulate_acc_len + noise).clamp(1.0, float(self.max_len)).round()
            return lengths.to(torch.int64)
        lower, weight = split(self.simulate_acc_len, self.max_len)
        uniform = torch.rand(n, dtype=torch.float64, device="cpu")
        return lower + (uniform < weight).to(torch.int64)


class BufferExecutor(Configured):
    """Writes each step's draw into a cached buffer and returns a view of it.

    Devices are compared as given, as engines do: ``"cuda"`` is not ``"cuda:0"``, so a bare one
    rebuilds the buffer at every step.

    Attributes
    ----------
    buffer : Tensor, shape (capacity,), or None
        None before the first step.
    """

    buffer: Tensor | None = None

    def _simulated_correct_len(
        self, *, bs: int, dtype: torch.dtype, device: torch.device | str
    ) -> Tensor:
        """Return this step's draft lengths, shape (bs,), 0 … gamma."""
        if self.outdated(bs, dtype, torch.device(device)):
            self.buffer = self.allocate(bs, dtype, torch.device(device))
        self.refresh(bs)
        return self.returned(bs)

    def outdated(self, bs: int, dtype: torch.dtype, device: torch.device) -> bool:
        """Say whether the step needs another buffer."""
        buffer = self.buffer
        return (
            buffer is None
            or buffer.shape[0] < bs
            or buffer.dtype != dtype
            or buffer.device != device
        )

    def allocate(self, bs: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return a new buffer."""
        return torch.zeros(self.capacity(bs), dtype=dtype, device=device)

    def capacity(self, bs: int) -> int:
        """Return the slots of a new buffer."""
        return max(bs, MIN_CAPACITY)

    def refresh(self, bs: int) -> None:
        """Write the step's draft lengths."""
        self.view(bs).fill_(self.draw() - 1)

    def view(self, bs: int) -> Tensor:
        """Return the buffer's first slots."""
        assert self.buffer is not None
        return self.buffer[:bs]

    def returned(self, bs: int) -> Tensor:
        """Return what the step reads."""
        return self.view(bs)


class SlotExecutor(BufferExecutor):
    """Draws a length for each slot."""

    def refresh(self, bs: int) -> None:
        """Write the step's draft lengths."""
        self.view(bs).copy_(self.draws(bs) - 1)


class StepExecutor(Configured):
    """Draws once a step into a tensor of one element, which all slots read.

    Attributes
    ----------
    _simulated_correct_len : Tensor, shape (1,), int64
        The step's draft length, 0 … gamma.
    """

    _simulated_correct_len: Tensor

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        self._simulated_correct_len = torch.zeros(1, dtype=torch.int64, device="cpu")

    def begin_simulated_step(self) -> None:
        """Draw a step's length; nothing if simulation is off."""
        if self.simulate_acc_len > 0.0:
            self.refresh()

    def refresh(self) -> None:
        """Write the step's draft length."""
        self._simulated_correct_len.fill_(self.draw() - 1)


class SlotStepExecutor(StepExecutor):
    """Draws a length for each of 512 slots a step.

    Attributes
    ----------
    _simulated_correct_len : Tensor, shape (512,), int64
        The slots' draft lengths, 0 … gamma.
    """

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        self._simulated_correct_len = torch.zeros(MIN_CAPACITY, dtype=torch.int64, device="cpu")

    def refresh(self) -> None:
        """Write the slots' draft lengths."""
        self._simulated_correct_len.copy_(self.draws(MIN_CAPACITY) - 1)
