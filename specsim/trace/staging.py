"""Copies of device tensors that are read once the device has made them, without waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch

from specsim.trace.rows import Row

# Values of one field that a slot has room for at first: those of 512 requests.
_LEAST_ROOM = 512


class Event(Protocol):
    """What marks a point in a device's work: a `torch.cuda.Event`."""

    def record(self) -> None:
        """Mark the work queued so far."""

    def query(self) -> bool:
        """Say whether that work is done, without waiting."""

    def synchronize(self) -> None:
        """Wait until it is done."""


@dataclass
class Waiting:
    """A step whose values are not all on the host yet.

    Attributes
    ----------
    row
        What was on the host already.
    copies
        Host tensors being filled, by name, with the tensors they are filled from: these must
        not be freed before.
    slot
        Number of the slot that holds the host tensors; None if there are none.
    """

    row: Row
    copies: list[tuple[str, torch.Tensor, torch.Tensor]] = field(default_factory=list)
    slot: int | None = None


class DeviceCopies:
    """A ring of pinned host memory that device tensors are copied into.

    A copy is queued behind the work that writes the tensor, and read when an event queued
    behind it is found to have passed. Nothing waits: if all slots of the ring are waiting for
    the device, a further step is refused.

    Parameters
    ----------
    slots
        Steps that may wait at once, at least 1.
    event
        Makes an event of the device that the tensors are on.
    pinned
        Whether the host memory is pinned; without it a copy waits for the device.
    """

    def __init__(
        self,
        slots: int,
        event: Callable[[], Event],
        *,
        pinned: bool = True,
    ) -> None:
        self._slots = slots
        self._new_event = event
        self._pinned = pinned
        self._events: dict[int, Event] = {}
        self._host: dict[tuple[str, torch.dtype], torch.Tensor] = {}
        self._free = list(range(slots))
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, row: Row, tensors: list[tuple[str, torch.Tensor]]) -> bool:
        """Queue copies of a step's tensors, and say whether there was room.

        Parameters
        ----------
        row
            What of the step is on the host; handed back by `done` with the copies added.
        tensors
            Names and integer tensors of one device; none for a step that only has to keep its
            place behind those that wait.
        """
        if len(self._waiting) >= self._slots:
            return False
        waiting = Waiting(row)
        if tensors:
            slot = waiting.slot = self._free.pop()
            event = self._events.get(slot)
            if event is None:
                event = self._events[slot] = self._new_event()
            for name, tensor in tensors:
                host = self._room(slot, name, tensor).view(tensor.shape)
                host.copy_(tensor, non_blocking=True)
                waiting.copies.append((name, host, tensor))
            event.record()
        self._waiting.append(waiting)
        return True

    def done(self, *, wait: bool = False) -> Iterator[Row]:
        """Take out the steps whose copies have been made, in the order they were put in.

        Parameters
        ----------
        wait
            Whether to wait for the device until all are.
        """
        while self._waiting:
            first = self._waiting[0]
            if first.slot is not None:
                event = self._events[first.slot]
                if wait:
                    event.synchronize()
                elif not event.query():
                    return
                self._free.append(first.slot)
            self._waiting.popleft()
            for name, host, _ in first.copies:
                first.row.add(name, host.numpy())
            yield first.row

    def _room(self, slot: int, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return a slot's host memory for a tensor.

        It is made for all slots at once, and again only for a tensor larger than any before,
        since the driver may wait for the device when it pins memory. Copies into the memory
        before keep that alive.
        """
        key, size = (name, tensor.dtype), tensor.numel()
        held = self._host.get(key)
        if held is None or held.shape[1] < size:
            capacity = max(_LEAST_ROOM, 1 << (size - 1).bit_length())
            # A tensor made in inference mode could not be written outside of it.
            with torch.inference_mode(False):
                held = torch.empty(
                    (self._slots, capacity), dtype=tensor.dtype, pin_memory=self._pinned
                )
            self._host[key] = held
        return held[slot, :size]
