"""What an executor's cached buffer must do at each call: a model that calls are held against."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specsim.adapters.executor import Running, place_of
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
    """Where views of one dtype and device were last seen.

    Attributes
    ----------
    view
        The largest view of that memory so far.
    served
        Its slots: what a later call may not need other memory for. Beyond, memory may be
        somebody else's.
    room
        Slots from its first one to the end of the storage: no capacity is larger.
    """

    view: torch.Tensor
    served: int
    room: int


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
        """Return how many slots may fit without a new buffer; 0 if any call needs one."""
        known = self._buffers.get((call.dtype, call.device))
        return 0 if known is None else known.room

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
        known, room = self._buffers.get(key), _room(view)
        # After another dtype or device, one buffer a dtype and device is as good as a new one, and
        # one memory for all dtypes as well.
        came_back, self._last = self._last != key, key
        new = all(_storage(view) != _storage(kept) for kept in self._kept[:-1])
        live = any(_storage(view) == _storage(other.view) for other in self._buffers.values())
        moved = known is None or place_of(known.view) != place_of(view)
        if moved or known is None or call.bs > known.served:
            self._buffers[key] = _Buffer(view, call.bs, room)
        if known is None or not moved:
            return self._too_small(room)
        fits = call.bs <= max(known.served, min(MIN_CAPACITY, known.room))
        if fits and not came_back and new and room <= call.bs < MIN_CAPACITY:
            # Storage made to measure: nothing that a later call could write, let alone a graph.
            return {
                "view": f"returned memory of its own for {room} slots, expected a view of a "
                f"buffer of at least {MIN_CAPACITY}"
            }
        excused = (new and (came_back or not fits)) or (live and came_back)
        if not excused:
            same = _storage(known.view) == _storage(view)
            what = "another part of the buffer" if same else "a new buffer"
            what = what if same or new else "a buffer that was given up before"
            return {
                "reuse": f"returned a view of {what}, expected the one before: it is large enough "
                f"for {call.bs}, on the same device and of the same dtype"
            }
        return self._too_small(room)

    def _too_small(self, room: int) -> dict[str, str]:
        if room >= MIN_CAPACITY:
            return {}
        return {
            "minimum-capacity": f"made a buffer of {room} slots, expected at least {MIN_CAPACITY}"
        }


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
        if place_of(tensor) != place_of(self._kept[0]):
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
    """Put a mark into every slot that was handed out, so that a slot left as it was shows."""
    if view.device.type != "meta":
        # What was made in inference mode can be written there alone.
        with torch.inference_mode():
            view.fill_(UNWRITTEN)


def _storage(view: torch.Tensor) -> int:
    return int(view.untyped_storage()._cdata)


def _room(view: torch.Tensor) -> int:
    """Return how many slots there are in memory from the view's first one on."""
    return int(view.untyped_storage().nbytes() // view.element_size() - view.storage_offset())


def _slots(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:4])) + (", …" if len(numbers) > 4 else "")
    return f"slot{'s' * (len(numbers) > 1)} {shown}"


def _they_were(numbers: list[int]) -> str:
    return "it was" if len(numbers) == 1 else "they were"


def _listing(values: list[int]) -> str:
    return f"[{', '.join(map(str, values[:8]))}{', …' if len(values) > 8 else ''}]"
