"""Speed of the sequential test, as ratios to a baseline timed side by side.

Run with ``-s`` to see the ratios as they come; they are also in each benchmark's extra_info.
"""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.side_by_side import Ratio, ratio
from specsim.acceptance import AcceptanceDistribution
from specsim.evidence.dependence_power import detectable_dependence
from specsim.evidence.law import IntArray
from specsim.evidence.sequential import SequentialTest

LAWS = {
    "two lengths": AcceptanceDistribution.match_expected(4.7, 8),
    "multinomial(8.2, 16)": AcceptanceDistribution.multinomial(8.2, 16),
    "flat over 16": AcceptanceDistribution([1 / 16] * 16),
}
DRAWS = 10**7


def lengths_from(law: AcceptanceDistribution, draws: int) -> IntArray:
    rng = np.random.default_rng(0)
    return rng.choice(np.arange(1, law.max_len + 1), size=draws, p=law.pmf)


def record(benchmark: BenchmarkFixture, name: str, measured: Ratio) -> None:
    benchmark.extra_info["ratio"] = measured.median
    benchmark.extra_info["ratio_quartiles"] = (measured.low, measured.high)
    print(f"\n{name}: {measured}")


@pytest.mark.parametrize("name", LAWS)
def test_one_large_update_against_a_bincount(benchmark: BenchmarkFixture, name: str) -> None:
    lengths = lengths_from(LAWS[name], DRAWS)

    def update() -> None:
        SequentialTest(LAWS[name], 1e-6).update(lengths)

    measured = ratio(update, lambda: np.bincount(lengths), rounds=15)
    record(benchmark, f"update with 10⁷ draws, {name}", measured)
    benchmark(update)


@pytest.mark.parametrize("block", [1, 1_000])
@pytest.mark.parametrize("name", LAWS)
def test_small_updates(benchmark: BenchmarkFixture, name: str, block: int) -> None:
    test = SequentialTest(LAWS[name], 1e-6)
    lengths = lengths_from(LAWS[name], block)
    benchmark(test.update, lengths)


@pytest.mark.parametrize("name", LAWS)
def test_claims_on_dependence(benchmark: BenchmarkFixture, name: str) -> None:
    benchmark(detectable_dependence, LAWS[name], 20_000, 1e-8)
