"""The global random generators: states that specsim sets, and reseeding by a target.

Hypothesis reseeds `random` and `numpy.random` before every example, so a draw made under its
seeds would be the same in every run. Draws are therefore made under states of specsim's own,
derived from the run's seed, and whatever was there before is put back.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class GlobalStates:
    """States of Python's, NumPy's (legacy) and, where it is loaded, torch's CPU generator."""

    python: Any
    numpy: Any
    torch: Any | None

    @classmethod
    def capture(cls) -> GlobalStates:
        """Return the present states."""
        torch = sys.modules.get("torch")
        return cls(
            random.getstate(),
            np.random.get_state(legacy=True),
            None if torch is None else torch.random.get_rng_state(),
        )

    def restore(self) -> None:
        """Make these the present states."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch = sys.modules.get("torch")
        if torch is not None and self.torch is not None:
            torch.random.set_rng_state(self.torch)


def seed_global_generators(seed: int, *path: object) -> None:
    """Seed the global generators with a number derived from a seed and a path of names."""
    digest = hashlib.sha256(repr((seed, *path)).encode()).digest()
    number = int.from_bytes(digest[:8], "little")
    random.seed(number)
    np.random.seed(number & 0xFFFF_FFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.random.default_generator.manual_seed(number >> 1)


@contextmanager
def own_generators(seed: int, *path: object) -> Iterator[None]:
    """Run a block under states derived from `seed` and `path`, then put the earlier ones back."""
    before = GlobalStates.capture()
    seed_global_generators(seed, *path)
    try:
        yield
    finally:
        before.restore()


def reseeded(before: GlobalStates, after: GlobalStates) -> list[str]:
    """Name the generators whose state after some calls cannot come from drawing alone.

    Drawing from a Mersenne Twister moves a position through 624 words and, at the end of them,
    makes the next 624 from these; seeding replaces all of them. So the words after the calls
    must be those before or one of their next generations.

    Parameters
    ----------
    before, after
        States around the calls.

    Returns
    -------
    list of str
        Some of ``"random"``, ``"numpy.random"``, ``"torch"``.
    """
    names = []
    if not _reachable(before.python[1][:-1], after.python[1][:-1]):
        names.append("random")
    if not _reachable(tuple(before.numpy[1].tolist()), tuple(after.numpy[1].tolist())):
        names.append("numpy.random")
    torch = sys.modules.get("torch")
    if torch is not None and before.torch is not None and after.torch is not None:
        generator = torch.Generator()
        seeds = []
        for state in (before.torch, after.torch):
            generator.set_state(state)
            seeds.append(generator.initial_seed())
        if seeds[0] != seeds[1]:
            names.append("torch")
    return names


def _reachable(words: tuple[int, ...], later: tuple[int, ...], generations: int = 1_000) -> bool:
    """Say whether a Mersenne Twister's words can come from others by drawing."""
    twister = random.Random()
    for _ in range(generations):
        if words == later:
            return True
        # Position 624 means that all words are used: the next draw makes a new generation.
        twister.setstate((3, (*words, 624), None))
        twister.getrandbits(32)
        words = twister.getstate()[1][:-1]
    return words == later
