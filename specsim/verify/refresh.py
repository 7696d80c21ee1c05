"""Draws forced lengths into a tensor in place, on the host or on the tensor's device."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from specsim.sampler import AcceptanceSampler
from specsim.verify.ranks import Sync, take_from_source

Refresh: TypeAlias = Literal["host", "device"]
Device: TypeAlias = "torch.device | str"

MIN_CAPACITY = 512
"""Fewest slots that a tensor of lengths, or of slot numbers, is made for."""

_COUNTED_BITS = 48


def indexed(device: Device) -> torch.device:
    """Return the device that a tensor made on `device` now would name.

    Parameters
    ----------
    device
        Without an index it means the current device of its type.
    """
    place = torch.device(device)
    if place.type in ("cpu", "meta"):
        return torch.device(place.type)
    if place.index is not None:
        return place
    current = getattr(torch.get_device_module(place), "current_device", None)
    return torch.device(place.type, 0 if current is None else current())


class LengthWriter:
    """Writes one step's draft lengths per call.

    Parameters
    ----------
    sampler
        Draws the acceptance lengths; its coupling says whether slots share a draw.
    refresh
        ``"host"``: with the sampler's stream, or with `AcceptanceSampler.at` and a step counter
        if `sync` is ``"counter"``. ``"device"``: with `at` and a step counter, on the device of
        the tensor that is written.
    sync
        ``"broadcast"``: what is written is what the group's rank 0 drew.
    group
        Process group of ``"broadcast"``; the default one if None.
    """

    def __init__(
        self,
        sampler: AcceptanceSampler,
        refresh: Refresh,
        sync: Sync | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self._sampler = sampler
        self._draw = sampler.draw
        self._on_device = refresh == "device"
        self._per_slot = sampler.coupling == "slot"
        self._broadcasts = sync == "broadcast"
        self._group = group
        self._counters: dict[torch.device, torch.Tensor] = {}
        self._slots: dict[torch.device, torch.Tensor] = {}
        self._sent: dict[torch.device, torch.Tensor] = {}
        self._host_counter: torch.Tensor | None = None
        if sync == "counter" and not self._on_device:
            with torch.inference_mode(False):
                self._host_counter = torch.zeros(1, dtype=torch.int64, device="cpu")
            # The same memory, read and written without a tensor operation.
            self._host_steps: NDArray[np.int64] = self._host_counter.numpy()

    def write(self, out: torch.Tensor) -> None:
        """Draw, and write draft lengths, one less than acceptance lengths, into all of `out`.

        Parameters
        ----------
        out : Tensor, shape (bs,), integer
        """
        if not self._broadcasts:
            self._draw_into(out)
            return
        # A shared draw is one number whatever the batch: ranks need not agree on its size. The
        # dtype is fixed because backends can't send every one.
        sent = self._tensor_to_send(out.shape[0] if self._per_slot else 1, out.device)
        self._draw_into(sent)
        take_from_source(sent, self._group)
        out.copy_(sent)

    def _draw_into(self, out: torch.Tensor) -> None:
        if self._on_device:
            counter = self.step_counter(out.device)
            slots = self._slot_numbers(out.shape[0], out.device) if self._per_slot else 0
            out.copy_(self._sampler.at(counter, slots) - 1)
            counter.add_(1)
        elif self._host_counter is not None:
            step = int(self._host_steps[0])
            if self._per_slot:
                _copy_from_host(self._sampler.at(step, np.arange(out.shape[0])), out)
            else:
                out.fill_(self._sampler.at(step, 0) - 1)
            self._host_steps += 1
        elif self._per_slot:
            _copy_from_host(self._sampler.draws(out.shape[0]), out)
        else:
            out.fill_(self._draw() - 1)

    def step_counter(self, device: Device) -> torch.Tensor:
        """Return the counter of the draws made on a device; see `TargetVerifyExecutor`."""
        if self._host_counter is not None:
            return self._host_counter
        if not self._on_device:
            raise RuntimeError(
                "draws must be counted, with refresh 'device' or sync 'counter', to have a counter"
            )
        place = indexed(device)
        if place not in self._counters:
            start = len(self._counters) << _COUNTED_BITS
            # A tensor made in inference mode could not be written outside of it.
            with torch.inference_mode(False):
                self._counters[place] = torch.full((1,), start, dtype=torch.int64, device=place)
        return self._counters[place]

    def _slot_numbers(self, bs: int, device: torch.device) -> torch.Tensor:
        slots = self._slots.get(device)
        if slots is None or slots.shape[0] < bs:
            with torch.inference_mode(False):
                slots = torch.arange(max(bs, MIN_CAPACITY), device=device)
            self._slots[device] = slots
        return slots[:bs]

    def _tensor_to_send(self, size: int, device: torch.device) -> torch.Tensor:
        sent = self._sent.get(device)
        if sent is None or sent.shape[0] < size:
            capacity = max(size, MIN_CAPACITY) if self._per_slot else 1
            with torch.inference_mode(False):
                sent = torch.zeros(capacity, dtype=torch.int64, device=device)
            self._sent[device] = sent
        return sent[:size]


def _copy_from_host(lengths: NDArray[Any], out: torch.Tensor) -> None:
    """Write draft lengths from acceptance lengths, which are overwritten."""
    lengths -= 1
    host = torch.from_numpy(lengths).to(out.dtype)
    if out.device.type == "cuda":
        # A copy of pageable memory waits for the device. A pinned block is not handed out again
        # before the copy from it is done.
        host = host.pin_memory()
    out.copy_(host, non_blocking=True)
