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
from numpy.random import mtrand
from numpy.typing import NDArray

_WORDS = 624
# Grows before and after specsim itself sets a state: what another thread's check or a check made by
# the target did is not the target's reseeding.
_own_changes = 0
# Generations of a Mersenne Twister that drawing is followed through: 15 million doubles.
_FARTHEST, _AT_ONCE = 50_000, 500


@dataclass(frozen=True)
class GlobalStates:
    """States of Python's, NumPy's (legacy) and, where it is loaded, torch's CPU generator.

    Attributes
    ----------
    python
        As `random.getstate` gives it.
    numpy
        As `numpy.random.get_state(legacy=False)` gives it.
    bit_generator
        The object that NumPy's global functions draw from.
    torch
        As `torch.random.get_rng_state` gives it, or None.
    own_changes
        How often specsim itself had set states.
    """

    python: Any
    numpy: dict[str, Any]
    bit_generator: Any
    torch: Any | None
    own_changes: int

    @classmethod
    def capture(cls) -> GlobalStates:
        """Return the present states."""
        torch = loaded_torch()
        return cls(
            random.getstate(),
            dict(np.random.get_state(legacy=False)),
            mtrand.get_bit_generator(),
            None if torch is None else torch.random.get_rng_state(),
            _own_changes,
        )

    def restore(self) -> None:
        """Make these the present states."""
        with _noted():
            self._restore()

    def _restore(self) -> None:
        random.setstate(self.python)
        if mtrand.get_bit_generator() is not self.bit_generator:
            mtrand.set_bit_generator(self.bit_generator)
        np.random.set_state(self.numpy)
        torch = loaded_torch()
        if torch is not None and self.torch is not None:
            torch.random.set_rng_state(self.torch)

    @property
    def twister(self) -> NDArray[np.uint32] | None:
        """The words of NumPy's generator; None if it is no Mersenne Twister."""
        if self.numpy["bit_generator"] != "MT19937":
            return None
        return np.asarray(self.numpy["state"]["key"], dtype=np.uint32)


def loaded_torch() -> Any | None:
    """Return torch if it is loaded, and not a stand-in without a generator."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Generator", None)
    real = isinstance(kind, type) and isinstance(getattr(torch, "default_generator", None), kind)
    return torch if real else None


def seed_global_generators(seed: int, *path: object) -> None:
    """Seed the global generators with a number derived from a seed and a path of names."""
    digest = hashlib.sha256(repr((seed, *path)).encode()).digest()
    number = int.from_bytes(digest[:8], "little")
    torch = loaded_torch()
    with _noted():
        random.seed(number)
        # NumPy reseeds no other bit generator than its default; another one keeps its state.
        if np.random.get_state(legacy=False)["bit_generator"] == "MT19937":
            np.random.seed(number & 0xFFFF_FFFF)
        if torch is not None:
            torch.random.default_generator.manual_seed(number >> 1)


@contextmanager
def _noted() -> Iterator[None]:
    global _own_changes
    _own_changes += 1
    try:
        yield
    finally:
        _own_changes += 1


@contextmanager
def own_generators(seed: int, *path: object) -> Iterator[None]:
    """Run a block under states derived from `seed` and `path`, then put the earlier ones back."""
    before = GlobalStates.capture()
    seed_global_generators(seed, *path)
    try:
        yield
    finally:
        before.restore()


def comparable_generators() -> list[str]:
    """Name the generators in which reseeding can be told from drawing."""
    names = ["random"]
    if GlobalStates.capture().twister is not None:
        names.append("numpy.random")
    return names if loaded_torch() is None else [*names, "torch"]


def moved(before: GlobalStates, after: GlobalStates) -> set[str]:
    """Name the generators that have another state, by drawing or by seeding."""
    names = set()
    if before.python != after.python:
        names.add("random")
    words, later = before.numpy["state"], after.numpy["state"]
    if not all(np.array_equal(words[name], later.get(name)) for name in words):
        names.add("numpy.random")
    torch = loaded_torch()
    if torch is not None and not torch.equal(
        torch.as_tensor(before.torch), torch.as_tensor(after.torch)
    ):
        names.add("torch")
    return names


def reseeded(before: GlobalStates, after: GlobalStates) -> list[str]:
    """Name the generators whose state after some calls cannot come from drawing alone.

    Drawing from a Mersenne Twister moves a position through 624 words and, at the end of them,
    makes the next 624 from these; seeding replaces all of them. So the words after the calls
    must be those before or one of their next generations.

    Parameters
    ----------
    before, after
        States around the calls, between which no more than 15 million doubles were drawn.

    Returns
    -------
    list of str
        Some of ``"random"``, ``"numpy.random"``, ``"torch"``. Another bit generator of NumPy's
        than its Mersenne Twister is not looked at, and none if specsim itself set states in
        between: in another thread, say.
    """
    if before.own_changes != after.own_changes:
        return []
    names = []
    if before.python != after.python:
        words, later = (np.array(s.python[1][:-1], dtype=np.uint32) for s in (before, after))
        if not _reachable(words, later):
            names.append("random")
    ours, theirs = before.twister, after.twister
    if ours is not None and theirs is not None and not _reachable(ours, theirs):
        names.append("numpy.random")
    torch = loaded_torch()
    if torch is not None and before.torch is not None and after.torch is not None:
        generator = torch.Generator()
        seeds = []
        for state in (before.torch, after.torch):
            generator.set_state(state)
            seeds.append(generator.initial_seed())
        if seeds[0] != seeds[1]:
            names.append("torch")
    return names


def _reachable(words: NDArray[np.uint32], later: NDArray[np.uint32]) -> bool:
    """Say whether a Mersenne Twister's words can come from others by drawing."""
    if np.array_equal(words, later):
        return True
    twister = np.random.MT19937(0)
    # Position 624 means that all words are used: the next draw makes a new generation.
    twister.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": _WORDS}}
    output = _tempered(later)
    for _ in range(0, _FARTHEST, _AT_ONCE):
        drawn = twister.random_raw(_AT_ONCE * _WORDS).reshape(_AT_ONCE, _WORDS)
        if any(
            np.array_equal(drawn[row], output) for row in np.flatnonzero(drawn[:, 0] == output[0])
        ):
            return True
    return False


def _tempered(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return what a Mersenne Twister with these words puts out (Matsumoto, Nishimura, 1998)."""
    y: NDArray[np.uint32] = words ^ (words >> np.uint32(11))
    y ^= (y << np.uint32(7)) & np.uint32(0x9D2C5680)
    y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
    y ^= y >> np.uint32(18)
    return y
