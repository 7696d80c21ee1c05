"""Faulty executors: their lengths are not drawn as configured, or not anew; and faulty steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from specsim.mutants.base import clamp
from specsim.mutants.executor_base import (
    PER_SLOT,
    BufferExecutor,
    Configured,
    SlotStepExecutor,
    StepExecutor,
)
from specsim.mutants.registry import Mutant
from specsim.mutants.sampler_faults import register_sampler_faults
from specsim.mutants.verify_registry import EXECUTORS
from specsim.sampler import sample_simulated_acc_len

_PR_33463 = "SGLang PR 33463"


class SampledExecutor(BufferExecutor):
    """Draws from a sampler that it is given.

    Parameters
    ----------
    gamma, simulate_acc_len, simulate_acc_method
        As for other executors.
    fault
        The sampler mutant to draw from, seeded by the operating system.
    """

    def __init__(
        self, gamma: int, simulate_acc_len: float, simulate_acc_method: str, fault: Mutant
    ) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        self.sampler = fault.factory(None)

    def draw(self) -> int:
        """Return one acceptance length of the sampler."""
        drawn = self.sampler(self.simulate_acc_len, self.simulate_acc_method, self.max_len)
        assert isinstance(drawn, int)
        return drawn


def _executor_of(fault: Mutant) -> Callable[[int, float, str], SampledExecutor]:
    def sampled_executor(
        gamma: int, simulate_acc_len: float, simulate_acc_method: str
    ) -> SampledExecutor:
        return SampledExecutor(gamma, simulate_acc_len, simulate_acc_method, fault)

    return sampled_executor


register_sampler_faults(EXECUTORS, "E", _executor_of)


@EXECUTORS.mutant(
    "rounded-at-allocation",
    caught_by="E.distribution",
    statement="The rounded length is written when the buffer is made, and never again: 4.7 is a "
    "buffer of 4s.",
    source=f"{_PR_33463}: rounded once when the buffer was allocated, never refreshed",
)
class RoundedAtAllocation(BufferExecutor):
    """Draws nothing."""

    def allocate(self, bs: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Fill the new buffer."""
        rounded = round(clamp(self.simulate_acc_len, self.max_len))
        return super().allocate(bs, dtype, device).fill_(rounded - 1)

    def refresh(self, bs: int) -> None:
        """Leave the buffer as it is."""


@EXECUTORS.mutant(
    "drawn-at-rebuild",
    caught_by="E.freshness",
    statement="A length is drawn when the buffer is made, and kept until the next rebuild.",
    source=f"{_PR_33463}: never refreshed",
)
class DrawnAtRebuild(BufferExecutor):
    """Draws once a buffer."""

    def allocate(self, bs: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Fill the new buffer."""
        return super().allocate(bs, dtype, device).fill_(self.draw() - 1)

    def refresh(self, bs: int) -> None:
        """Leave the buffer as it is."""


@EXECUTORS.mutant(
    "refreshed-every-other-step",
    caught_by="E.freshness",
    statement="The buffer is written at every second step, and when it is made.",
    source="stands for a refresh on one of two alternating paths, eager and captured",
)
class RefreshedEveryOtherStep(BufferExecutor):
    """Skips a step after each one."""

    fresh: Tensor | None = None

    def refresh(self, bs: int) -> None:
        """Write all slots, of whatever batch comes next, unless that was done a step ago."""
        assert self.buffer is not None
        if self.fresh is self.buffer:
            self.fresh = None
        else:
            self.fresh = self.buffer.fill_(self.draw() - 1)


@EXECUTORS.mutant(
    "drawn-once-for-all-executors",
    caught_by="E.freshness",
    statement="All executors of one gamma and length share a draw that is made once.",
    source="stands for a memoised function, functools.cache say, around the draw",
)
class DrawnOnceForAllExecutors(BufferExecutor):
    """Keeps draws where every instance finds them."""

    kept: ClassVar[dict[tuple[int, float], int]] = {}

    def draw(self) -> int:
        """Return the kept length."""
        key = (self.gamma, self.simulate_acc_len)
        if key not in self.kept:
            self.kept[key] = super().draw()
        return self.kept[key]


@EXECUTORS.mutant(
    "length-written",
    caught_by="E.range",
    statement="The acceptance length is written where the number of draft tokens belongs.",
    source="TensorRT-LLM PR 9608: total tokens in one path, draft tokens in another",
)
class LengthWritten(BufferExecutor):
    """Writes 1 … gamma + 1."""

    def refresh(self, bs: int) -> None:
        """Write the length itself."""
        self.view(bs).fill_(self.draw())


@EXECUTORS.mutant(
    "gamma-as-max-len",
    caught_by="E.distribution",
    statement="gamma is taken as the longest acceptance length: right but near the top.",
    source="stands for an exclusive end, or the bonus token forgotten",
)
class GammaAsMaxLen(BufferExecutor):
    """Draws 1 … gamma."""

    def draw(self) -> int:
        """Draw with a shorter maximum; without drafts there is none."""
        return sample_simulated_acc_len(
            self.simulate_acc_len, self.simulate_acc_method, max(self.gamma, 1)
        )


@EXECUTORS.mutant(
    "step-tensor-rebuilt",
    caught_by="E.reuse",
    statement="The step protocol makes a new tensor at each step.",
    source="stands for an assignment where a write in place is meant",
)
class StepTensorRebuilt(StepExecutor):
    """Assigns."""

    def refresh(self) -> None:
        """Make a tensor of the step's draft length."""
        self._simulated_correct_len = torch.tensor([self.draw() - 1], dtype=torch.int64)


@EXECUTORS.mutant(
    "step-drawn-once",
    caught_by="E.freshness",
    statement="The step protocol draws at its first step only.",
    source="stands for a draw inside a captured region",
)
class StepDrawnOnce(StepExecutor):
    """Keeps its first draw."""

    drawn = False

    def refresh(self) -> None:
        """Write the first step's draft length."""
        if not self.drawn:
            super().refresh()
            self.drawn = True


@EXECUTORS.mutant(
    "step-length-written",
    caught_by="E.range",
    statement="The step protocol writes the acceptance length where the number of draft tokens "
    "belongs.",
    source="TensorRT-LLM PR 9608: total tokens in one path, draft tokens in another",
)
class StepLengthWritten(StepExecutor):
    """Writes 1 … gamma + 1."""

    def refresh(self) -> None:
        """Write the length itself."""
        self._simulated_correct_len.fill_(self.draw())


@EXECUTORS.mutant(
    "step-first-slot-only",
    caught_by="E.written",
    statement="The step protocol draws for each slot, and writes only the first.",
    source="stands for a scalar write where a vector is meant",
    options=PER_SLOT,
)
class StepFirstSlotOnly(SlotStepExecutor):
    """Writes one slot."""

    def refresh(self) -> None:
        """Write the first slot."""
        self._simulated_correct_len[:1].fill_(self.draw() - 1)


@EXECUTORS.mutant(
    "step-drawn-on-read",
    caught_by="E.written",
    statement="begin_simulated_step writes nothing: each read of the attribute draws, so that "
    "two reads in a step differ, and a graph, which reads memory, sees no new draw.",
    source="stands for a lazy property in place of a tensor of fixed content during a step",
)
class StepDrawnOnRead(Configured):
    """Draws when the attribute is looked up."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        self.held = torch.zeros(1, dtype=torch.int64, device="cpu")

    def begin_simulated_step(self) -> None:
        """Leave it to the next read."""

    @property
    def _simulated_correct_len(self) -> Tensor:
        """Draw into the tensor and return it."""
        return self.held.fill_(self.draw() - 1)
