"""Philox4x32-10: random words that are a pure function of a counter and a key.

The generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
(SC 2011), with the multipliers and Weyl constants of their Random123 library. Integers, NumPy
arrays and tensors on any device go through the same arithmetic and give the same bits.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Key: TypeAlias = tuple[int, int]
_IntArray: TypeAlias = NDArray[np.int64]
_ArrayWord: TypeAlias = "int | NDArray[np.integer[Any]]"
_TensorWord: TypeAlias = "int | torch.Tensor"

ROUNDS = 10
WORD_MASK = 0xFFFF_FFFF

# The multipliers minus 2³²: a product with a 32-bit word then stays within ±2⁶², so int64 can't
# overflow; the missing 2³² · word is added to the high half afterwards.
_MULTIPLIER_0 = 0xD251_1F53 - (1 << 32)
_MULTIPLIER_1 = 0xCD9E_8D57 - (1 << 32)
_WEYL_0 = 0x9E37_79B9
_WEYL_1 = 0xBB67_AE85


def philox4x32(counter: tuple[int, int, int, int], key: Key) -> tuple[int, int, int, int]:
    """Return the four 32-bit words of one counter, computed with Python integers.

    Parameters
    ----------
    counter
        Four words in [0, 2³²).
    key
        Two words in [0, 2³²).

    Returns
    -------
    tuple of four int
        Words in [0, 2³²).

    Raises
    ------
    ValueError
        If a word is outside [0, 2³²).

    Examples
    --------
    >>> [f"{word:08x}" for word in philox4x32((0, 0, 0, 0), (0, 0))]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    words = [_integer_word("counter", word) for word in counter]
    outputs: tuple[int, int, int, int] = _rounds(words, _key_words(key))
    return outputs


def philox4x32_array(
    counter: tuple[_ArrayWord, _ArrayWord, _ArrayWord, _ArrayWord], key: Key
) -> tuple[_IntArray, _IntArray, _IntArray, _IntArray]:
    """Return the four 32-bit words of many counters, computed with NumPy arrays.

    Parameters
    ----------
    counter
        Four words, each an integer or an integer array; they broadcast. Arrays are read
        modulo 2³².
    key
        Two words in [0, 2³²).

    Returns
    -------
    tuple of four ndarray, int64
        Words in [0, 2³²), of the shape that the counter's words broadcast to.

    Raises
    ------
    TypeError
        If an array does not hold integers.
    ValueError
        If an integer is outside [0, 2³²).
    """
    words = [_array_word(word) for word in counter]
    c0, c1, c2, c3 = (np.asarray(word) for word in _rounds(words, _key_words(key)))
    return c0, c1, c2, c3


def philox4x32_tensor(
    counter: tuple[_TensorWord, _TensorWord, _TensorWord, _TensorWord], key: Key
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the four 32-bit words of many counters, computed on their tensors' device.

    Only elementwise int64 operations are used and no value is read on the host, so the call can
    be captured in a CUDA graph; integers among the words, and the key, are then frozen.

    Parameters
    ----------
    counter
        Four words, each an integer or an integer tensor, at least one of them a tensor; they
        broadcast. Tensors are read modulo 2³².
    key
        Two words in [0, 2³²).

    Returns
    -------
    tuple of four Tensor, int64
        Words in [0, 2³²), of the shape that the counter's words broadcast to.

    Raises
    ------
    TypeError
        If a tensor does not hold integers, or no word is a tensor.
    ValueError
        If an integer is outside [0, 2³²).
    """
    import torch

    if not any(isinstance(word, torch.Tensor) for word in counter):
        raise TypeError(f"counter must hold at least one tensor, got {counter!r}")
    words: list[_TensorWord] = []
    for word in counter:
        if isinstance(word, torch.Tensor):
            if word.is_floating_point() or word.is_complex() or word.dtype == torch.bool:
                raise TypeError(f"counter must hold integers, got a tensor of {word.dtype}")
            words.append(word.to(torch.int64) & WORD_MASK)
        else:
            words.append(_integer_word("counter", word))
    # Every output word depends on every counter word, so all four have become tensors.
    outputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] = _rounds(
        words, _key_words(key)
    )
    return outputs


def _rounds(counter: Sequence[Any], key: Key) -> Any:
    """Apply the ten rounds to words that support ``* & >> + ^`` with at least 64 signed bits."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        product_0 = c0 * _MULTIPLIER_0
        product_1 = c2 * _MULTIPLIER_1
        c0, c1, c2, c3 = (
            ((product_1 >> 32) + c2) ^ c1 ^ k0,
            product_1 & WORD_MASK,
            ((product_0 >> 32) + c0) ^ c3 ^ k1,
            product_0 & WORD_MASK,
        )
        k0 = (k0 + _WEYL_0) & WORD_MASK
        k1 = (k1 + _WEYL_1) & WORD_MASK
    return c0, c1, c2, c3


def _array_word(word: _ArrayWord) -> int | _IntArray:
    if not isinstance(word, np.ndarray):
        return _integer_word("counter", word)
    if word.dtype.kind not in "iu":
        raise TypeError(f"counter must hold integers, got an array of {word.dtype}")
    return word.astype(np.int64) & WORD_MASK


def _integer_word(name: str, word: SupportsIndex) -> int:
    integer = operator.index(word)
    if not 0 <= integer <= WORD_MASK:
        raise ValueError(f"{name} must hold words in [0, 2**32), got {integer}")
    return integer


def _key_words(key: Key) -> Key:
    k0, k1 = key
    return _integer_word("key", k0), _integer_word("key", k1)
