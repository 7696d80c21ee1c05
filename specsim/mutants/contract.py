"""Right lengths in a wrong form, refused without reason, or at the cost of global state."""

from __future__ import annotations

import random

import numpy as np
import torch

from specsim.mutants.base import UniformSampler, split
from specsim.mutants.registry import mutant


class _Wrapped:
    """Holds a correct sampler, and gives its lengths in another form."""

    def __init__(self, seed: int | None = None) -> None:
        self.correct = UniformSampler(seed)


@mutant(
    "returns-tensor",
    caught_by="S.type",
    statement="The length is a torch tensor without dimensions.",
    source="stands for a forgotten .item()",
)
class ReturnsTensor(_Wrapped):
    """Wraps the length."""

    def __call__(self, acc_len: float, method: str, max_len: int) -> torch.Tensor:
        """Draw one length."""
        return torch.tensor(self.correct(acc_len, method, max_len), dtype=torch.int64, device="cpu")


@mutant(
    "returns-float",
    caught_by="S.type",
    statement="The length is a float.",
    source="stands for a forgotten int()",
)
class ReturnsFloat(_Wrapped):
    """Converts the length."""

    def __call__(self, acc_len: float, method: str, max_len: int) -> float:
        """Draw one length."""
        return float(self.correct(acc_len, method, max_len))


@mutant(
    "returns-bool",
    caught_by="S.type",
    statement="The length 1 is returned as True.",
    source="stands for a length computed as a sum of comparisons, with one of them",
)
class ReturnsBool(_Wrapped):
    """Is an int in all but one case."""

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        length = self.correct(acc_len, method, max_len)
        return length == 1 or length


@mutant(
    "unknown-method-accepted",
    caught_by="S.method",
    statement="Any name but multinomial gives match-expected.",
    source="SGLang: a misspelt method must not silently give another law",
)
class UnknownMethodAccepted(_Wrapped):
    """Refuses nothing."""

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        known = method if method == "multinomial" else "match-expected"
        return self.correct(acc_len, known, max_len)


@mutant(
    "near-miss-method-accepted",
    caught_by="S.method",
    statement="Underscores are read as hyphens, so a name that is no method gives a law.",
    source="stands for names that are normalised before they are compared",
)
class NearMissMethodAccepted(_Wrapped):
    """Refuses only what is unlike a method."""

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        return self.correct(acc_len, method.replace("_", "-"), max_len)


@mutant(
    "raises-at-max-len-1",
    caught_by="S.returns",
    statement="With max_len = 1 it divides by the number of drafts, which is 0.",
    source="ATOM's rate is (length − 1) / drafts",
)
class RaisesAtMaxLen1(UniformSampler):
    """Goes through the mean rate of acceptance per draft."""

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        drafts = max_len - 1
        rate = (acc_len - 1.0) / drafts
        # Exact enough: the product is within two units in the last place of the length.
        length = round(1.0 + rate * drafts, 12)
        return super().__call__(length, method, max_len)


@mutant(
    "raises-at-the-upper-end",
    caught_by="S.returns",
    statement="Under match-expected with acc_len ≥ max_len a table is read past its end.",
    source="stands for an index that is right everywhere but at the end",
)
class RaisesAtTheUpperEnd(UniformSampler):
    """Fills a table of max_len weights."""

    def match_expected(self, acc_len: float, max_len: int) -> int:
        """Draw from the table."""
        lower, weight = split(acc_len, max_len)
        table = [0.0] * max_len
        table[lower - 1] = 1.0 - weight
        table[lower] = weight
        return lower + int(self.uniform() < table[lower])


@mutant(
    "reseeds-random",
    caught_by="S.generators",
    statement="Python's global generator is seeded with a constant at every call.",
    source="stands for a seed meant to keep ranks together",
)
class ReseedsRandom(UniformSampler):
    """Draws from a generator of its own, and seeds the global one."""

    def uniform(self) -> float:
        """Seed, then draw."""
        random.seed(42)
        return super().uniform()


@mutant(
    "reseeds-numpy",
    caught_by="S.generators",
    statement="NumPy's global generator is seeded with a constant at every call.",
    source="stands for a seed meant to keep ranks together",
)
class ReseedsNumpy(UniformSampler):
    """Draws from a generator of its own, and seeds the global one."""

    def uniform(self) -> float:
        """Seed, then draw."""
        np.random.seed(42)
        return super().uniform()


@mutant(
    "reseeds-torch",
    caught_by="S.generators",
    statement="torch's global generator is seeded with a constant at every call.",
    source="stands for a seed meant to keep ranks together",
)
class ReseedsTorch(UniformSampler):
    """Draws from a generator of its own, and seeds the global one."""

    def uniform(self) -> float:
        """Seed, then draw."""
        # torch.manual_seed does this, and also queues a call for CUDA each time.
        torch.default_generator.manual_seed(42)
        return super().uniform()


@mutant(
    "reseeds-random-every-50th-call",
    caught_by="S.generators",
    statement="Python's global generator is seeded with a constant at every 50th call.",
    source="stands for a seed meant to keep ranks together, renewed now and then",
)
class ReseedsRandomEvery50thCall(UniformSampler):
    """Draws from a generator of its own, and seeds the global one now and then."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.calls = 0

    def uniform(self) -> float:
        """Seed at every 50th call, then draw."""
        self.calls += 1
        if self.calls % 50 == 0:
            random.seed(42)
        return super().uniform()


@mutant(
    "reseeds-numpy-above-8",
    caught_by="S.generators",
    statement="NumPy's global generator is seeded with a constant where max_len is above 8.",
    source="stands for a path of its own for long drafts",
)
class ReseedsNumpyAbove8(UniformSampler):
    """Draws from a generator of its own, and seeds the global one for long drafts."""

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Seed, then draw."""
        if max_len > 8:
            np.random.seed(42)
        return super().__call__(acc_len, method, max_len)


@mutant(
    "reseeds-random-from-entropy",
    caught_by="S.generators",
    statement="Python's global generator is seeded from the operating system at every call.",
    source="stands for a draw made fresh at the cost of everybody's reproducibility",
)
class ReseedsRandomFromEntropy(UniformSampler):
    """Draws from the global generator after seeding it."""

    def uniform(self) -> float:
        """Seed, then draw."""
        random.seed()
        return random.random()


@mutant(
    "reseeds-numpy-from-entropy",
    caught_by="S.generators",
    statement="NumPy's global generator is seeded from the operating system at every call.",
    source="stands for a draw made fresh at the cost of everybody's reproducibility",
)
class ReseedsNumpyFromEntropy(UniformSampler):
    """Draws from the global generator after seeding it."""

    def uniform(self) -> float:
        """Seed, then draw."""
        np.random.seed()
        return float(np.random.random())


@mutant(
    "reseeds-torch-from-entropy",
    caught_by="S.generators",
    statement="torch's global generator is seeded from the operating system at every call.",
    source="stands for a draw made fresh at the cost of everybody's reproducibility",
)
class ReseedsTorchFromEntropy(UniformSampler):
    """Draws from the global generator after seeding it."""

    def uniform(self) -> float:
        """Seed, then draw."""
        torch.default_generator.seed()
        return float(torch.rand((), dtype=torch.float64, device="cpu"))
