"""Speed of AcceptanceSampler, as ratios to a baseline timed side by side.

Run with ``-s`` to see the ratios as they come; they are also in each benchmark's extra_info.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.side_by_side import Ratio, ratio
from specsim.acceptance import AcceptanceDistribution
from specsim.extract import extract
from specsim.sampler import AcceptanceSampler, sample_simulated_acc_len

N = 10**6
PEER = "sglang==0.5.23/sglang/srt/speculative/spec_utils.py"
TWO = AcceptanceDistribution.match_expected(4.7, 8)
LAWS = {
    "two lengths": TWO,
    "multinomial(8.2, 16)": AcceptanceDistribution.multinomial(8.2, 16),
    "flat over 16": AcceptanceDistribution([1 / 16] * 16),
    "flat over 15": AcceptanceDistribution([1 / 15] * 15),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def engine_style(acc_len: float, method: str, max_len: int) -> int:
    """Draw as serving engines do: a tensor of two weights and one torch.multinomial."""
    assert method == "match-expected"
    length = min(max(acc_len, 1.0), float(max_len))
    floor = int(length)
    weights = torch.tensor([1.0 - (length - floor), length - floor])
    return floor + int(torch.multinomial(weights, 1).item())


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Callable[[], object]:
    """Return one call of a real engine's sampler where peers are, else of one in their style."""
    sampler: Callable[..., object] = engine_style
    peers = os.environ.get("SPECSIM_PEERS")
    source = Path(peers or ".") / PEER
    if source.exists():
        sampler = extract(source, "sample_simulated_acc_len")
    print(f"\n{request.node.name}: baseline {PEER if source.exists() else 'engine-style'}", end="")
    return lambda: sampler(4.7, "match-expected", 8)


def record(benchmark: BenchmarkFixture, name: str, measured: Ratio) -> None:
    benchmark.extra_info["ratio"] = measured.median
    benchmark.extra_info["ratio_quartiles"] = (measured.low, measured.high)
    print(f"\n{name}: {measured}")


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
