"""Executors that are right for small int64 batches at first, and odd but correct ones."""

from __future__ import annotations

import torch
from torch import Tensor

from specsim.mutants.executor_base import MIN_CAPACITY, BufferExecutor, Configured, StepExecutor
from specsim.mutants.finalizer_base import Finalizer, Step
from specsim.mutants.verify_registry import EXECUTORS, FINALIZERS


@EXECUTORS.mutant(
    "frozen-in-large-batches",
    caught_by="E.distribution",
    statement="For a batch above 8 the length is drawn once per object.",
    source="SGLang PR 33463, at the batch sizes that are served and not at those that are tried",
)
class FrozenInLargeBatches(BufferExecutor):
    """Keeps one length for large batches."""

    kept: int | None = None

    def refresh(self, bs: int) -> None:
        """Write a new length, or the kept one."""
        if bs > 8 and self.kept is None:
            self.kept = self.draw()
        length = self.draw() if bs <= 8 or self.kept is None else self.kept
        self.view(bs).fill_(length - 1)


@EXECUTORS.mutant(
    "rounded-for-int32",
    caught_by="E.distribution",
    statement="In int32 the length is rounded; engines ask for either dtype.",
    source="SGLang PR 33463, in one dtype",
)
class RoundedForInt32(BufferExecutor):
    """Rounds in one dtype."""

    def refresh(self, bs: int) -> None:
        """Write a drawn length, or the rounded one."""
        view = self.view(bs)
        rounded = min(max(round(self.simulate_acc_len), 1), self.max_len)
        view.fill_((rounded if view.dtype == torch.int32 else self.draw()) - 1)


@EXECUTORS.mutant(
    "frozen-after-growth",
    caught_by="E.freshness",
    statement="Once the buffer has been rebuilt, it holds the length drawn then.",
    source="SGLang PR 33463, after the first rebuild only",
)
class FrozenAfterGrowth(BufferExecutor):
    """Draws at later rebuilds only."""

    rebuilt: int | None = None

    def allocate(self, bs: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Draw, if there was a buffer before."""
        if self.buffer is not None:
            self.rebuilt = self.draw()
        return super().allocate(bs, dtype, device)

    def refresh(self, bs: int) -> None:
        """Write a new length, or that of the rebuild."""
        self.view(bs).fill_((self.draw() if self.rebuilt is None else self.rebuilt) - 1)


@EXECUTORS.mutant(
    "rebuilt-every-64-steps",
    caught_by="E.reuse",
    statement="The buffer is made anew at every 64th step.",
    source="stands for a cache whose entries expire: a captured graph keeps the old address",
)
class RebuiltEvery64Steps(BufferExecutor):
    """Gives its buffer up now and then."""

    steps = 0

    def outdated(self, bs: int, dtype: torch.dtype, device: torch.device) -> bool:
        """Count the steps."""
        self.steps += 1
        return self.steps % 64 == 0 or super().outdated(bs, dtype, device)


@EXECUTORS.mutant(
    "step-tensor-replaced-every-100-steps",
    caught_by="E.reuse",
    statement="The step protocol's tensor is made anew at every 100th step.",
    source="stands for a cache whose entries expire: a captured graph keeps the old address",
)
class StepTensorReplaced(StepExecutor):
    """Gives its tensor up now and then."""

    steps = 0

    def refresh(self) -> None:
        """Count the steps."""
        self.steps += 1
        if self.steps % 100 == 0:
            self._simulated_correct_len = torch.zeros_like(self._simulated_correct_len)
        super().refresh()


@FINALIZERS.mutant(
    "commits-frozen",
    caught_by="F.distribution",
    statement="The buffer is refreshed, but what is committed was drawn once per object.",
    source="one consumer with another law than the others",
)
class CommitsFrozen(Finalizer):
    """Commits its first length for ever."""

    first: int | None = None

    def drawn(self, step: Step) -> Tensor:
        """Return the first step's length in all slots."""
        forced = super().drawn(step)
        if self.first is None and forced.shape[0]:
            self.first = int(forced[0])
        return torch.full_like(forced, self.first or 0)


@EXECUTORS.correct(
    "packed-with-a-counter",
    statement="Its buffer is the front of a tensor that also holds a step count, at the end.",
)
class PackedWithACounter(BufferExecutor):
    """Keeps something of its own behind the lengths."""

    steps = 0

    def allocate(self, bs: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return a tensor of one more element than slots."""
        packed = torch.zeros(self.capacity(bs) + 1, dtype=dtype, device=device)
        packed[-1:].fill_(self.steps % 100)
        return packed

    def outdated(self, bs: int, dtype: torch.dtype, device: torch.device) -> bool:
        """Say whether the slots before the count are too few."""
        return super().outdated(bs + 1, dtype, device)

    def refresh(self, bs: int) -> None:
        """Write the lengths, and the count."""
        assert self.buffer is not None
        if self.buffer.device.type != "meta" and int(self.buffer[-1]) != self.steps % 100:
            raise RuntimeError("the step count was overwritten")
        self.steps += 1
        self.buffer[-1:].fill_(self.steps % 100)
        super().refresh(bs)


@EXECUTORS.correct("arena", statement="Its buffer lies in the middle of a larger tensor.")
class Arena(BufferExecutor):
    """Takes its slots out of memory that others use too."""

    def allocate(self, bs: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return a slice of a new arena."""
        slots = self.capacity(bs)
        return torch.zeros(3 * slots, dtype=dtype, device=device)[slots : 2 * slots]


@EXECUTORS.correct(
    "one-memory-for-all-dtypes", statement="Serves every dtype from the bytes of one buffer."
)
class OneMemoryForAllDtypes(Configured):
    """Looks at the same bytes as each dtype."""

    memory: Tensor | None = None

    def _simulated_correct_len(
        self, *, bs: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Return this step's draft lengths, shape (bs,), 0 … gamma."""
        memory = self.memory
        if memory is None or memory.shape[0] < 8 * bs or memory.device != device:
            memory = torch.zeros(8 * max(bs, MIN_CAPACITY), dtype=torch.uint8, device=device)
            self.memory = memory
        return memory.view(dtype)[:bs].fill_(self.draw() - 1)


@EXECUTORS.correct(
    "step-without-an-attribute-at-first",
    statement="The step protocol, where the first step makes the attribute.",
)
class StepWithoutAttributeAtFirst(Configured):
    """Has no tensor, and no attribute for it, before its first step."""

    step_correct_len: Tensor

    def begin_step(self) -> None:
        """Draw a step's length; nothing if simulation is off."""
        if self.simulate_acc_len <= 0.0:
            return
        if not hasattr(self, "step_correct_len"):
            self.step_correct_len = torch.zeros(1, dtype=torch.int64, device="cpu")
        self.step_correct_len.fill_(self.draw() - 1)
