"""Lengths that are not drawn anew: cached, repeated, or tied to earlier ones."""

from __future__ import annotations

from collections.abc import Iterator

from specsim.mutants.base import UniformSampler, split
from specsim.mutants.registry import mutant


@mutant(
    "draw-cached",
    caught_by="S.freshness",
    statement="A length is drawn once for each configuration and returned for ever.",
    source="SGLang PR 33463: drawn when the buffer was allocated, never refreshed",
)
class DrawCached(UniformSampler):
    """Keeps the first draw of each configuration."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.drawn: dict[tuple[float, str, int], int] = {}

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        key = (acc_len, method, max_len)
        if key not in self.drawn:
            self.drawn[key] = super().__call__(acc_len, method, max_len)
        return self.drawn[key]


@mutant(
    "draw-cached-coarsely",
    caught_by="S.freshness",
    statement="A draw is kept under the length's integer part and max_len, for both methods.",
    source="stands for a buffer whose key leaves part of the configuration out",
)
class DrawCachedCoarsely(UniformSampler):
    """Keeps one draw for all configurations that look alike to the key."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.drawn: dict[tuple[int, int], int] = {}

    def __call__(self, acc_len: float, method: str, max_len: int) -> int:
        """Draw one length."""
        drawn = super().__call__(acc_len, method, max_len)
        return self.drawn.setdefault((int(acc_len), max_len), drawn)


@mutant(
    "weights-cached-coarsely",
    caught_by="S.distribution",
    statement="Weights are kept under the length's integer part and max_len: right for the first "
    "configuration, wrong for later ones that share the key.",
    source="stands for a table of weights whose key leaves the fraction out",
)
class WeightsCachedCoarsely(UniformSampler):
    """Keeps the weight of the first configuration that a key stands for."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.weights: dict[tuple[int, int], float] = {}

    def match_expected(self, acc_len: float, max_len: int) -> int:
        """Use the kept weight; at the end of the range there is only one length."""
        lower, weight = split(acc_len, max_len)
        if lower == max_len:
            return lower
        kept = self.weights.setdefault((lower, max_len), weight)
        return lower + int(self.uniform() < kept)


@mutant(
    "weights-cached-by-one-decimal",
    caught_by="S.distribution",
    statement="Weights are kept under the length rounded to one decimal and max_len: right for the "
    "first configuration, off by up to 0.1 for later ones that share the key.",
    source="stands for a table of weights keyed by the length as a log prints it",
)
class WeightsCachedByOneDecimal(UniformSampler):
    """Keeps the weight of the first configuration that a key stands for."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.kept: dict[tuple[float, int], tuple[int, float]] = {}

    def match_expected(self, acc_len: float, max_len: int) -> int:
        """Use the kept weight; an integer has none to keep."""
        lower, weight = split(acc_len, max_len)
        if weight == 0.0:
            return lower
        lower, weight = self.kept.setdefault((round(acc_len, 1), max_len), (lower, weight))
        return lower + int(self.uniform() < weight)


class _Refreshed(UniformSampler):
    """Draws a new uniform number at every `period`-th call only."""

    period: int

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.calls = 0
        self.last = 0.0

    def uniform(self) -> float:
        """Return the number in use, after renewing it if it is time."""
        if self.calls % self.period == 0:
            self.last = super().uniform()
        self.calls += 1
        return self.last


@mutant(
    "refreshed-every-2nd-call",
    caught_by="S.freshness",
    statement="A new number is drawn at every second call only.",
    source="stands for a refresh skipped when nothing seems to have changed",
)
class RefreshedEvery2ndCall(_Refreshed):
    """Uses each number twice."""

    period = 2


@mutant(
    "refreshed-every-40th-call",
    caught_by="S.freshness",
    statement="A new number is drawn at every 40th call only.",
    source="SGLang logs every 40 decode steps: a refresh tied to the logging interval",
)
class RefreshedEvery40thCall(_Refreshed):
    """Uses each number forty times."""

    period = 40


@mutant(
    "frozen-after-2000-calls",
    caught_by="S.freshness",
    statement="Draws are right for 2,000 calls; after that the last number is used for ever.",
    source="stands for a graph captured after a warm-up, with the draw baked in",
)
class FrozenAfter2000Calls(UniformSampler):
    """Stops drawing after a while."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.calls = 0
        self.last = 0.0

    def uniform(self) -> float:
        """Return a new number, or the last one once there were 2,000."""
        if self.calls < 2000:
            self.last = super().uniform()
        self.calls += 1
        return self.last


class _Replayed(UniformSampler):
    """Takes its uniform numbers from an endless series."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.numbers = self.series()

    def series(self) -> Iterator[float]:
        """Yield the numbers, one a call."""
        raise NotImplementedError

    def uniform(self) -> float:
        """Return the next number of the series."""
        return next(self.numbers)


@mutant(
    "antithetic-pairs",
    caught_by="S.freshness",
    statement="Every second number is 1 − u of the one before.",
    source="stands for variance reduction where independent draws are claimed",
)
class AntitheticPairs(_Replayed):
    """Uses u, then 1 − u."""

    block = 1

    def series(self) -> Iterator[float]:
        """Yield blocks of numbers, each followed by its complements."""
        while True:
            numbers = [self.random.random() for _ in range(self.block)]
            yield from numbers
            yield from (1.0 - number for number in numbers)


@mutant(
    "antithetic-blocks-of-64",
    caught_by="S.freshness",
    statement="Every block of 64 numbers is followed by the block of their complements 1 − u.",
    source="stands for variance reduction over a batch of 64",
)
class AntitheticBlocksOf64(AntitheticPairs):
    """Uses 64 numbers, then 1 minus each of them."""

    block = 64


@mutant(
    "paired-at-lag-2",
    caught_by="S.freshness",
    statement="Numbers come in fours a, b, a, b: neighbours are independent, others are equal.",
    source="stands for two buffers used in turn, each refreshed at every second use",
)
class PairedAtLag2(_Replayed):
    """Uses two numbers twice over."""

    def series(self) -> Iterator[float]:
        """Yield pairs, each of them twice."""
        while True:
            yield from [self.random.random(), self.random.random()] * 2


@mutant(
    "pool-of-64",
    caught_by="S.freshness",
    statement="Numbers come from a pool of 64 that is drawn once and used in turn.",
    source="TensorRT-LLM draws from a fixed pool, but of 65,536 entries",
)
class PoolOf64(_Replayed):
    """Uses the same 64 numbers in turn."""

    def series(self) -> Iterator[float]:
        """Yield the pool over and over."""
        pool = [self.random.random() for _ in range(64)]
        while True:
            yield from pool


@mutant(
    "error-diffused",
    caught_by="S.freshness",
    statement="Under match-expected the fraction is accumulated and paid out when it reaches 1: "
    "the right mean, and nothing random.",
    source="stands for a schedule that hits the mean exactly",
)
class ErrorDiffused(UniformSampler):
    """Carries the fraction over from call to call."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self.owed: dict[tuple[float, int], float] = {}

    def match_expected(self, acc_len: float, max_len: int) -> int:
        """Return the longer length when a whole token is owed."""
        lower, weight = split(acc_len, max_len)
        key = (acc_len, max_len)
        owed = self.owed.get(key, 0.0) + weight
        paid = int(owed >= 1.0)
        self.owed[key] = owed - paid
        return lower + paid
