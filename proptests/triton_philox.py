"""Prints Triton's own Philox4x32-10 words as JSON, for tests to compare with.

Run as ``python triton_philox.py DEVICE``: "cuda", or "cpu" under TRITON_INTERPRET=1.
"""

# Kernels are written in Triton's language, which only looks like typed Python.
# mypy: ignore-errors

from __future__ import annotations

import json
import sys

import torch
import triton
import triton.language as tl

COUNTERS = [
    (0, 0, 0, 0),
    (1, 0, 2, 0),
    (0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 1),
    (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
    (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
]
SEEDS = [0, 1, 0xFFFFFFFF, 1 << 32, 0x299F31D0A4093822, (1 << 63) + 5, (1 << 64) - 1]


@triton.jit
def words_kernel(counter_ptr, seed_ptr, philox_ptr, randint_ptr):
    """Write the words of the counter in `counter_ptr`, and of (its first word, 0, 0, 0)."""
    seed = tl.load(seed_ptr).to(tl.uint64, bitcast=True)
    c0 = tl.load(counter_ptr).to(tl.uint32)
    c1 = tl.load(counter_ptr + 1).to(tl.uint32)
    c2 = tl.load(counter_ptr + 2).to(tl.uint32)
    c3 = tl.load(counter_ptr + 3).to(tl.uint32)
    a, b, c, d = tl.philox(seed, c0, c1, c2, c3)
    tl.store(philox_ptr, a.to(tl.int64))
    tl.store(philox_ptr + 1, b.to(tl.int64))
    tl.store(philox_ptr + 2, c.to(tl.int64))
    tl.store(philox_ptr + 3, d.to(tl.int64))
    a, b, c, d = tl.randint4x(seed, c0)
    tl.store(randint_ptr, a.to(tl.int64))
    tl.store(randint_ptr + 1, b.to(tl.int64))
    tl.store(randint_ptr + 2, c.to(tl.int64))
    tl.store(randint_ptr + 3, d.to(tl.int64))


def main() -> None:
    """Print one object a counter and seed: counter, seed, philox, randint4x."""
    device = sys.argv[1]
    rows = []
    for counter in COUNTERS:
        for seed in SEEDS:
            signed = seed - (1 << 64) if seed >= 1 << 63 else seed
            philox, randint = torch.zeros(2, 4, dtype=torch.int64, device=device)
            words_kernel[(1,)](
                torch.tensor(counter, dtype=torch.int64, device=device),
                torch.tensor([signed], dtype=torch.int64, device=device),
                philox,
                randint,
            )
            rows.append(
                {
                    "counter": counter,
                    "seed": seed,
                    "philox": [word & 0xFFFFFFFF for word in philox.tolist()],
                    "randint4x": [word & 0xFFFFFFFF for word in randint.tolist()],
                }
            )
    sys.stdout.write(json.dumps(rows))


if __name__ == "__main__":
    main()
