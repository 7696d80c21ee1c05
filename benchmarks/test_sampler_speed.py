"""Speed of AcceptanceSampler, as ratios to a baseline timed side by side.

Run with ``-s`` to see the ratios as they come; they are also in each benchmark's extra_info.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.side_by_side import ratio, record
from specsim.acceptance import AcceptanceDistribution
from specsim.sampler import AcceptanceSampler, sample_simulated_acc_len

N = 10**6
TWO = AcceptanceDistribution.match_expected(4.7, 8)
LAWS = {
    "two lengths": TWO,
    "multinomial(8.2, 16)": AcceptanceDistribution.multinomial(8.2, 16),
    "flat over 16": AcceptanceDistribution([1 / 16] * 16),
    "flat over 15": AcceptanceDistribution([1 / 15] * 15),
}


def test_draw_against_an_engine(benchmark: BenchmarkFixture, engine: Callable[[], object]) -> None:
    sampler = AcceptanceSampler(TWO, seed=0)
    measured = ratio(sampler.draw, engine)
    record(benchmark, f"draw() (1/{1 / measured.median:.0f})", measured)
    benchmark(sampler.draw)


@pytest.mark.parametrize("name", LAWS)
def test_draws_against_numpy_uniforms(benchmark: BenchmarkFixture, name: str) -> None:
    sampler = AcceptanceSampler(LAWS[name], seed=0)
    uniform = np.random.default_rng(0)
    measured = ratio(lambda: sampler.draws(N), lambda: uniform.random(N))
    record(benchmark, f"draws({N}), {name}", measured)
    benchmark(sampler.draws, N)


def test_systematic_draws_against_numpy_uniforms(benchmark: BenchmarkFixture) -> None:
    sampler = AcceptanceSampler(TWO, seed=0, method="systematic")
    uniform = np.random.default_rng(0)
    record(
        benchmark,
        f"draws({N}), systematic",
        ratio(lambda: sampler.draws(N), lambda: uniform.random(N)),
    )
    benchmark(sampler.draws, N)


def test_draws_against_searchsorted(benchmark: BenchmarkFixture) -> None:
    sampler = AcceptanceSampler(LAWS["multinomial(8.2, 16)"], seed=0)
    cdf = np.cumsum(sampler.distribution.pmf)[:-1]
    uniform = np.random.default_rng(0)
    record(
        benchmark,
        f"draws({N}) against searchsorted of uniforms, sixteen lengths",
        ratio(lambda: sampler.draws(N), lambda: np.searchsorted(cdf, uniform.random(N)) + 1),
    )
    benchmark(sampler.draws, N)


@pytest.mark.parametrize("method", ["independent", "systematic"])
def test_scalar_at_against_an_engine(
    benchmark: BenchmarkFixture, engine: Callable[[], object], method: str
) -> None:
    sampler = AcceptanceSampler(
        TWO, seed=0, method="systematic" if method == "systematic" else "independent"
    )
    record(benchmark, f"at(step, slot), {method}", ratio(lambda: sampler.at(12_345, 3), engine))
    benchmark(sampler.at, 12_345, 3)


def test_batch_at_against_scalar_at(benchmark: BenchmarkFixture) -> None:
    sampler = AcceptanceSampler(TWO, seed=0)
    slots = torch.arange(512)
    record(
        benchmark,
        "at(step, 512 slots as a tensor) against one at(step, slot)",
        ratio(lambda: sampler.at(12_345, slots), lambda: sampler.at(12_345, 3)),
    )
    benchmark(sampler.at, 12_345, slots)


def test_reference_against_an_engine(
    benchmark: BenchmarkFixture, engine: Callable[[], object]
) -> None:
    record(
        benchmark,
        "sample_simulated_acc_len(4.7, 'match-expected', 8)",
        ratio(lambda: sample_simulated_acc_len(4.7, "match-expected", 8), engine),
    )
    benchmark(sample_simulated_acc_len, 4.7, "match-expected", 8)
