"""Draws forced lengths into a tensor in place, on the host or on the tensor's device."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch

from specsim.sampler import AcceptanceSampler

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
        ``"host"``: with the sampler's stream. ``"device"``: with `AcceptanceSampler.at` and a
        step counter, on the device of the tensor that is written.
    """

    def __init__(self, sampler: AcceptanceSampler, refresh: Refresh) -> None:
        self._sampler = sampler
        self._draw = sampler.draw
        self._on_device = refresh == "device"
        self._per_slot = sampler.coupling == "slot"
        self._counters: dict[torch.device, torch.Tensor] = {}
        self._slots: dict[torch.device, torch.Tensor] = {}

    def write(self, out: torch.Tensor) -> None:
        """Draw, and write draft lengths, one less than acceptance lengths, into all of `out`.

        Parameters
        ----------
        out : Tensor, shape (bs,), integer
        """
        if self._on_device:
            counter = self.step_counter(out.device)
            slots = self._slot_numbers(out.shape[0], out.device) if self._per_slot else 0
            out.copy_(self._sampler.at(counter, slots) - 1)
            counter.add_(1)
        elif self._per_slot:
            drawn = self._sampler.draws(out.shape[0])
            drawn -= 1
            host = torch.from_numpy(drawn).to(out.dtype)
            if out.device.type == "cuda":
                # A copy of pageable memory waits for the device. A pinned block is not handed
                # out again before the copy from it is done.
                host = host.pin_memory()
            out.copy_(host, non_blocking=True)
        else:
            out.fill_(self._draw() - 1)

    def step_counter(self, device: Device) -> torch.Tensor:
        """Return the counter of the draws made on a device; see `TargetVerifyExecutor`."""
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
