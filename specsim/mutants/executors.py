"""Faulty executors: their buffer is rebuilt, kept, returned or written in the wrong way."""

from __future__ import annotations

import torch
from torch import Tensor

from specsim.mutants.executor_base import (
    MIN_CAPACITY,
    PER_SLOT,
    BufferExecutor,
    SlotExecutor,
)
from specsim.mutants.verify_registry import EXECUTORS

_PR_33463 = "SGLang PR 33463"


@EXECUTORS.mutant(
    "device-ignored",
    caught_by="E.device",
    statement="A change of the device alone does not rebuild the buffer.",
    source=f"{_PR_33463}: the device was not part of the rebuild condition",
)
class DeviceIgnored(BufferExecutor):
    """Compares capacity and dtype only."""

    def outdated(self, bs: int, dtype: torch.dtype, device: torch.device) -> bool:
        """Leave the device out."""
        return super().outdated(bs, dtype, device if self.buffer is None else self.buffer.device)


@EXECUTORS.mutant(
    "dtype-ignored",
    caught_by="E.dtype",
    statement="A change of the dtype alone does not rebuild the buffer.",
    source="stands for a rebuild condition that leaves the dtype out",
)
class DtypeIgnored(BufferExecutor):
    """Compares capacity and device only."""

    def outdated(self, bs: int, dtype: torch.dtype, device: torch.device) -> bool:
        """Leave the dtype out."""
        return super().outdated(bs, dtype if self.buffer is None else self.buffer.dtype, device)


@EXECUTORS.mutant(
    "dtype-or-else-device",
    caught_by="E.sequence",
    statement="A buffer whose dtype is changed stays on its device, even if that changes at the "
    "same step.",
    source="stands for an elif where both may apply",
)
class DtypeOrElseDevice(BufferExecutor):
    """Looks at one thing that changed, and adapts the buffer to that."""

    def allocate(self, bs: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Keep the device of a buffer of another dtype."""
        if self.buffer is not None and self.buffer.dtype != dtype:
            device = self.buffer.device
        return super().allocate(bs, dtype, device)


@EXECUTORS.mutant(
    "allocated-at-every-step",
    caught_by="E.reuse",
    statement="Every step has a buffer of its own.",
    source="stands for a cache that is written and never looked up",
)
class AllocatedAtEveryStep(BufferExecutor):
    """Never finds its buffer good enough."""

    def outdated(self, bs: int, dtype: torch.dtype, device: torch.device) -> bool:
        """Say yes."""
        return True


@EXECUTORS.mutant(
    "rebuilt-when-smaller",
    caught_by="E.reuse",
    statement="A batch smaller than the one before gets a new buffer.",
    source="stands for a buffer that is fitted to the batch",
)
class RebuiltWhenSmaller(BufferExecutor):
    """Compares the batch with the one before."""

    last_bs = 0

    def outdated(self, bs: int, dtype: torch.dtype, device: torch.device) -> bool:
        """Say yes to a smaller batch too."""
        last_bs, self.last_bs = self.last_bs, bs
        return bs < last_bs or super().outdated(bs, dtype, device)


@EXECUTORS.mutant(
    "rebuilt-at-capacity",
    caught_by="E.reuse",
    statement="A batch that fills the buffer exactly gets a new one.",
    source="stands for <= in place of <",
)
class RebuiltAtCapacity(BufferExecutor):
    """Wants a slot to spare."""

    def outdated(self, bs: int, dtype: torch.dtype, device: torch.device) -> bool:
        """Say yes to a batch as large as the buffer."""
        full = self.buffer is not None and self.buffer.shape[0] == bs
        return full or super().outdated(bs, dtype, device)


@EXECUTORS.mutant(
    "two-buffers-in-turn",
    caught_by="E.reuse",
    statement="Odd and even steps have a buffer each.",
    source="stands for double buffering, under which a captured graph reads every second draw",
)
class TwoBuffersInTurn(BufferExecutor):
    """Swaps its buffer with another one before each step."""

    other: Tensor | None = None

    def outdated(self, bs: int, dtype: torch.dtype, device: torch.device) -> bool:
        """Swap, then look at what is there now."""
        self.buffer, self.other = self.other, self.buffer
        return super().outdated(bs, dtype, device)


@EXECUTORS.mutant(
    "slots-copied",
    caught_by="E.view",
    statement="A copy of the slots is returned.",
    source="stands for an index with a tensor in place of a slice, or a defensive clone",
)
class SlotsCopied(BufferExecutor):
    """Gives away no view."""

    def returned(self, bs: int) -> Tensor:
        """Copy the slots."""
        return self.view(bs).clone()


@EXECUTORS.mutant(
    "buffer-copied",
    caught_by="E.reuse",
    statement="A view of a copy of the whole buffer is returned.",
    source="stands for a defensive clone; the storage is as large as it must be",
)
class BufferCopied(BufferExecutor):
    """Gives away a view of something else."""

    def returned(self, bs: int) -> Tensor:
        """Copy the buffer."""
        assert self.buffer is not None
        return self.buffer.clone()[:bs]


@EXECUTORS.mutant(
    "capacity-is-the-batch",
    caught_by="E.minimum-capacity",
    statement="A new buffer has as many slots as the batch.",
    source="stands for a buffer made without a minimum: rebuilt as batches grow one by one",
)
class CapacityIsTheBatch(BufferExecutor):
    """Allocates no slot too many."""

    def capacity(self, bs: int) -> int:
        """Return the batch size."""
        return bs


@EXECUTORS.mutant(
    "capacity-511",
    caught_by="E.minimum-capacity",
    statement="A new buffer has at least 511 slots.",
    source="stands for a minimum that is off by one",
)
class Capacity511(BufferExecutor):
    """Allocates one slot too few."""

    def capacity(self, bs: int) -> int:
        """Return the batch size, or 511."""
        return max(bs, MIN_CAPACITY - 1)


@EXECUTORS.mutant(
    "view-before-rebuild",
    caught_by="E.growth",
    statement="When a batch outgrows the buffer, the slots of the old one are returned.",
    source="stands for a view that is taken before the rebuild",
)
class ViewBeforeRebuild(BufferExecutor):
    """Takes the view, then sees to the buffer."""

    def _simulated_correct_len(
        self, *, bs: int, dtype: torch.dtype, device: torch.device | str
    ) -> Tensor:
        """Return this step's draft lengths."""
        before = self.buffer
        current = super()._simulated_correct_len(bs=bs, dtype=dtype, device=device)
        if (
            before is None
            or before.shape[0] >= bs
            or before.dtype != dtype
            or before.device != current.device
        ):
            return current
        return before[:bs]


@EXECUTORS.mutant(
    "views-survive-a-rebuild",
    caught_by="E.reuse",
    statement="A batch size seen before the buffer grew goes on in the old buffer.",
    source="stands for views that are cached by batch size and never dropped",
)
class ViewsSurviveARebuild(BufferExecutor):
    """Keeps a view for each batch size, dtype and device."""

    def __init__(self, gamma: int, simulate_acc_len: float, simulate_acc_method: str) -> None:
        super().__init__(gamma, simulate_acc_len, simulate_acc_method)
        self.views: dict[tuple[int, torch.dtype, torch.device], Tensor] = {}

    def view(self, bs: int) -> Tensor:
        """Return the kept view."""
        assert self.buffer is not None
        key = (bs, self.buffer.dtype, self.buffer.device)
        return self.views.setdefault(key, super().view(bs))


@EXECUTORS.mutant(
    "first-slot-only",
    caught_by="E.written",
    statement="Only the first slot is written.",
    source="stands for a scalar write where a broadcast is meant",
)
class FirstSlotOnly(BufferExecutor):
    """Writes one slot."""

    def refresh(self, bs: int) -> None:
        """Write the first slot."""
        self.view(bs)[:1].fill_(self.draw() - 1)


@EXECUTORS.mutant(
    "last-slot-missed",
    caught_by="E.written",
    statement="All slots but the batch's last are written.",
    source="stands for an exclusive end taken for an inclusive one",
)
class LastSlotMissed(BufferExecutor):
    """Writes one slot too few."""

    def refresh(self, bs: int) -> None:
        """Write the slots before the last."""
        self.view(bs)[:-1].fill_(self.draw() - 1)


@EXECUTORS.mutant(
    "write-skipped-when-equal",
    caught_by="E.written",
    statement="A draw equal to the last one is not written, though somebody else may have "
    "written the buffer since.",
    source="engines' refresh skipped when nothing seems to have changed; HIP issue 3902",
)
class WriteSkippedWhenEqual(BufferExecutor):
    """Writes changes only."""

    last: tuple[int, int, Tensor | None] = (-1, 0, None)

    def refresh(self, bs: int) -> None:
        """Write unless these slots of this buffer had this value at the last write."""
        drafts = self.draw() - 1
        value, written, buffer = self.last
        if drafts != value or bs > written or buffer is not self.buffer:
            self.view(bs).fill_(drafts)
            self.last = (drafts, bs, self.buffer)


@EXECUTORS.mutant(
    "slots-drawn-apart",
    caught_by="E.coupling",
    statement="Each slot has a draw of its own where all should share one.",
    source="vLLM, TensorRT-LLM and llama.cpp draw per slot, SGLang per batch",
)
class SlotsDrawnApart(SlotExecutor):
    """Is a correct executor of the other coupling."""


@EXECUTORS.mutant(
    "one-draw-for-all-slots",
    caught_by="E.freshness",
    statement="All slots share a draw where each should have its own.",
    source="vLLM, TensorRT-LLM and llama.cpp draw per slot, SGLang per batch",
    options=PER_SLOT,
)
class OneDrawForAllSlots(BufferExecutor):
    """Is a correct executor of the other coupling."""
