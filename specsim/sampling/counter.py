"""Counter-based lengths: one step's length as a pure function of (seed, step, slot)."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import torch

from specsim.philox import WORD_MASK, philox4x32, philox4x32_array, philox4x32_tensor
from specsim.sampling.lookup import IntArray

STEP_BITS = 64
SLOT_BITS = 32

# The counter's fourth word keeps the draws of one purpose apart from those of another.
_DRAW_STREAM = 0
_OFFSET_STREAM = 1


class CounterDraws:
    """Lengths of steps and slots, from integers, arrays or tensors.

    Parameters
    ----------
    thresholds : ndarray, shape (max_len - 1,), int64
        As returned by `integer_thresholds`.
    seed
        In [0, 2⁶⁴).
    shared
        Whether all slots of a step share slot 0's length.
    stride
        None for independent steps. Else step t's word is (U + t · stride) mod 2³², with U one
        uniform word per slot; in [0, 2³²).
    """

    def __init__(
        self, thresholds: IntArray, seed: int, *, shared: bool, stride: int | None
    ) -> None:
        self._thresholds = thresholds
        self._threshold_list: list[int] = thresholds.tolist()
        self._on_device: dict[torch.device, torch.Tensor] = {}
        self._key = (seed & WORD_MASK, seed >> 32)
        self._shared = shared
        self._stride = stride

    def of_ints(self, step: int, slot: int) -> int:
        """Return the length of one step and slot, without a NumPy or torch call."""
        step, slot = _bounded(step, "step", STEP_BITS), _bounded(slot, "slots", SLOT_BITS)
        if self._shared:
            slot = 0
        low, high = step & WORD_MASK, step >> 32
        if self._stride is None:
            word = philox4x32((low, high, slot, _DRAW_STREAM), self._key)[0]
        else:
            offset = philox4x32((0, 0, slot, _OFFSET_STREAM), self._key)[0]
            word = _phase(offset, low, self._stride)
        return bisect_right(self._threshold_list, word) + 1

    def of_arrays(self, step: Any, slots: Any) -> IntArray:
        """Return the lengths of integers, arrays or sequences that broadcast; int64."""
        steps = _integer_array(step, "step", STEP_BITS)
        slot_words = _integer_array(slots, "slots", SLOT_BITS)
        shape = np.broadcast_shapes(steps.shape, slot_words.shape)
        if self._shared:
            slot_words = np.zeros((), dtype=np.int64)
        low, high = steps & WORD_MASK, (steps >> 32) & WORD_MASK
        if self._stride is None:
            word = philox4x32_array((low, high, slot_words, _DRAW_STREAM), self._key)[0]
        else:
            offset = philox4x32_array((0, 0, slot_words, _OFFSET_STREAM), self._key)[0]
            word = _phase(offset, low, self._stride)
        found = np.searchsorted(self._thresholds, word, side="right") + 1
        return np.array(np.broadcast_to(found, shape), dtype=np.int64)

    def of_tensors(self, step: Any, slots: Any) -> torch.Tensor:
        """Return the lengths of integers and tensors that broadcast, on the tensors' device."""
        step = _tensor_or_int(step, "step", STEP_BITS)
        slots = _tensor_or_int(slots, "slots", SLOT_BITS)
        tensors = [word for word in (step, slots) if isinstance(word, torch.Tensor)]
        shape = np.broadcast_shapes(*(tensor.shape for tensor in tensors))
        device = tensors[0].device
        # A 0-dim CPU tensor among CUDA ones would be accepted, and read only once, at capture.
        if tensors[-1].device != device:
            raise ValueError(
                f"step must be on the device of slots, {tensors[-1].device}, got {device}"
            )
        if self._shared:
            slots = 0
        if not isinstance(step, torch.Tensor) and not isinstance(slots, torch.Tensor):
            return torch.full(shape, self.of_ints(step, slots), dtype=torch.int64, device=device)
        low, high = step & WORD_MASK, (step >> 32) & WORD_MASK
        if self._stride is None:
            word = philox4x32_tensor((low, high, slots, _DRAW_STREAM), self._key)[0]
        else:
            counter = (0, 0, slots, _OFFSET_STREAM)
            if isinstance(slots, torch.Tensor):
                word = _phase(philox4x32_tensor(counter, self._key)[0], low, self._stride)
            else:
                word = _phase(philox4x32(counter, self._key)[0], low, self._stride)
        # bucketize warns about a tensor that is not contiguous.
        found = torch.bucketize(word.contiguous(), self._thresholds_on(device), right=True) + 1
        return found.expand(shape).contiguous()

    def _thresholds_on(self, device: torch.device) -> torch.Tensor:
        if device not in self._on_device:
            self._on_device[device] = torch.tensor(
                self._threshold_list, dtype=torch.int64, device=device
            )
        return self._on_device[device]


def _phase(offset: Any, step_low: Any, stride: int) -> Any:
    """Return (offset + step · stride) mod 2³² of ints, arrays or tensors.

    Of the step only the low word matters; the product is split so that no part leaves int64.
    """
    high_part = (step_low * (stride >> 16)) & 0xFFFF
    return (offset + step_low * (stride & 0xFFFF) + (high_part << 16)) & WORD_MASK


def _bounded(value: int, name: str, bits: int) -> int:
    number = int(value)
    if not 0 <= number < 1 << bits:
        raise ValueError(f"{name} must be in [0, 2**{bits}), got {number}")
    return number


def _integer_array(values: Any, name: str, bits: int) -> IntArray:
    """Return integers of [0, 2**bits) as int64, those from 2⁶³ on with their bits kept."""
    array = np.asarray(values)
    if array.size == 0 and not isinstance(values, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers in [0, 2**{bits}), got {array.dtype} values")
    for extreme in (array.min(), array.max()) if array.size else ():
        _bounded(extreme, name, bits)
    return array.astype(np.int64)


def _tensor_or_int(value: Any, name: str, bits: int) -> torch.Tensor | int:
    if isinstance(value, (int, np.integer)):
        return _bounded(int(value), name, bits)
    if not isinstance(value, torch.Tensor):
        kind = type(value).__name__
        raise TypeError(f"{name} must be an int or a tensor beside a tensor, got {kind}")
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise TypeError(f"{name} must hold integers, got a tensor of {value.dtype}")
    return value.to(torch.int64)
