"""Philox4x32-10 against published vectors, the textbook form and Triton's implementation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specsim.philox import philox4x32, philox4x32_array, philox4x32_tensor

Words: TypeAlias = tuple[int, int, int, int]
Key: TypeAlias = tuple[int, int]

# Random123's kat_vectors for philox4x32 with 10 rounds.
KNOWN_ANSWERS: list[tuple[Words, Key, Words]] = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]

# Values at which a sign bit or a carry would show, beside the ordinary ones.
EDGES = [0, 1, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF]
word = st.sampled_from(EDGES) | st.integers(0, 0xFFFFFFFF)
counters = st.tuples(word, word, word, word)
keys = st.tuples(word, word)


def textbook(counter: Words, key: Key, rounds: int = 10) -> Words:
    """Return Philox as the paper writes it: unsigned 32 × 32 → 64-bit products."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        hi0, lo0 = divmod(0xD2511F53 * c0, 1 << 32)
        hi1, lo1 = divmod(0xCD9E8D57 * c2, 1 << 32)
        c0, c1, c2, c3 = hi1 ^ c1 ^ k0, lo1, hi0 ^ c3 ^ k1, lo0
        k0, k1 = (k0 + 0x9E3779B9) % (1 << 32), (k1 + 0xBB67AE85) % (1 << 32)
    return c0, c1, c2, c3


def by_array(counter: Words, key: Key) -> Words:
    c0, c1, c2, c3 = (np.array([value]) for value in counter)
    a, b, c, d = (int(found[0]) for found in philox4x32_array((c0, c1, c2, c3), key))
    return a, b, c, d


def by_tensor(counter: Words, key: Key) -> Words:
    c0, c1, c2, c3 = (torch.tensor([value]) for value in counter)
    a, b, c, d = (int(found) for found in philox4x32_tensor((c0, c1, c2, c3), key))
    return a, b, c, d


@pytest.mark.parametrize("philox", [philox4x32, by_array, by_tensor])
@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(
    philox: Callable[[Words, Key], Words], counter: Words, key: Key, answer: Words
) -> None:
    assert philox(counter, key) == answer


def test_known_answers_reject_nine_rounds() -> None:
    assert all(textbook(counter, key, rounds=9) != answer for counter, key, answer in KNOWN_ANSWERS)


@given(counters, keys)
def test_every_path_equals_the_textbook_form(counter: Words, key: Key) -> None:
    expected = textbook(counter, key)
    assert philox4x32(counter, key) == expected
    assert by_array(counter, key) == expected
    assert by_tensor(counter, key) == expected


@given(st.lists(word, min_size=1, max_size=5), st.lists(word, min_size=1, max_size=5), word, keys)
def test_words_broadcast(rows: list[int], columns: list[int], other: int, key: Key) -> None:
    row_array, column_array = np.array(rows)[:, None], np.array(columns)
    expected = [[textbook((other, row, column, 7), key) for column in columns] for row in rows]
    arrays = philox4x32_array((other, row_array, column_array, 7), key)
    tensors = philox4x32_tensor(
        (other, torch.from_numpy(row_array), torch.from_numpy(column_array), 7), key
    )
    assert np.stack(arrays, axis=-1).tolist() == [[list(cell) for cell in row] for row in expected]
    assert all(array.dtype == np.int64 for array in arrays)
    assert all(tensor.dtype == torch.int64 for tensor in tensors)
    for array, tensor in zip(arrays, tensors, strict=True):
        assert tensor.tolist() == array.tolist()


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_integer_dtypes_are_read_by_value(dtype: str) -> None:
    values = [0, 3, 127]
    expected = [textbook((value, 0, 0, 0), (1, 2))[0] for value in values]
    array = np.array(values, dtype=dtype)
    tensor = torch.tensor(values, dtype=getattr(torch, dtype))
    assert philox4x32_array((array, 0, 0, 0), (1, 2))[0].tolist() == expected
    assert philox4x32_tensor((tensor, 0, 0, 0), (1, 2))[0].tolist() == expected
    assert philox4x32((array[1], 0, 0, 0), (1, 2))[0] == expected[1]


@given(st.integers(-(1 << 63), (1 << 63) - 1), keys)
def test_arrays_and_tensors_are_read_modulo_2_32(value: int, key: Key) -> None:
    expected = textbook((value % (1 << 32), 0, 0, 0), key)[0]
    assert philox4x32_array((np.array([value]), 0, 0, 0), key)[0].tolist() == [expected]
    assert philox4x32_tensor((torch.tensor([value]), 0, 0, 0), key)[0].tolist() == [expected]


def test_tensors_are_never_read_on_the_host() -> None:
    # A meta tensor has no values, so any read of one raises.
    slots = torch.empty(4, dtype=torch.int64, device="meta")
    assert philox4x32_tensor((0, 0, slots, 0), (1, 2))[0].device.type == "meta"


@pytest.mark.parametrize("bad", [-1, 1 << 32])
def test_integers_out_of_range_are_refused(bad: int) -> None:
    message = rf"counter must hold words in \[0, 2\*\*32\), got {bad}"
    with pytest.raises(ValueError, match=message):
        philox4x32((0, bad, 0, 0), (0, 0))
    with pytest.raises(ValueError, match=message):
        philox4x32_array((np.zeros(1, dtype=np.int64), bad, 0, 0), (0, 0))
    with pytest.raises(ValueError, match=message):
        philox4x32_tensor((torch.zeros(1, dtype=torch.int64), bad, 0, 0), (0, 0))
    with pytest.raises(ValueError, match=rf"key must hold words in \[0, 2\*\*32\), got {bad}"):
        philox4x32((0, 0, 0, 0), (0, bad))


def test_words_that_are_no_integers_are_refused() -> None:
    with pytest.raises(TypeError, match="float"):
        philox4x32((0.0, 0, 0, 0), (0, 0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="counter must hold integers, got an array of float64"):
        philox4x32_array((np.zeros(1), 0, 0, 0), (0, 0))  # type: ignore[arg-type]
    for dtype in (torch.float32, torch.bool, torch.complex64):
        with pytest.raises(TypeError, match=f"counter must hold integers, got a tensor of {dtype}"):
            philox4x32_tensor((torch.zeros(1, dtype=dtype), 0, 0, 0), (0, 0))
    with pytest.raises(TypeError, match="at least one tensor"):
        philox4x32_tensor((0, 0, 0, 0), (0, 0))


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_equals_triton_under_its_interpreter() -> None:
    # In a process of its own: Triton reads TRITON_INTERPRET once, when it is imported.
    script = Path(__file__).with_name("triton_philox.py")
    done = subprocess.run(
        [sys.executable, str(script), "cpu"],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows
    for row in rows:
        counter, seed = tuple(row["counter"]), row["seed"]
        key = (seed & 0xFFFFFFFF, seed >> 32)
        assert tuple(row["philox"]) == philox4x32(counter, key)
        assert tuple(row["randint4x"]) == philox4x32((counter[0], 0, 0, 0), key)
