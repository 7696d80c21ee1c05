"""What an executor's cached buffer must do at each call: a model that calls are held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from specsim.adapters.executor import Running
from specsim.loading.failures import TargetFailed

MIN_CAPACITY = 512
# No draft length, and in every dtype that engines use.
UNWRITTEN = -77


@dataclass(frozen=True)
class Call:
    """The arguments of one call.

    Attributes
    ----------
    bs
        Slots.
    dtype
        Name of an integer dtype in torch.
    device
        As text.
    """

    bs: int
    dtype: str
    device: str

    def __str__(self) -> str:
        return f"bs={self.bs}, {self.dtype} on {self.device}"


@dataclass
class _Buffer:
    """The storage that views of one dtype and device were last seen in."""

    view: torch.Tensor
    capacity: int


class BufferModel:
    """Makes calls, and says which properties each of them refutes.

    A tensor's memory is told from another's by its storage object, and every tensor returned is
    kept: an address may be used again after a free, and has no meaning on ``meta`` or for an
    empty slice.

    Parameters
    ----------
    running
        The executor.
    max_len
        gamma + 1.
    """

    def __init__(self, running: Running, max_len: int) -> None:
        self._running = running
        self._gamma = max_len - 1
        self._buffers: dict[tuple[str, str], _Buffer] = {}
        self._last: tuple[str, str] | None = None
        self._kept: list[torch.Tensor] = []

    def capacity(self, call: Call) -> int:
        """Return how many slots fit without a new buffer; 0 if any call needs one."""
        known = self._buffers.get((call.dtype, call.device))
        return 0 if known is None else known.capacity

    def call(self, call: Call) -> dict[str, str]:
        """Make one call.

        Returns
        -------
        dict
            What was seen and what was allowed, by the name of the refuted property.
        """
        for buffer in self._buffers.values():
            _overwrite(buffer.view)
        try:
            view = self._running.correct_len(
                call.bs, getattr(torch, call.dtype), torch.device(call.device)
            )
        except TargetFailed as failed:
            return {"returns": failed.summary}
        self._kept.append(view)
        return self._refuted_by_form(call, view) or {
            **self._refuted_by_storage(call, view),
            **refuted_by_values(view, self._gamma, self._running.per_slot),
        }

    def _refuted_by_form(self, call: Call, view: torch.Tensor) -> dict[str, str]:
        found = {}
        dtype = str(view.dtype).removeprefix("torch.")
        if dtype != call.dtype:
            found["dtype"] = f"returned {dtype}, expected {call.dtype}"
        if view.device != torch.device(call.device):
            found["device"] = f"returned a tensor on {view.device}, expected {call.device}"
        if not found and view.shape != (call.bs,):
            found["growth"] = f"returned shape {tuple(view.shape)}, expected ({call.bs},)"
        return found

    def _refuted_by_storage(self, call: Call, view: torch.Tensor) -> dict[str, str]:
        key = (call.dtype, call.device)
        known, capacity = self._buffers.get(key), _capacity(view)
        # After another dtype or device, one buffer a dtype and device is as good as a new one.
        came_back, self._last = self._last != key, key
        self._buffers[key] = _Buffer(view, capacity)
        moved = known is None or _place(known.view) != _place(view)
        new = all(_storage(view) != _storage(kept) for kept in self._kept[:-1])
        again = known is not None and not came_back and call.bs <= known.capacity
        if again and moved and new and capacity <= call.bs < MIN_CAPACITY:
            # Storage made to measure: nothing that a later call could write, let alone a graph.
            return {
                "view": f"returned memory of its own for {capacity} slots, expected a view of a "
                f"buffer of at least {MIN_CAPACITY}"
            }
        if known is not None and moved and not (new and (came_back or call.bs > known.capacity)):
            same = _storage(known.view) == _storage(view)
            what = "another part of the buffer" if same else "a new buffer"
            what = what if same or new else "a buffer that was given up before"
            return {
                "reuse": f"returned a view of {what}, expected the one before: its {known.capacity}"
                f" slots are enough for {call.bs}, on the same device and of the same dtype"
            }
        if capacity < MIN_CAPACITY:
            return {
                "minimum-capacity": f"made a buffer of {capacity} slots, expected at least "
                f"{MIN_CAPACITY}"
            }
        return {}


class StepModel:
    """Begins steps, and says which properties each of them refutes.

    Parameters
    ----------
    running
        An executor with the step protocol.
    max_len
        gamma + 1.
    """

    def __init__(self, running: Running, max_len: int) -> None:
        self._running = running
        self._gamma = max_len - 1
        self._kept: list[torch.Tensor] = []

    def call(self) -> dict[str, str]:
        """Begin one step; returns what `BufferModel.call` does."""
        before = self._kept[-1] if self._kept else None
        if before is not None:
            _overwrite(before)
        try:
            self._running.begin()
            # Looked at before the attribute is read: captured code reads memory alone.
            unwritten = before is not None and bool((before == UNWRITTEN).any())
            tensor = self._running.held()
        except TargetFailed as failed:
            return {"returns": failed.summary}
        self._kept.append(tensor)
        found = refuted_by_values(tensor, self._gamma, self._running.per_slot)
        if _place(tensor) != _place(self._kept[0]):
            found["reuse"] = "left the step's lengths in another tensor than the steps before"
        elif unwritten:
            found["written"] = "left the step's tensor as it was until its attribute was read"
        return found


def refuted_by_values(view: torch.Tensor, gamma: int, per_slot: bool) -> dict[str, str]:
    """Hold the values of one step against the properties that they alone can refute."""
    if view.device.type == "meta":
        return {}
    found, values = {}, view.reshape(-1).tolist()
    empty = [slot for slot, value in enumerate(values) if value == UNWRITTEN]
    written = [value for value in values if value != UNWRITTEN]
    if empty:
        found["written"] = (
            f"left {_slots(empty)} of {len(values)} as {_they_were(empty)}, expected a new value "
            "in every slot"
        )
    outside = [value for value in written if not 0 <= value <= gamma]
    if outside:
        found["range"] = f"wrote draft length {outside[0]}, outside [0, {gamma}]"
    if not per_slot and len(set(written)) > 1:
        found["coupling"] = f"wrote {_listing(values)}, expected one length for all slots"
    return found


def _overwrite(view: torch.Tensor) -> None:
    """Put a mark into every slot of a buffer, so that a slot left as it was shows."""
    if view.device.type == "meta" or not view.is_contiguous():
        return
    # What was made in inference mode can be written there alone.
    with torch.inference_mode():
        view.as_strided((_capacity(view),), (1,)).fill_(UNWRITTEN)


def _storage(view: torch.Tensor) -> int:
    return int(view.untyped_storage()._cdata)


def _place(view: torch.Tensor) -> tuple[Any, ...]:
    return _storage(view), view.storage_offset(), view.stride()


def _capacity(view: torch.Tensor) -> int:
    """Return how many slots there are in memory from the view's first one on."""
    return int(view.untyped_storage().nbytes() // view.element_size() - view.storage_offset())


def _slots(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:4])) + (", …" if len(numbers) > 4 else "")
    return f"slot{'s' * (len(numbers) > 1)} {shown}"


def _they_were(numbers: list[int]) -> str:
    return "it was" if len(numbers) == 1 else "they were"


def _listing(values: list[int]) -> str:
    return f"[{', '.join(map(str, values[:8]))}{', …' if len(values) > 8 else ''}]"
