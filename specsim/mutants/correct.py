"""Correct samplers: one law, many sources of randomness."""

from __future__ import annotations

import random

import numpy as np
import torch

from specsim.acceptance import AcceptanceDistribution
from specsim.mutants.base import UniformSampler, check, split
from specsim.mutants.registry import Sampler, correct
from specsim.sampler import AcceptanceSampler, sample_simulated_acc_len

_POOL_SEED = 20260804
_POOL_SIZE = 65_536


@correct("python-generator", statement="A generator of its own from Python's random module.")
class PythonGenerator(UniformSampler):
    """The sampler that the mutants are changes of."""


@correct("python-global", statement="Python's global generator.")
class PythonGlobal(UniformSampler):
    """Draws from the random module."""

    def uniform(self) -> float:
        """Return the module's next number."""
        return random.random()


@correct("os-entropy", statement="The operating system's entropy, which no seed repeats.")
class OsEntropy(UniformSampler):
    """Draws from random.SystemRandom."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.random = random.SystemRandom()


@correct("numpy-global", statement="NumPy's global legacy generator.")
class NumpyGlobal(UniformSampler):
    """Draws from numpy.random."""

    def uniform(self) -> float:
        """Return the legacy generator's next number."""
        return float(np.random.random_sample())


@correct("numpy-generator", statement="A NumPy Generator of its own.")
class NumpyGenerator(UniformSampler):
    """Draws from numpy.random.default_rng."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.generator = np.random.default_rng(seed)

    def uniform(self) -> float:
        """Return the generator's next number."""
        return float(self.generator.random())


@correct("torch-global", statement="torch's global CPU generator: specsim's reference itself.")
def torch_global(seed: int | None = None) -> Sampler:
    """Return the reference; the seed is of no effect."""
    return sample_simulated_acc_len


@correct(
    "torch-float32",
    statement="torch's global CPU generator, weights and normal in float32, as engines do it.",
)
class TorchFloat32:
    """Draws an index from two float32 weights, or a float32 normal.

    Parameters
    ----------
    seed
        Of no effect.
    """

    def __init__(self, seed: int | None = None) -> None:
        del seed

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        check(acc_len, method, max_len)
        if method == "multinomial":
            noise = torch.randn(1, dtype=torch.float32, device="cpu")
            return int((acc_len + noise).clamp(1.0, float(max_len)).round())
        lower, weight = split(acc_len, max_len)
        if not weight:
            return lower
        weights = torch.tensor([1.0 - weight, weight], dtype=torch.float32, device="cpu")
        return lower + int(torch.multinomial(weights, 1))


@correct("inverse-cdf", statement="specsim's fast sampler, one for each configuration.")
class InverseCdf:
    """Keeps an AcceptanceSampler for each configuration.

    Parameters
    ----------
    seed
        Of the first one; the others count on from it.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed
        self.samplers: dict[tuple[float, str, int], AcceptanceSampler] = {}

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        check(acc_len, method, max_len)
        key = (acc_len, method, max_len)
        if key not in self.samplers:
            seed = None if self.seed is None else self.seed + len(self.samplers)
            distribution = AcceptanceDistribution.from_method(*key)
            self.samplers[key] = AcceptanceSampler(distribution, seed=seed)
        return self.samplers[key].draw()


@correct(
    "pool-of-65536",
    statement="A pool of 65,536 numbers from a constant seed, used in turn: within tolerance.",
)
class PoolOf65536(UniformSampler):
    """Draws from one and the same pool, as TensorRT-LLM does.

    Parameters
    ----------
    seed
        Where in the pool it starts; the pool's beginning if None.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.pool = np.random.default_rng(_POOL_SEED).random(_POOL_SIZE).tolist()
        self.position = (seed or 0) % _POOL_SIZE

    def uniform(self) -> float:
        """Return the pool's next number."""
        number: float = self.pool[self.position]
        self.position = (self.position + 1) % _POOL_SIZE
        return number
